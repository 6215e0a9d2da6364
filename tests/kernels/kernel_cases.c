/*
 * Random layers through every instruction set of the machine that this runs on, each also with what another one packed and with
 * several threads: kernel_cases COUNT. The first line says which sets those were, the second how many results there were and a
 * digest of them all, which is the same on every machine; a difference between two sets ends the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npuc/gemm.h"
#include "npuc/vector.h"

enum { MOST_CHANNELS = 96, MOST = 1 << 16 };

static const char *const every[] = {"portable", "avx2", "avx512vnni", "neon", "neondot"};
static const char *sets[sizeof every / sizeof *every];
static int set_count;
static uint64_t state = 88172645463325252u, digest = 14695981039346656037u;
static long results;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static int32_t between(int64_t lo, int64_t hi) { return (int32_t)(lo + (int64_t)(draw() % (uint64_t)(hi - lo + 1))); }

static void limits(int32_t dtype, int32_t *lo, int32_t *hi)
{
    *lo = dtype == NPUC_I8 ? -128 : dtype == NPUC_U8 ? 0 : dtype == NPUC_I16 ? -32768 : INT32_MIN;
    *hi = dtype == NPUC_I8 ? 127 : dtype == NPUC_U8 ? 255 : dtype == NPUC_I16 ? 32767 : INT32_MAX;
}

static size_t size_of(int32_t dtype) { return dtype == NPUC_I32 ? 4 : dtype == NPUC_I16 ? 2 : 1; }

/* Any integers, only the ends of the range, or one end throughout. */
static void fill(void *data, int32_t dtype, size_t count)
{
    int32_t lo, hi;
    limits(dtype, &lo, &hi);
    const uint32_t style = draw() % 5;
    for (size_t i = 0; i < count; i++) {
        const int32_t value = style < 2 ? between(lo, hi) : style == 2 ? (draw() & 1 ? lo : hi) : style == 3 ? lo : hi;
        if (size_of(dtype) == 1)
            ((uint8_t *)data)[i] = (uint8_t)value;
        else
            ((int16_t *)data)[i] = (int16_t)value;
    }
}

static void take(const uint8_t *data, size_t bytes)
{
    results++;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ data[i]) * 1099511628211u;
}

static void demand(int holds, const char *what)
{
    if (holds) return;
    printf("result %ld: %s\n", results, what);
    exit(1);
}

/* An output stage: mostly one that fits accumulators of `bits` bits, sometimes any that is allowed. */
static int32_t multipliers[MOST_CHANNELS], shifts[MOST_CHANNELS];
static float scales[MOST_CHANNELS];

static npuc_requant stage(int32_t dtype, int32_t channels, int bits, int wide)
{
    npuc_requant rq = {.count = draw() & 1 ? channels : 1, .multiplier = multipliers, .shift = shifts, .scale = scales};
    do rq.kind = between(0, NPUC_REQUANT_KINDS - 1);
    while (wide && rq.kind == NPUC_DOUBLE_ROUNDING);
    limits(dtype, &rq.lo, &rq.hi);
    rq.zero_point = draw() & 1 ? between(rq.lo, rq.hi) : 0;
    if (draw() & 1) {
        rq.lo = rq.zero_point > rq.lo ? rq.zero_point : rq.lo;
        rq.hi = between(rq.lo, rq.hi);
    }
    const int fit = bits - (dtype == NPUC_I16 ? 14 : 7), wild = draw() % 5 == 0;
    const int width = rq.kind == NPUC_DOUBLE_ROUNDING || draw() % 3 == 0 ? 31 : draw() & 1 ? 15 : 7;
    for (int32_t i = 0; i < rq.count; i++) {
        multipliers[i] = between((int64_t)1 << (width - 1), ((int64_t)1 << width) - 1);
        shifts[i] = between(fit - 2, fit + 2) + (rq.kind == NPUC_POW2 ? 0 : width);
        if (wild) shifts[i] = between(rq.kind == NPUC_POW2 ? -31 : 0, 62);
        if (wild && draw() & 1) multipliers[i] = (int32_t[]){0, 1, 1 << 30, INT32_MAX}[draw() % 4];
        if (shifts[i] < 0 && rq.kind != NPUC_POW2) shifts[i] = 0;
        if (shifts[i] > 62) shifts[i] = 62;
        scales[i] = 1.0f + (float)(draw() % 65536) / 65536.0f;
        for (int e = wild ? between(-60, 60) : between(-fit - 2, -fit + 2); e; e += e > 0 ? -1 : 1) scales[i] *= e > 0 ? 2.0f : 0.5f;
    }
    return rq;
}

