/* What each instruction does on bf16, f16 and f32, by the kernels of graph mode. */
#include <math.h>
#include <string.h>

#include "floats.h"
#include "sim_floats.h"

typedef struct job {
    npuc_workshop *shop;
    const npuc_record *record;
    uint8_t *local;
    const npuc_origin *origin;
    int32_t threads;
    npuc_sim_error *error;
} job;

static const void *operand_at(const job *j, uint32_t address) { return j->local + address; }
static void *result_at(const job *j, uint32_t address) { return j->local + address; }
static const uint16_t *narrow_at(const job *j, uint32_t address) { return (const uint16_t *)operand_at(j, address); }
static const float *floats_at(const job *j, uint32_t address) { return (const float *)(const void *)(j->local + address); }

static npuc_status no_memory(const job *j) { return npuc_sim_fail(j->error, "memory is short"), NPUC_NO_MEMORY; }

static npuc_status kernel(const job *j, npuc_status status)
{
    if (status) npuc_sim_fail(j->error, status == NPUC_NO_MEMORY ? "memory is short" : "a parameter makes no sense");
    return status;
}

int npuc_float_limits(int32_t lo, int32_t hi, int32_t *relu, float *limit)
{
    const float least = npuc_float_of((uint32_t)lo), most = npuc_float_of((uint32_t)hi);
    *relu = lo == 0;
    *limit = isinf(most) ? 0.0f : most;
    return lo == 0 ? most > 0.0f : isinf(least) && least < 0.0f && isinf(most) && most > 0.0f;
}

static npuc_status conv(const job *j)
{
    const npuc_i_conv *r = &j->record->conv;
    const void *prepared;
    npuc_status status = npuc_layers_get(&j->shop->layers, r, j->local, j->origin, &prepared, j->error);
    if (status) return status;
    const int64_t size = npuc_float_size(r->y_dtype), pixels = (int64_t)r->n * r->out_h * r->out_w, row = r->out_c * size;
    uint8_t *y = j->local + r->y, *dense = y;
    if (r->y_stride != r->out_c) dense = npuc_buffer_get(&j->shop->scratch, pixels * row);
    if (!dense) return no_memory(j);
    status = npuc_float_conv_run(prepared, operand_at(j, r->x), r->n, r->h, r->w, dense, r->out_h, r->out_w, j->threads);
    if (status) return kernel(j, status);
    for (int64_t i = 0; dense != y && i < pixels; i++) memcpy(y + i * r->y_stride * size, dense + i * row, (size_t)row);
    return NPUC_OK;
}

/* Packed images are convolved as the f32 that they stand for; results are rounded to their type. */
static npuc_status packed_conv(const job *j)
{
    const npuc_i_conv *r = &j->record->conv;
    const void *prepared;
    npuc_status status = npuc_layers_get(&j->shop->layers, r, j->local, j->origin, &prepared, j->error);
    if (status) return status;
    const int64_t from = (int64_t)r->n * r->h * r->w, to = (int64_t)r->n * r->out_h * r->out_w, size = npuc_float_size(r->y_dtype);
    float *x = (float *)(void *)npuc_buffer_get(&j->shop->scratch, (from * r->c + to * r->out_c) * 4 + to * r->out_c * size);
    if (!x) return no_memory(j);
    float *sums = x + from * r->c;
    const uint8_t *rounded = (const uint8_t *)(sums + to * r->out_c);
    status = npuc_block_unpack(j->local + r->x, from, r->c, r->x_dtype, x, j->threads);
    if (!status) status = npuc_float_conv_run(prepared, x, r->n, r->h, r->w, sums, r->out_h, r->out_w, j->threads);
    if (!status && r->y_dtype == NPUC_F32)
        rounded = (const uint8_t *)sums;
    else if (!status)
        status = npuc_float_cast(sums, NPUC_F32, to * r->out_c, (void *)(uintptr_t)rounded, r->y_dtype, j->threads);
    for (int64_t i = 0; i < to && !status; i++)
        memcpy(j->local + r->y + i * r->y_stride * size, rounded + i * r->out_c * size, (size_t)(r->out_c * size));
    return kernel(j, status);
}

static npuc_status matmul(const job *j)
{
    const npuc_i_matmul *r = &j->record->matmul;
    int64_t *offsets = (int64_t *)(void *)npuc_buffer_get(&j->shop->tables, (int64_t)r->batch * 16);
    if (!offsets) return no_memory(j);
    for (int64_t i = 0; i < (int64_t)r->batch; i++) offsets[i] = i * r->a_step, offsets[r->batch + i] = i * r->b_step;
    npuc_float_matmul mm = {.dtype = r->x_dtype,
                            .transposed_b = r->transposed_b,
                            .threads = j->threads,
                            .m = r->m,
                            .k = r->k,
                            .n = r->cols,
                            .batch = r->batch,
                            .a_offset = offsets,
                            .b_offset = offsets + r->batch};
    npuc_float_limits(r->lo, r->hi, &mm.relu, &mm.relu_limit);
    return kernel(j, npuc_float_matmul_run(&mm, operand_at(j, r->x), operand_at(j, r->b), NULL, result_at(j, r->y)));
}

