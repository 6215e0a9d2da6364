/* The options of a session, as other providers have them: texts by key, checked when the session is made. */
#ifndef NPUC_ORT_OPTIONS_H
#define NPUC_ORT_OPTIONS_H

#include "ort_abi.h"

#define PROVIDER_NAME "NpucExecutionProvider"

/* X(field, what results depend on it) */
#define ORT_OPTIONS(X) \
    X(target, true) \
    X(scheme, true) \
    X(calibration, true) \
    X(level, true) \
    X(batch, true) \
    X(cache, false) \
    X(cache_dir, false) \
    X(cache_key, false) \
    X(device, false) \
    X(threads, false) \
    X(profile, false) \
    X(report, false) \
    X(compiler, false)

#define OPTION_MEMBER(name, matters) char *name;
typedef struct ort_options {
    ORT_OPTIONS(OPTION_MEMBER)
    int thread_count;
    bool use_cache;
    bool make_context, embed_context; /* ORT's own entries: write a compiled model */
    char *context_path;
} ort_options;

ort_status *ort_options_read(const ort_api *api, const ort_session_options *session, ort_options *options);
void ort_options_free(ort_options *options);

#endif
