/*
 * The cache of the LiteRT delegate, and the compiler that fills it.
 *
 * An entry is named by a hash of all that decides the program: the bytes of the model, the target, the shapes and constants that
 * the interpreter has, and the release of npuc. It is two files: KEY.npu, the program, and KEY.txt, what runs where. Both are
 * made under other names and renamed, the report last; a process that is killed leaves no entry. An entry whose checksums do
 * not match is made again. Where there is no folder to write to, the program is made in a temporary one, which is then removed.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE

#include "litert_program.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npuc/npuc.h"
#include "sha256.h"

extern char **environ;

enum { PATH_BYTES = 4096, SHOWN = 2000 };

void litert_add(litert_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length >= 0 && !text->failed) {
        if (text->size + (size_t)length + 1 > text->room) {
            const size_t room = 2 * (text->size + (size_t)length + 1);
            char *data = realloc(text->data, room);
            if (data) {
                text->data = data;
                text->room = room;
            } else {
                text->failed = 1;
            }
        }
        if (!text->failed) {
            vsnprintf(text->data + text->size, text->room - text->size, format, again);
            text->size += (size_t)length;
        }
    }
    va_end(again);
}

void litert_digest(const void *bytes, size_t size, char digits[17])
{
    uint8_t digest[32];
    npuc_sha256(bytes, size, digest);
    for (int i = 0; i < 8; ++i) snprintf(digits + 2 * i, 3, "%02x", digest[i]);
}

void litert_write(const char *where, const char *text)
{
    if (where && !strcmp(where, "off")) return;
    FILE *file = where && strcmp(where, "log") ? fopen(where, "a") : NULL;
    fputs(text, file ? file : stderr);
    if (file) fclose(file);
}

void litert_say(const litert_options *options, const char *format, ...)
{
    char line[SHOWN + 256];
    va_list arguments;
    va_start(arguments, format);
    const int prefix = snprintf(line, sizeof(line), "npuc: ");
    vsnprintf(line + prefix, sizeof(line) - (size_t)prefix - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    litert_write(options->report, line);
}

/* Add what decides the content of a file to a text: its SHA-256. Returns whether it could be read. */
static int add_digest(litert_text *text, const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0) return 0;
    int done = 0;
    if (!fstat(file, &facts) && S_ISREG(facts.st_mode)) {
        const size_t size = (size_t)facts.st_size;
        void *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
        if (bytes != MAP_FAILED) {
            uint8_t digest[32];
            npuc_sha256(size ? bytes : (const void *)"", size, digest);
            for (int i = 0; i < 32; ++i) litert_add(text, "%02x", digest[i]);
            if (size) munmap(bytes, size);
            done = 1;
        }
    }
    close(file);
    return done;
}

/* Make a folder and those above it. */
static int make_folder(const char *path)
{
    char part[PATH_BYTES];
    const size_t length = strlen(path);
    if (!length || length >= sizeof(part)) return 0;
    for (size_t i = 1; i <= length; ++i) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST) return 0;
    }
    return !access(path, W_OK | X_OK);
}

/* The folder of the cache; 0 if there is none that can be written to, with the reason. */
static int cache_folder(const litert_options *options, char folder[PATH_BYTES], const char **why)
{
    const char *variable = getenv("NPUC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (options->cache_dir) {
        length = snprintf(folder, PATH_BYTES, "%s", options->cache_dir);
    } else if (variable && *variable) {
        if (!strcmp(variable, "off")) return *why = "NPUC_CACHE is off", 0;
        length = snprintf(folder, PATH_BYTES, "%s/litert", variable);
    } else if (xdg && *xdg == '/') {
        length = snprintf(folder, PATH_BYTES, "%s/npuc/litert", xdg);
    } else if (home && *home) {
        length = snprintf(folder, PATH_BYTES, "%s/.cache/npuc/litert", home);
    } else {
        return *why = "there is no home folder", 0;
    }
    if (length >= PATH_BYTES - 128) return *why = "the path of the cache is too long", 0;
    if (make_folder(folder)) return 1;
    *why = strerror(errno);
    return 0;
}

