// Conversion of pixel values to tensor values, histograms, and the noise of a tensor.
#include "levels.h"

#include <string.h>

#define LANES 16
#include "formulas.h"
#include "coefficients.h"

// Look pixel values up in the tables. If the columns of the result are contiguous, 16 bytes are stored at once; the last 16 bytes
// of a row may overlap the previous ones.
#define LOOK_UP(type, bits)                                                                                                    \
    static void look_up_##bits(const struct values *arguments) {                                                               \
        enum { COUNT = 128 / bits };                                                                                           \
        const struct values values = *arguments, *n = &values; /* a copy, so that stores cannot change it */                   \
        const int is_contiguous = n->out_column_stride == sizeof(type) && n->columns >= COUNT;                                 \
        for (int64_t plane = 0; plane < n->planes; ++plane)                                                                    \
            for (int64_t row = 0; row < n->rows; ++row) {                                                                      \
                const type *table = (const type *)n->table + 256 * plane;                                                      \
                const uint8_t *from = n->pixels + plane * n->plane_stride + row * n->row_stride;                               \
                uint8_t *to = n->out + plane * n->out_plane_stride + row * n->out_row_stride;                                  \
                for (int64_t column = 0; is_contiguous && column < n->columns; column += COUNT) {                              \
                    int64_t at = column < n->columns - COUNT ? column : n->columns - COUNT;                                    \
                    type result __attribute__((vector_size(16)));                                                              \
                    const uint8_t *pixel = from + at * n->column_stride;                                                       \
                    for (int i = 0; i < COUNT; ++i, pixel += n->column_stride) result[i] = table[*pixel];                      \
                    memcpy(to + at * sizeof(type), &result, sizeof result);                                                    \
                }                                                                                                              \
                for (int64_t column = 0; !is_contiguous && column < n->columns; ++column)                                      \
                    memcpy(to + column * n->out_column_stride, &table[from[column * n->column_stride]], sizeof(type));         \
            }                                                                                                                  \
    }
LOOK_UP(uint16_t, 16)
LOOK_UP(uint32_t, 32)

// Compute `value * scale + offset` in float64, rounded to float32, for 16 pixels of four channels at a time. The last 16 pixels of
// a row may overlap the previous ones.
static void compute_affine(const struct values *arguments) {
    const struct values all = *arguments, *n = &all;
    for (int64_t plane = 0; plane < n->planes; ++plane) {
        const double scale = n->affine[2 * plane], offset = n->affine[2 * plane + 1];
        for (int64_t row = 0; row < n->rows; ++row) {
            const uint8_t *from = n->pixels + plane * n->plane_stride + row * n->row_stride;
            uint8_t *to = n->out + plane * n->out_plane_stride + row * n->out_row_stride;
            for (int64_t column = 0; column < n->columns; column += LANES) {
                int64_t at = 4 * (column < n->columns - LANES ? column : n->columns - LANES);
                vint words;
                memcpy(&words, from + at, sizeof words);
                vfloat values = TO_FLOAT(TO_DOUBLE(words & 255) * scale + offset);
                memcpy(to + at, &values, sizeof values);
            }
        }
    }
}

static void look_up_block(const struct values *n) {
    if (n->affine && n->column_stride == 4 && n->out_column_stride == 4 && n->columns >= LANES) return compute_affine(n);
    switch (n->value_size) {
    case 1: return look_up_bytes(n);
    case 2: return look_up_16(n);
    default: return look_up_32(n);
    }
}

// Copy a row of a patch. A row of at least 32 bytes is copied as vectors, and the last vector may overlap the previous one.
INLINE void copy_row(uint8_t *to, const uint8_t *from, int64_t size) {
    enum { VECTOR = 32 };
    if (size < VECTOR) memcpy(to, from, size);
    else
        for (int64_t at = 0; at < size; at += VECTOR) {
            const int64_t begin = at < size - VECTOR ? at : size - VECTOR;
            memcpy(to + begin, from + begin, VECTOR);
        }
}

// Write rows of the image to patches that are narrow, repeated, or interleave the planes. The tensor values of some rows are
// computed once, `CHUNK` columns at a time, and copied to each patch and frame. They stay in the first-level cache.
enum { CHUNK = 128, CHUNK_ROWS = 8, MOST_PLANES = 3 };

// Interleave the values of three planes, which are `CHUNK_ROWS * CHUNK` values apart.
INLINE void interleave(uint32_t *to, const uint32_t *from, int64_t columns) {
    for (int64_t column = 0; column < columns; ++column)
        for (int plane = 0; plane < MOST_PLANES; ++plane)
            to[MOST_PLANES * column + plane] = from[plane * CHUNK_ROWS * CHUNK + column];
}

