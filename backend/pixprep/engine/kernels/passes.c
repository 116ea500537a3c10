// Passes of a resize: see passes.h.
//
// The rows of a block share the weights of their windows, and each value adds up its taps one by one, in the library's order.
#include "passes.h"

#include "vectors.h"
#include "coefficients.h"

enum kind { SUM, SUM_WIDE, SUM_REAL, SUM_FUSED, SUM_CUBIC, MIX };  // what a pass does with a window
enum type { LEVELS, SHORTS, WORDS, REALS };                       // of its values
enum result { TO_LEVELS, TO_SHORTS, TO_WORDS, TO_REALS, TO_EVEN, TO_MEAN, TO_TIED };  // what becomes of its sums
enum { UNROLLED = 4 };  // vectors at a time
static const int SIZES[] = {[LEVELS] = 1, [SHORTS] = 2, [WORDS] = 4, [REALS] = 4};

// The taps of a window: lines of values, or what follows from place to place.
struct source {
    const char *const *lines;  // address of each tap; 0: taps are `stride` bytes apart
    const char *at;
    int64_t stride;
};

ALWAYS whole load_whole(enum type type, const char *from) {
    shorts narrow;
    whole values;
    if (type == LEVELS) return load_levels(from);
    if (type == SHORTS) {
        memcpy(&narrow, from, sizeof narrow);
        return __builtin_convertvector(narrow, whole);
    }
    memcpy(&values, from, sizeof values);
    return values;
}

ALWAYS real load_real(enum type type, const char *from) {
    real values;
    if (type != REALS) return REAL(load_whole(type, from));
    memcpy(&values, from, sizeof values);
    return values;
}

ALWAYS const char *tap_of(const struct source *s, int64_t tap) { return s->lines ? s->lines[tap] : s->at + tap * s->stride; }

// The sums of one window at some places, in bytes from its taps.
ALWAYS void sum_whole(const struct source *s, const int32_t *weights, int64_t count, enum type type, enum kind kind, int places,
                      const int64_t *at, whole *sums) {
    UNROLL for (int i = 0; i < places; ++i) sums[i] = (whole){0};
    for (int64_t tap = 0; tap < count; ++tap) {
        // A product of 16 bits and 16 is one instruction.
        const int32_t weight = kind == SUM ? (int16_t)weights[tap] : weights[tap];
        const char *from = tap_of(s, tap);
        UNROLL for (int i = 0; i < places; ++i) sums[i] += load_whole(type, from + at[i]) * weight;
    }
}

ALWAYS void sum_real(const struct source *s, const int32_t *bits, int64_t count, enum type type, enum kind kind, int places,
                     const int64_t *at, real *sums) {
    const float *weights = (const float *)bits;
    const int64_t plain = kind == SUM_FUSED ? 1 + (count - 1) / 4 * 4 : count;
    if (kind == MIX) {
        UNROLL for (int i = 0; i < places; ++i) {
            real left = load_real(type, tap_of(s, 0) + at[i]), right = load_real(type, tap_of(s, 1) + at[i]);
            sums[i] = left + (right - left) * weights[1];
        }
        return;
    }
    if (kind == SUM_CUBIC) {
        UNROLL for (int i = 0; i < places; ++i) sums[i] = load_real(type, tap_of(s, 3) + at[i]) * (bits[3] * 0x1p-22f);
        for (int64_t tap = 2; tap >= 0; --tap)
            UNROLL for (int i = 0; i < places; ++i) sums[i] += load_real(type, tap_of(s, tap) + at[i]) * (bits[tap] * 0x1p-22f);
        return;
    }
    UNROLL for (int i = 0; i < places; ++i) sums[i] = load_real(type, tap_of(s, 0) + at[i]) * weights[0];
    for (int64_t tap = 1; tap < plain; ++tap)
        UNROLL for (int i = 0; i < places; ++i) sums[i] += load_real(type, tap_of(s, tap) + at[i]) * weights[tap];
    for (int64_t tap = plain; tap < count; ++tap)
        UNROLL for (int i = 0; i < places; ++i)
            sums[i] = fused(load_real(type, tap_of(s, tap) + at[i]), ALL(real, weights[tap]), sums[i]);
}

