/* Loading ONNX Runtime's functions by their places in its tables, and checking that they are what they should be. */
#include "ort_abi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HAS_SHAPE 390 /* place, since 1.24 */

typedef ort_status *(*status_maker)(int, const char *);

/* Tables hold functions as plain pointers; C converts between the two kinds by their bytes only. */
static void fetch(const void *table, size_t place, void *function, bool *complete) {
    const void *const *slots = table;
    memcpy(function, &slots[place], sizeof(void *));
    *complete = *complete && slots[place] != NULL;
}

static ort_status *refuse(const void *oldest, const char *text) {
    status_maker make;
    memcpy(&make, oldest, sizeof make);
    return make(ORT_FAIL, text);
}

static bool works(const ort_api *api) {
    bool good = true;
    ort_status *status = api->create_status(ORT_NO_SUCH_FILE, "npuc probe");
    good = good && status != NULL && api->error_code(status) == ORT_NO_SUCH_FILE;
    good = good && strcmp(api->error_message(status), "npuc probe") == 0;
    if (status != NULL)
        api->release_status(status);
    ort_pairs *pairs = NULL;
    api->create_pairs(&pairs);
    if (!good || pairs == NULL)
        return false;
    api->add_pair(pairs, "probe", "npuc");
    const char *value = api->pair(pairs, "probe");
    good = value != NULL && strcmp(value, "npuc") == 0;
    api->release_pairs(pairs);
    const char *build = api->build_info();
    return good && build != NULL && strncmp(build, "ORT Build Info", 14) == 0;
}

ort_status *ort_load(const ort_api_base *base, ort_api *api) {
    memset(api, 0, sizeof *api);
    const void *oldest = base->get_api(1);
    const char *version = base->version();
    char text[320];
    if (version == NULL || strncmp(version, "1.", 2) != 0 || (api->minor = atoi(version + 2)) < ORT_API_VERSION) {
        snprintf(text, sizeof text,
                 "the npuc execution provider needs ONNX Runtime 1.%d or later, and this is %s: pip install 'onnxruntime>=1.%d'",
                 ORT_API_VERSION, version == NULL ? "unknown" : version, ORT_API_VERSION);
        return refuse(oldest, text);
    }
    const void *table = base->get_api(ORT_API_VERSION);
    bool complete = table != NULL;
    if (complete) {
#define FETCH(place, name, result, arguments) fetch(table, place, &api->name, &complete);
        ORT_API(FETCH)
    }
    if (complete && works(api)) {
        table = api->ep_api();
        const void *editor = api->model_editor_api();
        complete = table != NULL && editor != NULL;
        if (complete) {
            ORT_EP_API(FETCH)
            table = editor;
            ORT_EDITOR_API(FETCH)
        }
    } else {
        complete = false;
    }
    if (complete && api->minor >= 24) {
        bool ignored = true;
        fetch(base->get_api(ORT_API_VERSION), HAS_SHAPE, &api->has_shape, &ignored);
    }
    if (complete)
        return NULL;
    snprintf(text, sizeof text,
             "this ONNX Runtime (%s) does not have the plugin interface as the npuc execution provider knows it; npuc's page on "
             "ONNX Runtime lists the releases that were tried",
             version);
    return refuse(oldest, text);
}

ort_status *ort_error(const ort_api *api, int code, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return api->create_status(code, text);
}

bool ort_failed(const ort_api *api, ort_status *status) {
    if (status == NULL)
        return false;
    api->release_status(status);
    return true;
}
