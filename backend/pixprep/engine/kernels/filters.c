// Filters (blur, sharpness) on rows of bytes with a column stride of `column_stride` bytes: see plan/steps/levels.py.
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

INLINE void sharpen_rows(const struct convolution *arguments, const int is_pillow) {
    const struct convolution convolution = *arguments, *n = &convolution;
    const float factor = n->factor;
    const double rest = n->one_minus_factor;
    for (int64_t row = 0; row < n->height; ++row) {
        const uint8_t *own = n->pixels + row * n->row_stride, *above = own - n->row_stride, *below = own + n->row_stride;
        uint8_t *restrict out = n->out + row * n->out_row_stride;
        memcpy(out, own, n->row_bytes);
        if (row == 0 || row == n->height - 1) continue;
        for (int64_t i = n->column_stride; i < n->row_bytes - n->column_stride; ++i) {
            const int64_t before = i - n->column_stride, behind = i + n->column_stride;
            int sum = above[before] + own[before] + below[before] + above[i] + 5 * own[i] + below[i] + above[behind] +
                      own[behind] + below[behind];
            int smooth = (int)((unsigned)(2 * sum + 13) / 26);
            float value = is_pillow ? (float)smooth + factor * (float)(own[i] - smooth)
                                    : (float)((double)(smooth - own[i]) * rest + (double)own[i]);
            value = value > 0 ? value : 0;
            out[i] = (uint8_t)(int)(value < 255 ? value : 255);
        }
    }
}

KERNEL void sharpen(const struct convolution *n) { n->like == LIKE_PILLOW ? sharpen_rows(n, 1) : sharpen_rows(n, 0); }

INLINE vfloat load_real(const float *from) {
    vfloat loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

INLINE int blur_rows(const struct convolution *arguments, const int is_fused) {
    const struct convolution convolution = *arguments, *n = &convolution;
    const int64_t reach = n->horizontal_taps / 2, width = (n->row_bytes + n->column_stride - 1) / n->column_stride;
    const int64_t row_stride = (n->row_bytes + LANES - 1) / LANES * LANES;
    struct arena arena = {0};
    float *padded, *ring;
    const float **lines;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        padded = arena_alloc(&arena, ((width + 2 * reach) * n->column_stride + LANES) * sizeof *padded);
        ring = arena_alloc(&arena, n->vertical_taps * row_stride * sizeof *ring);
        lines = arena_alloc(&arena, n->vertical_taps * sizeof *lines);
    }
    memset(padded, 0, ((width + 2 * reach) * n->column_stride + LANES) * sizeof *padded);
    float *line = padded + reach * n->column_stride;
    int64_t made = 0;
    for (int64_t row = 0; row < n->height; ++row) {
        for (; made <= min(row + n->vertical_taps / 2, n->height - 1); ++made) {
            const uint8_t *from = n->pixels + made * n->row_stride;
            for (int64_t i = 0; i < n->row_bytes; ++i) line[i] = (float)from[i];
            for (int64_t column = 1; column <= reach; ++column)
                for (int64_t i = 0; i < n->column_stride; ++i) {
                    line[-column * n->column_stride + i] = line[border_position(PADDING_REFLECT, -column, width) * n->column_stride + i];
                    line[(width - 1 + column) * n->column_stride + i] = line[border_position(PADDING_REFLECT, width - 1 + column, width) * n->column_stride + i];
                }
            for (int64_t i = 0; i < n->row_bytes; i += LANES) {
                vfloat total = load_real(padded + i) * n->horizontal_weights[0];
                for (int64_t tap = 1; tap < n->horizontal_taps; ++tap) {
                    const vfloat own = load_real(padded + i + tap * n->column_stride);
                    total = is_fused ? fma_v(own, SPLAT(vfloat, n->horizontal_weights[tap]), total) : total + own * n->horizontal_weights[tap];
                }
                memcpy(ring + made % n->vertical_taps * row_stride + i, &total, sizeof total);
            }
        }
        for (int64_t tap = 0; tap < n->vertical_taps; ++tap)
            lines[tap] = ring + border_position(PADDING_REFLECT, row - n->vertical_taps / 2 + tap, n->height) % n->vertical_taps * row_stride;
        for (int64_t i = 0; i < n->row_bytes; i += LANES) {
            const int64_t first = is_fused ? n->vertical_taps / 2 : 0;
            vfloat total = load_real(lines[first] + i) * n->vertical_weights[first];
            for (int64_t tap = first + 1; tap < n->vertical_taps; ++tap) {
                const vfloat own = load_real(lines[tap] + i);
                total = is_fused ? fma_v(own + load_real(lines[2 * first - tap] + i), SPLAT(vfloat, n->vertical_weights[tap]), total)
                                 : total + own * n->vertical_weights[tap];
            }
            total = (total + 0x1.8p23f) - 0x1.8p23f;  // half to even
            bytes levels = to_bytes(TO_INT(total));
            memcpy(n->out + row * n->out_row_stride + i, &levels, min(LANES, n->row_bytes - i));
        }
    }
    free(arena.memory);
    return DONE;
}

KERNEL int blur(const struct convolution *n) { return n->like == LIKE_OPENCV ? blur_rows(n, 1) : blur_rows(n, 0); }
