/*
 * Host operators over axes: sums and the like, softmax, normalizations, running sums, and the two conversions.
 *
 * Sums of reals are in double precision, so that a result is as near as its type can be whatever the order of the sum.
 */
#include "host.h"

#include <math.h>

static double real_at(const host_value *x, int64_t at)
{
    return x->dtype == NPUC_TENSOR_F32 ? (double)((const float *)(const void *)x->data)[at] : ((const double *)(const void *)x->data)[at];
}

static void put_real(const host_value *y, int64_t at, double value)
{
    if (y->dtype == NPUC_TENSOR_F32) ((float *)(void *)y->data)[at] = (float)value;
    else ((double *)(void *)y->data)[at] = value;
}

static void put_integer(const host_value *y, int64_t at, uint64_t value)
{
    switch (y->dtype) {
#define CASE(name, T) case NPUC_TENSOR_##name: ((T *)(void *)y->data)[at] = (T)value; break;
        HOST_INTEGERS(CASE)
#undef CASE
    default: break;
    }
}

/* ---- reduce ---- */

/* Axes that are kept, and axes that are reduced: sizes and strides in the input. */
typedef struct axes {
    int count;
    int64_t size[NPUC_FILE_AXES], stride[NPUC_FILE_AXES], index[NPUC_FILE_AXES];
    int64_t at, elements;
} axes;

static void step(axes *a)
{
    for (int k = a->count - 1; k >= 0; k--) {
        a->at += a->stride[k];
        if (++a->index[k] < a->size[k]) return;
        a->at -= a->stride[k] * a->size[k];
        a->index[k] = 0;
    }
}

static double real_reduced(int64_t kind, const host_value *x, int64_t base, axes over)
{
    double sum = 0, most = real_at(x, base), product = 1;
    if (kind == NPUC_HOST_REDUCE_LOG_SUM_EXP || kind == NPUC_HOST_REDUCE_MAX || kind == NPUC_HOST_REDUCE_MIN) {
        axes first = over;
        for (int64_t i = 0; i < over.elements; i++, step(&first)) {
            const double v = real_at(x, base + first.at);
            if (v != v || (most == most && (kind == NPUC_HOST_REDUCE_MIN ? v < most : v > most))) most = v;
        }
        if (kind != NPUC_HOST_REDUCE_LOG_SUM_EXP) return most;
        if (!isfinite(most)) most = 0;
    }
    for (int64_t i = 0; i < over.elements; i++, step(&over)) {
        const double v = real_at(x, base + over.at);
        switch (kind) {
        case NPUC_HOST_REDUCE_PROD: product *= v; break;
        case NPUC_HOST_REDUCE_L1: sum += fabs(v); break;
        case NPUC_HOST_REDUCE_L2:
        case NPUC_HOST_REDUCE_SUM_SQUARE: sum += v * v; break;
        case NPUC_HOST_REDUCE_LOG_SUM_EXP: sum += exp(v - most); break;
        default: sum += v;
        }
    }
    switch (kind) {
    case NPUC_HOST_REDUCE_MEAN: return sum / (double)over.elements;
    case NPUC_HOST_REDUCE_PROD: return product;
    case NPUC_HOST_REDUCE_L2: return sqrt(sum);
    case NPUC_HOST_REDUCE_LOG_SUM: return log(sum);
    case NPUC_HOST_REDUCE_LOG_SUM_EXP: return log(sum) + most;
    default: return sum;
    }
}

