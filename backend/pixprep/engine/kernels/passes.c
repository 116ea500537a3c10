// The passes of a resize: see passes.h.
//
// A vector contains values of the same column (or of neighboring columns), which have the same weights. Each lane adds up its
// taps one by one, in the library's order.
#include "passes.h"

#include "vectors.h"
#include "coefficients.h"

enum sum_type { SUM_INT16, SUM_INT32, SUM_FLOAT, SUM_FUSED, SUM_PAIRS, SUM_CUBIC, LERP };  // arithmetic of the weighted sum
enum value_type { UINT8, INT16, INT32, FLOAT };                                 // type of the input values
// Conversion of the sum: shift (UINT8), truncate, round ties to even, multiply by the area's factor and round, or round ties as
// DALI does.
enum result { OUT_UINT8, OUT_INT16, OUT_INT32, OUT_FLOAT, OUT_UINT8_EVEN, OUT_UINT8_MEAN, OUT_UINT8_TIES };
enum { UNROLLED = 4 };  // vectors per iteration of a vertical pass
static const int VALUE_SIZES[] = {[UINT8] = 1, [INT16] = 2, [INT32] = 4, [FLOAT] = 4};

// Addresses of the taps of an output position.
struct taps {
    const char *const *lines;  // address of each tap; null: the taps are `stride` bytes apart
    const char *first;         // address of the first tap, if `lines` is null
    int64_t stride;
};

INLINE vint load_integers(enum value_type value_type, const char *from) {
    shorts narrow;
    vint values;
    if (value_type == UINT8) return load_uint8(from);
    if (value_type == INT16) {
        memcpy(&narrow, from, sizeof narrow);
        return __builtin_convertvector(narrow, vint);
    }
    memcpy(&values, from, sizeof values);
    return values;
}

INLINE vfloat load_floats(enum value_type value_type, const char *from) {
    vfloat values;
    if (value_type != FLOAT) return TO_FLOAT(load_integers(value_type, from));
    memcpy(&values, from, sizeof values);
    return values;
}

INLINE const char *address_of_tap(const struct taps *s, int64_t tap) {
    return s->lines ? s->lines[tap] : s->first + tap * s->stride;
}

// Compute the weighted sums of `count` taps for some vectors, whose byte offsets from the taps are `offsets`.
INLINE void sum_integers(const struct taps *s, const int32_t *weights, int64_t count, enum value_type value_type,
                         enum sum_type sum_type, int vectors, const int64_t *offsets, vint *sums) {
    UNROLL for (int i = 0; i < vectors; ++i)
        sums[i] = (vint){0};
    for (int64_t tap = 0; tap < count; ++tap) {
        // With 16-bit weights, a multiplication is a single instruction.
        const int32_t weight = sum_type == SUM_INT16 ? (int16_t)weights[tap] : weights[tap];
        const char *from = address_of_tap(s, tap);
        UNROLL for (int i = 0; i < vectors; ++i)
            sums[i] += load_integers(value_type, from + offsets[i]) * weight;
    }
}

INLINE void sum_floats(const struct taps *s, const int32_t *bits, int64_t count, enum value_type value_type,
                       enum sum_type sum_type, int vectors, const int64_t *offsets, vfloat *sums) {
    const float *weights = (const float *)bits;
    const int64_t plain = sum_type == SUM_FUSED ? 1 + (count - 1) / 4 * 4 : count;
    if (sum_type == LERP) {
        UNROLL for (int i = 0; i < vectors; ++i) {
            vfloat left = load_floats(value_type, address_of_tap(s, 0) + offsets[i]),
                   right = load_floats(value_type, address_of_tap(s, 1) + offsets[i]);
            sums[i] = left + (right - left) * weights[1];
        }
        return;
    }
    if (sum_type == SUM_CUBIC) {
        UNROLL for (int i = 0; i < vectors; ++i)
            sums[i] = load_floats(value_type, address_of_tap(s, 3) + offsets[i]) * (bits[3] * 0x1p-22f);
        for (int64_t tap = 2; tap >= 0; --tap) UNROLL
            for (int i = 0; i < vectors; ++i)
                sums[i] += load_floats(value_type, address_of_tap(s, tap) + offsets[i]) * (bits[tap] * 0x1p-22f);
        return;
    }
    if (sum_type == SUM_PAIRS) {
        UNROLL for (int i = 0; i < vectors; ++i)
            sums[i] = load_floats(value_type, address_of_tap(s, 1) + offsets[i]) * weights[1];
        for (int64_t tap = 0; tap < count; tap += tap ? 1 : 2) UNROLL
            for (int i = 0; i < vectors; ++i)
                sums[i] =
                    fma_v(load_floats(value_type, address_of_tap(s, tap) + offsets[i]), SPLAT(vfloat, weights[tap]), sums[i]);
        return;
    }
    UNROLL for (int i = 0; i < vectors; ++i)
        sums[i] = load_floats(value_type, address_of_tap(s, 0) + offsets[i]) * weights[0];
    for (int64_t tap = 1; tap < plain; ++tap) UNROLL
        for (int i = 0; i < vectors; ++i)
            sums[i] += load_floats(value_type, address_of_tap(s, tap) + offsets[i]) * weights[tap];
    for (int64_t tap = plain; tap < count; ++tap) UNROLL
        for (int i = 0; i < vectors; ++i)
            sums[i] = fma_v(load_floats(value_type, address_of_tap(s, tap) + offsets[i]), SPLAT(vfloat, weights[tap]), sums[i]);
}

