/* Comparing a file with its checksums; src/npuc/program/checksums.py has the same. */
#include "file_digest.h"

#include <stdatomic.h>
#include <string.h>

#include "threads.h"
#include "sha256.h"

uint64_t npuc_digests_size(uint64_t body) { return (body / NPUC_FILE_CHUNK + (body % NPUC_FILE_CHUNK != 0) + 1) * NPUC_FILE_DIGEST; }

static int chunk_matches(const npuc_file *f, uint64_t chunk)
{
    const uint64_t at = chunk * NPUC_FILE_CHUNK, rest = f->body - at;
    uint8_t digest[NPUC_FILE_DIGEST];
    npuc_sha256(f->bytes + at, rest < NPUC_FILE_CHUNK ? rest : NPUC_FILE_CHUNK, digest);
    return memcmp(digest, f->bytes + f->body + chunk * NPUC_FILE_DIGEST, NPUC_FILE_DIGEST) == 0;
}

int npuc_digests_match(npuc_file *f, uint64_t first, uint64_t end)
{
    const uint64_t last = f->size - NPUC_FILE_DIGEST, chunks = (last - f->body) / NPUC_FILE_DIGEST;
    uint8_t digest[NPUC_FILE_DIGEST];
    npuc_sha256(f->bytes + f->body, last - f->body, digest);
    if (memcmp(digest, f->bytes + last, NPUC_FILE_DIGEST) != 0) return 0;
    f->unproven = first / NPUC_FILE_CHUNK + (first % NPUC_FILE_CHUNK != 0);
    f->unproven_end = end / NPUC_FILE_CHUNK > f->unproven ? end / NPUC_FILE_CHUNK : f->unproven;
    for (uint64_t chunk = 0; chunk < chunks; chunk++)
        if ((chunk < f->unproven || chunk >= f->unproven_end) && !chunk_matches(f, chunk)) return 0;
    return 1;
}

typedef struct comparison {
    const npuc_file *file;
    atomic_int wrong;
} comparison;

static void compare(void *context, ptrdiff_t index, int worker)
{
    comparison *c = context;
    (void)worker;
    if (!atomic_load_explicit(&c->wrong, memory_order_relaxed) && !chunk_matches(c->file, c->file->unproven + (uint64_t)index))
        atomic_store_explicit(&c->wrong, 1, memory_order_relaxed);
}

const char *npuc_file_verify(const npuc_file *file, int threads)
{
    comparison all = {.file = file};
    npuc_parallel((ptrdiff_t)(file->unproven_end - file->unproven), threads, compare, &all);
    return atomic_load_explicit(&all.wrong, memory_order_relaxed) ? "its checksum is wrong" : NULL;
}
