// Passes of a resize with 16-bit weights on x86-64. The taps are processed in pairs, because the instruction PMADDWD multiplies
// the values of two taps by their weights and adds the two products.
#include "passes.h"

#ifdef HAS_PAIRS
#include <immintrin.h>
#include <string.h>

#include "coefficients.h"

#if defined __AVX512BW__
typedef __m512i wide;
#define WIDE(name) _mm512_##name
#elif defined __AVX2__
typedef __m256i wide;
#define WIDE(name) _mm256_##name
#else
typedef __m128i wide;
#define WIDE(name) _mm_##name
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

// A vector contains the sums of `ROWS` rows with four channels. `VECTORS` vectors contain the four rows of a block.
enum { WIDTH = sizeof(wide), ROWS = WIDTH / 16, VECTORS = 4 / ROWS };
_Static_assert((int)MAX_PAIRED_WIDTH >= (int)WIDTH, "a line of the vertical pass must contain at least one vector");

INLINE wide load(const char *from) {
    wide values;
    memcpy(&values, from, sizeof values);
    return values;
}

// Load uint8 values and convert them to 16 bits.
INLINE wide load_narrow(const char *from) {
#if defined __AVX512BW__
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif defined __AVX2__
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from));
#else
    return _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)from), _mm_setzero_si128());
#endif
}

static int32_t weight_pair(int32_t first, int32_t second) { return (int32_t)((first & 0xFFFF) | (uint32_t)second << 16); }

// Shift the sums, clip them to 0 to 255, and pack four vectors into one. The order of the values is the one in which
// `_mm_unpacklo_epi8` and `_mm_unpackhi_epi8` unpack one vector into four.
INLINE wide to_uint8(const wide *sums, __m128i bits) {
    wide shifted[4];
    UNROLL for (int i = 0; i < 4; ++i) shifted[i] = WIDE(sra_epi32)(sums[i], bits);
    return WIDE(packus_epi16)(WIDE(packs_epi32)(shifted[0], shifted[1]), WIDE(packs_epi32)(shifted[2], shifted[3]));
}

void make_pairs(const struct coefficients *w, const int32_t *first, struct tap_pairs *pairs) {
    for (int64_t output = 0; output < w->size; ++output) {
        const int32_t *from = w->weights + output * w->taps;
        int32_t *to = pairs->weights + output * pairs->count;
        const int64_t is_odd = first[output] & 1, count = w->count[output];
        pairs->first[output] = first[output] / 2;
        for (int64_t pair = 0; pair < pairs->count; ++pair) {
            const int64_t tap = 2 * pair - is_odd;
            to[pair] = weight_pair(tap >= 0 && tap < count ? from[tap] : 0, tap + 1 < count ? from[tap + 1] : 0);
        }
    }
}

// Return the bytes of 4 pixels. The values of each channel in pixels 0 and 1 are adjacent, followed by those in pixels 2 and 3.
INLINE __m128i interleaved(const uint8_t *from, int64_t stride) {
    const __m128i pixels = _mm_loadu_si128((const __m128i *)from);
#ifdef __SSSE3__
    if (stride == 3)
        return _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 3, 1, 4, 2, 5, -1, -1, 6, 9, 7, 10, 8, 11, -1, -1));
    return _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
#else
    (void)stride;
    return _mm_unpacklo_epi64(_mm_unpacklo_epi8(pixels, _mm_srli_si128(pixels, 4)),
                              _mm_unpacklo_epi8(_mm_srli_si128(pixels, 8), _mm_srli_si128(pixels, 12)));
#endif
}

INLINE void interleave(const uint8_t *const *rows, int64_t stride, int64_t groups, char *block) {
    for (int64_t group = 0; group < groups; ++group) {
        __m128i pixels[4];
        UNROLL for (int i = 0; i < 4; ++i) pixels[i] = interleaved(rows[i] + 4 * group * stride, stride);
        __m128i *to = (__m128i *)(block + 64 * group);
        _mm_storeu_si128(to, _mm_unpacklo_epi64(pixels[0], pixels[1]));
        _mm_storeu_si128(to + 1, _mm_unpacklo_epi64(pixels[2], pixels[3]));
        _mm_storeu_si128(to + 2, _mm_unpackhi_epi64(pixels[0], pixels[1]));
        _mm_storeu_si128(to + 3, _mm_unpackhi_epi64(pixels[2], pixels[3]));
    }
}