/* Sums wrap; a mean is rounded towards zero. */
static uint64_t integer_reduced(int64_t kind, const host_value *x, int64_t base, axes over)
{
    const int is_unsigned = x->dtype == NPUC_TENSOR_UI64;
    uint64_t sum = 0, product = 1;
    int64_t most = npuc_host_integer(x, base);
    for (int64_t i = 0; i < over.elements; i++, step(&over)) {
        const int64_t v = npuc_host_integer(x, base + over.at);
        const int less = is_unsigned ? (uint64_t)v < (uint64_t)most : v < most;
        if (v != most && less == (kind == NPUC_HOST_REDUCE_MIN)) most = v;
        product *= (uint64_t)v;
        sum += kind == NPUC_HOST_REDUCE_L1 && v < 0 && !is_unsigned ? 0 - (uint64_t)v : kind == NPUC_HOST_REDUCE_SUM_SQUARE ? (uint64_t)v * (uint64_t)v : (uint64_t)v;
    }
    switch (kind) {
    case NPUC_HOST_REDUCE_MAX:
    case NPUC_HOST_REDUCE_MIN: return (uint64_t)most;
    case NPUC_HOST_REDUCE_PROD: return product;
    case NPUC_HOST_REDUCE_MEAN: return is_unsigned ? sum / (uint64_t)over.elements : (uint64_t)((int64_t)sum / over.elements);
    default: return sum;
    }
}

const char *npuc_host_reduce(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 2, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t kind = call->numbers[0], mask = call->numbers[1];
    const int real = npuc_host_is_float(x->dtype);
    NEED(kind >= 0 && kind < NPUC_HOST_REDUCES && mask >= 0 && mask < (int64_t)1 << x->rank && x->dtype == y->dtype);
    NEED(real || (npuc_host_is_integer(x->dtype) && (kind <= NPUC_HOST_REDUCE_L1 || kind == NPUC_HOST_REDUCE_SUM_SQUARE)));
    axes kept = {.elements = 1}, over = {.elements = 1};
    int64_t stride = x->count;
    for (int32_t a = 0; a < x->rank; a++) {
        axes *to = mask >> a & 1 ? &over : &kept;
        NEED(x->shape[a] > 0);
        stride /= x->shape[a];
        to->size[to->count] = x->shape[a];
        to->stride[to->count++] = stride;
        to->elements *= x->shape[a];
    }
    NEED(y->count == kept.elements);
    CHECKED(call);
    for (int64_t i = 0; i < y->count; i++, step(&kept)) {
        if (real) put_real(y, i, real_reduced(kind, x, kept.at, over));
        else put_integer(y, i, integer_reduced(kind, x, kept.at, over));
    }
    return NULL;
}

const char *npuc_host_arg_reduce(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 3, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int largest = call->numbers[1] != 0, last = call->numbers[2] != 0;
    host_axis about;
    NEED(npuc_host_axis(x, call->numbers[0], &about) && about.length > 0 && y->dtype == NPUC_TENSOR_I64 && y->count == about.outer * about.inner);
    NEED(npuc_host_is_float(x->dtype) || npuc_host_is_integer(x->dtype));
    CHECKED(call);
    for (int64_t o = 0; o < about.outer; o++)
        for (int64_t i = 0; i < about.inner; i++) {
            const int64_t first = o * about.length * about.inner + i;
            int64_t best = 0;
            switch (x->dtype) {
#define CASE(name, T)                                                                                      \
    case NPUC_TENSOR_##name: {                                                                             \
        const T *row = (const T *)(const void *)x->data + first;                                           \
        for (int64_t k = 1; k < about.length; k++) {                                                       \
            const T v = row[k * about.inner], than = row[best * about.inner];                              \
            if ((largest ? v > than : v < than) || (last && v == than)) best = k;                          \
        }                                                                                                  \
        break;                                                                                             \
    }
                HOST_FLOATS(CASE)
                HOST_INTEGERS(CASE)
#undef CASE
            default: break;
            }
            ((int64_t *)(void *)y->data)[o * about.inner + i] = best;
        }
    return NULL;
}

/* ---- softmax and norms ---- */

