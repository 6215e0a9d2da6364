/*
 * What each instruction does, by the kernels of graph mode.
 *
 * Outputs do not overlap inputs, unless an elementwise instruction works exactly in place, or an instruction that moves data
 * says that it reads everything first. Anything else would have a result that depends on how a kernel is written.
 */
#include <stdlib.h>
#include <string.h>

#include "npuc/gemm.h"
#include "npuc/vector.h"
#include "custom.h"
#include "sim_execute.h"
#include "sim_floats.h"

typedef struct job {
    npuc_workshop *shop;
    const npuc_decoded *d;
    uint8_t *local;
    uint8_t *const *memory; /* of each access */
    const npuc_origin *origin;
    int32_t threads;
    npuc_sim_error *error;
} job;

static npuc_status no_memory(const job *j) { return npuc_sim_fail(j->error, "memory is short"), NPUC_NO_MEMORY; }

/* ---- moving data ---- */

typedef struct axis {
    int64_t size, x, y; /* strides in bytes */
} axis;

/* Drops axes of one element and merges neighbours that walk as one; returns how many are left. */
static int merge(axis *axes, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (axes[i].size == 1) continue;
        if (kept && axes[kept - 1].x == axes[i].x * axes[i].size && axes[kept - 1].y == axes[i].y * axes[i].size) {
            axes[kept - 1] = (axis){axes[kept - 1].size * axes[i].size, axes[i].x, axes[i].y};
        } else {
            axes[kept++] = axes[i];
        }
    }
    return kept;
}

#define COPY_ROW(type)                                                                                                                     \
    for (int64_t i = 0; i < n; i++, x += dx, y += dy) {                                                                                    \
        type value;                                                                                                                        \
        memcpy(&value, x, sizeof value);                                                                                                   \
        memcpy(y, &value, sizeof value);                                                                                                   \
    }                                                                                                                                      \
    break;

static void copy_row(const uint8_t *x, int64_t dx, uint8_t *y, int64_t dy, int64_t n, int64_t element)
{
    switch (element) {
    case 1: COPY_ROW(uint8_t)
    case 2: COPY_ROW(uint16_t)
    case 4: COPY_ROW(uint32_t)
    case 8: COPY_ROW(uint64_t)
    default:
        for (int64_t i = 0; i < n; i++, x += dx, y += dy) memcpy(y, x, (size_t)element);
    }
}

/* Blocks of `element` bytes along the axes. */
static void move(const uint8_t *x, uint8_t *y, axis *axes, int count, int64_t element)
{
    int left = merge(axes, count);
    if (left && axes[left - 1].x == element && axes[left - 1].y == element) element *= axes[--left].size;
    if (!left) {
        memcpy(y, x, (size_t)element);
        return;
    }
    const axis inner = axes[--left];
    int64_t index[NPUC_ACCESS_AXES] = {0};
    for (;;) {
        copy_row(x, inner.x, y, inner.y, inner.size, element);
        int i = left - 1;
        for (; i >= 0; i--) {
            x += axes[i].x, y += axes[i].y;
            if (++index[i] < axes[i].size) break;
            x -= axes[i].size * axes[i].x, y -= axes[i].size * axes[i].y;
            index[i] = 0;
        }
        if (i < 0) return;
    }
}

static int apart(const npuc_access *a, const npuc_access *b) { return a->high <= b->low || b->high <= a->low; }

static npuc_status transfer(const job *j)
{
    npuc_i_load r;
    memcpy(&r, &j->d->record, sizeof r);
    axis axes[3];
    const int load = r.head.opcode == NPUC_OP_LOAD;
    for (int i = 0; i < 3; i++)
        axes[i] = load ? (axis){r.size[i], r.far_stride[i], r.near_stride[i]} : (axis){r.size[i], r.near_stride[i], r.far_stride[i]};
    uint8_t *near = j->local + r.local, *far = j->memory[0] + r.offset;
    if (load && (r.head.flags & NPUC_COMPRESSED))
        return npuc_streams_load(&j->shop->streams, !j->shop->layers.frugal, &r, j->memory[0], near, j->error);
    move(load ? far : near, load ? near : far, axes, 3, r.size[3]);
    return NPUC_OK;
}

static npuc_status copy(const job *j)
{
    const npuc_i_copy *r = &j->d->record.copy;
    const uint8_t *x = j->local + r->x;
    axis axes[6], last[6];
    for (int i = 0; i < 6; i++) axes[i] = (axis){r->size[i], (int64_t)r->x_stride[i] * r->bytes, (int64_t)r->y_stride[i] * r->bytes};
    if (!apart(&j->d->access[0], &j->d->access[1])) { /* read everything first */
        int64_t step = r->bytes;
        for (int i = 5; i >= 0; step *= axes[i].size, i--) {
            last[i] = (axis){axes[i].size, step, axes[i].y};
            axes[i].y = step;
        }
        uint8_t *scratch = npuc_buffer_get(&j->shop->scratch, step);
        if (!scratch) return no_memory(j);
        move(x, scratch, axes, 6, r->bytes);
        move(scratch, j->local + r->y, last, 6, r->bytes);
        return NPUC_OK;
    }
    move(x, j->local + r->y, axes, 6, r->bytes);
    return NPUC_OK;
}

