/*
 * The compiler is Python: in a process that has it, a function that `npuc.integrations.onnxruntime` registered; elsewhere the
 * command `npuc`. Either gets a folder with the model and the options, and puts the plan and its programs there. The folder then
 * gets its final name in the cache, so that an entry is there as a whole or not at all.
 */
#define _GNU_SOURCE
#include "ort_compile.h"

#include "sha256.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef NPUC_VERSION
#define NPUC_VERSION "0"
#endif

enum { PATH_ROOM = 4096, TEXT_ROOM = 2048 };
static const size_t MOST_MODEL = ((size_t)1 << 31) - 1; /* a protocol buffer cannot be larger */
static const size_t MOST_HASHED = (size_t)8 << 30;

extern char **environ;

enum { DONE = 0, MISTAKE = 2 };

/* Returns DONE, MISTAKE if the user's options are wrong, or another number; the reason in `why`. */
typedef int (*compiler)(const char *folder, char *why, size_t room);
static _Atomic(compiler) registered;

__attribute__((visibility("default"))) void npuc_ort_set_compiler(compiler function) { registered = function; }

static void say(ort_teller tell, void *user, int level, const char *format, ...) {
    char text[TEXT_ROOM + PATH_ROOM];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tell(user, level, text);
}

static int add_digest(void *user, const void *data, size_t size) {
    uint8_t digest[32];
    npuc_sha256(data == NULL ? (const uint8_t *)"" : data, size, digest);
    ort_put(user, digest, sizeof digest);
    return 0;
}

static void add_file_digest(ort_bytes *hashed, const char *path) {
    size_t size = 0;
    uint8_t *bytes = ort_read_file(path, MOST_HASHED, &size);
    if (bytes != NULL)
        add_digest(hashed, bytes, size);
    free(bytes);
}

