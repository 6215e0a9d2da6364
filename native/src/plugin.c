/*
 * Plugins in C and C++ where there is a system: libraries are loaded, and a crash of an operator is explained. plugin_ops.c checks
 * records and calls operators.
 *
 * A crash cannot be undone in the process that it happens in, but it does not go unexplained: while an operator runs, a handler of
 * fatal signals knows its name and says it before the handler that was there before (or the system) ends the process. The same for
 * exit().
 */
#define _XOPEN_SOURCE 700

#include "npu_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu_model.h"
#include "plugin_ops.h"

enum { MOST_PLUGINS = 64 };

typedef struct loaded {
    const npu_plugin *plugin;
    char *path; /* NULL: linked in */
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded plugins[MOST_PLUGINS];
static int count;

/* ---- crashes ---- */

static const int FATAL[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { FATAL_COUNT = sizeof(FATAL) / sizeof(FATAL[0]) };
static struct sigaction before[FATAL_COUNT];
static _Thread_local char running[2 * NPU_PLUGIN_TEXT]; /* "forward of 'd:n'"; empty while no plugin runs */

static void announce(const char *what)
{
    const char *const words[] = {"npuc: a plugin ", what, " in ", running, "\n"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
        if (write(STDERR_FILENO, words[i], strlen(words[i])) < 0) return;
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    (void)context;
    for (int i = 0; i < FATAL_COUNT; ++i) {
        if (FATAL[i] != number) continue;
        static const char *const words[] = {"crashed (SIGSEGV)", "crashed (SIGBUS)", "crashed (SIGFPE)", "crashed (SIGILL)",
                                            "crashed (SIGABRT)"};
        if (running[0]) announce(words[i]);
        running[0] = 0;
        /* Now whoever was there before handles it: the instruction is tried again, and a signal that was sent comes again. */
        sigaction(number, &before[i], NULL);
        if (info->si_code <= 0) raise(number);
    }
}

static void on_exit_(void)
{
    if (running[0]) announce("called exit()");
}

static void watch(void)
{
    static int watching;
    if (watching) return;
    watching = 1;
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_fatal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    for (int i = 0; i < FATAL_COUNT; ++i) sigaction(FATAL[i], &action, &before[i]);
    atexit(on_exit_);
}

void npu_enter_plugin(const npu_op *op, const char *function)
{
    snprintf(running, sizeof(running), "%s of '%.100s:%.100s'", function, op->domain, op->name);
}

void npu_leave_plugin(void) { running[0] = 0; }

/* ---- libraries ---- */

static const npu_op *find(const char *domain, const char *name)
{
    for (int i = count - 1; i >= 0; --i)
        for (int32_t k = 0; k < plugins[i].plugin->op_count; ++k) {
            const npu_op *op = &plugins[i].plugin->ops[k];
            if (!strcmp(op->domain, domain) && !strcmp(op->name, name)) return op;
        }
    return NULL;
}

/* Take a plugin; the lock is held. */
static npu_status add(const npu_plugin *plugin, const char *where)
{
    const npu_status status = npu_check_plugin(plugin, where);
    if (status) return status;
    if (count == MOST_PLUGINS) return npu_fail(NPU_NO_MEMORY, "%s: there are %d plugins already", where, MOST_PLUGINS);
    const npu_status taken = npu_take_kernels(plugin, where);
    if (taken) return taken;
    plugins[count].plugin = plugin;
    watch();
    return NPU_OK;
}

npu_status npu_add_plugin(const npu_plugin *plugin)
{
    if (!plugin) return npu_fail(NPU_BAD_ARGUMENT, "there is no plugin");
    pthread_mutex_lock(&lock);
    npu_status status = NPU_OK;
    int i = 0;
    while (i < count && plugins[i].plugin != plugin) ++i;
    if (i == count) {
        status = add(plugin, "the plugin");
        if (!status) plugins[count++].path = NULL;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const npu_plugin *npu_plugin_of(const char *path)
{
    const npu_plugin *plugin = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; ++i)
        if (plugins[i].path && path && !strcmp(plugins[i].path, path)) plugin = plugins[i].plugin;
    pthread_mutex_unlock(&lock);
    return plugin;
}

npu_status npu_load_plugin(const char *path)
{
    if (!path || !*path) return npu_fail(NPU_BAD_ARGUMENT, "there is no path");
    if (npu_plugin_of(path)) return NPU_OK;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return npu_fail(NPU_NO_FILE, "%.600s", dlerror());
    const npu_plugin *(*entry)(void);
    *(void **)&entry = dlsym(library, NPU_PLUGIN_ENTRY);
    const npu_plugin *plugin = entry ? entry() : NULL;
    npu_status status;
    pthread_mutex_lock(&lock);
    int known = 0;
    while (known < count && !(plugins[known].path && !strcmp(plugins[known].path, path))) ++known;
    if (known < count) {
        status = NPU_OK; /* another thread was faster */
    } else if (!plugin) {
        status = npu_fail(NPU_BAD_FILE, "%.400s: it exports no record '%s' (the macro NPU_PLUGIN of npu_plugin.h does)", path, NPU_PLUGIN_ENTRY);
    } else {
        char *copy = strdup(path);
        status = copy ? add(plugin, path) : npu_fail(NPU_NO_MEMORY, "there is no memory");
        if (status) {
            free(copy);
        } else {
            plugins[count++].path = copy;
        }
    }
    pthread_mutex_unlock(&lock);
    /* A library whose kernels may be registered stays. */
    if (!plugin) dlclose(library);
    return status;
}

const npu_op *npu_find_op(const char *domain, const char *name)
{
    pthread_mutex_lock(&lock);
    const npu_op *op = domain && name ? find(domain, name) : NULL;
    pthread_mutex_unlock(&lock);
    return op;
}
