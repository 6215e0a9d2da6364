/* The plan of a graph: which of its nodes become which compiled part. It is made by npuc's compiler and kept in a cache folder. */
#ifndef NPUC_ORT_PLAN_H
#define NPUC_ORT_PLAN_H

#include "ort_program.h"

typedef struct ort_group {
    ort_program *program;
    size_t *nodes; /* numbers of nodes, in the order in which the graph lists them */
    size_t node_count;
    char **inputs, **outputs; /* names of tensors */
    size_t input_count, output_count;
    size_t *input_of, *output_of; /* the input and output of the program that they are; several may be the same */
} ort_group;

typedef struct ort_note {
    int level;
    char *text;
} ort_note;

typedef struct ort_plan {
    char key[65];
    ort_group *groups;
    size_t group_count;
    ort_note *notes; /* why nodes stay with other providers */
    size_t note_count;
    char *mistake; /* of the user's, in words: the session must not be made */
    struct ort_plan *next;
} ort_plan;

/*
 * Read the plan of a folder, with its programs; NULL and the reason in `why` if there is none, it is damaged, or it was made for
 * something else than `key`.
 */
ort_plan *ort_plan_read(const char *folder, const char *key, int threads, char *why, size_t room);
void ort_plan_free(ort_plan *plan);

#endif
