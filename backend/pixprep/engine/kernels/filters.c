// Blur and sharpness adjustment of images with contiguous rows: see `Filter` in plan/steps/levels.py.
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

// Blend an image with a 3 x 3 average in which the center has the weight 5 and its neighbors 1. The pixels at the edge of the image
// are copied.
INLINE void sharpen_image(const struct convolution *arguments, const int is_pillow) {
    const struct convolution convolution = *arguments, *n = &convolution;
    const float factor = n->factor;
    const double one_minus_factor = n->one_minus_factor;
    for (int64_t row = 0; row < n->height; ++row) {
        const uint8_t *center = n->pixels + row * n->row_stride, *above = center - n->row_stride,
                      *below = center + n->row_stride;
        uint8_t *restrict out = n->out + row * n->out_row_stride;
        memcpy(out, center, n->row_bytes);
        if (row == 0 || row == n->height - 1) continue;
        for (int64_t i = n->column_stride; i < n->row_bytes - n->column_stride; ++i) {
            const int64_t before = i - n->column_stride, after = i + n->column_stride;
            int sum = above[before] + center[before] + below[before] + above[i] + 5 * center[i] + below[i] + above[after] +
                      center[after] + below[after];
            int smooth = (int)((unsigned)(2 * sum + 13) / 26);
            float value = is_pillow ? (float)smooth + factor * (float)(center[i] - smooth)
                                    : (float)((double)(smooth - center[i]) * one_minus_factor + (double)center[i]);
            value = value > 0 ? value : 0;
            out[i] = (uint8_t)(int)(value < 255 ? value : 255);
        }
    }
}

KERNEL void sharpen(const struct convolution *n) { n->like == LIKE_PILLOW ? sharpen_image(n, 1) : sharpen_image(n, 0); }

INLINE vfloat load_floats(const float *from) {
    vfloat loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

// Convolve an image with separable filter weights, in float32, with the border mode reflect. A ring buffer keeps the rows that the
// horizontal pass has computed. OpenCV fuses multiply-adds, and adds rows at equal distance from the center first.
INLINE int blur_image(const struct convolution *arguments, const int is_fused) {
    const struct convolution convolution = *arguments, *n = &convolution;
    const int64_t radius = n->horizontal_taps / 2, width = (n->row_bytes + n->column_stride - 1) / n->column_stride;
    const int64_t row_stride = (n->row_bytes + LANES - 1) / LANES * LANES;
    struct arena arena = {0};
    float *padded, *ring;
    const float **lines;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        padded = arena_alloc(&arena, ((width + 2 * radius) * n->column_stride + LANES) * sizeof *padded);
        ring = arena_alloc(&arena, n->vertical_taps * row_stride * sizeof *ring);
        lines = arena_alloc(&arena, n->vertical_taps * sizeof *lines);
    }
    memset(padded, 0, ((width + 2 * radius) * n->column_stride + LANES) * sizeof *padded);
    float *line = padded + radius * n->column_stride;
    int64_t rows_done = 0;
    for (int64_t row = 0; row < n->height; ++row) {
        for (; rows_done <= min(row + n->vertical_taps / 2, n->height - 1); ++rows_done) {
            const uint8_t *from = n->pixels + rows_done * n->row_stride;
            for (int64_t i = 0; i < n->row_bytes; ++i) line[i] = (float)from[i];
            for (int64_t column = 1; column <= radius; ++column)
                for (int64_t i = 0; i < n->column_stride; ++i) {
                    line[-column * n->column_stride + i] =
                        line[border_position(PADDING_REFLECT, -column, width) * n->column_stride + i];
                    line[(width - 1 + column) * n->column_stride + i] =
                        line[border_position(PADDING_REFLECT, width - 1 + column, width) * n->column_stride + i];
                }
            for (int64_t i = 0; i < n->row_bytes; i += LANES) {
                vfloat total = load_floats(padded + i) * n->horizontal_weights[0];
                for (int64_t tap = 1; tap < n->horizontal_taps; ++tap) {
                    const vfloat values = load_floats(padded + i + tap * n->column_stride);
                    total = is_fused ? fma_v(values, SPLAT(vfloat, n->horizontal_weights[tap]), total)
                                     : total + values * n->horizontal_weights[tap];
                }
                memcpy(ring + rows_done % n->vertical_taps * row_stride + i, &total, sizeof total);
            }
        }
        for (int64_t tap = 0; tap < n->vertical_taps; ++tap)
            lines[tap] = ring + border_position(PADDING_REFLECT, row - n->vertical_taps / 2 + tap, n->height) %
                                    n->vertical_taps * row_stride;
        for (int64_t i = 0; i < n->row_bytes; i += LANES) {
            const int64_t first = is_fused ? n->vertical_taps / 2 : 0;
            vfloat total = load_floats(lines[first] + i) * n->vertical_weights[first];
            for (int64_t tap = first + 1; tap < n->vertical_taps; ++tap) {
                const vfloat values = load_floats(lines[tap] + i);
                total = is_fused ? fma_v(values + load_floats(lines[2 * first - tap] + i),
                                         SPLAT(vfloat, n->vertical_weights[tap]), total)
                                 : total + values * n->vertical_weights[tap];
            }
            total = (total + 0x1.8p23f) - 0x1.8p23f;  // half to even
            bytes rounded = to_bytes(TO_INT(total));
            memcpy(n->out + row * n->out_row_stride + i, &rounded, min(LANES, n->row_bytes - i));
        }
    }
    free(arena.memory);
    return DONE;
}

KERNEL int blur(const struct convolution *n) { return n->like == LIKE_OPENCV ? blur_image(n, 1) : blur_image(n, 0); }