static int bits_of(int64_t bound)
{
    int bits = 0;
    while (bound >> bits) bits++;
    return bits;
}

static int32_t extent(int32_t kernel, int32_t dilation) { return (kernel - 1) * dilation + 1; }

static void conv_case(void)
{
    static int16_t weight[MOST];
    static int64_t bias[MOST_CHANNELS];
    static uint8_t x[2 * MOST], y[4 * MOST], first[4 * MOST];
    npuc_conv c = {.transposed = draw() % 4 == 0, .groups = draw() % 3 ? 1 : between(2, 3)};
    int32_t inputs = between(1, draw() % 4 ? 9 : 40), outputs = c.groups == 1 ? between(1, 40) : between(1, 18);
    if (draw() % 3 == 0) c.groups = between(2, MOST_CHANNELS), inputs = outputs = 1;
    c.in_channels = c.groups * inputs;
    c.out_channels = c.groups * outputs;
    c.kernel_h = between(1, 4), c.kernel_w = between(1, 4);
    c.stride_h = between(1, 3), c.stride_w = between(1, 3);
    c.dilation_h = between(1, 3), c.dilation_w = between(1, 3);
    if (draw() % 4 == 0) c.kernel_h = c.kernel_w = c.stride_h = c.stride_w = 1;
    const int32_t high = extent(c.kernel_h, c.dilation_h), wide = extent(c.kernel_w, c.dilation_w);
    c.pad_top = between(0, c.transposed ? (high - 1) / 2 : 3);
    c.pad_left = between(0, c.transposed ? (wide - 1) / 2 : 3);
    const int32_t height = between(1, 9) + (c.transposed ? 0 : high), width = between(1, 17) + (c.transposed ? 0 : wide);
    const int32_t batch = between(1, 2);
    const int32_t out_height = c.transposed ? (height - 1) * c.stride_h + high - 2 * c.pad_top : (height + c.pad_top - high) / c.stride_h + 1;
    const int32_t out_width = c.transposed ? (width - 1) * c.stride_w + wide - 2 * c.pad_left : (width + c.pad_left - wide) / c.stride_w + 1;
    const size_t x_count = (size_t)batch * height * width * c.in_channels, k = (size_t)inputs * c.kernel_h * c.kernel_w;
    const size_t y_count = (size_t)batch * out_height * out_width * c.out_channels, weights = (size_t)c.out_channels * k;
    if (x_count > MOST || y_count > MOST || weights > MOST) return;

    int32_t lo, hi;
    c.x_dtype = between(NPUC_I8, NPUC_I16);
    limits(c.x_dtype, &lo, &hi);
    c.x_zero_point = draw() & 1 ? between(lo, hi) : 0;
    fill(x, c.x_dtype, x_count);
    const int words = draw() % 4 == 0; /* weights of 16 bits; the others are of 8, or of 7 and a sign */
    const int32_t least = draw() & 1 ? -128 : -127;
    static int8_t bytes_of_weight[MOST];
    if (words)
        fill(weight, NPUC_I16, weights);
    else
        fill(bytes_of_weight, NPUC_I8, weights);
    int64_t largest = 0;
    for (size_t i = 0; i < weights; i++) {
        if (!words) weight[i] = bytes_of_weight[i] < least ? (int16_t)least : bytes_of_weight[i];
        if (llabs(weight[i]) > largest) largest = llabs(weight[i]);
    }
    for (int32_t i = 0; i < c.out_channels; i++) bias[i] = between(-(1 << 20), 1 << 20);
    const int64_t above = hi - c.x_zero_point, below = c.x_zero_point - lo;
    const int64_t bound = (int64_t)k * largest * (above > below ? above : below) + (1 << 20);
    c.wide = bound > INT32_MAX;
    const int raw = !c.wide && draw() % 8 == 0;
    c.y_dtype = raw ? NPUC_I32 : between(NPUC_I8, NPUC_I16);
    const npuc_requant rq = stage(c.y_dtype, c.out_channels, bits_of(bound / 4), c.wide);

    const size_t y_bytes = y_count * size_of(c.y_dtype), bytes = npuc_conv_size(&c);
    void *prepared = aligned_alloc(64, (bytes + 63) / 64 * 64);
    demand(bytes && prepared, "no memory");
    for (int p = 0; p < set_count; p++) {
        npuc_isa_select(sets[p]);
        demand(!npuc_conv_prepare(&c, weight, bias, raw ? NULL : &rq, prepared, bytes), "prepare");
        for (int s = 0; s < set_count; s++)
            for (int threads = 1; threads < 3; threads++) {
                npuc_isa_select(sets[s]);
                memset(y, 0xa5, y_bytes);
                demand(!npuc_conv_run(prepared, x, batch, height, width, y, out_height, out_width, threads), "run");
                if (p + s == 0 && threads == 1) memcpy(first, y, y_bytes);
                if (!memcmp(first, y, y_bytes)) continue;
                printf("convolution packed by %s, run by %s: types %d %d, kind %d, %d groups, %d to %d channels, kernel %d x %d\n", sets[p],
                       sets[s], c.x_dtype, c.y_dtype, raw ? -1 : rq.kind, c.groups, c.in_channels, c.out_channels, c.kernel_h, c.kernel_w);
                exit(1);
            }
    }
    take(first, y_bytes);
    free(prepared);
}