static npuc_status fill(const job *j)
{
    const npuc_i_fill *r = &j->d->record.fill;
    uint8_t *y = j->local + r->y;
    const int64_t value = r->value;
    if (r->bytes == 1) {
        memset(y, r->value & 255, r->count);
        return NPUC_OK;
    }
    for (int64_t i = 0; i < (int64_t)r->count; i++) memcpy(y + i * r->bytes, &value, r->bytes); /* little-endian */
    return NPUC_OK;
}

/* An index, which counts from the end if it is negative; -1 if it is none. */
static int64_t index_at(const job *j, const npuc_i_gather *r, int64_t i)
{
    int32_t index;
    memcpy(&index, j->local + r->index + i * 4, 4);
    const int64_t place = index < 0 ? (int64_t)index + r->x_size : index;
    return place < (int64_t)r->x_size ? place : -1;
}

static npuc_status gather(const job *j)
{
    const npuc_i_gather *r = &j->d->record.gather;
    const int64_t block = (int64_t)r->inner * r->bytes, bytes = block * r->y_size * r->outer;
    const uint8_t *x = j->local + r->x;
    uint8_t *scratch = npuc_buffer_get(&j->shop->scratch, bytes), *to = scratch;
    if (!scratch) return no_memory(j);
    for (int64_t i = 0; i < (int64_t)r->y_size; i++) {
        if (index_at(j, r, i) >= 0) continue;
        int32_t index;
        memcpy(&index, j->local + r->index + i * 4, 4);
        return npuc_sim_fail(j->error, "index %lld is %d, and x has %u", (long long)i, index, r->x_size);
    }
    for (int64_t o = 0; o < (int64_t)r->outer; o++, x += block * r->x_size)
        for (int64_t i = 0; i < (int64_t)r->y_size; i++, to += block)
            memcpy(to, x + index_at(j, r, i) * block, (size_t)block);
    memcpy(j->local + r->y, scratch, (size_t)bytes);
    return NPUC_OK;
}

/* ---- computing ---- */

static npuc_requant stage(const job *j, int32_t kind, uint32_t count, uint32_t multiplier, uint32_t shift, int32_t zero_point, int32_t lo,
                          int32_t hi)
{
    /* Scales lie where other kinds have their multipliers. */
    const void *first = NPUC_HAS_MULTIPLIER(kind) || NPUC_HAS_SCALE(kind) ? j->local + multiplier : NULL;
    const void *second = NPUC_HAS_SHIFT(kind) ? j->local + shift : NULL;
    return (npuc_requant){.kind = kind,
                          .count = (int32_t)count,
                          .multiplier = NPUC_HAS_MULTIPLIER(kind) ? first : NULL,
                          .shift = second,
                          .scale = NPUC_HAS_SCALE(kind) ? first : NULL,
                          .zero_point = zero_point,
                          .lo = lo,
                          .hi = hi};
}

#define STAGE(j, r) stage(j, (r)->kind, (r)->count, (r)->multiplier, (r)->shift, (r)->zero_point, (r)->lo, (r)->hi)

static npuc_status kernel(const job *j, npuc_status status)
{
    if (!status) return NPUC_OK;
    npuc_sim_fail(j->error, status == NPUC_NO_MEMORY     ? "memory is short"
                            : status == NPUC_UNSUPPORTED ? "the kernel has no such types"
                                                         : "a parameter makes no sense");
    return status;
}

/* Values of s_dtype at `s` through the fused table, to `y`, which may be `s` if the sizes of both are the same. */
static npuc_status through_table(const job *j, const npuc_i_conv *r, const uint8_t *s, uint8_t *y, int64_t n)
{
    const void *table = j->local + r->table;
    if (r->s_dtype == NPUC_I16) return npuc_table16((const int16_t *)(const void *)s, n, table, (int16_t *)(void *)y, j->threads);
    return npuc_table8(s, r->s_dtype, n, table, r->y_dtype, y, j->threads);
}

static npuc_status conv(const job *j)
{
    const npuc_i_conv *r = &j->d->record.conv;
    const void *prepared;
    npuc_status status = npuc_layers_get(&j->shop->layers, r, j->local, j->origin, &prepared, j->error);
    if (status) return status;
    const int has_table = r->table != NPUC_NONE, beside = r->y_stride != r->out_c;
    const int64_t y_size = npuc_sim_size(r->y_dtype), s_size = has_table ? npuc_sim_size(r->s_dtype) : y_size;
    const int64_t pixels = (int64_t)r->n * r->out_h * r->out_w, elements = pixels * r->out_c;
    uint8_t *y = j->local + r->y, *sums = y, *made = y;
    if (beside || s_size != y_size) {
        sums = npuc_buffer_get(&j->shop->scratch, elements * s_size);
        made = beside ? sums : y;
        if (beside && s_size != y_size) made = npuc_buffer_get(&j->shop->tables, elements * y_size);
        if (!sums || !made) return no_memory(j);
    }
    status = npuc_conv_run(prepared, j->local + r->x, r->n, r->h, r->w, sums, r->out_h, r->out_w, j->threads);
    if (!status && has_table) status = through_table(j, r, sums, made, elements);
    if (status) return kernel(j, status);
    if (beside) {
        const int64_t row = r->out_c * y_size, step = r->y_stride * y_size;
        for (int64_t i = 0; i < pixels; i++) memcpy(y + i * step, made + i * row, (size_t)row);
    }
    return NPUC_OK;
}