/* The files of an entry. */
typedef struct entry {
    char program[PATH_BYTES], report[PATH_BYTES];
} entry;

static void name_entry(entry *e, const char *folder, const char *before, const char *key)
{
    snprintf(e->program, sizeof(e->program), "%s/%s%s.npu", folder, before, key);
    snprintf(e->report, sizeof(e->report), "%s/%s%s.txt", folder, before, key);
}

/* All of a short file, with a zero behind it; NULL if it cannot be read. */
static char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    litert_text text = {0};
    char part[4097];
    size_t got;
    while ((got = fread(part, 1, sizeof(part) - 1, file)) > 0 && text.size < (1 << 20)) {
        part[got] = 0;
        litert_add(&text, "%s", part);
    }
    fclose(file);
    litert_add(&text, "%s", "");
    return text.data;
}

/* What the report of an entry says: the number of pieces, and the rest for the log. -1: it is not there or not whole. */
static int read_report(const litert_options *options, const char *path, int say)
{
    char *text = contents(path);
    int pieces = -1;
    if (text && sscanf(text, "pieces %d", &pieces) == 1 && say) {
        char *next = strchr(text, '\n');
        while (next && *++next) {
            char *end = strchr(next, '\n');
            if (end) *end = 0;
            litert_say(options, "%s", next);
            next = end;
        }
    }
    free(text);
    return pieces;
}

/* The program of an entry. 0: here it is, or `pieces` is 0; 1: there is no entry; 2: it is damaged, and npu_error() says how. */
static int load(const litert_options *options, const entry *e, npu_model **program)
{
    *program = NULL;
    const int pieces = read_report(options, e->report, 0);
    if (pieces == 0) return 0;
    if (access(e->program, F_OK) || pieces < 0) return 1;
    if (npu_load(e->program, program)) return 2;
    if (npu_check_weights(*program)) {
        npu_free(*program);
        *program = NULL;
        return 2;
    }
    return 0;
}

/* Run the compiler; what it writes to stderr comes back, its beginning at least. Returns its status, -1 if it did not run. */
static int compile(char *const *arguments, litert_text *said)
{
    int ends[2];
    if (pipe(ends)) return -1;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    pid_t child;
    const int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    int status = -1;
    if (failed) {
        litert_add(said, "%s", strerror(failed));
    } else {
        char part[1025];
        ssize_t got;
        while ((got = read(ends[0], part, sizeof(part) - 1)) > 0 || (got < 0 && errno == EINTR)) {
            if (got < 0 || said->size > SHOWN) continue;
            part[got] = 0;
            litert_add(said, "%s", part);
        }
        pid_t ended;
        while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
        /* A program that ignores SIGCHLD gets no status; what was written then tells how it went. */
        status = ended < 0 ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        while (said->size && said->data[said->size - 1] == '\n') said->data[--said->size] = 0;
    }
    close(ends[0]);
    return status;
}

