// Windows by a formula, as the C code of Pillow and PyTorch makes them: float64, one operation after the other, nothing
// fused.
#include "coefficients.h"

#include <math.h>
#include <stdlib.h>

#ifdef __clang__  // most windows are short: vectors of vectors are for loops of many turns
#define NARROW _Pragma("clang loop vectorize_width(4) interleave(disable)")
#else
#define NARROW
#endif

enum {
    MAX_BITS = 22,   // 32 bits less 8 of the level and 2 for the sum of negative weights
    NARROW_BITS = 15  // of a weight where its precision is its axis' own
};
static const double RADIUS[] = {
    [FILTER_BOX] = 0.5, [FILTER_BILINEAR] = 1, [FILTER_HAMMING] = 1, [FILTER_BICUBIC] = 2, [FILTER_LANCZOS] = 3, [FILTER_TWO] = 1, [FILTER_FOUR] = 2,
};
static const struct resize_filter UNCHANGED = {FILTER_BOX, 0, IDENTITY_BITS};  // each window is its own position

// One window. Its weights are in the memory that was passed to the function that computes it.
struct window {
    int64_t first;
    int64_t count;
    double largest;  // largest weight of the window
};

// An axis as the makers of windows see it.
struct line {
    double ratio;
    double offset;
    double support;  // half the width of a window
    double shrink;   // one over the stretch of the curve
    int64_t length;
};

typedef struct window maker(const struct line *, int64_t index, double *weights);

static double larger(double a, double b) { return a > b ? a : b; }

static double sinc(double x) {
    double y = x * M_PI;
    return x == 0 ? 1 : sin(y) / y;
}

static double box(double x) { return x > -0.5 && x <= 0.5 ? 1 : 0; }

static double bilinear(double x) { return larger(1 - fabs(x), 0); }

static double hamming(double x) {  // Pillow's constants are float32
    double value = sinc(x) * (0.54f + 0.46f * cos(fabs(x) * M_PI));
    return fabs(x) < 1 ? value : 0;
}

static double bicubic(double x) {  // Keys 1981, a = -0.5
    double a = fabs(x);
    return a < 1 ? (1.5 * a - 2.5) * a * a + 1 : a < 2 ? ((-0.5 * a + 2.5) * a - 4) * a + 2 : 0;
}

static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

// Keys 1981, a = -0.75: for 0 <= x <= 1, and for 1 <= x <= 2.
static double near(double x) { return (1.25 * x - 2.25) * x * x + 1; }
static double far(double x) { return ((-0.75 * x + 3.75) * x - 6) * x + 3; }

// A window that ends at the border.
static inline struct window cut(const struct line *line, int64_t index, double *weights, double (*type)(double)) {
    double middle = line->offset + (index + 0.5) * line->ratio, total = 0, largest = 0;
    int64_t first = max((int64_t)(middle - line->support + 0.5), 0);
    int64_t count = min((int64_t)(middle + line->support + 0.5), line->length) - first;
    NARROW for (int64_t tap = 0; tap < count; ++tap) {
        weights[tap] = type(((double)(tap + first) - middle + 0.5) * line->shrink);
        total += weights[tap];
    }
    for (int64_t tap = 0; tap < count; ++tap) {
        weights[tap] /= total;
        largest = larger(weights[tap], largest);
    }
    return (struct window){first, count, largest};
}

static struct window cut_box(const struct line *line, int64_t i, double *weights) { return cut(line, i, weights, box); }
static struct window cut_bilinear(const struct line *line, int64_t i, double *weights) { return cut(line, i, weights, bilinear); }
static struct window cut_hamming(const struct line *line, int64_t i, double *weights) { return cut(line, i, weights, hamming); }
static struct window cut_bicubic(const struct line *line, int64_t i, double *weights) { return cut(line, i, weights, bicubic); }
static struct window cut_lanczos(const struct line *line, int64_t i, double *weights) { return cut(line, i, weights, lanczos); }

// The position at or before the center of a window, and the fraction of a position from there to the center.
static int64_t floor_of(const struct line *line, double middle, double *share) {
    int64_t floor = min((int64_t)floorf((float)middle), line->length - 1);
    double rest = larger(middle - floor, 0);
    *share = rest > 1 ? 1 : rest;
    return floor;
}

