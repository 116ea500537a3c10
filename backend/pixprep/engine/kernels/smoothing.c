// SciPy's `gaussian_filter` and `zoom` with linear interpolation, in the order of SciPy's loops. The Gaussian is applied along the
// vertical axis and then along the horizontal axis, and both results are rounded to float32. A value of the result is the weighted
// sum of four smoothed pixels. All sums are computed in float64. Beyond the border, the image is mirrored without its edge pixel.
//
// Only the smoothed rows and columns that the interpolation reads are computed.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

enum { BLOCK = 64, CACHED_ROWS = 2 };

// The two input positions that an output position reads, and their weights.
struct neighbors {
    int64_t positions[2];
    double weights[2];
};

struct smoothing {
    const struct smoothed_resize *n;
    int64_t words;      // values per pixel while smoothing: 1 or 4
    int64_t length;     // values per row of the image, rounded up to blocks
    int64_t ring_rows;
    int64_t *converted; // row of the image that each row of the ring contains; -1: empty
    uint8_t *is_read;   // whether each row of the image has been converted
    float *ring;        // rows of the image as float32
    const float **taps;
    float *line;        // a row after the vertical Gaussian
    double *padded;     // `line` as float64, with mirrored pixels at both ends
    const struct neighbors *columns;
    float low;          // minimum and maximum of the values of the converted rows
    float high;
};

static int64_t mirrored(int64_t position, int64_t length) {
    if (length == 1) return 0;
    const int64_t period = 2 * length - 2, rest = (position % period + period) % period;
    return min(rest, period - rest);
}

static struct neighbors find_neighbors(int64_t index, int64_t length, int64_t out_length) {
    double center = ((double)index + 0.5) * ((double)length / (double)out_length) - 0.5;
    center = length == 1 ? 0 : fabs(center);
    const int64_t first = (int64_t)floor(center);
    const double weight = 1 - (center - (double)first);
    return (struct neighbors){{mirrored(first, length), mirrored(first + 1, length)}, {weight, 1 - weight}};
}

// Return a row of the image as float32. The result is valid until a row with the same position in the ring is converted.
static const float *converted_row(struct smoothing *k, int64_t row) {
    const struct smoothed_resize *n = k->n;
    const int64_t slot = row % k->ring_rows;
    float *values = k->ring + slot * k->length;
    if (k->converted[slot] == row) return values;
    k->converted[slot] = row;
    k->is_read[row] = 1;
    const uint8_t *pixel = n->pixels + row * n->row_stride;
    for (int64_t column = 0; column < n->width; ++column, pixel += n->column_stride)
        for (int64_t word = 0; word < k->words; ++word) {
            const int64_t channel = word < n->channels ? word : 0;
            values[column * k->words + word] = n->values[256 * channel + pixel[channel * n->channel_stride]];
        }
    for (int64_t i = 0; i < n->width * k->words; ++i) {
        k->low = values[i] < k->low ? values[i] : k->low;
        k->high = values[i] > k->high ? values[i] : k->high;
    }
    return values;
}

// Compute one row of the vertical Gaussian.
static void smooth_columns(struct smoothing *k, int64_t row) {
    const int64_t radius = k->n->row_radius;
    const double *weights = k->n->row_weights;
    for (int64_t tap = -radius; tap <= radius; ++tap)
        k->taps[radius + tap] = converted_row(k, mirrored(row + tap, k->n->height));
    if (!radius) {
        memcpy(k->line, k->taps[0], k->length * sizeof *k->line);
        return;
    }
    for (int64_t begin = 0; begin < k->length; begin += BLOCK) {
        double sums[BLOCK];
        const float *center = k->taps[radius] + begin;
        for (int i = 0; i < BLOCK; ++i) sums[i] = (double)center[i] * weights[radius];
        for (int64_t tap = 0; tap < radius; ++tap) {
            const float *above = k->taps[tap] + begin, *below = k->taps[2 * radius - tap] + begin;
            const double weight = weights[tap];
            for (int i = 0; i < BLOCK; ++i) sums[i] += ((double)above[i] + (double)below[i]) * weight;
        }
        for (int i = 0; i < BLOCK; ++i) k->line[begin + i] = (float)sums[i];
    }
}

