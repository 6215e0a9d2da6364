/*
 * Packing the weights of a convolution costs about as much as running a small one, and a program runs many times, each layer
 * in many pieces. Weights reach local memory by loads from the constants, which never change: so a layer is known by where in
 * the constants its weights and parameters come from, and packed once.
 */
#include <stdlib.h>
#include <string.h>

#include "npuc/gemm.h"
#include "sim_floats.h"
#include "sim_layers.h"
#include "sparse_weights.h"

#define LARGEST_LAYER ((int64_t)1 << 30)
#define LARGEST_CACHE ((int64_t)1 << 32)

#if defined(NPUC_NO_HEAP)

/* Without memory no layer is kept, and nothing is known of origins: slower, and as right. */
static void *take(int64_t size)
{
    (void)size;
    return NULL;
}
static void give(void *memory) { (void)memory; }

#else

static void *take(int64_t size) { return aligned_alloc(64, (size_t)(size + 63) / 64 * 64); }
static void give(void *memory) { free(memory); }

#endif

uint8_t *npuc_buffer_get(npuc_buffer *buffer, int64_t size)
{
    if (size < 64) size = 64;
    if (buffer->most < size) buffer->most = size;
    if (buffer->size < size) {
#if defined(NPUC_NO_HEAP)
        return NULL;
#endif
        give(buffer->data);
        buffer->size = (size + size / 4 + 63) / 64 * 64;
        buffer->data = take(buffer->size);
        if (!buffer->data) buffer->size = 0;
    }
    return buffer->data;
}

void npuc_buffer_free(npuc_buffer *buffer)
{
    give(buffer->data);
    *buffer = (npuc_buffer){0};
}

/* ---- origins ---- */

/* The first range that ends behind `low`. */
static int64_t first_after(const npuc_origin *o, int64_t low)
{
    int64_t a = 0, b = o->count;
    while (a < b) {
        const int64_t middle = (a + b) / 2;
        if (o->range[middle].high > low)
            b = middle;
        else
            a = middle + 1;
    }
    return a;
}

static int make_room(npuc_origin *o)
{
    if (o->count + 1 < o->room) return 1;
    const int64_t room = o->room ? 2 * o->room : 64;
    struct npuc_origin_range *larger = take(room * (int64_t)sizeof *larger);
    if (!larger) return 0;
    if (o->count) memcpy(larger, o->range, (size_t)o->count * sizeof *larger);
    give(o->range);
    o->range = larger;
    o->room = room;
    return 1;
}

static void insert(npuc_origin *o, int64_t at, int64_t low, int64_t high, int64_t from)
{
    memmove(o->range + at + 1, o->range + at, (size_t)(o->count - at) * sizeof *o->range);
    o->range[at] = (struct npuc_origin_range){low, high, from};
    o->count++;
}

void npuc_origin_cut(npuc_origin *o, int64_t low, int64_t high)
{
    int64_t at = first_after(o, low), end = at;
    if (at == o->count || o->range[at].low >= high) return;
    if (o->range[at].low < low && o->range[at].high > high) { /* in two */
        if (!make_room(o)) {
            o->count = 0; /* to know nothing is always right */
            return;
        }
        const struct npuc_origin_range whole = o->range[at];
        o->range[at].high = low;
        insert(o, at + 1, high, whole.high, whole.from + high - whole.low);
        return;
    }
    if (o->range[at].low < low) o->range[at++].high = low;
    for (end = at; end < o->count && o->range[end].high <= high; end++) {
    }
    if (end < o->count && o->range[end].low < high) {
        o->range[end].from += high - o->range[end].low;
        o->range[end].low = high;
    }
    memmove(o->range + at, o->range + end, (size_t)(o->count - end) * sizeof *o->range);
    o->count -= end - at;
}

