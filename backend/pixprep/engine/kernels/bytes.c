// Conversion of pixel values to uint8 tensor values, 16 or 32 at a time: they are copied from one layout to another, and looked up
// in a table.
#include <string.h>

#include "levels.h"
#include "vectors.h"
#include "coefficients.h"

#if defined __SSSE3__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

// Return the values at `indices`, 0 to 15. The index 128 returns 0.
#if defined __SSSE3__
enum { CAN_SHUFFLE = 1 };
INLINE bytes shuffle(bytes values, bytes indices) { return (bytes)_mm_shuffle_epi8((__m128i)values, (__m128i)indices); }
#elif defined __aarch64__
enum { CAN_SHUFFLE = 1 };
INLINE bytes shuffle(bytes values, bytes indices) { return (bytes)vqtbl1q_u8((uint8x16_t)values, (uint8x16_t)indices); }
#else
enum { CAN_SHUFFLE = 0 };
INLINE bytes shuffle(bytes values, bytes indices) { return values & indices; }
#endif

// A look-up table of 256 bytes, prepared for vector instructions.
struct table_vectors {
    bytes vectors[16];  // 16 entries each; all except 0 and 8 are combined with the previous entries by exclusive or
    int is_bitwise;     // whether each entry is (index & and_mask) ^ xor_mask, as in the tables of `posterize` and `invert`
    uint8_t and_mask;
    uint8_t xor_mask;
};

// Look up `count` bytes. `to` may be equal to `from`.
static void look_up_row(const uint8_t *table, const struct table_vectors *table_vectors, const uint8_t *from, uint8_t *to,
                        int64_t count) {
    int64_t at = 0;
    if (table_vectors->is_bitwise) {
        const uint8_t and_mask = table_vectors->and_mask, xor_mask = table_vectors->xor_mask;
        for (; at < count; ++at) to[at] = (from[at] & and_mask) ^ xor_mask;
        return;
    }
#if defined __AVX2__
    const __m256i next = _mm256_set1_epi8(16), half = _mm256_set1_epi8(-128);
    __m256i vectors[16];
    for (int i = 0; i < 16; ++i) vectors[i] = _mm256_broadcastsi128_si256((__m128i)table_vectors->vectors[i]);
    for (; at + 32 <= count; at += 32) {  // a negative index returns 0; any other index uses only its lower 4 bits
        __m256i low = _mm256_loadu_si256((const __m256i *)(from + at)), high = _mm256_xor_si256(low, half);
        __m256i result = _mm256_setzero_si256();
        for (int i = 0; i < 8; ++i) {
            result = _mm256_xor_si256(result, _mm256_shuffle_epi8(vectors[i], low));
            result = _mm256_xor_si256(result, _mm256_shuffle_epi8(vectors[8 + i], high));
            low = _mm256_subs_epi8(low, next);
            high = _mm256_subs_epi8(high, next);
        }
        _mm256_storeu_si256((__m256i *)(to + at), result);
    }
#elif defined __SSSE3__
    const __m128i next = _mm_set1_epi8(16), half = _mm_set1_epi8(-128);
    for (; at + 16 <= count; at += 16) {
        __m128i low = _mm_loadu_si128((const __m128i *)(from + at)), high = _mm_xor_si128(low, half);
        __m128i result = _mm_setzero_si128();
        for (int i = 0; i < 8; ++i) {
            result = _mm_xor_si128(result, _mm_shuffle_epi8((__m128i)table_vectors->vectors[i], low));
            result = _mm_xor_si128(result, _mm_shuffle_epi8((__m128i)table_vectors->vectors[8 + i], high));
            low = _mm_subs_epi8(low, next);
            high = _mm_subs_epi8(high, next);
        }
        _mm_storeu_si128((__m128i *)(to + at), result);
    }
#endif
    for (; at < count; ++at) to[at] = table[from[at]];
}

static struct table_vectors table_vectors_of(const uint8_t *table) {
    struct table_vectors result = {.is_bitwise = 1, .and_mask = table[0] ^ table[255], .xor_mask = table[0]};
    for (int value = 0; value < 256; ++value)
        result.is_bitwise &= table[value] == ((value & result.and_mask) ^ result.xor_mask);
    memcpy(result.vectors, table, sizeof result.vectors);
    for (int i = 15; i > 0; --i)
        if (i != 8) result.vectors[i] ^= result.vectors[i - 1];
    return result;
}

// Parameters of the copy of a row of pixels, with `planes` bytes each, from one layout to another.
struct copy {
    int64_t planes;
    int64_t from_column_stride;
    int64_t from_plane_stride;
    int64_t to_column_stride;  // bytes beyond the planes are undefined
    int64_t to_plane_stride;
    int64_t pixels_per_step;  // pixels that are copied together, to 16 bytes; 0: copy byte by byte
    int64_t vectors;          // number of vectors of 16 bytes that are loaded per step
    int64_t min_columns;      // remaining columns of a row with which loads and stores do not exceed the row
    int64_t first_offset;     // offset of the first pixel in the loaded vectors
    bytes indices[4];         // argument of `shuffle` for each vector
};