ALWAYS bytes even_level(real sums) { return narrowed(WHOLE(clipped(rounded_even(sums), 255))); }

// Whether one of 16 bytes is not 0.
ALWAYS int is_any(const uint8_t *from) {
    uint64_t halves[2];
    memcpy(halves, from, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

// Ties go to even, or away from 0 where `away` is 1.
ALWAYS bytes tied_level(real sums, whole away) {
    const real even = rounded_even(sums);
    return narrowed(WHOLE(clipped(even + REAL((sums - even == 0.5f) & away), 255)));
}

// 16 values of a block, to as many lines as it has rows.
ALWAYS void put_apart(const void *values, char *const *to, int64_t at, int64_t channels, int size) {
    if (channels == 4) UNROLL for (int place = 0; place < 4; ++place)
        memcpy(to[place] + at * size, (const char *)values + 4 * place * size, 4 * size);
    else UNROLL for (int place = 0; place < LANES; ++place)
        memcpy(to[place] + at * size, (const char *)values + place * size, size);
}

// One window after the other of a block of rows; `to`: their lines.
ALWAYS void go_across(const struct horizontal_pass *k, const char *block, char *const *to, enum kind kind, enum result result,
                      int64_t channels) {
    const struct coefficients w = *k->coefficients;
    const int64_t at[] = {0}, is_mirrored = k->is_mirrored;
    for (int64_t window = 0; window < w.size; ++window) {
        const int32_t *weights = w.weights + window * w.taps;
        const struct source source = {0, block + k->first[window] * LANES, LANES};
        const int64_t place = (is_mirrored ? w.size - 1 - window : window) * channels;
        if (kind <= SUM_WIDE) {
            whole sums;
            sum_whole(&source, weights, w.count[window], LEVELS, kind, 1, at, &sums);
            if (result == TO_LEVELS) {
                bytes made = level_of(sums, w.bits);
                put_apart(&made, to, place, channels, 1);
            } else if (result == TO_SHORTS) {
                shorts made = __builtin_convertvector(sums >> 4, shorts);
                put_apart(&made, to, place, channels, 2);
            } else if (result == TO_REALS) {
                real made = REAL(sums);
                put_apart(&made, to, place, channels, 4);
            } else {
                put_apart(&sums, to, place, channels, 4);
            }
            continue;
        }
        real sums;
        sum_real(&source, weights, w.count[window], LEVELS, kind, 1, at, &sums);
        put_apart(&sums, to, place, channels, 4);
    }
}

// Values of one position of a block's lines, each line an array of its own.
ALWAYS void load_apart(const char *const *lines, int64_t at, int64_t channels, int size, void *values) {
    if (channels == 4) UNROLL for (int i = 0; i < 4; ++i) memcpy((char *)values + 4 * i * size, lines[i] + at * size, 4 * size);
    else UNROLL for (int i = 0; i < LANES; ++i) memcpy((char *)values + i * size, lines[i] + at * size, size);
}

// Across lines of levels or of real values; `places`: where the positions that are read lie in each.
ALWAYS void go_across_lines(const struct horizontal_pass *k, const char *const *lines, const int32_t *places, char *const *to,
                            enum kind kind, enum result result, int64_t channels) {
    const struct coefficients w = *k->coefficients;
    const int64_t is_mirrored = k->is_mirrored;
    for (int64_t window = 0; window < w.size; ++window) {
        const int32_t *weights = w.weights + window * w.taps, *own = places + k->first[window];
        const int64_t at = (is_mirrored ? w.size - 1 - window : window) * channels;
        bytes levels;
        if (kind <= SUM_WIDE) {
            whole sums = {0};
            for (int64_t tap = 0; tap < w.count[window]; ++tap) {
                load_apart(lines, own[tap], channels, 1, &levels);
                sums += load_levels(&levels) * (kind == SUM ? (int16_t)weights[tap] : weights[tap]);
            }
            levels = level_of(sums, w.bits);
            put_apart(&levels, to, at, channels, 1);
            continue;
        }
        real sums = {0}, values;
        for (int64_t tap = 0; tap < w.count[window]; ++tap) {
            load_apart(lines, own[tap], channels, 4, &values);
            values *= ((const float *)weights)[tap];
            sums = tap ? sums + values : values;
        }
        if (result == TO_REALS) {
            put_apart(&sums, to, at, channels, 4);
            continue;
        }
        levels = result == TO_TIED && k->away[at] ? tied_level(sums, ALL(whole, 1)) : even_level(sums);
        put_apart(&levels, to, at, channels, 1);
    }
}

// One window of lines; `length` values, at least 16: the last ones overlap those before.
ALWAYS void go_down(const struct coefficients *w, int64_t window, const char *const *lines, int64_t length, char *to, enum type type,
                    enum kind kind, enum result result, float factor, const uint8_t *away) {
    const int32_t *weights = w->weights + window * w->taps;
    const int64_t count = w->count[window];
    const struct source source = {.lines = lines};
    for (int64_t place = 0; place < length; place += UNROLLED * LANES) {
        int64_t at[UNROLLED], from[UNROLLED];
        UNROLL for (int i = 0; i < UNROLLED; ++i) {
            at[i] = min(place + i * LANES, length - LANES);
            from[i] = at[i] * SIZES[type];
        }
        whole sums[UNROLLED];
        real values[UNROLLED];
        if (kind <= SUM_WIDE) sum_whole(&source, weights, count, type, kind, UNROLLED, from, sums);
        else sum_real(&source, weights, count, type, kind, UNROLLED, from, values);
        UNROLL for (int i = 0; i < UNROLLED; ++i) {
            if (result == TO_REALS) {
                memcpy(to + 4 * at[i], &values[i], sizeof values[i]);
                continue;
            }
            bytes levels = result == TO_LEVELS  ? level_of(sums[i], w->bits)
                           : result == TO_MEAN  ? even_level(REAL(sums[i]) * factor)
                           : result == TO_EVEN || !is_any(away + at[i]) ? even_level(values[i])
                                                : tied_level(values[i], load_levels(away + at[i]));
            memcpy(to + at[i], &levels, sizeof levels);
        }
    }
}

// clip8((((a w0) >> 16) + ((b w1) >> 16) + 2) >> 2), in 16 bits each.
static void linear_levels(const struct coefficients *w, int64_t window, const char *const *lines, int64_t length, char *to,
                          float factor, const uint8_t *away) {
    (void)factor, (void)away;
    const int32_t *weights = w->weights + window * w->taps;
    const whole above = weights[0] - (whole){0}, below = weights[1] - (whole){0};
    for (int64_t place = 0; place < length; place += LANES) {
        const int64_t at = min(place, length - LANES);
        shorts a = __builtin_convertvector(load_whole(SHORTS, lines[0] + 2 * at) * above >> 16, shorts);
        shorts b = __builtin_convertvector(load_whole(SHORTS, lines[1] + 2 * at) * below >> 16, shorts);
        shorts total = (a + b + 2) >> 2;
        total &= total >= 0;
        total = (total & (total < 255)) | (255 & (total >= 255));
        bytes levels = __builtin_convertvector(total, bytes);
        memcpy(to + at, &levels, sizeof levels);
    }
}

// Each pass is a function of its own, in which its arithmetic is known.
#define ACROSS(name, kind, result)                                                                    \
    static void name##_gray(const struct horizontal_pass *k, const char *block, char *const *to) {    \
        go_across(k, block, to, kind, result, 1);                                                     \
    }                                                                                                 \
    static void name##_words(const struct horizontal_pass *k, const char *block, char *const *to) {   \
        go_across(k, block, to, kind, result, 4);                                                     \
    }
