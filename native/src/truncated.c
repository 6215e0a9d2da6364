/*
 * A mapped file that becomes shorter: whoever looks at a page behind its new end gets SIGBUS, and the process would end
 * with a core dump. A program that installs this ends with a sentence and a status in its place.
 *
 * The handler calls what POSIX allows a handler to call, and nothing else.
 */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "npuc/npuc.h"

enum { LINE = 4608 };

static volatile sig_atomic_t leave_with;

static void say(const char *text, size_t size)
{
    while (size) {
        const ssize_t written = write(STDERR_FILENO, text, size);
        if (written <= 0) return;
        text += written;
        size -= (size_t)written;
    }
}

static uintptr_t hexadecimal(const char **at)
{
    uintptr_t value = 0;
    for (;; ++*at) {
        const char c = **at;
        if (c >= '0' && c <= '9') {
            value = value * 16 + (uintptr_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (uintptr_t)(c - 'a') + 10;
        } else {
            return value;
        }
    }
}

/* The path in a line of /proc/self/maps, `7f00-7f10 r--p 0000 fe:00 42   /path`; NULL if the address is not in it. */
static const char *path_in(const char *line, uintptr_t address)
{
    const char *at = line;
    const uintptr_t first = hexadecimal(&at);
    if (*at++ != '-' || address < first || address >= hexadecimal(&at)) return NULL;
    const char *path = strchr(at, '/');
    return path ? path : "";
}

/* The file that is mapped at an address; "" if no file is, NULL if the system does not tell. */
static const char *file_at(uintptr_t address)
{
    static char line[LINE + 1];
    char chunk[1024];
    size_t length = 0;
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) return NULL;
    const char *path = NULL;
    for (ssize_t got; !path && (got = read(maps, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < got && !path; ++i) {
            if (chunk[i] != '\n') {
                if (length < LINE) line[length++] = chunk[i];
                continue;
            }
            line[length] = 0;
            length = 0;
            path = path_in(line, address);
        }
    }
    close(maps);
    return path;
}

static void report(int number, siginfo_t *about, void *context)
{
    static const char head[] = "error[E102]: ", unknown[] = "a file that is being read",
                      words[] = ": became shorter while it was read, or cannot be read to its end. "
                                "Run the command again when nothing writes to the file.\n";
    (void)context;
    const char *path = about->si_code == BUS_ADRERR ? file_at((uintptr_t)about->si_addr) : "";
    if (path && !*path) {
        /* Something else: the access is made again, and ends the process as usual. */
        signal(number, SIG_DFL);
        return;
    }
    if (!path) path = unknown;
    say(head, sizeof head - 1);
    say(path, strlen(path));
    say(words, sizeof words - 1);
    _exit(leave_with);
}

int npuc_report_truncation(int status)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    leave_with = status;
    return sigaction(SIGBUS, &action, NULL);
}