INLINE bytes rounded_to_even(vfloat sums) { return to_bytes(TO_INT(clip(round_even(sums), 255))); }

// Return whether any of 16 bytes is not 0.
INLINE int is_any_set(const uint8_t *from) {
    uint64_t halves[2];
    memcpy(halves, from, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

// Round ties to even, or away from 0 where `away` is 1, and clip.
INLINE bytes rounded_with_ties(vfloat sums, vint away) {
    const vfloat even = round_even(sums);
    return to_bytes(TO_INT(clip(even + TO_FLOAT((sums - even == 0.5f) & away), 255)));
}

// Store the 16 values of a block's column to the lines of its rows.
INLINE void scatter_rows(const void *values, char *const *out, int64_t at, int64_t channels, int size) {
    if (channels == 4) UNROLL
        for (int position = 0; position < 4; ++position)
            memcpy(out[position] + at * size, (const char *)values + 4 * position * size, 4 * size);
    else UNROLL
        for (int position = 0; position < LANES; ++position)
            memcpy(out[position] + at * size, (const char *)values + position * size, size);
}

// See `horizontal` in passes.h.
INLINE void run_horizontal(const struct horizontal_pass *k, const char *block, char *const *out, enum value_type value_type,
                           enum sum_type sum_type, enum result result, int64_t channels) {
    const struct coefficients w = *k->coefficients;
    const int64_t at[] = {0}, is_mirrored = k->is_mirrored;
    for (int64_t output = 0; output < w.size; ++output) {
        const int32_t *weights = w.weights + output * w.taps;
        const int64_t stride = LANES * VALUE_SIZES[value_type];
        const struct taps taps = {0, block + k->first[output] * stride, stride};
        const int64_t position = (is_mirrored ? w.size - 1 - output : output) * channels;
        if (sum_type <= SUM_INT32) {
            vint sums;
            sum_integers(&taps, weights, w.count[output], value_type, sum_type, 1, at, &sums);
            if (result == OUT_UINT8) {
                bytes converted = shift_to_uint8(sums, w.bits);
                scatter_rows(&converted, out, position, channels, 1);
            } else if (result == OUT_INT16) {
                shorts converted = __builtin_convertvector(sums >> 4, shorts);
                scatter_rows(&converted, out, position, channels, 2);
            } else if (result == OUT_FLOAT) {
                vfloat converted = TO_FLOAT(sums);
                scatter_rows(&converted, out, position, channels, 4);
            } else {
                scatter_rows(&sums, out, position, channels, 4);
            }
            continue;
        }
        vfloat sums;
        sum_floats(&taps, weights, w.count[output], value_type, sum_type, 1, at, &sums);
        scatter_rows(&sums, out, position, channels, 4);
    }
}

// Load one column of some lines, the inverse of `scatter_rows`.
INLINE void gather_rows(const char *const *lines, int64_t at, int64_t channels, int size, void *values) {
    if (channels == 4) UNROLL
        for (int i = 0; i < 4; ++i) memcpy((char *)values + 4 * i * size, lines[i] + at * size, 4 * size);
    else UNROLL
        for (int i = 0; i < LANES; ++i) memcpy((char *)values + i * size, lines[i] + at * size, size);
}

// See `horizontal_last` in passes.h. The values are uint8 for integer sums and float32 in all other cases.
INLINE void run_horizontal_last(const struct horizontal_pass *k, const char *const *lines, const int32_t *offsets,
                                char *const *out, enum sum_type sum_type, enum result result, int64_t channels) {
    const struct coefficients w = *k->coefficients;
    const int64_t is_mirrored = k->is_mirrored;
    for (int64_t output = 0; output < w.size; ++output) {
        const int32_t *weights = w.weights + output * w.taps, *tap_offsets = offsets + k->first[output];
        const int64_t at = (is_mirrored ? w.size - 1 - output : output) * channels;
        bytes values8;
        if (sum_type <= SUM_INT32) {
            vint sums = {0};
            for (int64_t tap = 0; tap < w.count[output]; ++tap) {
                gather_rows(lines, tap_offsets[tap], channels, 1, &values8);
                sums += load_uint8(&values8) * (sum_type == SUM_INT16 ? (int16_t)weights[tap] : weights[tap]);
            }
            values8 = shift_to_uint8(sums, w.bits);
            scatter_rows(&values8, out, at, channels, 1);
            continue;
        }
        vfloat sums = {0}, values;
        for (int64_t tap = 0; tap < w.count[output]; ++tap) {
            gather_rows(lines, tap_offsets[tap], channels, 4, &values);
            values *= ((const float *)weights)[tap];
            sums = tap ? sums + values : values;
        }
        if (result == OUT_FLOAT) {
            scatter_rows(&sums, out, at, channels, 4);
            continue;
        }
        values8 = result == OUT_UINT8_TIES && k->away[at] ? rounded_with_ties(sums, SPLAT(vint, 1)) : rounded_to_even(sums);
        scatter_rows(&values8, out, at, channels, 1);
    }
}

// See `vertical` in passes.h. The last vector of a line may overlap the previous one.
INLINE void run_vertical(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length, char *out,
                         enum value_type value_type, enum sum_type sum_type, enum result result, float factor,
                         const uint8_t *away) {
    const int32_t *weights = w->weights + output * w->taps;
    const int64_t count = w->count[output];
    const struct taps taps = {.lines = lines};
    for (int64_t position = 0; position < length; position += UNROLLED * LANES) {
        int64_t at[UNROLLED], from[UNROLLED];
        UNROLL for (int i = 0; i < UNROLLED; ++i) {
            at[i] = min(position + i * LANES, length - LANES);
            from[i] = at[i] * VALUE_SIZES[value_type];
        }
        vint sums[UNROLLED];
        vfloat values[UNROLLED];
        if (sum_type <= SUM_INT32) sum_integers(&taps, weights, count, value_type, sum_type, UNROLLED, from, sums);
        else sum_floats(&taps, weights, count, value_type, sum_type, UNROLLED, from, values);
        UNROLL for (int i = 0; i < UNROLLED; ++i) {
            if (result == OUT_FLOAT) {
                memcpy(out + 4 * at[i], &values[i], sizeof values[i]);
                continue;
            }
            bytes values8 = result == OUT_UINT8        ? shift_to_uint8(sums[i], w->bits)
                            : result == OUT_UINT8_MEAN ? rounded_to_even(TO_FLOAT(sums[i]) * factor)
                            : result == OUT_UINT8_EVEN || !is_any_set(away + at[i])
                                ? rounded_to_even(values[i])
                                : rounded_with_ties(values[i], load_uint8(away + at[i]));
            memcpy(out + at[i], &values8, sizeof values8);
        }
    }
}

// PASSES_OPENCV_LINEAR: clip8((((a w0) >> 16) + ((b w1) >> 16) + 2) >> 2), in 16-bit integers.
static void opencv_linear_vertical(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length,
                                   char *out, float factor, const uint8_t *away) {
    (void)factor, (void)away;
    const int32_t *weights = w->weights + output * w->taps;
    const vint above = weights[0] - (vint){0}, below = weights[1] - (vint){0};
    for (int64_t position = 0; position < length; position += LANES) {
        const int64_t at = min(position, length - LANES);
        shorts a = __builtin_convertvector(load_integers(INT16, lines[0] + 2 * at) * above >> 16, shorts);
        shorts b = __builtin_convertvector(load_integers(INT16, lines[1] + 2 * at) * below >> 16, shorts);
        shorts total = (a + b + 2) >> 2;
        total &= total >= 0;
        total = (total & (total < 255)) | (255 & (total >= 255));
        bytes values8 = __builtin_convertvector(total, bytes);
        memcpy(out + at, &values8, sizeof values8);
    }
}

// Each pass is a separate function, so that its arithmetic is a compile-time constant.
#define HORIZONTAL_OF(name, value_type, sum_type, result)                                                                      \
    static void name##_gray(const struct horizontal_pass *k, const char *block, char *const *out) {                            \
        run_horizontal(k, block, out, value_type, sum_type, result, 1);                                                        \
    }                                                                                                                          \
    static void name##_words(const struct horizontal_pass *k, const char *block, char *const *out) {                           \
        run_horizontal(k, block, out, value_type, sum_type, result, 4);                                                        \
    }