static int64_t lowest(int32_t dtype) { return dtype == NPUC_I8 ? -128 : dtype == NPUC_U8 ? 0 : dtype == NPUC_I16 ? -32768 : INT32_MIN; }
static int64_t highest(int32_t dtype) { return dtype == NPUC_I8 ? 127 : dtype == NPUC_U8 ? 255 : dtype == NPUC_I16 ? 32767 : INT32_MAX; }
static int holds(int32_t dtype, int32_t value) { return value >= lowest(dtype) && value <= highest(dtype); }

/* The largest |q - zero|, or 0 for a zero point that is none, which the kernel refuses. */
static int64_t reach(int32_t dtype, int32_t zero)
{
    const int64_t below = zero - lowest(dtype), above = highest(dtype) - zero;
    if (!holds(dtype, zero)) return 0;
    return below > above ? below : above;
}

static npuc_status matmul(const job *j)
{
    const npuc_i_matmul *r = &j->d->record.matmul;
    if (!r->wide && reach(r->x_dtype, r->x_zero_point) * reach(r->b_dtype, r->b_zero_point) * r->k > INT32_MAX)
        return npuc_sim_fail(j->error, "a sum could leave the 32-bit accumulator");
    if (!holds(r->y_dtype, r->zero_point)) return npuc_sim_fail(j->error, "a zero point of %d", r->zero_point);
    int64_t *offsets = (int64_t *)(void *)npuc_buffer_get(&j->shop->tables, (int64_t)r->batch * 16);
    if (!offsets) return no_memory(j);
    for (int64_t i = 0; i < (int64_t)r->batch; i++) offsets[i] = i * r->a_step, offsets[r->batch + i] = i * r->b_step;
    const npuc_requant rq = STAGE(j, r);
    const npuc_matmul mm = {.a_dtype = r->x_dtype,
                            .b_dtype = r->b_dtype,
                            .y_dtype = r->y_dtype,
                            .a_zero_point = r->x_zero_point,
                            .b_zero_point = r->b_zero_point,
                            .transposed_b = r->transposed_b,
                            .wide = r->wide,
                            .threads = j->threads,
                            .m = r->m,
                            .k = r->k,
                            .n = r->cols,
                            .batch = r->batch,
                            .a_offset = offsets,
                            .b_offset = offsets + r->batch};
    return kernel(j, npuc_matmul_run(&mm, j->local + r->x, j->local + r->b, &rq, j->local + r->y));
}

/* Weights at `from` as int16. */
static void widen(const uint8_t *from, int32_t dtype, int64_t count, int16_t *to)
{
    if (dtype == NPUC_I16) {
        memcpy(to, from, (size_t)count * 2);
    } else if (dtype == NPUC_I8) {
        for (int64_t i = 0; i < count; i++) to[i] = (int8_t)from[i];
    } else {
        npuc_unpack_integers(from, count, NPUC_PACKED_BITS(dtype), 0, to);
    }
}

static npuc_status recurrent(const job *j)
{
    const npuc_i_recurrent *r = &j->d->record.recurrent;
    const int64_t hidden = r->hidden, rows = r->gates * hidden, units = r->batch * hidden;
    const int64_t width = r->projected ? r->projected : hidden, outputs = r->batch * width;
    const int64_t weights = rows * (r->inputs + width) + r->projected * hidden, h_size = npuc_sim_size(r->y_dtype);
    const uint8_t *at = j->local + r->constants;
    npuc_recurrent p = {.gates = r->gates,
                        .linear_before_reset = r->linear_before_reset,
                        .coupled = r->coupled,
                        .reverse = r->reverse,
                        .cell_bits = r->cell_bits,
                        .limit = r->limit,
                        .steps = r->steps,
                        .batch = r->batch,
                        .inputs = r->inputs,
                        .hidden = hidden,
                        .projected = r->projected,
                        .y_stride = r->y_stride,
                        .x_dtype = r->x_dtype,
                        .x_zero_point = r->x_zero_point,
                        .h_dtype = r->y_dtype,
                        .h_zero_point = r->zero_point,
                        .lo = r->lo,
                        .hi = r->hi,
                        .out_multiplier = r->multiplier,
                        .out_shift = r->shift};
    p.bias = (const int64_t *)(const void *)at, at += rows * 8;
    if (r->linear_before_reset) p.bias_h = (const int64_t *)(const void *)at, at += hidden * 8;
    p.multiplier_x = (const int32_t *)(const void *)at, at += rows * 4;
    p.multiplier_h = (const int32_t *)(const void *)at, at += rows * 4;
    p.shift = (const int32_t *)(const void *)at, at += rows * 4;
    if (r->peephole) p.multiplier_c = (const int32_t *)(const void *)at, at += 3 * hidden * 4;
    if (r->projected) p.multiplier_p = (const int32_t *)(const void *)at, at += (int64_t)r->projected * 4;
    if (r->projected) p.shift_p = (const int32_t *)(const void *)at, at += (int64_t)r->projected * 4;
    if (r->gates > 1) p.sigmoid = (const int16_t *)(const void *)at, at += 513 * 2;
    p.tanh = (const int16_t *)(const void *)at, at += 513 * 2;
    if (r->gates == 4) p.cell_tanh = (const int16_t *)(const void *)at, at += 513 * 2;
    if (r->peephole) p.peephole = (const int16_t *)(const void *)at, at += 3 * hidden * 2;
    npuc_status status = npuc_recurrent_check(&p);
    if (status) return kernel(j, status);
    int16_t *wide = (int16_t *)(void *)npuc_buffer_get(&j->shop->tables, weights * 2);
    /* The states, then the kernel's own memory. */
    int16_t *state = (int16_t *)(void *)npuc_buffer_get(&j->shop->scratch, (units + outputs) * 2 + npuc_recurrent_room(&p));
    if (!wide || !state) return no_memory(j);
    uint8_t *h = (uint8_t *)(state + units);
    widen(at, r->w_dtype, weights, wide);
    p.w = wide, p.r = wide + rows * r->inputs, p.projection = r->projected ? p.r + rows * width : NULL;
    if (r->first_state == NPUC_NONE)
        memset(state, 0, (size_t)units * 2);
    else
        memcpy(state, j->local + r->first_state, (size_t)units * 2);
    for (int64_t i = 0; i < outputs; i++) memcpy(h + i * h_size, &r->zero_point, (size_t)h_size); /* little-endian */
    if (r->first_h != NPUC_NONE) memcpy(h, j->local + r->first_h, (size_t)(outputs * h_size));
    status = npuc_recurrent_run_in(&p, state + units + outputs, j->local + r->x, h, state, j->local + r->y, j->threads);
    if (status) return kernel(j, status);
    if (r->last_h != NPUC_NONE) memcpy(j->local + r->last_h, h, (size_t)(outputs * h_size));
    if (r->last_state != NPUC_NONE) memcpy(j->local + r->last_state, state, (size_t)units * 2);
    return NPUC_OK;
}

