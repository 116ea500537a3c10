// Elastic displacement fields: random noise, blurred horizontally and then vertically, and optionally added to the coordinates of
// the pixels.
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

enum { BLOCK = 4 * LANES };  // random words that one call of `philox` generates

INLINE vdouble load_doubles(const double *from) {
    vdouble loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

// Round half to even, for magnitudes below 2^51.
INLINE vdouble round_doubles(vdouble x) { return (x + 0x1.8p52) - 0x1.8p52; }

// Generate noise of -2^23 to 2^23 - 1: 4 values for each of the LANES counters from (first, counter_word, 0, 0) on.
static void make_noise_block(const struct displacement *n, int64_t first, double *noise) {
    vuint counter[4] = {SPLAT(vuint, (uint32_t)first), SPLAT(vuint, n->counter_word), {0}, {0}};
    for (int lane = 0; lane < LANES; ++lane) counter[0][lane] += (uint32_t)lane;
    philox(counter, n->key[0], n->key[1]);
    for (int lane = 0; lane < LANES; ++lane)
        for (int k = 0; k < 4; ++k) noise[4 * lane + k] = (int32_t)(counter[k][lane] >> 8) - (1 << 23);
}

// Return a weighted sum. The weights are symmetric. All values and weights are integers, so that the sums are exact in float64 in
// any order.
INLINE vdouble symmetric_sum(const double *weights, int64_t taps, const double *const *lines, int64_t at) {
    vdouble total = load_doubles(lines[taps / 2] + at) * weights[taps / 2];
    for (int64_t tap = 0; tap < taps / 2; ++tap)
        total += (load_doubles(lines[tap] + at) + load_doubles(lines[taps - 1 - tap] + at)) * weights[tap];
    return total;
}

KERNEL int displace(const struct displacement *arguments) {
    const struct displacement displacement = *arguments, *n = &displacement;
    const int64_t radius = n->taps / 2, strips = (n->columns + LANES - 1) / LANES;
    const int64_t first = max(n->top - radius, 0), rows = min(n->top + n->rows + radius, n->height) - first;
    struct arena arena = {0};
    double *noise, *padded, *blurred;
    const double **lines;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        noise = arena_alloc(&arena, (n->width + 3 + BLOCK) * sizeof *noise);
        padded = arena_alloc(&arena, (n->width + 2 * radius + LANES) * sizeof *padded);
        blurred = arena_alloc(&arena, strips * rows * LANES * sizeof *blurred);  // in strips of LANES columns, for the cache
        lines = arena_alloc(&arena, (n->rows + 2 * radius) * sizeof *lines);
    }
    memset(padded, 0, (n->width + 2 * radius + LANES) * sizeof *padded);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t begin = (first + row) * n->width, skipped = begin % 4;
        for (int64_t word = 0; word < skipped + n->width; word += BLOCK)
            make_noise_block(n, begin / 4 + word / 4, noise + word);
        memcpy(padded + radius, noise + skipped, n->width * sizeof *padded);
        for (int64_t i = 1; i <= radius; ++i) {
            padded[radius - i] = padded[radius + i];
            padded[radius + n->width - 1 + i] = padded[radius + n->width - 1 - i];
        }
        for (int64_t tap = 0; tap < n->taps; ++tap) lines[tap] = padded + n->left + tap;
        for (int64_t strip = 0; strip < strips; ++strip) {
            vdouble result = round_doubles(symmetric_sum(n->horizontal_weights, n->taps, lines, strip * LANES) * 0x1p-27);
            memcpy(blurred + (strip * rows + row) * LANES, &result, sizeof result);
        }
    }
    for (int64_t strip = 0; strip < strips; ++strip) {
        for (int64_t row = 0; row < n->rows + 2 * radius; ++row)
            lines[row] =
                blurred + (strip * rows + border_position(PADDING_REFLECT, n->top + row - radius, n->height) - first) * LANES;
        const int64_t begin = strip * LANES, count = min(LANES, n->columns - begin);
        for (int64_t row = 0; row < n->rows; ++row) {
            vfloat result =
                TO_FLOAT(symmetric_sum(n->vertical_weights, n->taps, lines + row, 0) * 0x1p-52) * n->alpha / n->axis_length;
            if (n->identity) {
                const float *identity = n->identity + (n->is_vertical ? n->top + row : n->left + begin);
                for (int64_t i = 0; i < count; ++i) result[i] = identity[n->is_vertical ? 0 : i] + result[i];
            }
            memcpy(n->out + row * n->columns + begin, &result, count * sizeof *n->out);
        }
    }
    free(arena.memory);
    return DONE;
}