static void copy_to_patches(const struct values *n, int is_interleaved) {
    const struct patches *p = n->patches;
    const int64_t merge = p->merge, size = n->value_size, per_chunk = CHUNK / p->width;
    uint32_t computed[MOST_PLANES][CHUNK_ROWS][CHUNK];
    struct values block = *n;
    block.out_plane_stride = sizeof computed[0];
    block.out_row_stride = sizeof computed[0][0];
    block.out_column_stride = size;
    for (int64_t row = 0; row < n->rows; row += block.rows) {
        const int64_t y = (p->first_row + row) / p->height, inside = (p->first_row + row) % p->height;
        const int64_t first_patch = y / merge * merge * p->patches_per_row + y % merge * merge;
        block.rows = min(min(CHUNK_ROWS, p->height - inside), n->rows - row);
        for (int64_t x = 0; x < p->patches_per_row; ++x) {
            const int64_t from = x % per_chunk * p->width;
            if (!from) {
                block.columns = min(per_chunk, p->patches_per_row - x) * p->width;
                block.pixels = n->pixels + row * n->row_stride + x * p->width * n->column_stride;
                block.out = (uint8_t *)computed;
                look_up_block(&block);
            }
            uint8_t *to = n->out + (first_patch + x / merge * merge * merge + x % merge) * p->patch_stride +
                          inside * n->out_row_stride;
            for (int64_t frame = 0; frame < p->frames; ++frame, to += p->frame_stride)
                for (int64_t plane = 0; plane < (is_interleaved ? 1 : n->planes); ++plane)
                    for (int64_t i = 0; i < block.rows; ++i) {
                        uint8_t *out = to + plane * n->out_plane_stride + i * n->out_row_stride;
                        if (is_interleaved) interleave((uint32_t *)out, &computed[0][i][from], p->width);
                        else copy_row(out, (uint8_t *)computed[plane][i] + from * size, p->width * size);
                    }
        }
    }
}

// Write rows of the image to patches: one block per patch and frame, unless `copy_to_patches` is faster.
static void look_up_patches(const struct values *n) {
    const struct patches *p = n->patches;
    const int is_interleaved = n->planes == MOST_PLANES && n->value_size == 4 && n->out_plane_stride == 4 && p->width > 1;
    const int is_contiguous = n->planes <= MOST_PLANES && n->out_column_stride == n->value_size;
    if (p->width <= CHUNK && (is_interleaved || (is_contiguous && (p->width < CHUNK / 2 || p->frames > 1))))
        return copy_to_patches(n, is_interleaved);
    const int64_t merged = p->merge * p->merge;
    for (int64_t row = 0, rows; row < n->rows; row += rows) {
        const int64_t inside = (p->first_row + row) % p->height, y = (p->first_row + row) / p->height;
        rows = p->height - inside < n->rows - row ? p->height - inside : n->rows - row;
        for (int64_t x = 0; x < p->patches_per_row; ++x) {
            const int64_t merge_window = y / p->merge * (p->patches_per_row / p->merge) + x / p->merge;
            const int64_t patch = merge_window * merged + y % p->merge * p->merge + x % p->merge;
            struct values block = *n;
            block.rows = rows;
            block.columns = p->width;
            block.pixels += row * n->row_stride + x * p->width * n->column_stride;
            block.out += patch * p->patch_stride + inside * n->out_row_stride;
            for (int64_t frame = 0; frame < p->frames; ++frame, block.out += p->frame_stride) look_up_block(&block);
        }
    }
}

KERNEL void look_up(const struct values *n) {
    if (n->patches) look_up_patches(n);
    else look_up_block(n);
}

KERNEL void look_up_colours(const struct colours *n) {
    const uint8_t *red = n->tables, *green = red + 256, *blue = green + 256;
    for (int64_t i = 0; i < n->count; ++i) {
        uint32_t pixel = n->pixels[i];
        n->pixels[i] = red[pixel & 255] | green[pixel >> 8 & 255] << 8 | blue[pixel >> 16 & 255] << 16;
    }
}

KERNEL void count_levels(const struct colours *n) {
    uint32_t *red = n->counts, *green = red + 256, *blue = green + 256;
    for (int64_t i = 0; i < n->count; ++i) {
        uint32_t pixel = n->pixels[i];
        ++red[pixel & 255];
        ++green[pixel >> 8 & 255];
        ++blue[pixel >> 16 & 255];
    }
}

INLINE float difference(const struct pairwise_sum *n, uint8_t value) {
    const float x = (float)value - n->mean;
    return n->squares ? x * x : x;
}

// NumPy's pairwise summation. Up to 128 values are added to eight partial sums: value i is added to sum i % 8. The last count % 8
// values are added to the total of these sums. More values are divided into two halves, and the sums of the halves are added. The
// size of the first half is a multiple of 8.
static float sum_pairwise(const struct pairwise_sum *n, const uint8_t *pixels, int64_t count) {
    enum { SUMS = 8, BLOCK = 128 };
    if (count > BLOCK) {
        const int64_t half = count / 2 / SUMS * SUMS;
        const float first = sum_pairwise(n, pixels, half);
        return first + sum_pairwise(n, pixels + half, count - half);
    }
    float sums[SUMS] = {0};
    const int64_t whole = count / SUMS * SUMS;
    for (int64_t begin = 0; begin < whole; begin += SUMS)
        for (int i = 0; i < SUMS; ++i) sums[i] += difference(n, pixels[begin + i]);
    float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (int64_t i = whole; i < count; ++i) sum += difference(n, pixels[i]);
    return sum;
}

KERNEL void add_pairwise(struct pairwise_sum *n) { n->sum = sum_pairwise(n, n->pixels, n->count); }

// The index of value i in the table is the half i % 2 of word i % 8 / 2 of Philox's output for the counter
// (i / 8, counter_word, 0, 0). The lower half is number 0.
KERNEL void make_noise(const struct noise *n) {
    for (int64_t begin = 0; begin < n->count; begin += 8 * LANES) {
        vuint counter[4] = {SPLAT(vuint, (uint32_t)(begin / 8)), SPLAT(vuint, n->counter_word), {0}, {0}};
        for (int lane = 0; lane < LANES; ++lane) counter[0][lane] += (uint32_t)lane;
        philox(counter, n->key[0], n->key[1]);
        for (int i = 0; i < 8 * LANES && begin + i < n->count; ++i)
            n->out[begin + i] = n->table[counter[i % 8 / 2][i / 8] >> 16 * (i % 2) & 0xFFFF];
    }
}