#define HORIZONTAL(name, sum_type, result) HORIZONTAL_OF(name, UINT8, sum_type, result)
#define VERTICAL(name, value_type, sum_type, result)                                                                           \
    static void name(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length, char *out,        \
                     float factor, const uint8_t *away) {                                                                      \
        (void)factor, (void)away;                                                                                              \
        run_vertical(w, output, lines, length, out, value_type, sum_type, result, factor, away);                               \
    }
static void int16_to_uint8_gray(const struct horizontal_pass *k, const char *block, char *const *out) {
    run_horizontal(k, block, out, UINT8, SUM_INT16, OUT_UINT8, 1);
}
#ifndef HAS_PAIRS
static void int16_to_uint8_words(const struct horizontal_pass *k, const char *block, char *const *out) {
    run_horizontal(k, block, out, UINT8, SUM_INT16, OUT_UINT8, 4);
}
#endif
HORIZONTAL(int32_to_uint8, SUM_INT32, OUT_UINT8)
HORIZONTAL(int16_to_int16, SUM_INT16, OUT_INT16)
HORIZONTAL(int16_to_int32, SUM_INT16, OUT_INT32)
HORIZONTAL(int16_to_float, SUM_INT16, OUT_FLOAT)
HORIZONTAL(float_to_float, SUM_FLOAT, OUT_FLOAT)
HORIZONTAL(fused_to_float, SUM_FUSED, OUT_FLOAT)
HORIZONTAL(lerp_to_float, LERP, OUT_FLOAT)
HORIZONTAL_OF(fused_floats, FLOAT, SUM_FUSED, OUT_FLOAT)
HORIZONTAL_OF(pairs_of_floats, FLOAT, SUM_PAIRS, OUT_FLOAT)
VERTICAL(cubic_to_uint8_vertical, FLOAT, SUM_CUBIC, OUT_UINT8_EVEN)
VERTICAL(sums_to_uint8_vertical, INT32, SUM_INT32, OUT_UINT8)
VERTICAL(mean_to_uint8_vertical, INT32, SUM_INT32, OUT_UINT8_MEAN)
VERTICAL(short_int16_to_uint8_vertical, UINT8, SUM_INT16, OUT_UINT8)
VERTICAL(int32_to_uint8_vertical, UINT8, SUM_INT32, OUT_UINT8)
VERTICAL(float_to_uint8_vertical, FLOAT, SUM_FLOAT, OUT_UINT8_EVEN)
VERTICAL(ties_to_uint8_vertical, FLOAT, SUM_FLOAT, OUT_UINT8_TIES)
VERTICAL(fused_to_uint8_vertical, FLOAT, SUM_FUSED, OUT_UINT8_EVEN)
VERTICAL(float_to_float_vertical, FLOAT, SUM_FLOAT, OUT_FLOAT)
VERTICAL(lerp_to_float_vertical, FLOAT, LERP, OUT_FLOAT)
VERTICAL(fused_floats_vertical, FLOAT, SUM_FUSED, OUT_FLOAT)
VERTICAL(pairs_of_floats_vertical, FLOAT, SUM_PAIRS, OUT_FLOAT)
VERTICAL(uint8_to_float_vertical, UINT8, SUM_FLOAT, OUT_FLOAT)
static void int16_to_uint8_vertical(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length,
                                    char *out, float factor, const uint8_t *away) {
#ifdef HAS_PAIRS
    if (length >= MAX_PAIRED_WIDTH) return vertical_pairs(w, output, lines, length, out);
#endif
    short_int16_to_uint8_vertical(w, output, lines, length, out, factor, away);
}
#define HORIZONTAL_LAST(name, sum_type, result)                                                                                \
    static void name##_gray(const struct horizontal_pass *k, const char *const *lines, const int32_t *offsets,                 \
                            char *const *out) {                                                                                \
        run_horizontal_last(k, lines, offsets, out, sum_type, result, 1);                                                      \
    }                                                                                                                          \
    static void name##_words(const struct horizontal_pass *k, const char *const *lines, const int32_t *offsets,                \
                             char *const *out) {                                                                               \
        run_horizontal_last(k, lines, offsets, out, sum_type, result, 4);                                                      \
    }
