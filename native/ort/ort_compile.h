/* From a graph to its plan: from the cache if it is there, else by npuc's compiler. */
#ifndef NPUC_ORT_COMPILE_H
#define NPUC_ORT_COMPILE_H

#include "ort_onnx.h"
#include "ort_options.h"
#include "ort_plan.h"

typedef void (*ort_teller)(void *user, int level, const char *text);

/* NULL if nothing can be compiled; `tell` has had the reason. */
ort_plan *ort_plan_of(const ort_bytes *model, const ort_options *options, ort_teller tell, void *user);

#endif