static npuc_status quantized_lstm(const job *j)
{
    const npuc_i_quantized_lstm *r = &j->d->record.quantized_lstm;
    const int64_t gates = r->coupled ? 3 : 4, rows = gates * r->cells;
    const uint8_t *at = j->local + r->constants;
    npuc_quantized_lstm p = {.coupled = r->coupled,
                             .integer_bits = r->integer_bits,
                             .cell_clip = r->cell_clip,
                             .first_h = r->first_h,
                             .steps = r->steps,
                             .batch = r->batch,
                             .inputs = r->inputs,
                             .cells = r->cells,
                             .outputs = r->outputs,
                             .x_step = r->x_step,
                             .x_sample = r->x_sample,
                             .y_step = r->y_step,
                             .y_sample = r->y_sample,
                             .peephole_rows = r->peephole_rows};
    p.scales_x = (const int32_t *)(const void *)at, at += 2 * gates * 4;
    p.scales_h = (const int32_t *)(const void *)at, at += 2 * gates * 4;
    if (r->peephole_rows) p.scales_c = (const int32_t *)(const void *)at, at += 2 * (gates - 1) * 4;
    if (r->norm) p.norm_scales = (const int32_t *)(const void *)at, at += 3 * gates * 4;
    p.hidden = (const int32_t *)(const void *)at, at += 3 * 4;
    if (r->projected) p.projected = (const int32_t *)(const void *)at, at += 4 * 4;
    p.bias_x = (const int32_t *)(const void *)at, at += rows * 4;
    p.bias_h = (const int32_t *)(const void *)at, at += rows * 4;
    if (r->norm) p.norm_bias = (const int32_t *)(const void *)at, at += rows * 4;
    if (r->projected) p.projection_bias = (const int32_t *)(const void *)at, at += (int64_t)r->outputs * 4;
    if (r->norm) p.norm_weight = (const int16_t *)(const void *)at, at += rows * 2;
    if (r->peephole_rows) p.peephole = (const int16_t *)(const void *)at, at += (gates - 1) * r->peephole_rows * r->cells * 2;
    p.w = (const int8_t *)at, at += rows * r->inputs;
    p.r = (const int8_t *)at, at += rows * r->outputs;
    if (r->projected) p.projection = (const int8_t *)at;
    npuc_status status = npuc_quantized_lstm_check(&p);
    if (status) return kernel(j, status);
    int16_t *room = (int16_t *)(void *)npuc_buffer_get(&j->shop->scratch, npuc_quantized_lstm_room(&p));
    if (!room) return no_memory(j);
    status = npuc_quantized_lstm_run_in(&p, room, (const int8_t *)(j->local + r->x), (int8_t *)(j->local + r->y), j->threads);
    return status ? kernel(j, status) : NPUC_OK;
}

typedef struct views {
    int64_t shape[4], a_stride[4], b_stride[4];
    npuc_view a, b;
} views;

static void two(views *v, const job *j, uint32_t a, int32_t a_dtype, int32_t a_zero, uint32_t b, int32_t b_dtype, int32_t b_zero,
                const uint32_t *size, const int32_t *a_stride, const int32_t *b_stride)
{
    for (int i = 0; i < 4; i++) v->shape[i] = size[i], v->a_stride[i] = a_stride[i], v->b_stride[i] = b_stride[i];
    v->a = (npuc_view){j->local + a, v->a_stride, a_dtype, a_zero};
    v->b = (npuc_view){j->local + b, v->b_stride, b_dtype, b_zero};
}

