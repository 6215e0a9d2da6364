/* Reading the options of a session. ORT passes every entry on; what is not known here is refused with the nearest name. */
#define _POSIX_C_SOURCE 200809L
#include "ort_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "ep.npucexecutionprovider."

static size_t at_most(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions and changes between two words. */
static size_t distance(const char *a, const char *b) {
    size_t row[64], length = at_most(strlen(b), 62);
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t before = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t above = row[j + 1];
            row[j + 1] = at_most(at_most(above, row[j]) + 1, before + (a[i] != b[j]));
            before = above;
        }
    }
    return row[length];
}

static ort_status *unknown(const ort_api *api, const char *key) {
    const char *nearest = "";
    size_t least = 4;
    char all[256] = "";
#define COMPARE(name, matters) \
    if (distance(key, #name) < least) { \
        least = distance(key, #name); \
        nearest = #name; \
    } \
    strncat(all, *all ? ", " #name : #name, sizeof all - strlen(all) - 1);
    ORT_OPTIONS(COMPARE)
    return ort_error(api, ORT_INVALID_ARGUMENT, "npuc: there is no provider option '%s'%s%s%s; the options are %s", key,
                     *nearest ? ": did you mean '" : "", nearest, *nearest ? "'?" : "", all);
}

static ort_status *set(const ort_api *api, ort_options *options, const char *key, const char *value) {
    char **field = NULL;
#define CHOOSE(name, matters) field = strcmp(key, #name) == 0 ? &options->name : field;
    ORT_OPTIONS(CHOOSE)
    if (field == NULL)
        return unknown(api, key);
    free(*field);
    *field = strdup(value);
    return *field != NULL ? NULL : ort_error(api, ORT_FAIL, "npuc: no memory");
}

static bool is_number(const char *text, int least, int most, int *value) {
    char *end = NULL;
    long parsed = strtol(text, &end, 10);
    *value = (int)parsed;
    return *text != 0 && *end == 0 && parsed >= least && parsed <= most;
}

static bool plain_name(const char *text) {
    if (*text == 0 || *text == '.' || strlen(text) > 128)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && strchr("-_.", *text) == NULL)
            return false;
    return true;
}

static ort_status *check(const ort_api *api, ort_options *options) {
    int ignored = 0;
    options->thread_count = 1;
    options->use_cache = true;
    if (options->threads != NULL && !is_number(options->threads, 1, 64, &options->thread_count))
        return ort_error(api, ORT_INVALID_ARGUMENT, "npuc: the option threads is a number from 1 to 64, not '%s'", options->threads);
    if (options->level != NULL && !is_number(options->level, 0, 3, &ignored))
        return ort_error(api, ORT_INVALID_ARGUMENT, "npuc: the option level is a number from 0 to 3, not '%s'", options->level);
    if (options->batch != NULL && !is_number(options->batch, 1, 65536, &ignored))
        return ort_error(api, ORT_INVALID_ARGUMENT, "npuc: the option batch is a number from 1 to 65536, not '%s'", options->batch);
    if (options->device != NULL && strcmp(options->device, "simulator") != 0)
        return ort_error(api, ORT_INVALID_ARGUMENT,
                         "npuc: there is no device '%s'; the provider runs programs on the device 'simulator'", options->device);
    if (options->cache != NULL) {
        options->use_cache = strcmp(options->cache, "on") == 0;
        if (!options->use_cache && strcmp(options->cache, "off") != 0)
            return ort_error(api, ORT_INVALID_ARGUMENT, "npuc: the option cache is on or off, not '%s'", options->cache);
    }
    if (options->cache_key != NULL && !plain_name(options->cache_key))
        return ort_error(api, ORT_INVALID_ARGUMENT,
                         "npuc: the option cache_key is the name of a folder (letters, digits, '-', '_' and '.'), not '%s'",
                         options->cache_key);
    if (options->calibration != NULL && access(options->calibration, R_OK) != 0)
        return ort_error(api, ORT_NO_SUCH_FILE, "npuc: the calibration file '%s' is not there or cannot be read",
                         options->calibration);
    return NULL;
}

ort_status *ort_options_read(const ort_api *api, const ort_session_options *session, ort_options *options) {
    memset(options, 0, sizeof *options);
    ort_pairs *pairs = NULL;
    ort_status *status = api->config_entries(session, &pairs);
    if (status != NULL)
        return status;
    const char *const *keys = NULL, *const *values = NULL;
    size_t count = 0;
    api->pairs(pairs, &keys, &values, &count);
    options->embed_context = true;
    for (size_t i = 0; status == NULL && i < count; i++) {
        if (strncmp(keys[i], PREFIX, sizeof PREFIX - 1) == 0)
            status = set(api, options, keys[i] + sizeof PREFIX - 1, values[i]);
        else if (strcmp(keys[i], "ep.context_enable") == 0)
            options->make_context = strcmp(values[i], "1") == 0;
        else if (strcmp(keys[i], "ep.context_embed_mode") == 0)
            options->embed_context = strcmp(values[i], "0") != 0;
        else if (strcmp(keys[i], "ep.context_file_path") == 0 && options->context_path == NULL)
            options->context_path = strdup(values[i]);
    }
    api->release_pairs(pairs);
    return status != NULL ? status : check(api, options);
}

void ort_options_free(ort_options *options) {
#define FREE(name, matters) free(options->name);
    ORT_OPTIONS(FREE)
    free(options->context_path);
}