#define DOWN(name, type, kind, result)                                                                              \
    static void name(const struct coefficients *w, int64_t window, const char *const *lines, int64_t length, char *to,  \
                     float factor, const uint8_t *away) {                                                           \
        (void)factor, (void)away;                                                                                   \
        go_down(w, window, lines, length, to, type, kind, result, factor, away);                                    \
    }
ACROSS(narrow_levels, SUM, TO_LEVELS)
ACROSS(wide_levels, SUM_WIDE, TO_LEVELS)
ACROSS(shorts_of_sums, SUM, TO_SHORTS)
ACROSS(words_of_sums, SUM, TO_WORDS)
ACROSS(reals_of_sums, SUM, TO_REALS)
ACROSS(reals, SUM_REAL, TO_REALS)
ACROSS(fused_reals, SUM_FUSED, TO_REALS)
ACROSS(mixed_reals, MIX, TO_REALS)
DOWN(cubic_levels, REALS, SUM_CUBIC, TO_EVEN)
DOWN(shifted_levels, WORDS, SUM_WIDE, TO_LEVELS)
DOWN(mean_levels, WORDS, SUM_WIDE, TO_MEAN)
DOWN(narrow_levels_below, LEVELS, SUM, TO_LEVELS)
DOWN(wide_levels_below, LEVELS, SUM_WIDE, TO_LEVELS)
DOWN(even_levels, REALS, SUM_REAL, TO_EVEN)
DOWN(tied_levels, REALS, SUM_REAL, TO_TIED)
DOWN(fused_levels, REALS, SUM_FUSED, TO_EVEN)
DOWN(real_values, REALS, SUM_REAL, TO_REALS)
DOWN(mixed_values, REALS, MIX, TO_REALS)
DOWN(reals_below, LEVELS, SUM_REAL, TO_REALS)
#define ACROSS_LINES(name, kind, result)                                                             \
    static void name##_gray(const struct horizontal_pass *k, const char *const *lines, const int32_t *places,  \
                            char *const *to) {                                                        \
        go_across_lines(k, lines, places, to, kind, result, 1);                                       \
    }                                                                                                 \
    static void name##_words(const struct horizontal_pass *k, const char *const *lines, const int32_t *places, \
                             char *const *to) {                                                       \
        go_across_lines(k, lines, places, to, kind, result, 4);                                       \
    }