void npuc_origin_set(npuc_origin *o, int64_t low, int64_t high, int64_t from)
{
    npuc_origin_cut(o, low, high);
    const int64_t at = first_after(o, low);
    const int joins_left = at > 0 && o->range[at - 1].high == low && o->range[at - 1].from + low - o->range[at - 1].low == from;
    const int joins_right = at < o->count && o->range[at].low == high && o->range[at].from == from + high - low;
    if (joins_left && joins_right) {
        o->range[at - 1].high = o->range[at].high;
        memmove(o->range + at, o->range + at + 1, (size_t)(o->count - at - 1) * sizeof *o->range);
        o->count--;
    } else if (joins_left) {
        o->range[at - 1].high = high;
    } else if (joins_right) {
        o->range[at].low = low;
        o->range[at].from = from;
    } else if (make_room(o)) {
        insert(o, at, low, high, from);
    }
}

int64_t npuc_origin_find(const npuc_origin *o, int64_t low, int64_t high)
{
    const int64_t at = first_after(o, low);
    if (at == o->count || o->range[at].low > low || o->range[at].high < high) return -1;
    return o->range[at].from + low - o->range[at].low;
}

void npuc_origin_free(npuc_origin *o)
{
    give(o->range);
    *o = (npuc_origin){0};
}

/* ---- layers ---- */

/* All that decides a prepared layer. Compared as bytes: no holes. */
typedef struct {
    npuc_conv conv;
    int32_t w_dtype, w_zero_point, kind, count, zero_point, lo, hi, sparsity; /* N and M of sparse weights as n * 256 + m */
    int64_t weight, bias, multiplier, shift; /* in the constants; -1: has none */
} layer_key;

struct npuc_layer {
    layer_key key;
    uint8_t *prepared; /* NULL: an empty slot */
    int64_t size;
};