static void soft_line(int64_t kind, const host_value *x, const host_value *y, int64_t first, int64_t n, int64_t inner)
{
    double most = -INFINITY, sum = 0;
    int64_t best = 0;
    const int exponential = kind == NPUC_HOST_SOFTMAX_SOFTMAX || kind == NPUC_HOST_SOFTMAX_LOG_SOFTMAX;
    for (int64_t k = 0; k < n; k++) {
        const double v = real_at(x, first + k * inner);
        if (v > most) most = v, best = k;
    }
    for (int64_t k = 0; k < n; k++) {
        const double v = real_at(x, first + k * inner);
        sum += exponential ? exp(v - most) : kind == NPUC_HOST_SOFTMAX_L1 ? fabs(v) : v * v;
    }
    if (kind == NPUC_HOST_SOFTMAX_L2) sum = sqrt(sum);
    const double logarithm = log(sum);
    for (int64_t k = 0; k < n; k++) {
        const double v = real_at(x, first + k * inner);
        double result;
        switch (kind) {
        case NPUC_HOST_SOFTMAX_SOFTMAX: result = exp(v - most) / sum; break;
        case NPUC_HOST_SOFTMAX_LOG_SOFTMAX: result = v - most - logarithm; break;
        case NPUC_HOST_SOFTMAX_HARDMAX: result = k == best; break;
        default: result = sum == 0 ? 0 : v / sum;
        }
        put_real(y, first + k * inner, result);
    }
}

const char *npuc_host_softmax(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 2, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t kind = call->numbers[0];
    host_axis about;
    NEED(npuc_host_axis(x, call->numbers[1], &about) && kind >= 0 && kind < NPUC_HOST_SOFTMAXS && npuc_host_is_float(x->dtype));
    NEED(x->dtype == y->dtype && x->count == y->count);
    CHECKED(call);
    for (int64_t o = 0; o < about.outer; o++)
        for (int64_t i = 0; i < about.inner; i++) soft_line(kind, x, y, o * about.length * about.inner + i, about.length, about.inner);
    return NULL;
}

const char *npuc_host_normalize(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 4, 6));
    const host_value *x = &call->in[0], *scale = &call->in[1], *bias = &call->in[2], *y = &call->out[0];
    const int64_t kind = call->numbers[0], n = call->numbers[1], each = call->numbers[2];
    const double epsilon = npuc_host_real(call->numbers[3]);
    NEED(kind >= 0 && kind < NPUC_HOST_NORMALIZES && npuc_host_is_float(x->dtype) && x->dtype == y->dtype && x->count == y->count);
    NEED(n >= 1 && n <= x->count && x->count % n == 0 && each >= 1 && each <= x->count);
    NEED(!scale->present || (scale->dtype == x->dtype && scale->count > 0));
    NEED(!bias->present || (bias->dtype == x->dtype && bias->count > 0));
    CHECKED(call);
    for (int64_t first = 0; first < x->count; first += n) {
        double mean = 0, square = 0;
        for (int64_t i = 0; kind == NPUC_HOST_NORMALIZE_VARIANCE && i < n; i++) mean += real_at(x, first + i);
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) {
            const double v = real_at(x, first + i) - mean;
            square += v * v;
        }
        const double factor = 1 / sqrt(square / (double)n + epsilon);
        for (int64_t i = first; i < first + n; i++) {
            double v = (real_at(x, i) - mean) * factor;
            if (scale->present) v *= real_at(scale, i / each % scale->count);
            if (bias->present) v += real_at(bias, i / each % bias->count);
            put_real(y, i, v);
        }
    }
    return NULL;
}

const char *npuc_host_lrn(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 4, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t size = call->numbers[0];
    const double alpha = npuc_host_real(call->numbers[1]), beta = npuc_host_real(call->numbers[2]), bias = npuc_host_real(call->numbers[3]);
    host_axis about;
    NEED(x->rank >= 2 && npuc_host_axis(x, 1, &about) && size >= 1 && size <= 1 << 20 && npuc_host_is_float(x->dtype));
    NEED(x->dtype == y->dtype && x->count == y->count);
    CHECKED(call);
    for (int64_t o = 0; o < about.outer; o++)
        for (int64_t c = 0; c < about.length; c++)
            for (int64_t i = 0; i < about.inner; i++) {
                const int64_t first = o * about.length * about.inner + i;
                const int64_t low = c - (size - 1) / 2 < 0 ? 0 : c - (size - 1) / 2;
                const int64_t high = c + size / 2 >= about.length ? about.length - 1 : c + size / 2;
                double sum = 0;
                for (int64_t k = low; k <= high; k++) {
                    const double v = real_at(x, first + k * about.inner);
                    sum += v * v;
                }
                put_real(y, first + c * about.inner, real_at(x, first + c * about.inner) / pow(bias + alpha / (double)size * sum, beta));
            }
    return NULL;
}

