/* Host operators on elements: functions of one, of two and of three, and casts. Integers wrap as those of the hardware do. */
#include "host.h"

#include <math.h>

/* ---- of one ---- */

typedef struct parameters {
    double a, b;
} parameters;

/* One function for every real type: T, and the name of a function of libm for it. */
#define LIBM_F32(function) function##f
#define LIBM_F64(function) function

#define REAL_UNARY(name, T)                                                                                    \
    static void unary_##name(int64_t kind, const T *x, T *y, int64_t n, parameters p)                          \
    {                                                                                                          \
        const T a = (T)p.a, b = (T)p.b, one = 1, half = (T)0.5;                                                \
        switch (kind) {                                                                                        \
            EACH(T, ABS, LIBM_##name(fabs)(v))                                                                \
            EACH(T, NEG, -v)                                                                                   \
            EACH(T, SIGN, (T)((v > 0) - (v < 0)))                                                              \
            EACH(T, CEIL, LIBM_##name(ceil)(v))                                                               \
            EACH(T, FLOOR, LIBM_##name(floor)(v))                                                             \
            EACH(T, ROUND, LIBM_##name(nearbyint)(v))                                                         \
            EACH(T, SQRT, LIBM_##name(sqrt)(v))                                                               \
            EACH(T, RECIPROCAL, one / v)                                                                       \
            EACH(T, EXP, LIBM_##name(exp)(v))                                                                 \
            EACH(T, LOG, LIBM_##name(log)(v))                                                                 \
            EACH(T, SIN, LIBM_##name(sin)(v))                                                                 \
            EACH(T, COS, LIBM_##name(cos)(v))                                                                 \
            EACH(T, TAN, LIBM_##name(tan)(v))                                                                 \
            EACH(T, ASIN, LIBM_##name(asin)(v))                                                               \
            EACH(T, ACOS, LIBM_##name(acos)(v))                                                               \
            EACH(T, ATAN, LIBM_##name(atan)(v))                                                               \
            EACH(T, SINH, LIBM_##name(sinh)(v))                                                               \
            EACH(T, COSH, LIBM_##name(cosh)(v))                                                               \
            EACH(T, TANH, LIBM_##name(tanh)(v))                                                               \
            EACH(T, ASINH, LIBM_##name(asinh)(v))                                                             \
            EACH(T, ACOSH, LIBM_##name(acosh)(v))                                                             \
            EACH(T, ATANH, LIBM_##name(atanh)(v))                                                             \
            EACH(T, ERF, LIBM_##name(erf)(v))                                                                 \
            EACH(T, RELU, v > 0 || v != v ? v : 0)                                                             \
            EACH(T, LEAKY_RELU, v >= 0 ? v : v * a)                                                            \
            EACH(T, THRESHOLDED_RELU, v > a ? v : 0)                                                           \
            EACH(T, ELU, v >= 0 ? v : a * (LIBM_##name(exp)(v)-one))                                          \
            EACH(T, SELU, v > 0 ? b * v : b * (a * LIBM_##name(exp)(v)-a))                                    \
            EACH(T, CELU, (v > 0 ? v : 0) + (v < 0 ? a * (LIBM_##name(exp)(v / a) - one) : 0))                \
            EACH(T, SIGMOID, one / (one + LIBM_##name(exp)(-v)))                                              \
            EACH(T, HARD_SIGMOID, between(a * v + b, 0, one))                                                  \
            EACH(T, HARD_SWISH, v * between(v / 6 + half, 0, one))                                             \
            EACH(T, SOFTPLUS, v > 0 ? v + LIBM_##name(log1p)(LIBM_##name(exp)(-v)) : LIBM_##name(log1p)(LIBM_##name(exp)(v))) \
            EACH(T, SOFTSIGN, v / (one + LIBM_##name(fabs)(v)))                                               \
            EACH(T, GELU, half * v * (one + LIBM_##name(erf)(v * (T)0.70710678118654752440)))                 \
            EACH(T, GELU_TANH, half * v * (one + LIBM_##name(tanh)((T)0.79788456080286535588 * (v + (T)0.044715 * v * v * v)))) \
            EACH(T, MISH, v * LIBM_##name(tanh)(v > 0 ? v + LIBM_##name(log1p)(LIBM_##name(exp)(-v))        \
                                                       : LIBM_##name(log1p)(LIBM_##name(exp)(v))))           \
            EACH(T, SWISH, v / (one + LIBM_##name(exp)(-a * v)))                                              \
            EACH(T, SHRINK, v < -a ? v + b : v > a ? v - b : 0)                                                \
            EACH(T, CLIP, v < a ? a : v > b ? b : v)                                                           \
        default:                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = x[i];                                                       \
        }                                                                                                      \
    }
#define EACH(T, KIND, RESULT)                    \
    case NPUC_HOST_UNARY_##KIND:                 \
        for (int64_t i = 0; i < n; i++) {        \
            const T v = x[i];                    \
            y[i] = (RESULT);                     \
        }                                        \
        break;
#define between(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))
HOST_FLOATS(REAL_UNARY)

/* The bits of a limit for integers are those of an int64_t, so that none is rounded. */
#define INTEGER_UNARY(name, T)                                                                                 \
    static void unary_##name(int64_t kind, const T *x, T *y, int64_t n, parameters p)                          \
    {                                                                                                          \
        switch (kind) {                                                                                        \
            EACH(T, ABS, v < (T)1 ? (T)(0 - (uint64_t)v) : v)                                                  \
            EACH(T, NEG, (T)(0 - (uint64_t)v))                                                                 \
            EACH(T, SIGN, (T)(v == 0 ? 0 : v < (T)1 ? -1 : 1))                                                 \
            EACH(T, RELU, v < (T)1 ? 0 : v)                                                                    \
            EACH(T, BITWISE_NOT, (T)~(uint64_t)v)                                                              \
            EACH(T, CLIP, (double)v < p.a ? (T)p.a : (double)v > p.b ? (T)p.b : v)                             \
        default:                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = x[i];                                                       \
        }                                                                                                      \
    }
HOST_INTEGERS(INTEGER_UNARY)
#undef EACH

/* What integers have of the functions. A clip needs limits that the type has. */
static int integers_have(int64_t kind, int32_t dtype, parameters p)
{
    switch (kind) {
    case NPUC_HOST_UNARY_COPY:
    case NPUC_HOST_UNARY_ABS:
    case NPUC_HOST_UNARY_NEG:
    case NPUC_HOST_UNARY_SIGN:
    case NPUC_HOST_UNARY_RELU:
    case NPUC_HOST_UNARY_BITWISE_NOT: return 1;
    case NPUC_HOST_UNARY_CLIP: {
        const int bits = (int)npuc_host_bytes(dtype) * 8;
        const int is_signed = dtype == NPUC_TENSOR_I8 || dtype == NPUC_TENSOR_I16 || dtype == NPUC_TENSOR_I32 || dtype == NPUC_TENSOR_I64;
        const double low = is_signed ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed ? bits - 1 : bits);
        return p.a >= low && p.a < high && p.b >= low && p.b < high;
    }
    default: return 0;
    }
}

static const char *to_bool(const host_call *call, int64_t kind)
{
    const host_value *x = &call->in[0], *y = &call->out[0];
    NEED(kind == NPUC_HOST_UNARY_NOT ? x->dtype == NPUC_TENSOR_I1 : npuc_host_is_float(x->dtype));
    CHECKED(call);
    for (int64_t i = 0; i < y->count; i++) {
        if (kind == NPUC_HOST_UNARY_NOT) {
            y->data[i] = !x->data[i];
            continue;
        }
        const double v = x->dtype == NPUC_TENSOR_F32 ? (double)((const float *)(const void *)x->data)[i] : ((const double *)(const void *)x->data)[i];
        if (kind == NPUC_HOST_UNARY_IS_NAN) y->data[i] = v != v;
        else y->data[i] = isinf(v) && npuc_host_real(call->numbers[v < 0 ? 1 : 2]) != 0;
    }
    return NULL;
}

const char *npuc_host_unary(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 3, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t kind = call->numbers[0];
    const parameters p = {npuc_host_real(call->numbers[1]), npuc_host_real(call->numbers[2])};
    NEED(kind >= 0 && kind < NPUC_HOST_UNARYS && x->count == y->count);
    if (y->dtype == NPUC_TENSOR_I1 && kind >= NPUC_HOST_UNARY_NOT && kind != NPUC_HOST_UNARY_BITWISE_NOT) return to_bool(call, kind);
    NEED(x->dtype == y->dtype);
    if (npuc_host_is_float(x->dtype)) NEED(kind < NPUC_HOST_UNARY_NOT);
    else NEED(npuc_host_is_integer(x->dtype) && integers_have(kind, x->dtype, p));
    CHECKED(call);
    switch (x->dtype) {
#define CASE(name, T) \
    case NPUC_TENSOR_##name: unary_##name(kind, (const T *)(const void *)x->data, (T *)(void *)y->data, y->count, p); break;
        HOST_FLOATS(CASE)
        HOST_INTEGERS(CASE)
#undef CASE
    default: break;
    }
    return NULL;
}

/* ---- of two ---- */

typedef struct row {
    const uint8_t *a, *b;
    int64_t a_step, b_step;
    uint8_t *y;
    int64_t n;
} row;

#define EACH(T, R, KIND, RESULT)                                          \
    case NPUC_HOST_BINARY_##KIND:                                         \
        for (int64_t i = 0; i < r->n; i++) {                              \
            const T a = ((const T *)(const void *)r->a)[i * r->a_step];   \
            const T b = ((const T *)(const void *)r->b)[i * r->b_step];   \
            ((R *)(void *)r->y)[i] = (R)(RESULT);                         \
        }                                                                 \
        return;

#define COMPARISONS(T)                        \
    EACH(T, uint8_t, EQUAL, a == b)           \
    EACH(T, uint8_t, LESS, a < b)             \
    EACH(T, uint8_t, LESS_EQUAL, a <= b)      \
    EACH(T, uint8_t, GREATER, a > b)          \
    EACH(T, uint8_t, GREATER_EQUAL, a >= b)

#define REAL_BINARY(name, T)                                                       \
    static void binary_##name(int64_t kind, const row *r)                          \
    {                                                                              \
        switch (kind) {                                                            \
            EACH(T, T, ADD, a + b)                                                 \
            EACH(T, T, SUB, a - b)                                                 \
            EACH(T, T, MUL, a *b)                                                  \
            EACH(T, T, DIV, a / b)                                                 \
            EACH(T, T, POW, LIBM_##name(pow)(a, b))                               \
            EACH(T, T, MIN, a != a ? a : b != b ? b : a < b ? a : b)               \
            EACH(T, T, MAX, a != a ? a : b != b ? b : a > b ? a : b)               \
            EACH(T, T, FMOD, LIBM_##name(fmod)(a, b))                             \
            EACH(T, T, PRELU, a < 0 ? a * b : a)                                   \
            COMPARISONS(T)                                                         \
        default: return;                                                           \
        }                                                                          \
    }
HOST_FLOATS(REAL_BINARY)

/* Division is towards zero, and by zero gives 0; `mod` has the sign of the divisor, `fmod` that of the dividend. */
#define SIGNED_REST(T, a, b) ((b) == 0 || (b) == -1 ? 0 : (a) % (b))
#define INTEGER_BINARY(name, T, DIVIDED, REST, MODULO)                             \
    static void binary_##name(int64_t kind, const row *r)                          \
    {                                                                              \
        switch (kind) {                                                            \
            EACH(T, T, ADD, (uint64_t)a + (uint64_t)b)                             \
            EACH(T, T, SUB, (uint64_t)a - (uint64_t)b)                             \
            EACH(T, T, MUL, (uint64_t)a *(uint64_t)b)                              \
            EACH(T, T, DIV, DIVIDED)                                               \
            EACH(T, T, POW, power((uint64_t)a, (uint64_t)b, b < (T)1 && b != 0))   \
            EACH(T, T, MIN, a < b ? a : b)                                         \
            EACH(T, T, MAX, a > b ? a : b)                                         \
            EACH(T, T, FMOD, REST)                                                 \
            EACH(T, T, MOD, MODULO)                                                \
            EACH(T, T, BIT_AND, a & b)                                             \
            EACH(T, T, BIT_OR, a | b)                                              \
            EACH(T, T, BIT_XOR, a ^ b)                                             \
            EACH(T, T, SHIFT_LEFT, (uint64_t)b < 8 * sizeof(T) ? (uint64_t)a << b : 0)  \
            EACH(T, T, SHIFT_RIGHT, (uint64_t)b < 8 * sizeof(T) ? (uint64_t)a >> b : 0) \
            EACH(T, T, PRELU, a < (T)1 ? (uint64_t)a * (uint64_t)b : (uint64_t)a)  \
            COMPARISONS(T)                                                         \
        default: return;                                                           \
        }                                                                          \
    }
static uint64_t power(uint64_t base, uint64_t exponent, int negative)
{
    uint64_t result = 1;
    if (negative) return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? UINT64_MAX : 1) : 0;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}
#define SIGNED_BINARY(name, T)                                                               \
    INTEGER_BINARY(name, T, b == 0 ? 0 : b == -1 ? (T)(0 - (uint64_t)a) : a / b, SIGNED_REST(T, a, b), \
                   SIGNED_REST(T, a, b) != 0 && (a < 0) != (b < 0) ? SIGNED_REST(T, a, b) + b : SIGNED_REST(T, a, b))
#define UNSIGNED_BINARY(name, T) INTEGER_BINARY(name, T, b == 0 ? 0 : a / b, b == 0 ? 0 : a % b, b == 0 ? 0 : a % b)
HOST_SIGNED(SIGNED_BINARY)
HOST_UNSIGNED(UNSIGNED_BINARY)

static void binary_I1(int64_t kind, const row *r)
{
    switch (kind) {
        EACH(uint8_t, uint8_t, AND, a && b)
        EACH(uint8_t, uint8_t, OR, a || b)
        EACH(uint8_t, uint8_t, XOR, !a != !b)
        EACH(uint8_t, uint8_t, EQUAL, !a == !b)
    default: return;
    }
}
#undef EACH

static int is_comparison(int64_t kind) { return kind >= NPUC_HOST_BINARY_EQUAL && kind <= NPUC_HOST_BINARY_GREATER_EQUAL; }

/* Whether elements of a type have a function. */
static int types_have(int64_t kind, int32_t dtype)
{
    const int logic = kind >= NPUC_HOST_BINARY_AND && kind <= NPUC_HOST_BINARY_XOR;
    const int bits = kind >= NPUC_HOST_BINARY_BIT_AND && kind <= NPUC_HOST_BINARY_SHIFT_RIGHT;
    if (dtype == NPUC_TENSOR_I1) return logic || kind == NPUC_HOST_BINARY_EQUAL;
    if (npuc_host_is_float(dtype)) return !logic && !bits && kind != NPUC_HOST_BINARY_MOD;
    if (bits && kind >= NPUC_HOST_BINARY_SHIFT_LEFT)
        return dtype == NPUC_TENSOR_UI8 || dtype == NPUC_TENSOR_UI16 || dtype == NPUC_TENSOR_UI32 || dtype == NPUC_TENSOR_UI64;
    return npuc_host_is_integer(dtype) && !logic;
}

const char *npuc_host_binary(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 1, 0));
    const host_value *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const int64_t kind = call->numbers[0];
    host_walk walk;
    NEED(kind >= 0 && kind < NPUC_HOST_BINARYS && a->dtype == b->dtype && types_have(kind, a->dtype));
    NEED(y->dtype == (is_comparison(kind) ? NPUC_TENSOR_I1 : a->dtype));
    NEED(npuc_host_walk(&walk, y, (const host_value *const[]){a, b}, 2));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(a->dtype), y_bytes = npuc_host_bytes(y->dtype);
    for (int64_t k = 0; k < walk.rows; k++, npuc_host_next_row(&walk)) {
        const row r = {a->data + walk.at[1] * bytes, b->data + walk.at[2] * bytes, walk.step[1][0], walk.step[2][0],
                       y->data + walk.at[0] * y_bytes, walk.size[0]};
        switch (a->dtype) {
#define CASE(name, T) case NPUC_TENSOR_##name: binary_##name(kind, &r); break;
            HOST_FLOATS(CASE)
            HOST_INTEGERS(CASE)
            CASE(I1, uint8_t)
#undef CASE
        default: break;
        }
    }
    return NULL;
}

/* ---- of three ---- */

const char *npuc_host_select(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 0, 0));
    const host_value *condition = &call->in[0], *a = &call->in[1], *b = &call->in[2], *y = &call->out[0];
    host_walk walk;
    NEED(condition->dtype == NPUC_TENSOR_I1 && a->dtype == y->dtype && b->dtype == y->dtype);
    NEED(npuc_host_walk(&walk, y, (const host_value *const[]){condition, a, b}, 3));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(y->dtype);
    for (int64_t k = 0; k < walk.rows; k++, npuc_host_next_row(&walk))
        for (int64_t i = 0; i < walk.size[0]; i++) {
            const int chosen = condition->data[walk.at[1] + i * walk.step[1][0]];
            const uint8_t *from = chosen ? a->data + (walk.at[2] + i * walk.step[2][0]) * bytes : b->data + (walk.at[3] + i * walk.step[3][0]) * bytes;
            uint8_t *to = y->data + (walk.at[0] + i) * bytes;
            for (int64_t byte = 0; byte < bytes; byte++) to[byte] = from[byte];
        }
    return NULL;
}

/* ---- casts ---- */

/* As hardware truncates: to 64 bits, then the lower ones; what is beyond 64 bits, and NaN, is the least number. */
static int64_t truncated(double v) { return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN; }

static uint64_t truncated_unsigned(double v) { return v >= 9223372036854775808.0 && v < 18446744073709551616.0 ? (uint64_t)v : (uint64_t)truncated(v); }

const char *npuc_host_cast(const host_call *call)
{
    NEED(npuc_host_has(call, 1, 1, 0, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    NEED(x->count == y->count);
    NEED(npuc_host_is_float(x->dtype) || npuc_host_is_integer(x->dtype) || x->dtype == NPUC_TENSOR_I1);
    NEED(npuc_host_is_float(y->dtype) || npuc_host_is_integer(y->dtype) || y->dtype == NPUC_TENSOR_I1);
    CHECKED(call);
    for (int64_t i = 0; i < y->count; i++) {
        double real = 0;
        int64_t whole = 0;
        const int from_real = npuc_host_is_float(x->dtype);
        if (x->dtype == NPUC_TENSOR_F32) real = (double)((const float *)(const void *)x->data)[i];
        else if (x->dtype == NPUC_TENSOR_F64) real = ((const double *)(const void *)x->data)[i];
        else whole = x->dtype == NPUC_TENSOR_I1 ? x->data[i] != 0 : npuc_host_integer(x, i);
        const int beyond = x->dtype == NPUC_TENSOR_UI64; /* its upper half is not negative */
        switch (y->dtype) {
        case NPUC_TENSOR_I1: y->data[i] = from_real ? real != 0 : whole != 0; break;
        case NPUC_TENSOR_F32:
            ((float *)(void *)y->data)[i] = from_real ? (float)real : beyond ? (float)(uint64_t)whole : (float)whole;
            break;
        case NPUC_TENSOR_F64: ((double *)(void *)y->data)[i] = from_real ? real : beyond ? (double)(uint64_t)whole : (double)whole; break;
        case NPUC_TENSOR_UI64: ((uint64_t *)(void *)y->data)[i] = from_real ? truncated_unsigned(real) : (uint64_t)whole; break;
#define CASE(name, T) case NPUC_TENSOR_##name: ((T *)(void *)y->data)[i] = (T)(uint64_t)(from_real ? truncated(real) : whole); break;
            HOST_SIGNED(CASE)
            CASE(UI8, uint8_t)
            CASE(UI16, uint16_t)
            CASE(UI32, uint32_t)
#undef CASE
        default: break;
        }
    }
    return NULL;
}
