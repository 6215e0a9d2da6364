/*
 * Decoding takes longer than running a layer whose weights are used once, and a program runs many times. The constants never
 * change, so what a load has decoded once is copied from then on. Without a heap nothing is kept.
 */
#include "sim_streams.h"

#include <stdlib.h>
#include <string.h>

#include "npuc/weights.h"

static npuc_status decode(const npuc_i_load *r, const uint8_t *far, uint8_t *near, npuc_sim_error *error)
{
    if (!npuc_weights_decode(far + r->offset, r->stored, near, r->size[3])) return NPUC_OK;
    return npuc_sim_fail(error, "the %u bytes at %llu of the constants are no stream of %u bytes", r->stored, (unsigned long long)r->offset,
                         r->size[3]);
}

#if defined(NPUC_NO_HEAP)

npuc_status npuc_streams_load(npuc_streams *streams, int keep, const npuc_i_load *load, const uint8_t *far, uint8_t *near,
                              npuc_sim_error *error)
{
    (void)streams, (void)keep;
    return decode(load, far, near, error);
}

void npuc_streams_free(npuc_streams *streams) { (void)streams; }

#else

#define LARGEST_CACHE ((int64_t)1 << 30)

struct npuc_stream {
    uint64_t offset;
    uint32_t stored, size;
    uint8_t *data; /* NULL: an empty slot */
};

static npuc_stream *find(const npuc_streams *s, const npuc_i_load *r)
{
    uint64_t at = (r->offset * 0x9e3779b97f4a7c15u ^ r->size[3]) * 0x100000001b3u;
    for (at ^= at >> 29;; at++) {
        npuc_stream *slot = &s->slot[at & (uint64_t)(s->room - 1)];
        if (!slot->data || (slot->offset == r->offset && slot->stored == r->stored && slot->size == r->size[3])) return slot;
    }
}

static int grow(npuc_streams *s)
{
    if (2 * (s->count + 1) <= s->room) return 1;
    npuc_streams larger = {.count = s->count, .room = s->room ? 2 * s->room : 64, .bytes = s->bytes};
    larger.slot = calloc((size_t)larger.room, sizeof *larger.slot);
    if (!larger.slot) return 0;
    for (int64_t i = 0; i < s->room; i++) {
        const npuc_i_load key = {.offset = s->slot[i].offset, .stored = s->slot[i].stored, .size = {1, 1, 1, s->slot[i].size}};
        if (s->slot[i].data) *find(&larger, &key) = s->slot[i];
    }
    free(s->slot);
    *s = larger;
    return 1;
}

npuc_status npuc_streams_load(npuc_streams *s, int keep, const npuc_i_load *r, const uint8_t *far, uint8_t *near, npuc_sim_error *error)
{
    const int64_t size = r->size[3];
    npuc_stream *slot = s->room ? find(s, r) : NULL;
    if (slot && slot->data) {
        memcpy(near, slot->data, (size_t)size);
        return NPUC_OK;
    }
    const npuc_status status = decode(r, far, near, error);
    if (status || !keep || s->bytes + size > LARGEST_CACHE || !grow(s)) return status;
    slot = find(s, r);
    slot->data = malloc((size_t)size);
    if (!slot->data) return NPUC_OK;
    memcpy(slot->data, near, (size_t)size);
    slot->offset = r->offset, slot->stored = r->stored, slot->size = r->size[3];
    s->count++;
    s->bytes += size + (int64_t)sizeof *slot;
    return NPUC_OK;
}

void npuc_streams_free(npuc_streams *s)
{
    for (int64_t i = 0; i < s->room; i++) free(s->slot[i].data);
    free(s->slot);
    *s = (npuc_streams){0};
}

#endif