// Compute the horizontal Gaussian of `line` at the positions that the interpolation reads: two pixels per output column.
INLINE void smooth_row(struct smoothing *k, float *pairs, const int64_t words) {
    const struct smoothed_resize *n = k->n;
    const int64_t radius = n->column_radius, columns = n->right - n->left;
    const double *weights = n->column_weights;
    for (int64_t column = -radius; radius && column < n->width + radius; ++column)
        for (int64_t word = 0; word < words; ++word)
            k->padded[(radius + column) * words + word] = k->line[mirrored(column, n->width) * words + word];
    for (int64_t i = 0; i < 2 * columns; ++i) {
        const int64_t position = k->columns[i / 2].positions[i % 2];
        float *to = pairs + i * words;
        if (!radius) {
            memcpy(to, k->line + position * words, words * sizeof *to);
            continue;
        }
        const double *left = k->padded + position * words, *right = left + 2 * radius * words;
        double sums[4];
        for (int word = 0; word < words; ++word) sums[word] = left[radius * words + word] * weights[radius];
        for (int64_t tap = 0; tap < radius; ++tap)
            for (int word = 0; word < words; ++word)
                sums[word] += (left[tap * words + word] + right[word - tap * words]) * weights[tap];
        for (int word = 0; word < words; ++word) to[word] = (float)sums[word];
    }
}

KERNEL int resize_smoothed(const struct smoothed_resize *n) {
    const int64_t words = n->channels == 1 ? 1 : 4, columns = n->right - n->left;
    const int64_t length = (n->width * words + BLOCK - 1) / BLOCK * BLOCK;
    const int64_t ring_rows = min(n->height, 2 * n->row_radius + 2);
    struct smoothing k = {n, words, length, ring_rows, .low = INFINITY, .high = -INFINITY};
    struct neighbors *across;
    float *pairs[CACHED_ROWS];
    struct arena arena = {0};
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        k.converted = arena_alloc(&arena, ring_rows * sizeof *k.converted);
        k.is_read = arena_alloc(&arena, n->height);
        k.ring = arena_alloc(&arena, ring_rows * length * sizeof *k.ring);
        k.taps = arena_alloc(&arena, (2 * n->row_radius + 1) * sizeof *k.taps);
        k.line = arena_alloc(&arena, length * sizeof *k.line);
        k.padded = arena_alloc(&arena, (n->width + 2 * n->column_radius) * words * sizeof *k.padded);
        across = arena_alloc(&arena, columns * sizeof *across);
        for (int i = 0; i < CACHED_ROWS; ++i) pairs[i] = arena_alloc(&arena, 2 * columns * words * sizeof *pairs[i]);
    }
    for (int64_t i = 0; i < ring_rows; ++i) k.converted[i] = -1;
    memset(k.is_read, 0, n->height);
    for (int64_t i = 0; i < ring_rows; ++i)  // the end of the last block is read, but not used
        memset(k.ring + i * length + n->width * words, 0, (length - n->width * words) * sizeof *k.ring);
    for (int64_t i = 0; i < columns; ++i) across[i] = find_neighbors(n->left + i, n->width, n->out_width);
    k.columns = across;
    int64_t cached[CACHED_ROWS] = {-1, -1};
    for (int64_t row = n->top; row < n->bottom; ++row) {
        const struct neighbors down = find_neighbors(row, n->height, n->out_height);
        const float *lines[2];
        for (int i = 0; i < 2; ++i) {
            const int64_t position = down.positions[i], other = down.positions[1 - i];
            const int slot = cached[0] == position ? 0 : cached[1] == position ? 1 : cached[0] == other;
            if (cached[slot] != position) {
                smooth_columns(&k, position);
                if (words == 1) smooth_row(&k, pairs[slot], 1);
                else smooth_row(&k, pairs[slot], 4);
                cached[slot] = position;
            }
            lines[i] = pairs[slot];
        }
        float *out = n->out + (n->is_flipped ? n->bottom - 1 - row : row - n->top) * columns * words;
        for (int64_t column = 0; column < columns; ++column) {
            const struct neighbors *at = &across[column];
            float *to = out + (n->is_mirrored ? columns - 1 - column : column) * words;
            for (int64_t word = 0; word < words; ++word) {
                double sum = 0;
                for (int i = 0; i < 4; ++i)
                    sum += lines[i / 2][(2 * column + i % 2) * words + word] * down.weights[i / 2] * at->weights[i % 2];
                to[word] = (float)sum;
            }
        }
    }
    for (int64_t row = 0; row < n->height; ++row)
        if (!k.is_read[row]) converted_row(&k, row);  // the range includes rows that are cropped after the resize
    for (int64_t i = 0; i < (n->bottom - n->top) * columns * words; ++i)
        n->out[i] = n->out[i] < k.low ? k.low : n->out[i] > k.high ? k.high : n->out[i];
    free(arena.memory);
    return DONE;
}
