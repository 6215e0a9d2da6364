/* SHA-256 by the SHA extensions of x86-64: two of a block's 64 rounds an instruction. */
#include "cpu.h"
#include "sha256.h"

#if NPUC_SHA_NI

#include <immintrin.h>

#define USES __attribute__((target("sha,sse4.1,ssse3")))

int npuc_sha256_ni_usable(void) { return npuc_cpu_sha(); }

USES void npuc_sha256_ni(uint32_t state[8], const uint8_t *bytes, uint64_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    /* The instructions want the words a, b, e, f in one register and c, d, g, h in the other, the first highest. */
    const __m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state);
    const __m128i hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; count; count--, bytes += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(bytes + 16 * i)), swap);
        for (int i = 0; i < 16; i++) {
            const __m128i now = w[i % 4];
            __m128i sum = _mm_add_epi32(now, _mm_loadu_si128((const __m128i *)(const void *)(npuc_sha256_k + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            sum = _mm_shuffle_epi32(sum, 0x0E);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
            if (i < 12) {
                /* The four words of the schedule that are used sixteen rounds later. */
                const __m128i next = w[(i + 1) % 4], third = w[(i + 2) % 4], last = w[(i + 3) % 4];
                const __m128i mixed = _mm_add_epi32(_mm_sha256msg1_epu32(now, next), _mm_alignr_epi8(last, third, 4));
                w[i % 4] = _mm_sha256msg2_epu32(mixed, last);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

typedef int npuc_nothing_here; /* a C file has to have something in it */

#endif