static uint64_t hash_of(const layer_key *key)
{
    const uint8_t *bytes = (const uint8_t *)key;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static npuc_layer *find(npuc_layers *layers, const layer_key *key)
{
    for (uint64_t at = hash_of(key);; at++) {
        npuc_layer *slot = &layers->slot[at & (uint64_t)(layers->room - 1)];
        if (!slot->prepared || memcmp(&slot->key, key, sizeof *key) == 0) return slot;
    }
}

static void forget(npuc_layers *layers)
{
    for (int64_t i = 0; i < layers->room; i++) give(layers->slot[i].prepared);
    give(layers->slot);
    layers->slot = NULL;
    layers->count = layers->room = layers->bytes = 0;
}

static int grow(npuc_layers *layers)
{
    if (2 * (layers->count + 1) <= layers->room) return 1;
    npuc_layers larger = {.room = layers->room ? 2 * layers->room : 256};
    larger.slot = take(larger.room * (int64_t)sizeof *larger.slot);
    if (!larger.slot) return 0;
    memset(larger.slot, 0, (size_t)larger.room * sizeof *larger.slot);
    for (int64_t i = 0; i < layers->room; i++)
        if (layers->slot[i].prepared) *find(&larger, &layers->slot[i].key) = layers->slot[i];
    give(layers->slot);
    layers->slot = larger.slot;
    layers->room = larger.room;
    return 1;
}

void npuc_unpack_integers(const uint8_t *from, int64_t count, int32_t bits, int32_t zero, int16_t *to)
{
    const int32_t sign = 1 << (bits - 1), mask = 2 * sign - 1;
    uint32_t pending = 0;
    int32_t held = 0;
    for (int64_t i = 0; i < count; i++) {
        for (; held < bits; held += 8) pending |= (uint32_t)*from++ << held;
        to[i] = (int16_t)((((int32_t)(pending & (uint32_t)mask)) ^ sign) - sign - zero);
        pending >>= bits;
        held -= bits;
    }
}

/* Bytes of `count` weights of a type. */
static int64_t weight_bytes(int32_t dtype, int64_t count)
{
    const int64_t bits = NPUC_PACKED_BITS(dtype);
    return bits ? (count * bits + 7) / 8 : count * npuc_sim_size(dtype);
}

/* Weights as q - zero point, biases as int64; refused where a sum could leave the accumulator. */
static npuc_status widen(npuc_layers *layers, const npuc_i_conv *r, const uint8_t *local, const int64_t **biases, npuc_sim_error *error)
{
    const int64_t inputs = r->c / r->groups, taps = (int64_t)r->kernel[0] * r->kernel[1], each = inputs * taps;
    const int64_t dense = each * r->out_c, total = npuc_sparse_stored(r, dense);
    int16_t *weight = (int16_t *)(void *)npuc_buffer_get(&layers->weights, (dense + (r->sparse_m ? total : 0)) * 2);
    int64_t *bias = (int64_t *)(void *)npuc_buffer_get(&layers->biases, (int64_t)r->out_c * 8);
    if (!weight || !bias) return npuc_sim_fail(error, "memory is short"), NPUC_NO_MEMORY;
    int16_t *const spread = weight;
    if (r->sparse_m) weight += dense;
    const uint8_t *from = local + r->weight;
    const int32_t zero = r->w_zero_point;
    switch (r->w_dtype) {
    case NPUC_I8:
        for (int64_t i = 0; i < total; i++) weight[i] = (int16_t)((int8_t)from[i] - zero);
        break;
    case NPUC_U8:
        for (int64_t i = 0; i < total; i++) weight[i] = (int16_t)(from[i] - zero);
        break;
    case NPUC_I16: memcpy(weight, from, (size_t)total * 2); break;
    default: npuc_unpack_integers(from, total, NPUC_PACKED_BITS(r->w_dtype), zero, weight);
    }
    if (r->sparse_m) {
        const uint8_t *positions = from + weight_bytes(r->w_dtype, total);
        if (!npuc_sparse_expand(r, weight, positions, r->out_c, inputs, taps, spread))
            return npuc_sim_fail(error, "the positions of sparse weights do not ascend");
        weight = spread;
    }
    for (int64_t i = 0; i < (int64_t)r->out_c && r->bias != NPUC_NONE; i++) {
        int32_t narrow;
        if (r->wide) {
            memcpy(bias + i, local + r->bias + i * 8, 8);
        } else {
            memcpy(&narrow, local + r->bias + i * 4, 4);
            bias[i] = narrow;
        }
    }
    *biases = r->bias != NPUC_NONE ? bias : NULL;
    const int64_t lowest = r->x_dtype == NPUC_I8 ? -128 : r->x_dtype == NPUC_U8 ? 0 : -32768;
    const int64_t highest = r->x_dtype == NPUC_I8 ? 127 : r->x_dtype == NPUC_U8 ? 255 : 32767;
    const int64_t below = r->x_zero_point - lowest, above = highest - r->x_zero_point;
    const int64_t reach = below > above ? below : above, limit = r->wide ? (int64_t)1 << 62 : INT32_MAX;
    for (int64_t o = 0; o < (int64_t)r->out_c; o++) {
        int64_t sum = 0;
        const int64_t add = *biases ? bias[o] : 0;
        for (int64_t i = 0; i < each; i++) sum += weight[o * each + i] < 0 ? -weight[o * each + i] : weight[o * each + i];
        if (add > limit || add < -limit || sum * reach > limit - (add < 0 ? -add : add))
            return npuc_sim_fail(error, "a sum of channel %lld could leave the %s accumulator", (long long)o,
                                 r->wide ? "64-bit" : "32-bit");
    }
    return NPUC_OK;
}

static npuc_status check(const npuc_i_conv *r, int32_t y_dtype, npuc_sim_error *error)
{
    const int32_t bits = NPUC_PACKED_BITS(r->w_dtype);
    const int32_t limit = r->w_dtype == NPUC_I8 ? 128 : r->w_dtype == NPUC_U8 ? 255 : bits && bits < 8 ? 1 << (bits - 1) : 0;
    if (r->w_zero_point < -limit || r->w_zero_point > limit) return npuc_sim_fail(error, "a weight zero point of %d", r->w_zero_point);
    const int32_t low = y_dtype == NPUC_I8 ? -128 : y_dtype == NPUC_U8 ? 0 : y_dtype == NPUC_I16 ? -32768 : INT32_MIN;
    const int32_t high = y_dtype == NPUC_I8 ? 127 : y_dtype == NPUC_U8 ? 255 : y_dtype == NPUC_I16 ? 32767 : INT32_MAX;
    if (r->zero_point < low || r->zero_point > high) return npuc_sim_fail(error, "a zero point of %d", r->zero_point);
    if (r->c > INT32_MAX || r->out_c > INT32_MAX || r->groups > INT32_MAX) return npuc_sim_fail(error, "too many channels");
    return NPUC_OK;
}

static npuc_float_conv float_conv_of(const npuc_conv *c, int32_t lo, int32_t hi)
{
    npuc_float_conv same = {.transposed = c->transposed,
                            .groups = c->groups,
                            .in_channels = c->in_channels,
                            .out_channels = c->out_channels,
                            .kernel_h = c->kernel_h,
                            .kernel_w = c->kernel_w,
                            .stride_h = c->stride_h,
                            .stride_w = c->stride_w,
                            .dilation_h = c->dilation_h,
                            .dilation_w = c->dilation_w,
                            .pad_top = c->pad_top,
                            .pad_left = c->pad_left,
                            .dtype = npuc_is_block(c->x_dtype) ? NPUC_F32 : c->x_dtype};
    npuc_float_limits(lo, hi, &same.relu, &same.relu_limit);
    return same;
}

/* Packed weights, outputs x kernel x inputs, as f32 in the order of a convolution: outputs x inputs x kernel. */
static const float *unpacked(npuc_layers *layers, const npuc_i_conv *r, const uint8_t *local)
{
    const int64_t taps = (int64_t)r->kernel[0] * r->kernel[1], rows = r->out_c * taps, inputs = r->c;
    float *ordered = (float *)(void *)npuc_buffer_get(&layers->weights, 2 * rows * inputs * (int64_t)sizeof *ordered);
    if (!ordered) return NULL;
    float *numbers = ordered + rows * inputs;
    if (npuc_block_unpack(local + r->weight, rows, inputs, r->x_dtype, numbers, 1)) return NULL;
    for (int64_t o = 0; o < r->out_c; o++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t i = 0; i < inputs; i++) ordered[(o * inputs + i) * taps + t] = numbers[(o * taps + t) * inputs + i];
    return ordered;
}

/* Packs the weights at r->weight, and all that is computed with them, into a buffer. */
static npuc_status pack(npuc_layers *layers, const npuc_i_conv *r, const npuc_conv *conv, const uint8_t *local, uint8_t *buffer,
                        int64_t size, npuc_sim_error *error)
{
    const int64_t *biases = NULL;
    npuc_status status;
    if (npuc_is_float(r->x_dtype) || npuc_is_block(r->x_dtype)) {
        const npuc_float_conv same = float_conv_of(conv, r->lo, r->hi);
        const float *bias = r->bias == NPUC_NONE ? NULL : (const float *)(const void *)(local + r->bias);
        const void *weight = local + r->weight;
        if (npuc_is_block(r->x_dtype)) weight = unpacked(layers, r, local);
        if (!weight) return npuc_sim_fail(error, "memory is short"), NPUC_NO_MEMORY;
        status = npuc_float_conv_prepare(&same, weight, bias, buffer, (size_t)size);
        return status ? (npuc_sim_fail(error, "a weight is not finite"), status) : NPUC_OK;
    }
    status = widen(layers, r, local, &biases, error);
    if (status) return status;
    const int has_multiplier = r->kind != NPUC_POW2, has_shift = r->kind != NPUC_FLOAT_SCALE;
    const void *multiplier = has_multiplier ? local + r->multiplier : NULL, *shift = has_shift ? local + r->shift : NULL;
    const npuc_requant stage = {.kind = r->kind,
                                .count = (int32_t)r->count,
                                .multiplier = NPUC_HAS_MULTIPLIER(r->kind) ? multiplier : NULL,
                                .shift = shift,
                                .scale = NPUC_HAS_SCALE(r->kind) ? multiplier : NULL,
                                .zero_point = r->zero_point,
                                .lo = r->lo,
                                .hi = r->hi};
    status = npuc_conv_prepare(conv, (const int16_t *)(void *)layers->weights.data, biases, &stage, buffer, (size_t)size);
    if (status) npuc_sim_fail(error, status == NPUC_NO_MEMORY ? "memory is short" : "the output stage makes no sense");
    return status;
}

npuc_status npuc_layers_get(npuc_layers *layers, const npuc_i_conv *r, const uint8_t *local, const npuc_origin *origin,
                            const void **prepared, npuc_sim_error *error)
{
    const int block = npuc_is_block(r->x_dtype), real = block || npuc_is_float(r->x_dtype);
    const int32_t y_dtype = r->table == NPUC_NONE ? r->y_dtype : r->s_dtype;
    npuc_status status = check(r, y_dtype, error);
    if (status) return status;
    layer_key key;
    memset(&key, 0, sizeof key);
    key.conv = (npuc_conv){.transposed = r->transposed,
                           .groups = (int32_t)r->groups,
                           .in_channels = (int32_t)r->c,
                           .out_channels = (int32_t)r->out_c,
                           .kernel_h = r->kernel[0],
                           .kernel_w = r->kernel[1],
                           .stride_h = r->stride[0],
                           .stride_w = r->stride[1],
                           .dilation_h = r->dilation[0],
                           .dilation_w = r->dilation[1],
                           .pad_top = r->pad[0],
                           .pad_left = r->pad[1],
                           .x_dtype = r->x_dtype,
                           .x_zero_point = r->x_zero_point,
                           .y_dtype = y_dtype,
                           .wide = r->wide};
    const npuc_float_conv same = float_conv_of(&key.conv, r->lo, r->hi);
    const int64_t size = (int64_t)(real ? npuc_float_conv_size(&same) : npuc_conv_size(&key.conv));
    if (!size || size > LARGEST_LAYER) return npuc_sim_fail(error, "a convolution that makes no sense, or is too large");
    key.w_dtype = r->w_dtype, key.w_zero_point = r->w_zero_point, key.sparsity = r->sparse_n * 256 + r->sparse_m;
    key.kind = r->kind, key.count = (int32_t)r->count, key.zero_point = r->zero_point, key.lo = r->lo, key.hi = r->hi;

    const int64_t weights = npuc_sparse_stored(r, (int64_t)r->out_c * (r->c / r->groups) * r->kernel[0] * r->kernel[1]);
    const int64_t packed = (int64_t)r->out_c * r->kernel[0] * r->kernel[1] * npuc_block_bytes(r->w_dtype, r->c);
    const int64_t bytes = block ? packed : weight_bytes(r->w_dtype, weights) + npuc_sparse_position_bytes(r, weights);
    const int has_bias = r->bias != NPUC_NONE, has_multiplier = !real && r->kind != NPUC_POW2;
    const int has_shift = !real && r->kind != NPUC_FLOAT_SCALE;
    const int64_t parameters = (int64_t)r->count * 4;
    key.weight = npuc_origin_find(origin, r->weight, r->weight + bytes);
    key.bias = has_bias ? npuc_origin_find(origin, r->bias, r->bias + (int64_t)r->out_c * (r->wide ? 8 : 4)) : -1;
    key.multiplier = has_multiplier ? npuc_origin_find(origin, r->multiplier, r->multiplier + parameters) : -1;
    key.shift = has_shift ? npuc_origin_find(origin, r->shift, r->shift + parameters) : -1;
    const int constant =
        key.weight >= 0 && (!has_bias || key.bias >= 0) && (!has_multiplier || key.multiplier >= 0) && (!has_shift || key.shift >= 0);
    npuc_layer *slot = NULL;
    if (constant && !layers->frugal) {
        if (layers->bytes + size > LARGEST_CACHE) forget(layers);
        if (grow(layers)) {
            slot = find(layers, &key);
            if (slot->prepared) {
                *prepared = slot->prepared;
                return NPUC_OK;
            }
        }
    }
    uint8_t *buffer = slot ? take(size) : npuc_buffer_get(&layers->once, size);
    if (!buffer) return npuc_sim_fail(error, "memory is short"), NPUC_NO_MEMORY;
    status = pack(layers, r, &key.conv, local, buffer, size, error);
    if (status) {
        if (slot) give(buffer);
        return status;
    }
    if (slot) {
        *slot = (npuc_layer){.key = key, .prepared = buffer, .size = size};
        layers->count++;
        layers->bytes += size;
    }
    *prepared = buffer;
    return NPUC_OK;
}

void npuc_layers_be_frugal(npuc_layers *layers)
{
    forget(layers);
    layers->frugal = 1;
}

void npuc_layers_free(npuc_layers *layers)
{
    forget(layers);
    npuc_buffer_free(&layers->once);
    npuc_buffer_free(&layers->weights);
    npuc_buffer_free(&layers->biases);
}