ACROSS_LINES(narrow_levels_beside, SUM, TO_LEVELS)
ACROSS_LINES(wide_levels_beside, SUM_WIDE, TO_LEVELS)
ACROSS_LINES(even_levels_beside, SUM_REAL, TO_EVEN)
ACROSS_LINES(tied_levels_beside, SUM_REAL, TO_TIED)
ACROSS_LINES(reals_beside, SUM_REAL, TO_REALS)
#define BOTH(name) {name##_gray, name##_words}

// The passes of each arithmetic.
static const struct both PASSES[] = {
    [PASSES_FIXED] = {BOTH(wide_levels), wide_levels_below, 1, wide_levels_below, BOTH(wide_levels_beside)},
    [PASSES_OPENCV_LINEAR] = {BOTH(shorts_of_sums), linear_levels, 2, 0, {0}},
    [PASSES_OPENCV_CUBIC] = {BOTH(reals_of_sums), cubic_levels, 4, 0, {0}},
    [PASSES_OPENCV_LANCZOS] = {BOTH(words_of_sums), shifted_levels, 4, 0, {0}},
    [PASSES_AREA] = {BOTH(words_of_sums), mean_levels, 4, 0, {0}},
    [PASSES_FLOAT_EVEN] = {BOTH(reals), even_levels, 4, reals_below, BOTH(even_levels_beside)},
    [PASSES_DALI] = {BOTH(reals), tied_levels, 4, reals_below, BOTH(tied_levels_beside)},
    [PASSES_FLOAT_FUSED] = {BOTH(fused_reals), fused_levels, 4, 0, {0}},
    [PASSES_REAL] = {BOTH(reals), real_values, 4, reals_below, BOTH(reals_beside)},
    [PASSES_LERP] = {BOTH(mixed_reals), mixed_values, 4, 0, {0}},
};

// The passes of an arithmetic; of weights that fit 16 bits, as all of torchvision's but those of an axis that stays as it is.
struct both passes_of(enum passes passes, int64_t row_bits, int64_t column_bits) {
    struct both made = PASSES[passes];
    if (passes != PASSES_FIXED) return made;
    if (column_bits < IDENTITY_BITS) {
        made.across[0] = narrow_levels_gray, made.across[1] = narrow_levels_words;
        made.beside[0] = narrow_levels_beside_gray, made.beside[1] = narrow_levels_beside_words;
    }
    if (row_bits < IDENTITY_BITS) made.down = made.down_first = narrow_levels_below;
    return made;
}
