/*
 * The inner loops of float_gemm.c, for one instruction set; included once for each with these defined:
 *
 *   NAME(x)    the name of a function of this set
 *   TARGET     what it is compiled for
 *   VEC, WIDTH a vector and its count of floats, at most PANEL
 *   ROWS       rows of the largest tile
 *   LOAD, STORE, SPREAD (one value to all), WIDEN (WIDTH values of a type, from an element on), FMA (a * b + c, rounded once)
 */

/*
 * c[rows][panels * PANEL] = bias + a * b: every output is one chain of FMAs, in the order of k. `a` has rows `stride` floats
 * apart, `b` is [panel][k][PANEL].
 */
NPUC_INLINE TARGET void NAME(tile_of)(const int rows, const int panels, ptrdiff_t k, const float *a, ptrdiff_t stride, const float *b,
                                      const float *bias, float *c)
{
    enum { PARTS = PANEL / WIDTH };
    VEC acc[ROWS][2 * PARTS];
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels * PARTS; p++) acc[r][p] = LOAD(bias + p * WIDTH);
    const float *second = b + k * PANEL;
    for (ptrdiff_t i = 0; i < k; i++) {
        VEC w[2 * PARTS];
        for (int p = 0; p < panels * PARTS; p++) w[p] = LOAD((p < PARTS ? b : second) + i * PANEL + p % PARTS * WIDTH);
        for (int r = 0; r < rows; r++) {
            const VEC x = SPREAD(a[r * stride + i]);
            for (int p = 0; p < panels * PARTS; p++) acc[r][p] = FMA(x, w[p], acc[r][p]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels * PARTS; p++) STORE(c + r * 2 * PANEL + p * WIDTH, acc[r][p]);
}

#define CASE(R)                                                                                                                            \
    case R:                                                                                                                                \
        if (panels == 2)                                                                                                                   \
            NAME(tile_of)(R, 2, k, a, stride, b, bias, c);                                                                                 \
        else                                                                                                                               \
            NAME(tile_of)(R, 1, k, a, stride, b, bias, c);                                                                                 \
        break;

TARGET static void NAME(tile)(int rows, int panels, ptrdiff_t k, const float *a, ptrdiff_t stride, const float *b, const float *bias,
                              float *c)
{
    switch (rows) {
        CASE(1)
        CASE(2) CASE(3) CASE(4)
#if ROWS > 4
            CASE(5) CASE(6)
#endif
#if ROWS > 6
                CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
}
#undef CASE

/* One output pixel of a depthwise layer: taps that lie outside are NULL. Sums go to c[channels], a multiple of PANEL. */
NPUC_INLINE TARGET void NAME(depthwise_of)(ptrdiff_t channels, ptrdiff_t padded, int taps, const void *const *x, const float *weight,
                                           const float *bias, float *c, int32_t dtype)
{
    for (ptrdiff_t first = 0; first < channels; first += PANEL) {
        const ptrdiff_t n = channels - first < PANEL ? channels - first : PANEL;
        enum { PARTS = PANEL / WIDTH };
        VEC acc[PARTS];
        for (int p = 0; p < PARTS; p++) acc[p] = LOAD(bias + first + p * WIDTH);
        for (int t = 0; t < taps; t++) {
            if (!x[t]) continue;
            float some[PANEL] = {0}; /* room for any type */
            const void *from = npuc_float_at(x[t], first, dtype);
            if (n < PANEL) from = memcpy(some, from, (size_t)(n * npuc_float_size(dtype)));
            for (int p = 0; p < PARTS; p++)
                acc[p] = FMA(WIDEN(from, p * WIDTH, dtype), LOAD(weight + t * padded + first + p * WIDTH), acc[p]);
        }
        for (int p = 0; p < PARTS; p++) STORE(c + first + p * WIDTH, acc[p]);
    }
}

TARGET static void NAME(depthwise)(ptrdiff_t channels, ptrdiff_t padded, int taps, const void *const *x, const float *weight,
                                   const float *bias, float *c, int32_t dtype)
{
    NPUC_BY_FLOAT(dtype, NAME(depthwise_of), channels, padded, taps, x, weight, bias, c);
}

NPUC_INLINE TARGET void NAME(widen_of)(const void *x, ptrdiff_t n, float *y, int32_t dtype)
{
    ptrdiff_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) STORE(y + i, WIDEN(x, i, dtype));
    for (; i < n; i++) y[i] = npuc_widen(x, i, dtype);
}

TARGET static void NAME(widen)(const void *x, ptrdiff_t n, float *y, int32_t dtype)
{
    NPUC_BY_FLOAT(dtype, NAME(widen_of), x, n, y);
}

/* Adding 0 makes 0 of -0, whose sign would tell whether taps outside of the input were left out. */
NPUC_INLINE TARGET void NAME(finish_of)(const float *c, ptrdiff_t n, int32_t relu, float limit, void *y, int32_t dtype)
{
    if (n == PANEL)
        for (int i = 0; i < PANEL; i++) npuc_narrow(y, i, npuc_relu(c[i] + 0.0f, relu, limit), dtype);
    else
        for (ptrdiff_t i = 0; i < n; i++) npuc_narrow(y, i, npuc_relu(c[i] + 0.0f, relu, limit), dtype);
}

TARGET static void NAME(finish)(const float *c, ptrdiff_t n, int32_t relu, float limit, void *y, int32_t dtype)
{
    NPUC_BY_FLOAT(dtype, NAME(finish_of), c, n, relu, limit, y);
}

static const float_ops NAME(ops) = {ROWS, NAME(tile), NAME(depthwise), NAME(widen), NAME(finish)};

#undef NAME
#undef TARGET
#undef VEC
#undef WIDTH
#undef ROWS
#undef LOAD
#undef STORE
#undef SPREAD
#undef WIDEN
#undef FMA
