/* Where the program of a model comes from: a cache on disk, filled by the `npuc` command. */
#ifndef NPUC_LITERT_PROGRAM_H
#define NPUC_LITERT_PROGRAM_H

#include <stdarg.h>
#include <stddef.h>

#include "npu.h"

/* What the user said; NULL: nothing. */
typedef struct litert_options {
    char *model, *program, *target, *cache_dir, *compiler, *report, *profile;
} litert_options;

/* Text that grows. `failed` once there was no memory: the text is then not whole. */
typedef struct litert_text {
    char *data;
    size_t size, room;
    int failed;
} litert_text;

#if defined(__GNUC__)
#define LITERT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LITERT_PRINTF(text, first)
#endif

void litert_add(litert_text *text, const char *format, ...) LITERT_PRINTF(2, 3);

/* The first 16 digits of the SHA-256 of some bytes. */
void litert_digest(const void *bytes, size_t size, char digits[17]);

/* A line for whoever reads the log: stderr, or the file that the option `report` names. */
void litert_say(const litert_options *options, const char *format, ...) LITERT_PRINTF(2, 3);
void litert_write(const char *where, const char *text);

/*
 * The program for a model whose interpreter has the tensors in `listing` (npuc/integrations/litert/runtime_tensors.py has the
 * form). Returns 0 and the program; 0 and NULL if the NPU takes nothing of it; 1 and the reason in `error`.
 */
int litert_obtain(const litert_options *options, const litert_text *listing, npu_model **program, litert_text *error);

#endif /* NPUC_LITERT_PROGRAM_H */