static void matmul_case(void)
{
    static uint8_t a[2 * MOST], b[2 * MOST], y[4 * MOST], first[4 * MOST];
    static const int64_t nowhere[1] = {0};
    int32_t lo, hi, lo_b, hi_b;
    npuc_matmul mm = {.m = between(1, 40), .k = between(1, 70), .n = between(1, 40), .batch = 1, .a_offset = nowhere, .b_offset = nowhere};
    mm.transposed_b = draw() & 1;
    mm.a_dtype = between(NPUC_I8, NPUC_I16), mm.b_dtype = between(NPUC_I8, NPUC_I16);
    limits(mm.a_dtype, &lo, &hi);
    limits(mm.b_dtype, &lo_b, &hi_b);
    mm.a_zero_point = draw() & 1 ? between(lo, hi) : 0;
    mm.b_zero_point = draw() & 1 ? between(lo_b, hi_b) : mm.b_dtype == NPUC_I8 && draw() & 1 ? -1 : 0;
    fill(a, mm.a_dtype, (size_t)(mm.m * mm.k));
    fill(b, mm.b_dtype, (size_t)(mm.k * mm.n));
    const int64_t bound = mm.k * (hi - (int64_t)lo) * (hi_b - (int64_t)lo_b);
    mm.wide = bound > INT32_MAX;
    const int raw = !mm.wide && draw() % 8 == 0;
    mm.y_dtype = raw ? NPUC_I32 : between(NPUC_I8, NPUC_I16);
    const npuc_requant rq = stage(mm.y_dtype, (int32_t)mm.n, bits_of(bound / 8), mm.wide);
    const size_t bytes = (size_t)(mm.m * mm.n) * size_of(mm.y_dtype);
    for (int s = 0; s < set_count; s++)
        for (mm.threads = 1; mm.threads < 3; mm.threads++) {
            npuc_isa_select(sets[s]);
            memset(y, 0xa5, bytes);
            demand(!npuc_matmul_run(&mm, a, b, raw ? NULL : &rq, y), "matmul");
            if (s == 0 && mm.threads == 1) memcpy(first, y, bytes);
            if (!memcmp(first, y, bytes)) continue;
            printf("product by %s: types %d %d %d, kind %d, %d x %d x %d\n", sets[s], mm.a_dtype, mm.b_dtype, mm.y_dtype,
                   raw ? -1 : rq.kind, (int)mm.m, (int)mm.k, (int)mm.n);
            exit(1);
        }
    take(first, bytes);
}