static struct copy copy_of(const struct values *n, int64_t planes, int64_t from_column_stride, int64_t to_column_stride) {
    const int64_t from_plane_stride = planes > 1 ? n->plane_stride : 0, to_plane_stride = planes > 1 ? n->out_plane_stride : 0;
    struct copy copy = {planes, from_column_stride, from_plane_stride, to_column_stride, to_plane_stride, 0, 0, 0, 0, {{0}}};
    const int64_t column_stride = from_column_stride < 0 ? -from_column_stride : from_column_stride;
    const int is_dense = to_column_stride == planes || (to_column_stride == 4 && planes == 3);
    const int is_adjacent = planes == 1 || ((from_plane_stride == 1 || from_plane_stride == -1) && to_plane_stride == 1);
    if (!CAN_SHUFFLE || !is_dense || !is_adjacent || column_stride < planes || column_stride > 4) return copy;
    copy.vectors = to_column_stride > 1 || column_stride == 1 ? 1 : column_stride < 4 ? 3 : 4;
    copy.pixels_per_step = min(LANES * copy.vectors / column_stride, LANES / to_column_stride);
    copy.min_columns = max((LANES * copy.vectors - planes + column_stride - 1) / column_stride + 1,
                           (LANES + to_column_stride - 1) / to_column_stride);
    // With a negative column stride, the first pixel is the last one in the vectors. The same applies to planes.
    copy.first_offset = (from_column_stride < 0 ? LANES * copy.vectors - planes : 0) + (from_plane_stride < 0 ? planes - 1 : 0);
    memset(copy.indices, 128, sizeof copy.indices);
    for (int64_t pixel = 0; pixel < copy.pixels_per_step; ++pixel)
        for (int64_t plane = 0; plane < planes; ++plane) {
            const int64_t index = copy.first_offset + pixel * from_column_stride + plane * from_plane_stride;
            copy.indices[index / LANES][pixel * to_column_stride + plane] = (uint8_t)(index % LANES);
        }
    return copy;
}

// Copy as many pixels of a row as possible with vectors, and return their number.
INLINE int64_t copy_vectors(const struct copy *arguments, const uint8_t *from, uint8_t *to, int64_t columns,
                            const int vectors) {
    const struct copy copy = *arguments;
    int64_t column = 0;
    for (; column + copy.min_columns <= columns; column += copy.pixels_per_step) {
        bytes result = {0};
        for (int vector = 0; vector < vectors; ++vector) {
            bytes values;
            memcpy(&values, from + column * copy.from_column_stride - copy.first_offset + vector * LANES, sizeof values);
            result |= shuffle(values, copy.indices[vector]);
        }
        memcpy(to + column * copy.to_column_stride, &result, sizeof result);
    }
    return column;
}

// Copy a row. Only bytes of the row, and bytes between its pixels, are read and written.
static void copy_row(const struct copy *arguments, const uint8_t *from, uint8_t *to, int64_t columns) {
    const struct copy copy = *arguments, *m = &copy;
    if (m->from_column_stride == m->planes && m->to_column_stride == m->planes && m->from_plane_stride == m->to_plane_stride &&
        m->to_plane_stride <= 1) {
        memcpy(to, from, columns * m->planes);
        return;
    }
    const int64_t done = !m->pixels_per_step ? 0
                         : m->vectors == 1   ? copy_vectors(m, from, to, columns, 1)
                         : m->vectors == 3   ? copy_vectors(m, from, to, columns, 3)
                                             : copy_vectors(m, from, to, columns, 4);
    for (int64_t plane = 0; plane < m->planes; ++plane)
        for (int64_t column = done; column < columns; ++column)
            to[column * m->to_column_stride + plane * m->to_plane_stride] =
                from[column * m->from_column_stride + plane * m->from_plane_stride];
}

void look_up_bytes(const struct values *n) {
    const uint8_t *table = n->table;
    int is_same_table = 1;
    for (int64_t plane = 1; table && plane < n->planes; ++plane) is_same_table &= !memcmp(table, table + 256 * plane, 256);
    // Process one plane at a time, or all planes of a pixel together if they are adjacent and have the same table.
    const int64_t column_stride = n->out_column_stride < 0 ? -n->out_column_stride : n->out_column_stride;
    const int is_pixel = n->planes > 1 && is_same_table && n->out_plane_stride == 1 &&
                         (column_stride == n->planes || (column_stride == 4 && n->planes == 3));
    const int64_t planes = is_pixel ? n->planes : 1;
    // Write the row in the order of its addresses.
    const int64_t sign = n->out_column_stride < 0 ? -1 : 1, first_column = n->out_column_stride < 0 ? n->columns - 1 : 0;
    const struct copy copy = copy_of(n, planes, sign * n->column_stride, column_stride);
    for (int64_t plane = 0; plane < n->planes; plane += planes) {
        const uint8_t *plane_table = table ? table + 256 * plane : 0;
        struct table_vectors table_vectors;
        if (plane_table) table_vectors = table_vectors_of(plane_table);
        for (int64_t row = 0; row < n->rows; ++row) {
            const uint8_t *from = n->pixels + plane * n->plane_stride + row * n->row_stride + first_column * n->column_stride;
            uint8_t *to = n->out + plane * n->out_plane_stride + row * n->out_row_stride + first_column * n->out_column_stride;
            if (plane_table && !is_pixel && column_stride > 1) {  // the other planes are interleaved
                for (int64_t column = 0; column < n->columns; ++column)
                    to[column * column_stride] = plane_table[from[column * copy.from_column_stride]];
            } else if (plane_table && copy.from_column_stride == planes && column_stride == planes &&
                       (planes == 1 || n->plane_stride == 1)) {
                look_up_row(plane_table, &table_vectors, from, to, n->columns * planes);
            } else {
                copy_row(&copy, from, to, n->columns);
                if (plane_table)
                    look_up_row(plane_table, &table_vectors, to, to, n->columns * column_stride - (column_stride - planes));
            }
        }
    }
}
