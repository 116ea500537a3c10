// Filters that read a square neighborhood of each pixel value, with OpenCV's arithmetic: see `Neighborhood` in
// plan/steps/neighborhoods.py.
#include <stdlib.h>

#include "vectors.h"
#include "coefficients.h"

// Compute the mean of `size` x `size` values. Because the divisor is odd, the mean is never halfway between two
// integers, so every round-to-nearest mode gives the same result.
static int mean_filter(const struct neighborhood *n) {
    const int64_t channels = n->column_stride, size = n->size, padded_bytes = n->row_bytes + (size - 1) * channels;
    const float factor = 1.0f / (float)(size * size);
    int32_t *sums = calloc(padded_bytes, sizeof *sums);  // of `size` rows
    if (!sums) return NO_MEMORY;
    for (int64_t row = 0; row < size - 1; ++row)
        for (int64_t i = 0; i < padded_bytes; ++i) sums[i] += n->pixels[row * n->row_stride + i];
    for (int64_t row = 0; row < n->height; ++row) {
        const uint8_t *first = n->pixels + row * n->row_stride, *last = first + (size - 1) * n->row_stride;
        uint8_t *out = n->out + row * n->out_row_stride;
        for (int64_t i = 0; i < padded_bytes; ++i) sums[i] += last[i];
        for (int64_t channel = 0; channel < channels; ++channel) {
            int32_t sum = 0;
            for (int64_t i = channel; i < (size - 1) * channels; i += channels) sum += sums[i];
            for (int64_t i = channel; i < n->row_bytes; i += channels) {
                sum += sums[i + (size - 1) * channels];
                out[i] = (uint8_t)((float)sum * factor + 0.5f);
                sum -= sums[i];
            }
        }
        for (int64_t i = 0; i < padded_bytes; ++i) sums[i] -= first[i];
    }
    free(sums);
    return DONE;
}

// Move the smaller value of each lane to `a`, and the larger one to `b`.
INLINE void exchange(bytes *a, bytes *b) {
    const bytes is_less = (bytes)(*a < *b), lower = (*a & is_less) | (*b & ~is_less);
    *b = (*b & is_less) | (*a & ~is_less), *a = lower;
}

// Compute the median of a few values. In a subset of half of the values plus two, neither the minimum nor the maximum
// can be the median. Both are removed, and the next value is added, until one value remains.
INLINE int small_median_filter(const struct neighborhood *n, const int size) {
    for (int64_t row = 0; row < n->height; ++row)
        for (int64_t i = 0; i < n->row_bytes; i += LANES) {
            bytes values[25];
            for (int tap = 0; tap < size * size; ++tap)
                memcpy(&values[tap], n->pixels + (row + tap / size) * n->row_stride + i + tap % size * n->column_stride, LANES);
            int first = 0, next = size * size / 2 + 2;
            const int last = next - 1;
            while (1) {
                for (int tap = first + 1; tap <= last; ++tap) exchange(&values[first], &values[tap]);
                for (int tap = first + 1; tap < last; ++tap) exchange(&values[tap], &values[last]);
                ++first;
                if (next == size * size) break;
                values[last] = values[next++];
            }
            memcpy(n->out + row * n->out_row_stride + i, &values[first], min(LANES, n->row_bytes - i));
        }
    return DONE;
}

// Find the median in a histogram that moves along the row. `below` counts the values that are less than the median.
static int median_filter(const struct neighborhood *n) {
    const int64_t channels = n->column_stride, size = n->size;
    const int32_t half = (int32_t)(size * size / 2);
    for (int64_t row = 0; row < n->height; ++row)
        for (int64_t channel = 0; channel < channels; ++channel) {
            const uint8_t *top = n->pixels + row * n->row_stride + channel;
            uint8_t *out = n->out + row * n->out_row_stride + channel;
            int32_t counts[256] = {0}, below = 0, median = 0;
            for (int64_t x = 0; x < size - 1; ++x)
                for (int64_t y = 0; y < size; ++y) {
                    const int value = top[y * n->row_stride + x * channels];
                    ++counts[value], below += value < median;
                }
            for (int64_t i = 0; i < n->row_bytes - channel; i += channels) {
                for (int64_t y = 0; y < size; ++y) {
                    const int value = top[y * n->row_stride + i + (size - 1) * channels];
                    ++counts[value], below += value < median;
                }
                while (below > half) below -= counts[--median];
                while (below + counts[median] <= half) below += counts[median++];
                out[i] = (uint8_t)median;
                for (int64_t y = 0; y < size; ++y) {
                    const int value = top[y * n->row_stride + i];
                    --counts[value], below -= value < median;
                }
            }
        }
    return DONE;
}

// Add the products of the values and the weights in float32, fused, in the order of the weights. The sum is rounded half to even.
static int weighted_filter(const struct neighborhood *n) {
    for (int64_t row = 0; row < n->height; ++row)
        for (int64_t i = 0; i < n->row_bytes; i += LANES) {
            vfloat total = {0};
            for (int64_t tap = 0; tap < n->taps; ++tap)
                total = fma_v(TO_FLOAT(load_uint8(n->pixels + row * n->row_stride + i + n->offsets[tap])),
                              SPLAT(vfloat, n->weights[tap]), total);
            const bytes rounded = to_bytes(clip_uint8(TO_INT(round_even(total))));
            memcpy(n->out + row * n->out_row_stride + i, &rounded, min(LANES, n->row_bytes - i));
        }
    return DONE;
}

KERNEL int filter_neighborhoods(const struct neighborhood *n) {
    switch ((enum neighborhoods)n->kind) {
    case NEIGHBORHOOD_MEAN: return mean_filter(n);
    case NEIGHBORHOOD_MEDIAN:
        return n->size == 3 ? small_median_filter(n, 3) : n->size == 5 ? small_median_filter(n, 5) : median_filter(n);
    case NEIGHBORHOOD_WEIGHTS: return weighted_filter(n);
    }
    return DONE;
}