/* Elementwise operators and a pool: one source for all sets, compiled for each. */
static void vector_case(void)
{
    static uint8_t a[2 * MOST], b[2 * MOST], y[2 * MOST], first[2 * MOST];
    static float reals[4096];
    const int64_t shape[4] = {between(1, 2), between(3, 9), between(3, 9), between(1, 50)};
    const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    const int64_t stride[4] = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}, channels[4] = {0, 0, 0, 1};
    const int32_t x = between(NPUC_I8, NPUC_I16), other = between(NPUC_I8, NPUC_I16), to = between(NPUC_I8, NPUC_I16), which = between(0, 4);
    int32_t lo, hi;
    limits(x, &lo, &hi);
    fill(a, x, (size_t)count);
    fill(b, other, (size_t)count);
    for (int i = 0; i < 4096; i++) reals[i] = (float)between(-30000, 30000) / 8.0f;
    const npuc_view va = {a, stride, x, between(lo, hi)}, vb = {b, draw() & 1 ? stride : channels, other, 0};
    npuc_requant rq = stage(to, 1, 15, 0);
    const npuc_pool pool = {shape[0], shape[1], shape[2], shape[3], shape[1] - 1, shape[2] - 1, 2, 2, 1, 1, 1, 1, 0, 0};
    npuc_add_parameters add = {.kind = NPUC_DOUBLE_ROUNDING, .subtract = between(0, 1), .left = 15, .zero_point = rq.zero_point, .lo = rq.lo, .hi = rq.hi};
    add.multiplier_a = between(1 << 30, INT32_MAX), add.multiplier_b = between(1 << 30, INT32_MAX), add.multiplier = between(1 << 30, INT32_MAX);
    add.shift_a = between(31, 33), add.shift_b = between(31, 33), add.shift = between(44, 50);
    const size_t bytes = (size_t)count * size_of(to);
    int status = 0;
    for (int s = 0; s < set_count; s++) {
        npuc_isa_select(sets[s]);
        memset(y, 0xa5, sizeof y);
        const int before = status;
        switch (which) {
        case 0: status = npuc_add(&va, &vb, 4, shape, &add, to, y, 1); break;
        case 1: status = npuc_mul(&va, &vb, 4, shape, &rq, to, y, 1); break;
        case 2: status = npuc_requant_tensor(a, x, va.zero_point, count, &rq, to, y, 1); break;
        case 3: status = npuc_max_pool(&pool, a, x, y, 1); break;
        default: status = npuc_quantize(reals, 4096, 0.37f, rq.zero_point, 0, rq.lo, rq.hi, to, y, 1);
        }
        demand(!s || status == before, "a set refuses what another takes");
        if (!s) memcpy(first, y, sizeof y);
        if (!memcmp(first, y, sizeof y)) continue;
        printf("vector operator %d by %s: types %d %d %d, kind %d\n", which, sets[s], x, other, to, rq.kind);
        exit(1);
    }
    take((const uint8_t *)&status, 1);
    if (!status) take(first, bytes);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (npuc_isa_select(every[i]) == NPUC_OK) sets[set_count++] = every[i];
    for (int i = 0; i < set_count; i++) printf("%s%s", i ? " " : "", sets[i]);
    printf("\n");
    for (long n = argc > 1 ? atol(argv[1]) : 100; n > 0; n--) {
        conv_case();
        matmul_case();
        vector_case();
    }
    printf("%ld results, digest %016llx\n", results, (unsigned long long)digest);
    return 0;
}
