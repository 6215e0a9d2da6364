/*
 * Runs sections of host operators from stdin, built with a sanitizer: every tensor has memory of exactly its own size. A record is
 * the numbers of inputs and outputs, type and size of each (the bytes of an input follow), then the size of the section and the
 * section. Prints a line for each: "refused" by the checks at load, "failed" in the run, or "ok".
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

enum { MOST_PORTS = 64, MOST_ARENA = 1 << 22 };

typedef struct ports {
    uint32_t inputs, outputs, dtype[MOST_PORTS], size[MOST_PORTS];
    void *data[MOST_PORTS];
} ports;

static uint8_t *place(const void *context, int is_output, uint64_t number)
{
    const ports *p = context;
    return p->data[(is_output ? p->inputs : 0) + number];
}

static int fits(const void *context, int is_output, uint64_t number, int32_t dtype, uint64_t size)
{
    const ports *p = context;
    if (number >= (is_output ? p->outputs : p->inputs)) return 0;
    const uint64_t at = (is_output ? p->inputs : 0) + number;
    return p->dtype[at] == (uint32_t)dtype && size <= p->size[at];
}

static void *memory(uint64_t size)
{
    void *bytes;
    return posix_memalign(&bytes, 64, size ? size : 1) ? NULL : bytes;
}

static int read_exactly(void *to, uint64_t size) { return fread(to, 1, size, stdin) == size; }

static const char *outcome(const ports *p, const uint8_t *section, uint64_t size)
{
    const host_ports around = {p, place, fits};
    host_program program;
    uint32_t node;
    if (npuc_host_open(section, size, &program) || npuc_host_check(&program, &around, &node)) return "refused";
    if (program.header->arena > MOST_ARENA) return "refused";
    uint8_t *arena = memory(program.header->arena);
    if (!arena) return "refused";
    for (uint64_t i = 0; i < program.header->arena; i++) arena[i] = 0;
    const char *why = npuc_host_run(&program, &around, arena, &node);
    free(arena);
    return why ? "failed" : "ok";
}

int main(void)
{
    ports p;
    while (read_exactly(&p.inputs, 4) && read_exactly(&p.outputs, 4) && p.inputs + p.outputs <= MOST_PORTS) {
        uint64_t size;
        for (uint32_t i = 0; i < p.inputs + p.outputs; i++) {
            if (!read_exactly(&p.dtype[i], 4) || !read_exactly(&p.size[i], 4) || !(p.data[i] = memory(p.size[i]))) return 1;
            if (i < p.inputs && !read_exactly(p.data[i], p.size[i])) return 1;
        }
        if (!read_exactly(&size, 8)) return 1;
        uint8_t *section = memory(size);
        if (!section || !read_exactly(section, size)) return 1;
        puts(outcome(&p, section, size));
        free(section);
        for (uint32_t i = 0; i < p.inputs + p.outputs; i++) free(p.data[i]);
    }
    return 0;
}