/* ---- running sums ---- */

const char *npuc_host_cumulative_sum(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 3, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int exclusive = call->numbers[1] != 0, reverse = call->numbers[2] != 0, real = npuc_host_is_float(x->dtype);
    host_axis about;
    NEED(npuc_host_axis(x, call->numbers[0], &about) && x->dtype == y->dtype && x->count == y->count && (real || npuc_host_is_integer(x->dtype)));
    CHECKED(call);
    for (int64_t o = 0; o < about.outer; o++)
        for (int64_t i = 0; i < about.inner; i++) {
            double sum = 0;
            uint64_t whole = 0;
            for (int64_t k = 0; k < about.length; k++) {
                const int64_t at = (o * about.length + (reverse ? about.length - 1 - k : k)) * about.inner + i;
                const double v = real ? real_at(x, at) : 0;
                const uint64_t w = real ? 0 : (uint64_t)npuc_host_integer(x, at);
                if (!exclusive) sum += v, whole += w;
                if (real) put_real(y, at, sum);
                else put_integer(y, at, whole);
                if (exclusive) sum += v, whole += w;
            }
        }
    return NULL;
}

/* ---- conversions ---- */

static int scales_fit(const host_value *x, const host_value *scale, const host_value *zero, int64_t axis, host_axis *about)
{
    if (scale->dtype != NPUC_TENSOR_F32) return 0;
    if (scale->count == 1) *about = (host_axis){1, 1, x->count};
    else if (!npuc_host_axis(x, axis, about) || about->length != scale->count) return 0;
    return !zero->present || zero->count == scale->count;
}

const char *npuc_host_quantize(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 1, 4));
    const host_value *x = &call->in[0], *scale = &call->in[1], *zero = &call->in[2], *y = &call->out[0];
    host_axis about;
    int64_t low, high;
    switch (y->dtype) {
    case NPUC_TENSOR_I8: low = INT8_MIN, high = INT8_MAX; break;
    case NPUC_TENSOR_UI8: low = 0, high = UINT8_MAX; break;
    case NPUC_TENSOR_I16: low = INT16_MIN, high = INT16_MAX; break;
    case NPUC_TENSOR_UI16: low = 0, high = UINT16_MAX; break;
    default: return "there is no conversion of reals to this type";
    }
    NEED(x->dtype == NPUC_TENSOR_F32 && x->count == y->count && (!zero->present || zero->dtype == y->dtype));
    NEED(scales_fit(x, scale, zero, call->numbers[0], &about));
    CHECKED(call);
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t c = i / about.inner % about.length;
        const float ratio = nearbyintf(((const float *)(const void *)x->data)[i] / ((const float *)(const void *)scale->data)[c]);
        const double shifted = (double)ratio + (zero->present ? (double)npuc_host_integer(zero, c) : 0);
        put_integer(y, i, (uint64_t)(shifted >= (double)high ? high : shifted > (double)low ? (int64_t)shifted : low));
    }
    return NULL;
}

const char *npuc_host_dequantize(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 1, 4));
    const host_value *x = &call->in[0], *scale = &call->in[1], *zero = &call->in[2], *y = &call->out[0];
    host_axis about;
    NEED(npuc_host_is_integer(x->dtype) && y->dtype == NPUC_TENSOR_F32 && x->count == y->count && (!zero->present || zero->dtype == x->dtype));
    NEED(scales_fit(x, scale, zero, call->numbers[0], &about));
    CHECKED(call);
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t c = i / about.inner % about.length;
        const int64_t shifted = (int64_t)((uint64_t)npuc_host_integer(x, i) - (zero->present ? (uint64_t)npuc_host_integer(zero, c) : 0));
        ((float *)(void *)y->data)[i] = (float)shifted * ((const float *)(const void *)scale->data)[c];
    }
    return NULL;
}