static float bits_of_float(int32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static npuc_status add(const job *j)
{
    const npuc_i_add *r = &j->d->record.add;
    views v;
    two(&v, j, r->x, r->x_dtype, r->x_zero_point, r->b, r->b_dtype, r->b_zero_point, r->size, r->a_stride, r->b_stride);
    npuc_add_parameters p = {.kind = r->kind,
                             .subtract = r->subtract,
                             .left = r->left,
                             .multiplier_a = r->multiplier[0],
                             .shift_a = r->shift[0],
                             .multiplier_b = r->multiplier[1],
                             .shift_b = r->shift[1],
                             .multiplier = r->multiplier[2],
                             .shift = r->shift[2],
                             .zero_point = r->zero_point,
                             .lo = r->lo,
                             .hi = r->hi};
    if (r->kind == NPUC_FLOAT_SCALE) {
        p.scale_a = bits_of_float(r->multiplier[0]);
        p.scale_b = bits_of_float(r->multiplier[1]);
    }
    return kernel(j, npuc_add(&v.a, &v.b, 4, v.shape, &p, r->y_dtype, j->local + r->y, j->threads));
}

static npuc_status mul(const job *j)
{
    const npuc_i_mul *r = &j->d->record.mul;
    const npuc_requant rq = STAGE(j, r);
    views v;
    two(&v, j, r->x, r->x_dtype, r->x_zero_point, r->b, r->b_dtype, r->b_zero_point, r->size, r->a_stride, r->b_stride);
    return kernel(j, npuc_mul(&v.a, &v.b, 4, v.shape, &rq, r->y_dtype, j->local + r->y, j->threads));
}

static npuc_status minmax(const job *j)
{
    const npuc_i_minmax *r = &j->d->record.minmax;
    views v;
    two(&v, j, r->x, r->x_dtype, r->x_zero_point, r->b, r->x_dtype, r->x_zero_point, r->size, r->a_stride, r->b_stride);
    return kernel(j, npuc_minmax(&v.a, &v.b, 4, v.shape, r->larger, r->lo, r->hi, r->y_dtype, j->local + r->y, j->threads));
}

static npuc_status requant(const job *j)
{
    const npuc_i_requant *r = &j->d->record.requant;
    const npuc_requant rq = STAGE(j, r);
    return kernel(
        j, npuc_requant_tensor(j->local + r->x, r->x_dtype, r->x_zero_point, r->elements, &rq, r->y_dtype, j->local + r->y, j->threads));
}

static npuc_status table(const job *j)
{
    const npuc_i_table *r = &j->d->record.table;
    const uint8_t *x = j->local + r->x, *entries = j->local + r->table;
    uint8_t *y = j->local + r->y;
    const int64_t inner = r->inner, rows = (int64_t)r->outer * r->channels;
    if (r->segments)
        return kernel(j, npuc_table_between(x, r->x_dtype, rows * inner, entries, r->y_dtype, r->segments, y, j->threads));
    if (r->x_dtype != NPUC_I16 && r->channels == 1)
        return kernel(j, npuc_table8(x, r->x_dtype, rows * inner, entries, r->y_dtype, y, j->threads));
    if (r->x_dtype != NPUC_I16)
        return kernel(j, npuc_channel_table8(x, r->x_dtype, r->outer, r->channels, inner, entries, r->y_dtype, y, j->threads));
    if (r->channels == 1)
        return kernel(j, npuc_table16((const int16_t *)(const void *)x, rows * inner, (const int16_t *)(const void *)entries,
                                      (int16_t *)(void *)y, j->threads));
    for (int64_t row = 0; row < rows; row++) {
        npuc_status status =
            npuc_table16((const int16_t *)(const void *)x + row * inner, inner,
                         (const int16_t *)(const void *)entries + row % r->channels * 513, (int16_t *)(void *)y + row * inner, 1);
        if (status) return kernel(j, status);
    }
    return NPUC_OK;
}

#define POOL(r)                                                                                                                            \
    (npuc_pool)                                                                                                                            \
    {                                                                                                                                      \
        .n = (r)->n, .h = (r)->h, .w = (r)->w, .c = (r)->c, .out_h = (r)->out_h, .out_w = (r)->out_w, .kernel_h = (r)->kernel[0],          \
        .kernel_w = (r)->kernel[1], .stride_h = (r)->stride[0], .stride_w = (r)->stride[1], .dilation_h = (r)->dilation[0],                \
        .dilation_w = (r)->dilation[1], .pad_top = (r)->pad[0], .pad_left = (r)->pad[1]                                                    \
    }

static npuc_status max_pool(const job *j)
{
    const npuc_i_max_pool *r = &j->d->record.max_pool;
    const npuc_pool pool = POOL(r);
    return kernel(j, npuc_max_pool(&pool, j->local + r->x, r->x_dtype, j->local + r->y, j->threads));
}

static npuc_status avg_pool(const job *j)
{
    const npuc_i_avg_pool *r = &j->d->record.avg_pool;
    const npuc_pool pool = POOL(r);
    npuc_requant rq = {.kind = NPUC_DOUBLE_ROUNDING, .count = 1, .zero_point = r->zero_point, .lo = r->lo, .hi = r->hi};
    if (r->kind != NPUC_DOUBLE_ROUNDING) rq = STAGE(j, r);
    return kernel(j, npuc_average_pool(&pool, j->local + r->x, r->x_dtype, r->x_zero_point, r->include_pad, &rq, r->y_dtype,
                                       j->local + r->y, j->threads));
}

static npuc_status reduce(const job *j)
{
    const npuc_i_reduce *r = &j->d->record.reduce;
    const uint8_t *x = j->local + r->x;
    uint8_t *y = j->local + r->y;
    if (r->mode == 0) {
        const npuc_requant rq = STAGE(j, r);
        return kernel(j, npuc_reduce_sum(x, r->x_dtype, r->x_zero_point, r->outer, r->reduced, r->inner, &rq, r->y_dtype, y, j->threads));
    }
    if (r->mode <= 2) return kernel(j, npuc_reduce_extreme(x, r->x_dtype, r->outer, r->reduced, r->inner, r->mode == 1, y, j->threads));
    const int64_t n = (int64_t)r->outer * r->inner;
    int64_t *places = (int64_t *)(void *)npuc_buffer_get(&j->shop->scratch, n * 8);
    if (!places) return no_memory(j);
    npuc_status status = npuc_reduce_where(x, r->x_dtype, r->outer, r->reduced, r->inner, r->mode == 3, r->last, places, j->threads);
    if (status) return kernel(j, status);
    const int64_t size = npuc_sim_size(r->y_dtype);
    for (int64_t i = 0; i < n; i++) memcpy(y + i * size, places + i, (size_t)size); /* little-endian */
    return NPUC_OK;
}

static npuc_status topk(const job *j)
{
    const npuc_i_topk *r = &j->d->record.topk;
    const uint8_t *x = j->local + r->x;
    uint8_t *y = j->local + r->y;
    const int64_t block = (int64_t)r->k * r->inner, n = r->outer * block;
    int64_t *places = (int64_t *)(void *)npuc_buffer_get(&j->shop->scratch, n * 8);
    if (!places) return no_memory(j);
    const npuc_status status = npuc_top_k(x, r->x_dtype, r->outer, r->reduced, r->inner, r->k, r->largest, places, j->threads);
    if (status) return kernel(j, status);
    const int64_t size = npuc_sim_size(r->y_dtype);
    for (int64_t i = 0; i < n; i++) {
        const int64_t column = i / block * r->reduced * r->inner + i % r->inner;
        const uint8_t *from = r->places ? (const uint8_t *)(places + i) : x + (column + places[i] * r->inner) * size;
        memcpy(y + i * size, from, (size_t)size); /* little-endian */
    }
    return NPUC_OK;
}

#define CLAMP(type)                                                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                                      \
        type *at = (type *)y + i;                                                                                                          \
        *at = (type)(*at < lo ? lo : *at > hi ? hi : *at);                                                                                 \
    }                                                                                                                                      \
    break;