/* Operations of npuc_float_binary. */
enum { MULTIPLY = 2, LARGER = 3, SMALLER = 4 };

static npuc_status binary(const job *j, int32_t operation, uint32_t a, uint32_t b, int32_t dtype, const uint32_t *size,
                          const int32_t *a_stride, const int32_t *b_stride, int32_t lo, int32_t hi, uint32_t y)
{
    int64_t shape[4], left[4], right[4];
    for (int i = 0; i < 4; i++) shape[i] = size[i], left[i] = a_stride[i], right[i] = b_stride[i];
    npuc_float_binary p = {
        .dtype = dtype, .operation = operation, .rank = 4, .threads = j->threads, .shape = shape, .a_stride = left, .b_stride = right};
    if (operation <= MULTIPLY) npuc_float_limits(lo, hi, &p.relu, &p.relu_limit);
    return kernel(j, npuc_float_binary_run(&p, operand_at(j, a), operand_at(j, b), result_at(j, y)));
}

static npuc_pool pool_of(const npuc_i_max_pool *r)
{
    return (npuc_pool){.n = r->n,
                       .h = r->h,
                       .w = r->w,
                       .c = r->c,
                       .out_h = r->out_h,
                       .out_w = r->out_w,
                       .kernel_h = r->kernel[0],
                       .kernel_w = r->kernel[1],
                       .stride_h = r->stride[0],
                       .stride_w = r->stride[1],
                       .dilation_h = r->dilation[0],
                       .dilation_w = r->dilation[1],
                       .pad_top = r->pad[0],
                       .pad_left = r->pad[1]};
}

static npuc_status max_pool(const job *j)
{
    const npuc_i_max_pool *r = &j->record->max_pool;
    const npuc_pool pool = pool_of(r);
    return kernel(j, npuc_float_max_pool(&pool, operand_at(j, r->x), r->x_dtype, result_at(j, r->y), j->threads));
}

static npuc_status avg_pool(const job *j)
{
    const npuc_i_avg_pool *r = &j->record->avg_pool;
    npuc_i_max_pool same; /* both begin with the operand, the sizes and the window */
    memcpy(&same, r, offsetof(npuc_i_max_pool, y));
    const npuc_pool pool = pool_of(&same);
    return kernel(j, npuc_float_average_pool(&pool, operand_at(j, r->x), r->x_dtype, r->include_pad, result_at(j, r->y), j->threads));
}

static npuc_status reduce(const job *j)
{
    const npuc_i_reduce *r = &j->record->reduce;
    const int64_t n = (int64_t)r->outer * r->inner, all = n * r->reduced;
    if (r->mode == NPUC_REDUCE_SUM || r->mode == NPUC_REDUCE_MEAN)
        return kernel(j, npuc_float_reduce_sum(operand_at(j, r->x), r->x_dtype, r->outer, r->reduced, r->inner, r->mode == NPUC_REDUCE_MEAN,
                                               result_at(j, r->y), j->threads));
    if (r->mode == NPUC_REDUCE_MAX || r->mode == NPUC_REDUCE_MIN)
        return kernel(j, npuc_float_reduce_extreme(operand_at(j, r->x), r->x_dtype, r->outer, r->reduced, r->inner,
                                                   r->mode == NPUC_REDUCE_MAX, result_at(j, r->y), j->threads));
    int16_t *keys = (int16_t *)(void *)npuc_buffer_get(&j->shop->scratch, all * 2);
    int64_t *places = (int64_t *)(void *)npuc_buffer_get(&j->shop->tables, n * 8);
    if (!keys || !places) return no_memory(j);
    npuc_float_order(narrow_at(j, r->x), all, keys);
    npuc_status status =
        npuc_reduce_where(keys, NPUC_I16, r->outer, r->reduced, r->inner, r->mode == NPUC_REDUCE_ARGMAX, r->last, places, j->threads);
    const int64_t size = npuc_sim_size(r->y_dtype);
    for (int64_t i = 0; i < n && !status; i++) memcpy(j->local + r->y + i * size, places + i, (size_t)size); /* little-endian */
    return kernel(j, status);
}

static npuc_status norm(const job *j)
{
    const npuc_i_norm *r = &j->record->norm;
    const npuc_float_norm p = {.dtype = r->x_dtype,
                               .center = r->center,
                               .mean = r->form == NPUC_NORM_MEAN,
                               .epsilon = npuc_float_of((uint32_t)r->epsilon),
                               .rows = r->rows,
                               .width = r->width,
                               .row_modulus = r->row_modulus,
                               .row_factor = r->row_factor,
                               .column_divisor = r->column_divisor};
    return kernel(j, npuc_float_normalize(&p, operand_at(j, r->x), floats_at(j, r->gain), floats_at(j, r->bias), r->entries,
                                          result_at(j, r->y), j->threads));
}

