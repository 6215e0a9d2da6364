/*
 * A plan is a text file, one fact a line, with a checksum at its end:
 *
 *     npuc-ort-plan 1
 *     key 0123...                      of the graph and everything else that the result depends on
 *     note 1 text                      what the session's log should say, and how loud
 *     group part0.npu 4567... 0        a program, the checksum of its file, whether it is for one sample of a batch
 *     node 17                          the nodes that it replaces
 *     in x 0                           a tensor of the graph, and the input of the program that it is
 *     out y 0                          likewise for outputs
 *     checksum 89ab...
 *
 * Bytes of names and texts outside of '!' to '~', and '%' itself, are written as %XX.
 */
#define _POSIX_C_SOURCE 200809L
#include "ort_plan.h"

#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PLAN = 64 << 20 };
static const size_t MOST_PROGRAM = (size_t)4 << 30;

static void hex_digest(const uint8_t *bytes, size_t size, char text[65]) {
    uint8_t digest[32];
    npuc_sha256(bytes, size, digest);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

static char *decoded(const char *text) {
    char *plain = malloc(strlen(text) + 1), *to = plain;
    for (; plain != NULL && *text; text++)
        if (*text == '%' && hex_value(text[1]) >= 0 && hex_value(text[2]) >= 0) {
            *to++ = (char)(hex_value(text[1]) * 16 + hex_value(text[2]));
            text += 2;
        } else {
            *to++ = *text;
        }
    if (plain != NULL)
        *to = 0;
    return plain;
}

static void free_names(char **names, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

void ort_plan_free(ort_plan *plan) {
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->group_count; i++) {
        ort_group *group = &plan->groups[i];
        ort_program_release(group->program);
        free(group->nodes);
        free_names(group->inputs, group->input_count);
        free_names(group->outputs, group->output_count);
        free(group->input_of);
        free(group->output_of);
    }
    for (size_t i = 0; i < plan->note_count; i++)
        free(plan->notes[i].text);
    free(plan->groups);
    free(plan->notes);
    free(plan->mistake);
    free(plan);
}

/* One more item behind an array; NULL if there is no memory. */
static void *appended(void **array, size_t *count, size_t size) {
    char *moved = realloc(*array, (*count + 1) * size);
    if (moved == NULL)
        return NULL;
    *array = moved;
    memset(moved + *count * size, 0, size);
    return moved + (*count)++ * size;
}

static bool number(const char *text, size_t *value) {
    char *end = NULL;
    if (text == NULL || *text < '0' || *text > '9')
        return false;
    unsigned long long parsed = strtoull(text, &end, 10);
    *value = (size_t)parsed;
    return *end == 0 && parsed < 1ull << 32;
}

static bool add_program(ort_group *group, const char *folder, const char *file, const char *digest, const char *batched,
                        int threads, char *why, size_t room) {
    char path[4096], actual[65];
    size_t size = 0;
    if (strchr(file, '/') != NULL || snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return false;
    uint8_t *bytes = ort_read_file(path, MOST_PROGRAM, &size);
    if (bytes == NULL) {
        snprintf(why, room, "%s cannot be read", file);
        return false;
    }
    hex_digest(bytes, size, actual);
    if (strcmp(actual, digest) != 0) {
        snprintf(why, room, "%s is damaged", file);
        free(bytes);
        return false;
    }
    group->program = ort_program_load(bytes, size, strcmp(batched, "1") == 0, file, threads, why, room);
    return group->program != NULL;
}

static bool add_tensor(char ***names, size_t **places, size_t *count, const char *name, size_t place) {
    size_t before = *count;
    size_t *at = appended((void **)places, &before, sizeof *at);
    char **text = at == NULL ? NULL : appended((void **)names, count, sizeof *text);
    return text != NULL && (*at = place, true) && (*text = decoded(name)) != NULL;
}

/* A line with up to three words behind its kind. */
static bool add_line(ort_plan *plan, const char *folder, char *line, int threads, char *why, size_t room) {
    char *rest = NULL, *kind = strtok_r(line, " ", &rest);
    char *a = strtok_r(NULL, " ", &rest), *b = strtok_r(NULL, " ", &rest), *c = strtok_r(NULL, " ", &rest);
    if (kind == NULL || a == NULL)
        return false;
    size_t value = 0;
    if (strcmp(kind, "note") == 0) {
        ort_note *note = number(a, &value) && value <= ORT_ERROR && b != NULL ? appended((void **)&plan->notes, &plan->note_count, sizeof *note) : NULL;
        return note != NULL && (note->level = (int)value, true) && (note->text = decoded(b)) != NULL;
    }
    if (strcmp(kind, "group") == 0) {
        ort_group *group = c != NULL ? appended((void **)&plan->groups, &plan->group_count, sizeof *group) : NULL;
        return group != NULL && add_program(group, folder, a, b, c, threads, why, room);
    }
    if (plan->group_count == 0)
        return false;
    ort_group *group = &plan->groups[plan->group_count - 1];
    if (strcmp(kind, "node") == 0) {
        size_t *node = number(a, &value) ? appended((void **)&group->nodes, &group->node_count, sizeof *node) : NULL;
        return node != NULL && (*node = value, true);
    }
    if (strcmp(kind, "in") == 0)
        return number(b, &value) && add_tensor(&group->inputs, &group->input_of, &group->input_count, a, value);
    if (strcmp(kind, "out") == 0)
        return number(b, &value) && add_tensor(&group->outputs, &group->output_of, &group->output_count, a, value);
    return false;
}

static bool complete(const ort_group *group) {
    size_t inputs = (size_t)npu_input_count(group->program->model), outputs = (size_t)npu_output_count(group->program->model);
    for (size_t i = 0; i < group->output_count; i++)
        if (group->output_of[i] >= outputs)
            return false;
    return group->node_count > 0 && group->output_count > 0 && ort_all_given(group->input_of, group->input_count, inputs);
}

static bool parse(ort_plan *plan, const char *folder, char *text, size_t size, const char *key, int threads, char *why,
                  size_t room) {
    static const char head[] = "npuc-ort-plan ", end[] = "checksum ";
    const size_t tail = sizeof end - 1 + 64 + 1;
    char actual[65];
    snprintf(why, room, "its plan is damaged");
    if (size < tail || strncmp(text + size - tail, end, sizeof end - 1) != 0 || text[size - 1] != '\n')
        return false;
    hex_digest((const uint8_t *)text, size - tail, actual);
    if (strncmp(text + size - 65, actual, 64) != 0)
        return false;
    if (strncmp(text, head, sizeof head - 1) != 0 || strncmp(text + sizeof head - 1, "1\n", 2) != 0) {
        snprintf(why, room, "it was made by another version of npuc");
        return false;
    }
    text[size - tail] = 0;
    char *rest = NULL;
    strtok_r(text, "\n", &rest);
    char *line = strtok_r(NULL, "\n", &rest);
    if (line == NULL || strncmp(line, "key ", 4) != 0 || strlen(line + 4) != 64)
        return false;
    memcpy(plan->key, line + 4, 65);
    if (strcmp(plan->key, key) != 0) {
        snprintf(why, room, "it was made for another model, other options or another version of npuc");
        return false;
    }
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL)
        if (!add_line(plan, folder, line, threads, why, room))
            return false;
    for (size_t i = 0; i < plan->group_count; i++)
        if (!complete(&plan->groups[i]))
            return false;
    return true;
}

ort_plan *ort_plan_read(const char *folder, const char *key, int threads, char *why, size_t room) {
    char path[4096];
    size_t size = 0;
    uint8_t *text = NULL;
    snprintf(why, room, "there is none");
    if (snprintf(path, sizeof path, "%s/plan", folder) < (int)sizeof path)
        text = ort_read_file(path, MOST_PLAN, &size);
    if (text == NULL)
        return NULL;
    ort_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL || !parse(plan, folder, (char *)text, size, key, threads, why, room)) {
        ort_plan_free(plan);
        plan = NULL;
    }
    free(text);
    return plan;
}