/* TFLite's own forms use the whole range of their type. */
static void clamp(void *y, int32_t dtype, int64_t n, int32_t lo, int32_t hi)
{
    if (lo == lowest(dtype) && hi == highest(dtype)) return;
    switch (dtype) {
    case NPUC_I8: CLAMP(int8_t)
    case NPUC_U8: CLAMP(uint8_t)
    default: CLAMP(int16_t)
    }
}

static npuc_status softmax(const job *j)
{
    const npuc_i_softmax *r = &j->d->record.softmax;
    const void *x = j->local + r->x;
    void *y = j->local + r->y;
    npuc_status status;
    if (!holds(r->y_dtype, r->lo) || !holds(r->y_dtype, r->hi) || r->lo > r->hi)
        return npuc_sim_fail(j->error, "an output range of %d to %d", r->lo, r->hi);
    const void *coarse = j->local + (r->form == 1 ? 0 : r->coarse), *fine = j->local + (r->form == 1 ? 0 : r->fine);
    if (r->form == 0)
        return kernel(j, npuc_softmax(x, r->x_dtype, r->rows, r->width, coarse, fine, r->multiplier, r->shift, r->rounding, r->zero_point,
                                      r->lo, r->hi, r->y_dtype, y, j->threads));
    if (r->form == 1)
        status = npuc_softmax_tflite8(x, r->x_dtype, r->rows, r->width, r->multiplier, r->shift, r->diff_min, r->y_dtype, y, j->threads);
    else
        status = npuc_softmax_tflite16(x, r->rows, r->width, r->multiplier, r->shift, coarse, fine, y, j->threads);
    if (!status) clamp(y, r->y_dtype, (int64_t)r->rows * r->width, r->lo, r->hi);
    return kernel(j, status);
}

static npuc_status norm(const job *j)
{
    const npuc_i_norm *r = &j->d->record.norm;
    const void *x = j->local + r->x;
    void *y = j->local + r->y;
    if (r->form == 1) return kernel(j, npuc_l2_norm_tflite8(x, r->x_dtype, r->x_zero_point, r->rows, r->width, y, j->threads));
    const npuc_norm n = {.x_dtype = r->x_dtype,
                         .dtype = r->y_dtype,
                         .rows = r->rows,
                         .width = r->width,
                         .x_zero_point = r->x_zero_point,
                         .center = r->center,
                         .epsilon = r->epsilon,
                         .row_modulus = r->row_modulus,
                         .row_factor = r->row_factor,
                         .column_divisor = r->column_divisor,
                         .shift = r->shift,
                         .rounding = r->rounding,
                         .zero_point = r->zero_point,
                         .lo = r->lo,
                         .hi = r->hi};
    return kernel(j, npuc_normalize(&n, x, (const int32_t *)(const void *)(j->local + r->gain),
                                    (const int64_t *)(const void *)(j->local + r->bias), r->entries, y, j->threads));
}