/* Between reals and integers by way of f32: q = sat(zero point + round(x / scale)), x = scale * (q - zero point). */
static npuc_status cast(const job *j)
{
    const npuc_i_cast *r = &j->record->cast;
    const float scale = npuc_float_of((uint32_t)r->scale);
    const int from_integer = r->x_dtype <= NPUC_I16, to_integer = r->y_dtype <= NPUC_I16;
    const void *x = j->local + r->x;
    void *y = j->local + r->y;
    const int64_t n = r->elements;
    if (npuc_is_block(r->y_dtype))
        return kernel(j, npuc_block_pack(x, r->x_dtype, n / r->lo, r->lo, r->y_dtype, y, j->threads));
    if (!from_integer && !to_integer) return kernel(j, npuc_float_cast(x, r->x_dtype, n, y, r->y_dtype, j->threads));
    float *wide = (float *)(void *)npuc_buffer_get(&j->shop->scratch, n * 4);
    if (!wide) return no_memory(j);
    npuc_status status = NPUC_OK;
    if (from_integer) {
        if (r->y_dtype == NPUC_F32) wide = y;
        status = npuc_dequantize(x, r->x_dtype, n, scale, r->x_zero_point, wide, j->threads);
        if (!status && r->y_dtype != NPUC_F32) status = npuc_float_cast(wide, NPUC_F32, n, y, r->y_dtype, j->threads);
        return kernel(j, status);
    }
    const float *reals = wide;
    if (r->x_dtype == NPUC_F32)
        reals = x;
    else
        status = npuc_float_cast(x, r->x_dtype, n, wide, NPUC_F32, j->threads);
    if (!status) status = npuc_quantize(reals, n, scale, r->zero_point, r->rounding, r->lo, r->hi, r->y_dtype, y, j->threads);
    return kernel(j, status);
}

int npuc_is_float_instruction(const npuc_record *record)
{
    switch (record->head.opcode) {
    case NPUC_OP_CONV: return npuc_is_float(record->conv.x_dtype) || npuc_is_block(record->conv.x_dtype);
    case NPUC_OP_MATMUL: return npuc_is_float(record->matmul.x_dtype);
    case NPUC_OP_ADD: return npuc_is_float(record->add.x_dtype);
    case NPUC_OP_MUL: return npuc_is_float(record->mul.x_dtype);
    case NPUC_OP_TABLE: return npuc_is_float(record->table.x_dtype);
    case NPUC_OP_MINMAX: return npuc_is_float(record->minmax.x_dtype);
    case NPUC_OP_MAX_POOL: return npuc_is_float(record->max_pool.x_dtype);
    case NPUC_OP_AVG_POOL: return npuc_is_float(record->avg_pool.x_dtype);
    case NPUC_OP_REDUCE: return npuc_is_float(record->reduce.x_dtype);
    case NPUC_OP_SOFTMAX: return npuc_is_float(record->softmax.x_dtype);
    case NPUC_OP_NORM: return npuc_is_float(record->norm.x_dtype);
    case NPUC_OP_CAST: return 1;
    default: return 0;
    }
}

npuc_status npuc_float_instruction(npuc_workshop *workshop, const npuc_record *record, uint8_t *local, const npuc_origin *origin,
                                   int32_t threads, npuc_sim_error *error)
{
    const job work = {workshop, record, local, origin, threads, error}, *j = &work;
    switch (record->head.opcode) {
    case NPUC_OP_CONV: return npuc_is_block(record->conv.x_dtype) ? packed_conv(j) : conv(j);
    case NPUC_OP_MATMUL: return matmul(j);
    case NPUC_OP_ADD: {
        const npuc_i_add *r = &record->add;
        return binary(j, r->subtract, r->x, r->b, r->x_dtype, r->size, r->a_stride, r->b_stride, r->lo, r->hi, r->y);
    }
    case NPUC_OP_MUL: {
        const npuc_i_mul *r = &record->mul;
        return binary(j, MULTIPLY, r->x, r->b, r->x_dtype, r->size, r->a_stride, r->b_stride, r->lo, r->hi, r->y);
    }
    case NPUC_OP_TABLE: {
        const npuc_i_table *r = &record->table;
        const int64_t n = (int64_t)r->outer * r->channels * r->inner;
        if (r->pieces) return kernel(j, npuc_float_piecewise(floats_at(j, r->x), n, operand_at(j, r->table), r->pieces, result_at(j, r->y), threads));
        return kernel(j, npuc_float_table(narrow_at(j, r->x), n, narrow_at(j, r->table), (uint16_t *)result_at(j, r->y), threads));
    }
    case NPUC_OP_MINMAX: {
        const npuc_i_minmax *r = &record->minmax;
        return binary(j, r->larger ? LARGER : SMALLER, r->x, r->b, r->x_dtype, r->size, r->a_stride, r->b_stride, 0, 0, r->y);
    }
    case NPUC_OP_MAX_POOL: return max_pool(j);
    case NPUC_OP_AVG_POOL: return avg_pool(j);
    case NPUC_OP_REDUCE: return reduce(j);
    case NPUC_OP_SOFTMAX: {
        const npuc_i_softmax *r = &record->softmax;
        return kernel(j, npuc_float_softmax(operand_at(j, r->x), r->x_dtype, r->rows, r->width, result_at(j, r->y), threads));
    }
    case NPUC_OP_NORM: return norm(j);
    default: return cast(j);
    }
}