int can_interleave(int64_t stride) {
#ifdef __SSSE3__
    if (stride == 3) return 1;
#endif
    return stride == 4;
}

void interleave_rows(const uint8_t *const *rows, int64_t stride, int64_t groups, char *block) {
    if (stride == 3) interleave(rows, 3, groups, block);
    else interleave(rows, 4, groups, block);
}

void horizontal_pairs(const struct horizontal_pass *k, const char *block, char *const *out) {
    const struct tap_pairs pairs = *k->pairs;
    const int64_t size = k->coefficients->size, bits = k->coefficients->bits;
    const wide half = WIDE(set1_epi32)(1 << (bits - 1));
    for (int64_t column = 0; column < size; column += 4) {  // the last 4 columns may overlap the previous ones
        const int64_t begin = max(min(column, size - 4), 0);
        const char *from[4];
        const int32_t *weights[4];
        wide sums[VECTORS][4];
        UNROLL for (int i = 0; i < 4; ++i) {
            const int64_t at = min(begin + i, size - 1), output = k->is_mirrored ? size - 1 - at : at;
            from[i] = block + PAIR_BYTES * pairs.first[output];
            weights[i] = pairs.weights + output * pairs.count;
            UNROLL for (int vector = 0; vector < VECTORS; ++vector) sums[vector][i] = half;
        }
        for (int64_t pair = 0; pair < pairs.count; ++pair) UNROLL
            for (int i = 0; i < 4; ++i) {
                const wide weight = WIDE(set1_epi32)(weights[i][pair]);
                UNROLL for (int vector = 0; vector < VECTORS; ++vector) {
                    const wide values = load_narrow(from[i] + PAIR_BYTES * pair + vector * WIDTH / 2);
                    sums[vector][i] = WIDE(add_epi32)(sums[vector][i], WIDE(madd_epi16)(values, weight));
                }
            }
        UNROLL for (int vector = 0; vector < VECTORS; ++vector) {
            const wide values = to_uint8(sums[vector], _mm_cvtsi32_si128((int)bits));
            UNROLL for (int row = 0; row < ROWS; ++row)
                memcpy(out[vector * ROWS + row] + 4 * begin, (const char *)&values + 16 * row, 16);
        }
    }
}

void vertical_pairs(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length, char *out) {
    const int32_t *weights = w->weights + output * w->taps;
    const int64_t count = w->count[output];
    const wide half = WIDE(set1_epi32)(1 << (w->bits - 1)), zero = WIDE(set1_epi32)(0);
    for (int64_t position = 0; position < length; position += WIDTH) {  // the last vector may overlap the previous one
        const int64_t at = min(position, length - WIDTH);
        wide sums[4] = {half, half, half, half};
        for (int64_t tap = 0; tap < count; tap += 2) {
            const int64_t next = min(tap + 1, count - 1);
            const wide pair = WIDE(set1_epi32)(weight_pair(weights[tap], next > tap ? weights[next] : 0));
            const wide above = load(lines[tap] + at), below = load(lines[next] + at);
            const wide low = WIDE(unpacklo_epi8)(above, below), high = WIDE(unpackhi_epi8)(above, below);
            sums[0] = WIDE(add_epi32)(sums[0], WIDE(madd_epi16)(WIDE(unpacklo_epi8)(low, zero), pair));
            sums[1] = WIDE(add_epi32)(sums[1], WIDE(madd_epi16)(WIDE(unpackhi_epi8)(low, zero), pair));
            sums[2] = WIDE(add_epi32)(sums[2], WIDE(madd_epi16)(WIDE(unpacklo_epi8)(high, zero), pair));
            sums[3] = WIDE(add_epi32)(sums[3], WIDE(madd_epi16)(WIDE(unpackhi_epi8)(high, zero), pair));
        }
        const wide values = to_uint8(sums, _mm_cvtsi32_si128((int)w->bits));
        memcpy(out + at, &values, sizeof values);
    }
}
#endif