// The nearest positions; one beyond the border gives its weight to the border's. The largest is that of any sum on the way,
// which PyTorch notes there.
static struct window nearest(const struct line *line, int64_t begin, const double *shares, int taps, double *weights) {
    int64_t first = max(begin, 0), count = min(begin + taps, line->length) - first;
    double largest = 0;
    for (int tap = 0; tap < taps; ++tap) weights[tap] = 0;
    for (int tap = 0; tap < taps; ++tap) {
        int64_t position = max(min(begin + tap, line->length - 1), 0);
        weights[position - first] += shares[tap];
        largest = larger(weights[position - first], largest);
    }
    return (struct window){first, count, largest};
}

static struct window nearest_two(const struct line *line, int64_t index, double *weights) {
    double t;
    int64_t floor = floor_of(line, larger((index + 0.5) * line->ratio - 0.5, 0), &t);
    return nearest(line, floor, (double[]){1 - t, t}, 2, weights);
}

static struct window nearest_four(const struct line *line, int64_t index, double *weights) {
    double t;
    int64_t floor = floor_of(line, (index + 0.5) * line->ratio - 0.5, &t);
    return nearest(line, floor - 1, (double[]){far(1 + t), near(t), near(1 - t), far(2 - t)}, 4, weights);
}

static maker *const MAKERS[] = {
    [FILTER_BOX] = cut_box,         [FILTER_BILINEAR] = cut_bilinear, [FILTER_HAMMING] = cut_hamming, [FILTER_BICUBIC] = cut_bicubic,
    [FILTER_LANCZOS] = cut_lanczos, [FILTER_TWO] = nearest_two,       [FILTER_FOUR] = nearest_four,
};

static double stretch_of(const struct resize_filter *filter, const struct axis *axis) {
    return filter->is_antialiased ? larger(axis->ratio, 1) : 1;
}

static const struct resize_filter *formula_of(const struct resize_filter *filter, const struct axis *axis) {
    return axis->length == axis->out_length ? &UNCHANGED : filter;
}

int64_t max_taps(const struct resize_filter *filter, const struct axis *axis) {
    if (is_library_filter(filter)) return max_library_taps(filter, axis);
    filter = formula_of(filter, axis);
    double support = RADIUS[filter->type] * stretch_of(filter, axis);
    return min(2 * (int64_t)ceil(support) + 1, axis->length);
}

// The most bits that keep each weight of the axis below 2^15.
static int precision(maker *window, const struct line *line, int64_t out_length, double *weights) {
    double largest = 0;
    int bits = 0;
    for (int64_t index = 0; index < out_length; ++index) largest = larger(window(line, index, weights).largest, largest);
    while (bits < MAX_BITS && (int64_t)(0.5 + largest * (1 << (bits + 1))) < 1 << NARROW_BITS) ++bits;
    return bits;
}

void compute_coefficients(const struct resize_filter *filter, const struct axis *axis, struct coefficients *made, double *weights) {
    if (is_library_filter(filter)) return compute_library_coefficients(filter, axis, made);
    filter = formula_of(filter, axis);
    maker *window = MAKERS[filter->type];
    double stretch = stretch_of(filter, axis);
    struct line line = {axis->ratio, axis->offset, RADIUS[filter->type] * stretch, 1 / stretch, axis->length};
    made->bits = filter->bits ? filter->bits : precision(window, &line, axis->out_length, weights);
    double one = 1 << made->bits;
    for (int64_t index = 0; index < made->size; ++index) {
        struct window each = window(&line, axis->begin + index, weights);
        int32_t *to = made->weights + index * made->taps;
        made->first[index] = (int32_t)each.first;
        made->count[index] = (int32_t)each.count;
        NARROW for (int64_t tap = 0; tap < each.count; ++tap) {
            double weight = weights[tap] * one;
            to[tap] = (int32_t)(weight + (weight < 0 ? -0.5 : 0.5));
        }
    }
}

KERNEL int make_windows(struct coefficients_request *n) {
    if (!n->coefficients.first) {
        n->coefficients.taps = max_taps(&n->filter, &n->axis);
        return DONE;
    }
    double *weights = malloc(sizeof *weights * max(n->coefficients.taps, 4));
    if (!weights) return NO_MEMORY;
    compute_coefficients(&n->filter, &n->axis, &n->coefficients, weights);
    free(weights);
    return DONE;
}
