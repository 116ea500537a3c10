// Levels that stay bytes: moved from one layout to another, and looked up, 16 or 32 at a time.
#include <string.h>

#include "levels.h"
#include "vectors.h"
#include "coefficients.h"

#if defined __SSSE3__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

// `pixels` in the order of `places`, each 0 to 15, or 128, which gives 0.
#if defined __SSSE3__
enum { CAN_SHUFFLE = 1 };
INLINE bytes shuffled(bytes levels, bytes places) { return (bytes)_mm_shuffle_epi8((__m128i)levels, (__m128i)places); }
#elif defined __aarch64__
enum { CAN_SHUFFLE = 1 };
INLINE bytes shuffled(bytes levels, bytes places) { return (bytes)vqtbl1q_u8((uint8x16_t)levels, (uint8x16_t)places); }
#else
enum { CAN_SHUFFLE = 0 };
INLINE bytes shuffled(bytes levels, bytes places) { return levels & places; }
#endif

// A table of 256 bytes: each 16 less those before, by exclusive or.
struct steps {
    bytes of[16];
    int is_bits;  // it keeps some bits of a level and turns some, as the tables of `posterize` and `invert` do
    uint8_t kept;
    uint8_t turned;
};

// `count` bytes looked up; `to` may be `from`.
static void look_up_row(const uint8_t *table, const struct steps *steps, const uint8_t *from, uint8_t *to, int64_t count) {
    int64_t at = 0;
    if (steps->is_bits) {
        const uint8_t kept = steps->kept, turned = steps->turned;
        for (; at < count; ++at) to[at] = (from[at] & kept) ^ turned;
        return;
    }
#if defined __AVX2__
    const __m256i next = _mm256_set1_epi8(16), half = _mm256_set1_epi8(-128);
    __m256i of[16];
    for (int i = 0; i < 16; ++i) of[i] = _mm256_broadcastsi128_si256((__m128i)steps->of[i]);
    for (; at + 32 <= count; at += 32) {  // a place below 0 finds 0, any other what its lower half says
        __m256i low = _mm256_loadu_si256((const __m256i *)(from + at)), high = _mm256_xor_si256(low, half);
        __m256i found = _mm256_setzero_si256();
        for (int i = 0; i < 8; ++i) {
            found = _mm256_xor_si256(found, _mm256_shuffle_epi8(of[i], low));
            found = _mm256_xor_si256(found, _mm256_shuffle_epi8(of[8 + i], high));
            low = _mm256_subs_epi8(low, next);
            high = _mm256_subs_epi8(high, next);
        }
        _mm256_storeu_si256((__m256i *)(to + at), found);
    }
#elif defined __SSSE3__
    const __m128i next = _mm_set1_epi8(16), half = _mm_set1_epi8(-128);
    for (; at + 16 <= count; at += 16) {
        __m128i low = _mm_loadu_si128((const __m128i *)(from + at)), high = _mm_xor_si128(low, half);
        __m128i found = _mm_setzero_si128();
        for (int i = 0; i < 8; ++i) {
            found = _mm_xor_si128(found, _mm_shuffle_epi8((__m128i)steps->of[i], low));
            found = _mm_xor_si128(found, _mm_shuffle_epi8((__m128i)steps->of[8 + i], high));
            low = _mm_subs_epi8(low, next);
            high = _mm_subs_epi8(high, next);
        }
        _mm_storeu_si128((__m128i *)(to + at), found);
    }
#endif
    for (; at < count; ++at) to[at] = table[from[at]];
}

static struct steps steps_of(const uint8_t *table) {
    struct steps made = {.is_bits = 1, .kept = table[0] ^ table[255], .turned = table[0]};
    for (int level = 0; level < 256; ++level) made.is_bits &= table[level] == ((level & made.kept) ^ made.turned);
    memcpy(made.of, table, sizeof made.of);
    for (int i = 15; i > 0; --i)
        if (i != 8) made.of[i] ^= made.of[i - 1];
    return made;
}

// Copies a row of pixels, with `planes` bytes each, from one layout to another.
struct move {
    int64_t planes;
    int64_t from_column;
    int64_t from_plane;
    int64_t to_column;     // what it has more than planes has no meaning
    int64_t to_plane;
    int64_t count;         // pixels that are made together, to 16 bytes; 0: one byte after the other
    int64_t vectors;       // of 16 bytes each, which they are made of
    int64_t needed;        // pixels whose bytes these do not leave
    int64_t begin;         // of the first pixel in them
    bytes places[4];       // of each vector
};