HORIZONTAL_LAST(int16_to_uint8_last, SUM_INT16, OUT_UINT8)
HORIZONTAL_LAST(int32_to_uint8_last, SUM_INT32, OUT_UINT8)
HORIZONTAL_LAST(float_to_uint8_last, SUM_FLOAT, OUT_UINT8_EVEN)
HORIZONTAL_LAST(ties_to_uint8_last, SUM_FLOAT, OUT_UINT8_TIES)
HORIZONTAL_LAST(float_to_float_last, SUM_FLOAT, OUT_FLOAT)
#define GRAY_AND_COLOR(name) {name##_gray, name##_words}

// The functions of each arithmetic. 0 means that no library uses this order of passes with it.
static const struct pass_functions PASSES[] = {
    [PASSES_FIXED] = {GRAY_AND_COLOR(int32_to_uint8), int32_to_uint8_vertical, 1, int32_to_uint8_vertical,
                      GRAY_AND_COLOR(int32_to_uint8_last)},
    [PASSES_OPENCV_LINEAR] = {GRAY_AND_COLOR(int16_to_int16), opencv_linear_vertical, 2, 0, {0}},
    [PASSES_OPENCV_CUBIC] = {GRAY_AND_COLOR(int16_to_float), cubic_to_uint8_vertical, 4, 0, {0}},
    [PASSES_OPENCV_LANCZOS] = {GRAY_AND_COLOR(int16_to_int32), sums_to_uint8_vertical, 4, 0, {0}},
    [PASSES_AREA] = {GRAY_AND_COLOR(int16_to_int32), mean_to_uint8_vertical, 4, 0, {0}},
    [PASSES_FLOAT_EVEN] = {GRAY_AND_COLOR(float_to_float), float_to_uint8_vertical, 4, uint8_to_float_vertical,
                           GRAY_AND_COLOR(float_to_uint8_last)},
    [PASSES_DALI] = {GRAY_AND_COLOR(float_to_float), ties_to_uint8_vertical, 4, uint8_to_float_vertical,
                     GRAY_AND_COLOR(ties_to_uint8_last)},
    [PASSES_FLOAT_FUSED] = {GRAY_AND_COLOR(fused_to_float), fused_to_uint8_vertical, 4, 0, {0}},
    [PASSES_REAL] = {GRAY_AND_COLOR(float_to_float), float_to_float_vertical, 4, uint8_to_float_vertical,
                     GRAY_AND_COLOR(float_to_float_last)},
    [PASSES_LERP] = {GRAY_AND_COLOR(lerp_to_float), lerp_to_float_vertical, 4, 0, {0}},
    [PASSES_FLOAT_PAIRS] = {GRAY_AND_COLOR(pairs_of_floats), pairs_of_floats_vertical, 4, 0, {0}},
};

static const struct pass_functions FUSED_FLOATS = {GRAY_AND_COLOR(fused_floats), fused_floats_vertical, 4, 0, {0}};

// Return the functions of an arithmetic. Fixed-point weights that fit into 16 bits have faster functions. torchvision's weights
// do, except on an axis that keeps its length.
struct pass_functions pass_functions_of(enum passes passes, int64_t row_bits, int64_t column_bits, int has_floats) {
    struct pass_functions functions = has_floats && passes == PASSES_FLOAT_FUSED ? FUSED_FLOATS : PASSES[passes];
    if (passes != PASSES_FIXED) return functions;
    if (column_bits < IDENTITY_BITS) {
#ifdef HAS_PAIRS
        functions.horizontal[1] = horizontal_pairs;
#else
        functions.horizontal[1] = int16_to_uint8_words;
#endif
        functions.horizontal[0] = int16_to_uint8_gray;
        functions.horizontal_last[0] = int16_to_uint8_last_gray, functions.horizontal_last[1] = int16_to_uint8_last_words;
    }
    if (row_bits < IDENTITY_BITS) functions.vertical = functions.vertical_first = int16_to_uint8_vertical;
    return functions;
}