/* low and high as int64, from i32[3][n] at `from`. */
static const int32_t *spread(const uint8_t *from, int64_t n, int64_t *low, int64_t *high)
{
    const int32_t *entries = (const int32_t *)(const void *)from;
    for (int64_t i = 0; i < n; i++) low[i] = entries[i], high[i] = entries[n + i];
    return entries + 2 * n;
}

static npuc_status resize(const job *j)
{
    const npuc_i_resize *r = &j->d->record.resize;
    const int64_t rows = r->out_h, columns = r->out_w;
    int64_t *memory = (int64_t *)(void *)npuc_buffer_get(&j->shop->tables, (rows + columns) * 16);
    if (!memory) return no_memory(j);
    npuc_resize p = {.n = r->n,
                     .h = r->h,
                     .w = r->w,
                     .c = r->c,
                     .out_h = rows,
                     .out_w = columns,
                     .row_low = memory,
                     .row_high = memory + rows,
                     .column_low = memory + 2 * rows,
                     .column_high = memory + 2 * rows + columns,
                     .bits = r->bits,
                     .rounding = r->rounding,
                     .dtype = r->x_dtype};
    p.row_weight = spread(j->local + r->rows, rows, memory, memory + rows);
    p.column_weight = spread(j->local + r->columns, columns, memory + 2 * rows, memory + 2 * rows + columns);
    return kernel(j, npuc_resize_bilinear(&p, j->local + r->x, j->local + r->y, j->threads));
}

_Static_assert(sizeof(((npuc_i_custom *)0)->kernel) == NPU_KERNEL_NAME, "npu_kernel.h and the instruction set agree");
_Static_assert(sizeof(((npuc_i_custom *)0)->parameters) == NPU_KERNEL_PARAMETERS * 4, "npu_kernel.h and the instruction set agree");

enum { GUARD = 64 };

static uint8_t guard_byte(int64_t i) { return (uint8_t)(0xa5 ^ (i * 37)); }

static int64_t guarded_size(int64_t bytes) { return GUARD + (bytes + GUARD - 1) / GUARD * GUARD + GUARD; }

/* Blocks that a kernel writes, each in a copy with guards before and behind it. */
typedef struct guarded {
    void **field;
    uint8_t *home, *copy;
    int64_t bytes;
    const char *what;
} guarded;

static void guard(const guarded *g)
{
    for (int64_t i = 0; i < guarded_size(g->bytes); i++) g->copy[i] = guard_byte(i);
    memcpy(g->copy + GUARD, g->home, (size_t)g->bytes);
    *g->field = g->copy + GUARD;
}

static int is_whole(const guarded *g)
{
    for (int64_t i = 0; i < guarded_size(g->bytes); i++)
        if ((i < GUARD || i >= GUARD + g->bytes) && g->copy[i] != guard_byte(i)) return 0;
    return 1;
}

/* Calls a kernel. Where programs are proved (the sanitizer), a byte that it writes beyond its result or a workspace is found. */
static npuc_status call_kernel(const job *j, const uint8_t *name, npu_kernel_call *call)
{
    const npu_kernel known = npuc_find_kernel(name);
    if (!known) return npuc_sim_fail(j->error, "the kernel '%s' is not registered", (const char *)name);
    guarded blocks[] = {{&call->y, call->y, NULL, call->y_bytes, "result"},
                        {&call->workspace, call->workspace, NULL, call->workspace_bytes, "workspace"},
                        {&call->local_workspace, call->local_workspace, NULL, call->local_workspace_bytes, "workspace in local memory"}};
    enum { BLOCKS = sizeof blocks / sizeof blocks[0] };
    if (j->shop->guarded) {
        int64_t room = 0;
        for (int i = 0; i < BLOCKS; i++) room += guarded_size(blocks[i].bytes);
        uint8_t *scratch = npuc_buffer_get(&j->shop->scratch, room);
        if (!scratch) return no_memory(j);
        for (int i = 0; i < BLOCKS; scratch += guarded_size(blocks[i++].bytes)) {
            blocks[i].copy = scratch;
            if (blocks[i].home) guard(&blocks[i]);
        }
    }
    const int32_t answer = known(call);
    if (answer) return npuc_sim_fail(j->error, "the kernel '%s' refuses its operands (%d)", (const char *)name, (int)answer);
    for (int i = 0; i < BLOCKS && j->shop->guarded; i++) {
        if (!blocks[i].home) continue;
        if (!is_whole(&blocks[i]))
            return npuc_sim_fail(j->error, "the kernel '%s' writes beyond the %lld bytes of its %s", (const char *)name,
                                 (long long)blocks[i].bytes, blocks[i].what);
        memcpy(blocks[i].home, blocks[i].copy + GUARD, (size_t)blocks[i].bytes);
    }
    return NPUC_OK;
}

static npuc_status custom(const job *j)
{
    const npuc_i_custom *r = &j->d->record.custom;
    npu_kernel_call call = {.x = j->local + r->x,
                            .b = r->b == NPUC_NONE ? NULL : j->local + r->b,
                            .constants = r->constants == NPUC_NONE ? NULL : j->local + r->constants,
                            .y = j->local + r->y,
                            .x_bytes = r->x_bytes,
                            .b_bytes = r->b_bytes,
                            .constant_bytes = r->constant_bytes,
                            .y_bytes = r->y_bytes,
                            .parameters = r->parameters,
                            .bytes = r->bytes};
    return call_kernel(j, r->kernel, &call);
}