static struct move move_of(const struct values *n, int64_t planes, int64_t from_column, int64_t to_column) {
    const int64_t from_plane = planes > 1 ? n->plane_stride : 0, to_plane = planes > 1 ? n->out_plane_stride : 0;
    struct move move = {planes, from_column, from_plane, to_column, to_plane, 0, 0, 0, 0, {{0}}};
    const int64_t column_stride = from_column < 0 ? -from_column : from_column;
    const int is_dense = to_column == planes || (to_column == 4 && planes == 3);
    const int is_near = planes == 1 || ((from_plane == 1 || from_plane == -1) && to_plane == 1);
    if (!CAN_SHUFFLE || !is_dense || !is_near || column_stride < planes || column_stride > 4) return move;
    move.vectors = to_column > 1 || column_stride == 1 ? 1 : column_stride < 4 ? 3 : 4;
    move.count = min(LANES * move.vectors / column_stride, LANES / to_column);
    move.needed = max((LANES * move.vectors - planes + column_stride - 1) / column_stride + 1, (LANES + to_column - 1) / to_column);
    // Backwards the first pixel is the last; and so it is of planes.
    move.begin = (from_column < 0 ? LANES * move.vectors - planes : 0) + (from_plane < 0 ? planes - 1 : 0);
    memset(move.places, 128, sizeof move.places);
    for (int64_t pixel = 0; pixel < move.count; ++pixel)
        for (int64_t plane = 0; plane < planes; ++plane) {
            const int64_t place = move.begin + pixel * from_column + plane * from_plane;
            move.places[place / LANES][pixel * to_column + plane] = (uint8_t)(place % LANES);
        }
    return move;
}

// The pixels of a row that are made together; how many.
INLINE int64_t move_together(const struct move *arguments, const uint8_t *from, uint8_t *to, int64_t columns,
                             const int vectors) {
    const struct move move = *arguments;
    int64_t begin = 0;
    for (; begin + move.needed <= columns; begin += move.count) {
        bytes made = {0};
        for (int vector = 0; vector < vectors; ++vector) {
            bytes levels;
            memcpy(&levels, from + begin * move.from_column - move.begin + vector * LANES, sizeof levels);
            made |= shuffled(levels, move.places[vector]);
        }
        memcpy(to + begin * move.to_column, &made, sizeof made);
    }
    return begin;
}

// Nothing beyond the row is read or written, but for the bytes between its pixels.
static void move_row(const struct move *arguments, const uint8_t *from, uint8_t *to, int64_t columns) {
    const struct move move = *arguments, *m = &move;
    if (m->from_column == m->planes && m->to_column == m->planes && m->from_plane == m->to_plane && m->to_plane <= 1) {
        memcpy(to, from, columns * m->planes);
        return;
    }
    const int64_t begin = !m->count          ? 0
                          : m->vectors == 1 ? move_together(m, from, to, columns, 1)
                          : m->vectors == 3 ? move_together(m, from, to, columns, 3)
                                            : move_together(m, from, to, columns, 4);
    for (int64_t plane = 0; plane < m->planes; ++plane)
        for (int64_t column = begin; column < columns; ++column)
            to[column * m->to_column + plane * m->to_plane] = from[column * m->from_column + plane * m->from_plane];
}

void look_up_bytes(const struct values *n) {
    const uint8_t *table = n->table;
    int is_one = 1;
    for (int64_t plane = 1; table && plane < n->planes; ++plane) is_one &= !memcmp(table, table + 256 * plane, 256);
    // Planes of their own, or pixels whose planes are neighbours.
    const int64_t column_stride = n->out_column_stride < 0 ? -n->out_column_stride : n->out_column_stride;
    const int is_pixel = n->planes > 1 && is_one && n->out_plane_stride == 1 && (column_stride == n->planes || (column_stride == 4 && n->planes == 3));
    const int64_t planes = is_pixel ? n->planes : 1;
    // The result from its first byte on.
    const int64_t sign = n->out_column_stride < 0 ? -1 : 1, skipped = n->out_column_stride < 0 ? n->columns - 1 : 0;
    const struct move move = move_of(n, planes, sign * n->column_stride, column_stride);
    for (int64_t plane = 0; plane < n->planes; plane += planes) {
        const uint8_t *of = table ? table + 256 * plane : 0;
        struct steps steps;
        if (of) steps = steps_of(of);
        for (int64_t row = 0; row < n->rows; ++row) {
            const uint8_t *from = n->pixels + plane * n->plane_stride + row * n->row_stride + skipped * n->column_stride;
            uint8_t *to = n->out + plane * n->out_plane_stride + row * n->out_row_stride + skipped * n->out_column_stride;
            if (of && !is_pixel && column_stride > 1) {  // the other planes are interleaved
                for (int64_t column = 0; column < n->columns; ++column) to[column * column_stride] = of[from[column * move.from_column]];
            } else if (of && move.from_column == planes && column_stride == planes && (planes == 1 || n->plane_stride == 1)) {
                look_up_row(of, &steps, from, to, n->columns * planes);
            } else {
                move_row(&move, from, to, n->columns);
                if (of) look_up_row(of, &steps, to, to, n->columns * column_stride - (column_stride - planes));
            }
        }
    }
}
