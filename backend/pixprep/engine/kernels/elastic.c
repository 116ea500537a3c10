// Fields of elastic displacements: noise, blurred along the rows and then along the columns, and the places it makes.
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

enum { BLOCK = 4 * LANES };  // words of random numbers that are made together

INLINE vdouble load_wide(const double *from) {
    vdouble loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

// Round half to even, for magnitudes below 2^51.
INLINE vdouble rounded_wide(vdouble x) { return (x + 0x1.8p52) - 0x1.8p52; }

// `philox` of the counters (first, which, 0, 0) and the next: 4 words each, as noise of -2^23 to 2^23 - 1.
static void make_block(const struct displacement *n, int64_t first, double *noise) {
    vuint counter[4] = {SPLAT(vuint, (uint32_t)first), SPLAT(vuint, n->counter_word), {0}, {0}};
    for (int lane = 0; lane < LANES; ++lane) counter[0][lane] += (uint32_t)lane;
    philox(counter, n->key[0], n->key[1]);
    for (int lane = 0; lane < LANES; ++lane)
        for (int k = 0; k < 4; ++k) noise[4 * lane + k] = (int32_t)(counter[k][lane] >> 8) - (1 << 23);
}

// The weights are the same from both ends; all are integers whose sums no order changes.
INLINE vdouble weighed_wide(const double *weights, int64_t taps, const double *const *lines, int64_t at) {
    vdouble total = load_wide(lines[taps / 2] + at) * weights[taps / 2];
    for (int64_t tap = 0; tap < taps / 2; ++tap)
        total += (load_wide(lines[tap] + at) + load_wide(lines[taps - 1 - tap] + at)) * weights[tap];
    return total;
}

KERNEL int displace(const struct displacement *arguments) {
    const struct displacement displacement = *arguments, *n = &displacement;
    const int64_t reach = n->taps / 2, strips = (n->columns + LANES - 1) / LANES;
    const int64_t first = max(n->top - reach, 0), rows = min(n->top + n->rows + reach, n->height) - first;
    struct arena arena = {0};
    double *noise, *padded, *blurred;
    const double **lines;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        noise = arena_alloc(&arena, (n->width + 3 + BLOCK) * sizeof *noise);
        padded = arena_alloc(&arena, (n->width + 2 * reach + LANES) * sizeof *padded);
        blurred = arena_alloc(&arena, strips * rows * LANES * sizeof *blurred);  // strip after strip, which stay in the cache
        lines = arena_alloc(&arena, (n->rows + 2 * reach) * sizeof *lines);
    }
    memset(padded, 0, (n->width + 2 * reach + LANES) * sizeof *padded);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t begin = (first + row) * n->width, skipped = begin % 4;
        for (int64_t made = 0; made < skipped + n->width; made += BLOCK) make_block(n, begin / 4 + made / 4, noise + made);
        memcpy(padded + reach, noise + skipped, n->width * sizeof *padded);
        for (int64_t i = 1; i <= reach; ++i) {
            padded[reach - i] = padded[reach + i];
            padded[reach + n->width - 1 + i] = padded[reach + n->width - 1 - i];
        }
        for (int64_t tap = 0; tap < n->taps; ++tap) lines[tap] = padded + n->left + tap;
        for (int64_t strip = 0; strip < strips; ++strip) {
            vdouble made = rounded_wide(weighed_wide(n->horizontal_weights, n->taps, lines, strip * LANES) * 0x1p-27);
            memcpy(blurred + (strip * rows + row) * LANES, &made, sizeof made);
        }
    }
    for (int64_t strip = 0; strip < strips; ++strip) {
        for (int64_t row = 0; row < n->rows + 2 * reach; ++row)
            lines[row] = blurred + (strip * rows + border_position(PADDING_REFLECT, n->top + row - reach, n->height) - first) * LANES;
        const int64_t begin = strip * LANES, count = min(LANES, n->columns - begin);
        for (int64_t row = 0; row < n->rows; ++row) {
            vfloat made = TO_FLOAT(weighed_wide(n->vertical_weights, n->taps, lines + row, 0) * 0x1p-52) * n->alpha / n->axis_length;
            if (n->identity) {
                const float *places = n->identity + (n->is_vertical ? n->top + row : n->left + begin);
                for (int64_t i = 0; i < count; ++i) made[i] = places[n->is_vertical ? 0 : i] + made[i];
            }
            memcpy(n->out + row * n->columns + begin, &made, count * sizeof *n->out);
        }
    }
    free(arena.memory);
    return DONE;
}