/* A hash of everything that the plan depends on: the graph, the options, the files that they name, the version of npuc. */
static bool key_of(const ort_bytes *model, const ort_options *options, char key[65]) {
    ort_bytes hashed = {0};
    const char version[] = "npuc-ort-plan 1 " NPUC_VERSION;
    ort_put(&hashed, version, sizeof version);
#define ADD_OPTION(name, matters) \
    if (matters && options->name != NULL) { \
        ort_put(&hashed, #name "=", sizeof #name); \
        ort_put(&hashed, options->name, strlen(options->name) + 1); \
    }
    ORT_OPTIONS(ADD_OPTION)
    if (options->calibration != NULL)
        add_file_digest(&hashed, options->calibration);
    if (options->target != NULL)
        add_file_digest(&hashed, options->target);
    ort_each_part(model, add_digest, &hashed);
    uint8_t digest[32];
    if (!hashed.failed) {
        npuc_sha256(hashed.bytes, hashed.size, digest);
        for (int i = 0; i < 32; i++)
            snprintf(key + 2 * i, 3, "%02x", digest[i]);
    }
    bool done = !hashed.failed;
    ort_bytes_free(&hashed);
    return done;
}

static bool make_folders(char *path) {
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            int result = mkdir(path, 0777);
            *at = '/';
            if (result != 0 && errno != EEXIST)
                return false;
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static bool cache_folder(const ort_options *options, char path[PATH_ROOM]) {
    const char *home = getenv("XDG_CACHE_HOME"), *own = getenv("NPUC_CACHE");
    int length;
    if (options->cache_dir != NULL)
        length = snprintf(path, PATH_ROOM, "%s", options->cache_dir);
    else if (own != NULL && *own && strcasecmp(own, "off") != 0)
        length = snprintf(path, PATH_ROOM, "%s/onnxruntime", own);
    else if (own != NULL && *own)
        return false;
    else if (home != NULL && *home == '/')
        length = snprintf(path, PATH_ROOM, "%s/npuc/onnxruntime", home);
    else if ((home = getenv("HOME")) != NULL && *home)
        length = snprintf(path, PATH_ROOM, "%s/.cache/npuc/onnxruntime", home);
    else
        return false;
    return length > 0 && length < PATH_ROOM - 160;
}

/* Remove a folder of files; it has no folders in it. */
static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

static int write_part(void *user, const void *data, size_t size) {
    return size == 0 || fwrite(data, 1, size, user) == size ? 0 : 1;
}

static FILE *create(const char *folder, const char *name) {
    char path[PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wb");
}

static bool write_request(const char *folder, const ort_bytes *model, const ort_options *options, const char *key) {
    FILE *file = create(folder, "model.onnx");
    if (file == NULL)
        return false;
    bool written = ort_each_part(model, write_part, file) == 0;
    written = fclose(file) == 0 && written;
    file = written ? create(folder, "request") : NULL;
    if (file == NULL)
        return false;
    fprintf(file, "key=%s\n", key);
#define WRITE_OPTION(name, matters) \
    if (matters && options->name != NULL) { \
        fprintf(file, #name "="); \
        for (const char *at = options->name; *at; at++) \
            fprintf(file, *at > ' ' && *at < 127 && *at != '%' ? "%c" : "%%%02X", (unsigned char)*at); \
        fprintf(file, "\n"); \
    }
    ORT_OPTIONS(WRITE_OPTION)
    return fclose(file) == 0;
}

/* The end of a text file, on one line. */
static void last_words(const char *folder, const char *name, char *why, size_t room) {
    char path[PATH_ROOM + 64];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = (char *)ort_read_file(path, 64 << 20, &size);
    if (text == NULL)
        return;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
        text[--size] = 0;
    char *from = size >= room ? text + size - room + 1 : text;
    for (char *at = from; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    if (*from)
        snprintf(why, room, "%s", from);
    free(text);
}

static int by_command(const ort_options *options, const char *folder, char *why, size_t room) {
    const char *command = options->compiler != NULL ? options->compiler : getenv("NPUC_COMMAND");
    command = command != NULL && *command ? command : "npuc";
    char log[PATH_ROOM + 64];
    snprintf(log, sizeof log, "%s/log", folder);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    char *arguments[] = {(char *)command, "ort-compile", (char *)folder, NULL};
    pid_t child = 0;
    int status = 0, error = posix_spawnp(&child, command, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    if (error != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
        snprintf(why, room,
                 "the command '%s' cannot be started: install npuc, or name it by the option compiler or by NPUC_COMMAND", command);
        return 1;
    }
    if (!WIFEXITED(status)) {
        snprintf(why, room, "the command '%s' was ended by a signal", command);
        return 1;
    }
    if (WEXITSTATUS(status) != 0) {
        snprintf(why, room, "the command '%s' failed", command);
        last_words(folder, "log", why, room);
    }
    return WEXITSTATUS(status);
}

static void drop(const char *folder, const char *name) {
    char path[PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void copy_report(const char *folder, const ort_options *options, ort_teller tell, void *user) {
    char path[PATH_ROOM + 64], temporary[PATH_ROOM];
    size_t size = 0;
    if (options->report == NULL)
        return;
    snprintf(path, sizeof path, "%s/report.json", folder);
    uint8_t *text = ort_read_file(path, 256 << 20, &size);
    FILE *file = NULL;
    bool written = text != NULL && snprintf(temporary, sizeof temporary, "%s.%d", options->report, (int)getpid()) < PATH_ROOM &&
                   (file = fopen(temporary, "wb")) != NULL && fwrite(text, 1, size, file) == size;
    if (file != NULL)
        written = fclose(file) == 0 && written && rename(temporary, options->report) == 0;
    if (!written)
        say(tell, user, ORT_WARNING, "npuc: the report cannot be written to %s", options->report);
    free(text);
}

/* A new folder beside the entries of the cache, or among temporary files if there can be none; which, is told by `kept`. */
static bool work_folder(const char *cache, char path[PATH_ROOM], bool *kept, ort_teller tell, void *user) {
    char folders[PATH_ROOM];
    snprintf(folders, sizeof folders, "%s", cache);
    *kept = *cache != 0;
    if (*kept) {
        bool fits = snprintf(path, PATH_ROOM, "%s/.work-XXXXXX", cache) < PATH_ROOM;
        errno = ENAMETOOLONG; /* unless one of the calls has another reason */
        if (fits && make_folders(folders) && mkdtemp(path) != NULL)
            return true;
        say(tell, user, ORT_WARNING, "npuc: the cache folder %s cannot be written (%s): the model is compiled for every session",
            cache, strerror(errno));
        *kept = false;
    }
    const char *temporary = getenv("TMPDIR");
    temporary = temporary != NULL && *temporary ? temporary : "/tmp";
    return snprintf(path, PATH_ROOM, "%s/npuc-ort-XXXXXX", temporary) < PATH_ROOM && mkdtemp(path) != NULL;
}

/* Give a finished folder its name in the cache. An entry that is there is sound (another session was faster) or in the way. */
static void publish(const char *work, const char *entry, ort_plan *(*sound)(const char *, const char *, int, char *, size_t),
                    const char *key) {
    for (int attempt = 0; attempt < 2; attempt++) {
        if (rename(work, entry) == 0)
            return;
        char why[TEXT_ROOM], aside[PATH_ROOM + 16];
        ort_plan *other = sound(entry, key, 1, why, sizeof why);
        if (other != NULL) {
            ort_plan_free(other);
            break;
        }
        snprintf(aside, sizeof aside, "%s.old", work);
        if (rename(entry, aside) != 0)
            break;
        remove_folder(aside);
        unlink(aside);
    }
    remove_folder(work);
}

ort_plan *ort_plan_of(const ort_bytes *model, const ort_options *options, ort_teller tell, void *user) {
    char key[65], cache[PATH_ROOM] = "", entry[PATH_ROOM + 160] = "", work[PATH_ROOM], why[TEXT_ROOM] = "";
    bool kept = false;
    if (model->total > MOST_MODEL) {
        say(tell, user, ORT_WARNING, "npuc: the model has more than 2 GiB and stays with the other providers");
        return NULL;
    }
    if (!key_of(model, options, key)) {
        say(tell, user, ORT_ERROR, "npuc: no memory");
        return NULL;
    }
    if (!options->use_cache || !cache_folder(options, cache))
        cache[0] = 0;
    if (*cache) {
        struct stat there;
        snprintf(entry, sizeof entry, "%s/%s", cache, options->cache_key != NULL ? options->cache_key : key);
        ort_plan *plan = ort_plan_read(entry, key, options->thread_count, why, sizeof why);
        if (plan != NULL) {
            copy_report(entry, options, tell, user);
            return plan;
        }
        if (stat(entry, &there) == 0)
            say(tell, user, ORT_WARNING, "npuc: the cache entry %s is not used (%s): the model is compiled again", entry, why);
    }
    if (!work_folder(cache, work, &kept, tell, user)) {
        say(tell, user, ORT_WARNING, "npuc: no temporary folder can be made (%s): the model stays with the other providers",
            strerror(errno));
        return NULL;
    }
    compiler function = registered;
    int result = 1;
    if (!write_request(work, model, options, key))
        snprintf(why, sizeof why, "the model cannot be written to a folder of its own (%s)", strerror(errno));
    else
        result = function != NULL ? function(work, why, sizeof why) : by_command(options, work, why, sizeof why);
    ort_plan *plan = result == DONE ? ort_plan_read(work, key, options->thread_count, why, sizeof why) : NULL;
    if (result == MISTAKE && (plan = calloc(1, sizeof *plan)) != NULL) {
        plan->mistake = strdup(why);
        kept = false;
    } else if (plan == NULL)
        say(tell, user, ORT_WARNING, "npuc: the model is not compiled and stays with the other providers: %s", why);
    else
        copy_report(work, options, tell, user);
    drop(work, "model.onnx");
    drop(work, "request");
    drop(work, "log");
    if (plan != NULL && kept)
        publish(work, entry, ort_plan_read, key);
    else
        remove_folder(work);
    return plan;
}