/* The forms that have their numbers in front of the constants: each block is an access of its name. */
static npuc_status custom_with_workspace(const job *j, const uint8_t *name, int32_t element)
{
    enum { PARAMETER_BYTES = NPU_KERNEL_PARAMETERS * 4 };
    npu_kernel_call call = {.bytes = element};
    int32_t parameters[NPU_KERNEL_PARAMETERS];
    for (int32_t i = 0; i < j->d->count; i++) {
        const npuc_access *a = &j->d->access[i];
        uint8_t *at = j->memory[i] + a->at;
        if (strcmp(a->what, "x") == 0)
            call.x = at, call.x_bytes = a->run;
        else if (strcmp(a->what, "b") == 0)
            call.b = at, call.b_bytes = a->run;
        else if (strcmp(a->what, "y") == 0)
            call.y = at, call.y_bytes = a->run;
        else if (strcmp(a->what, "workspace") == 0)
            call.workspace = at, call.workspace_bytes = a->run;
        else if (strcmp(a->what, "local_workspace") == 0)
            call.local_workspace = at, call.local_workspace_bytes = a->run;
        else {
            memcpy(parameters, at, PARAMETER_BYTES);
            call.constant_bytes = a->run - PARAMETER_BYTES;
            call.constants = call.constant_bytes ? at + PARAMETER_BYTES : NULL;
        }
    }
    call.parameters = parameters;
    return call_kernel(j, name, &call);
}

/* ---- all ---- */

static int moves_data(int32_t opcode) { return opcode == NPUC_OP_COPY || opcode == NPUC_OP_GATHER || opcode <= NPUC_OP_STORE; }

static int is_elementwise(int32_t opcode)
{
    return opcode == NPUC_OP_ADD || opcode == NPUC_OP_MUL || opcode == NPUC_OP_REQUANT || opcode == NPUC_OP_TABLE ||
           opcode == NPUC_OP_MINMAX;
}

/* Only the operands of an elementwise instruction, not its tables and parameters. */
static int may_be_y(const npuc_access *a) { return a->in_place && (strcmp(a->what, "x") == 0 || strcmp(a->what, "b") == 0); }

static npuc_status check_overlap(const job *j)
{
    const npuc_decoded *d = j->d;
    const int32_t opcode = d->record.head.opcode;
    if (moves_data(opcode)) return NPUC_OK;
    for (int32_t last = d->count - 1; last >= 0; last--) {
        const npuc_access *y = &d->access[last];
        for (int32_t i = 0; y->write && i < last; i++) {
            const npuc_access *x = &d->access[i];
            if (x->space != y->space || apart(x, y)) continue;
            if (is_elementwise(opcode) && may_be_y(x) && x->low == y->low && x->high == y->high) continue;
            return npuc_sim_fail(j->error, "%s overlaps %s", y->what, x->what);
        }
    }
    return NPUC_OK;
}

npuc_status npuc_sim_instruction(npuc_workshop *workshop, const npuc_decoded *decoded, uint8_t *local, uint8_t *const *memory,
                                 const npuc_origin *origin, int32_t threads, npuc_sim_error *error)
{
    const job work = {workshop, decoded, local, memory, origin, threads, error}, *j = &work;
    npuc_status status = check_overlap(j);
    if (status) return status;
    if (npuc_is_float_instruction(&decoded->record))
        return npuc_float_instruction(workshop, &decoded->record, local, origin, threads, error);
    switch (decoded->record.head.opcode) {
    case NPUC_OP_LOAD:
    case NPUC_OP_STORE: return transfer(j);
    case NPUC_OP_CONV: return conv(j);
    case NPUC_OP_MATMUL: return matmul(j);
    case NPUC_OP_RECURRENT: return recurrent(j);
    case NPUC_OP_QUANTIZED_LSTM: return quantized_lstm(j);
    case NPUC_OP_COPY: return copy(j);
    case NPUC_OP_FILL: return fill(j);
    case NPUC_OP_GATHER: return gather(j);
    case NPUC_OP_ADD: return add(j);
    case NPUC_OP_MUL: return mul(j);
    case NPUC_OP_REQUANT: return requant(j);
    case NPUC_OP_TABLE: return table(j);
    case NPUC_OP_MINMAX: return minmax(j);
    case NPUC_OP_MAX_POOL: return max_pool(j);
    case NPUC_OP_AVG_POOL: return avg_pool(j);
    case NPUC_OP_REDUCE: return reduce(j);
    case NPUC_OP_TOPK: return topk(j);
    case NPUC_OP_SOFTMAX: return softmax(j);
    case NPUC_OP_NORM: return norm(j);
    case NPUC_OP_CUSTOM: return custom(j);
    case NPUC_OP_CUSTOM_LOCAL: return custom_with_workspace(j, decoded->record.custom_local.kernel, decoded->record.custom_local.bytes);
    case NPUC_OP_CUSTOM_GLOBAL: return custom_with_workspace(j, decoded->record.custom_global.kernel, decoded->record.custom_global.bytes);
    default: return resize(j);
    }
}

void npuc_workshop_free(npuc_workshop *workshop)
{
    npuc_layers_free(&workshop->layers);
    npuc_streams_free(&workshop->streams);
    npuc_buffer_free(&workshop->scratch);
    npuc_buffer_free(&workshop->tables);
}