/* Make an entry in a folder, under a name of its own first. 0, or 1 with the reason. */
static int make(const litert_options *options, const litert_text *listing, const char *folder, const char *key,
                const entry *to, litert_text *error)
{
    char before[64], tensors[PATH_BYTES];
    static _Thread_local unsigned number;
    snprintf(before, sizeof(before), ".%ld-%p-%u-", (long)getpid(), (void *)&number, number);
    ++number;
    entry made;
    name_entry(&made, folder, before, key);
    const int length = snprintf(tensors, sizeof(tensors), "%s/%s%s.tensors", folder, before, key);
    if (length < 0 || (size_t)length >= sizeof(tensors)) {
        litert_add(error, "the path of the folder %s is too long", folder);
        return 1;
    }
    FILE *file = fopen(tensors, "wb");
    const int written = file && fwrite(listing->data, 1, listing->size, file) == listing->size;
    if (!file || fclose(file) || !written) {
        litert_add(error, "%s cannot be written: %s", tensors, strerror(errno));
        if (file) unlink(tensors);
        return 1;
    }
    const char *variable = getenv("NPUC_COMMAND");
    const char *command = options->compiler ? options->compiler : variable && *variable ? variable : "npuc";
    const char *arguments[] = {command,          "export",  "litert",        options->model, "--output", made.program, "--report",
                               made.report, "--tensors", tensors, "--target", options->target, "--quiet",  NULL};
    litert_text said = {0};
    const int status = compile((char *const *)(uintptr_t)arguments, &said);
    unlink(tensors);
    const int pieces = read_report(options, made.report, 1);
    int failed = 0;
    if (pieces > 0 && !status) {
        failed = rename(made.program, to->program) || rename(made.report, to->report);
        if (failed) litert_add(error, "%s cannot be written: %s", to->program, strerror(errno));
    } else if (pieces == 0) {
        unlink(to->program);
        failed = rename(made.report, to->report);
        if (failed) litert_add(error, "%s cannot be written: %s", to->report, strerror(errno));
    } else {
        failed = 1;
        if (status < 0) {
            litert_add(error, "the compiler '%s' cannot be run (%s): install npuc, or state its path with the option 'compiler'", command,
                       said.data ? said.data : "");
        } else {
            litert_add(error, "'%s export litert %s' failed: %s", command, options->model, said.data ? said.data : "");
        }
    }
    if (failed) {
        unlink(made.program);
        unlink(made.report);
    }
    free(said.data);
    return failed;
}

int litert_obtain(const litert_options *options, const litert_text *listing, npu_model **program, litert_text *error)
{
    *program = NULL;
    litert_text facts = {0};
    litert_add(&facts, "litert 1\n%s\n%s\n", npuc_version(), options->target);
    add_digest(&facts, options->target);
    litert_add(&facts, "\n");
    if (!add_digest(&facts, options->model)) {
        litert_add(error, "%s cannot be read: %s", options->model, strerror(errno));
        free(facts.data);
        return 1;
    }
    litert_add(&facts, "\n%s", listing->data ? listing->data : "");
    if (facts.failed || listing->failed || !listing->data) {
        litert_add(error, "there is no memory");
        free(facts.data);
        return 1;
    }
    uint8_t digest[32];
    char key[65];
    npuc_sha256((const uint8_t *)facts.data, facts.size, digest);
    for (int i = 0; i < 32; ++i) snprintf(key + 2 * i, 3, "%02x", digest[i]);
    free(facts.data);

    char folder[PATH_BYTES];
    const char *why = "";
    const int kept = cache_folder(options, folder, &why);
    if (!kept) {
        const char *temporary = getenv("TMPDIR");
        snprintf(folder, sizeof(folder), "%.3900s/npuc-XXXXXX", temporary && *temporary ? temporary : "/tmp");
        if (!mkdtemp(folder)) {
            litert_add(error, "neither the cache (%s) nor %s can be written to", why, folder);
            return 1;
        }
        litert_say(options, "the program is not kept for the next start: %s", why);
    }
    entry e;
    name_entry(&e, folder, "", key);
    int state = load(options, &e, program);
    if (state == 2) {
        litert_say(options, "the cache entry is damaged and is made again: %s", npu_error());
    } else if (!state) {
        read_report(options, e.report, 1);
    }
    if (state) {
        state = make(options, listing, folder, key, &e, error);
        if (!state && load(options, &e, program)) {
            litert_add(error, "the program that was made is refused: %s", npu_error());
            state = 1;
        }
    }
    if (!kept) {
        unlink(e.program);
        unlink(e.report);
        rmdir(folder);
    }
    return state;
}
