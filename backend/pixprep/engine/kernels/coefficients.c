// Filter coefficients of the filters that Pillow and torchvision share, computed like in the C code of Pillow and PyTorch: in
// float64, operation by operation, without fused multiply-add.
#include "coefficients.h"

#include <math.h>
#include <stdlib.h>

#ifdef __clang__  // most filters have few taps, for which wide or interleaved vectors are slower
#define NARROW_VECTORS _Pragma("clang loop vectorize_width(4) interleave(disable)")
#else
#define NARROW_VECTORS
#endif

enum {
    MAX_BITS = 22,   // 32 bits, minus 8 for the pixel value, and 2 for sums that exceed it because of negative weights
    INT16_BITS = 15  // maximum bits of a weight if the precision is chosen per axis, so that weights fit into int16
};
// Half the support of each filter kernel, without antialiasing.
static const double RADIUS[] = {
    [FILTER_BOX] = 0.5,   [FILTER_BILINEAR] = 1, [FILTER_HAMMING] = 1, [FILTER_BICUBIC] = 2,
    [FILTER_LANCZOS] = 3, [FILTER_TWO] = 1,      [FILTER_FOUR] = 2,
};
// Filter of an axis that keeps its length: the only tap of an output position is the same input position.
static const struct resize_filter IDENTITY = {FILTER_BOX, 0, IDENTITY_BITS};

// Taps of an output position. The generator writes their weights to the memory that is passed to it.
struct taps {
    int64_t first;
    int64_t count;
    double max_weight;
};

// Arguments of the generators that are the same for all output positions of an axis.
struct sampling {
    double ratio;
    double offset;
    double support;        // half the width of the filter, in input positions
    double inverse_scale;  // 1 / factor by which antialiasing widens the kernel
    int64_t length;
};

// Compute the taps of an output position.
typedef struct taps generator(const struct sampling *, int64_t index, double *weights);

static double larger(double a, double b) { return a > b ? a : b; }

static double sinc(double x) {
    double y = x * M_PI;
    return x == 0 ? 1 : sin(y) / y;
}

static double box(double x) { return x > -0.5 && x <= 0.5 ? 1 : 0; }

static double bilinear(double x) { return larger(1 - fabs(x), 0); }

static double hamming(double x) {  // Pillow's constants are float32, and their sum is not 1. At 0, Pillow returns 1.
    double value = x == 0 ? 1 : sinc(x) * (0.54f + 0.46f * cos(fabs(x) * M_PI));
    return fabs(x) < 1 ? value : 0;
}

static double bicubic(double x) {  // cubic convolution (Keys 1981) with a = -0.5
    double a = fabs(x);
    return a < 1 ? (1.5 * a - 2.5) * a * a + 1 : a < 2 ? ((-0.5 * a + 2.5) * a - 4) * a + 2 : 0;
}

static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

// Cubic convolution (Keys 1981) with a = -0.75, for 0 <= x <= 1 and for 1 <= x <= 2.
static double cubic_near(double x) { return (1.25 * x - 2.25) * x * x + 1; }
static double cubic_far(double x) { return ((-0.75 * x + 3.75) * x - 6) * x + 3; }

// Sample a kernel at all positions within its support, without positions beyond the border, and normalize the weights.
static inline struct taps clipped_taps(const struct sampling *sampling, int64_t index, double *weights,
                                       double (*kernel)(double)) {
    double center = sampling->offset + (index + 0.5) * sampling->ratio, total = 0, max_weight = 0;
    int64_t first = max((int64_t)(center - sampling->support + 0.5), 0);
    int64_t count = min((int64_t)(center + sampling->support + 0.5), sampling->length) - first;
    NARROW_VECTORS for (int64_t tap = 0; tap < count; ++tap) {
        weights[tap] = kernel(((double)(tap + first) - center + 0.5) * sampling->inverse_scale);
        total += weights[tap];
    }
    for (int64_t tap = 0; tap < count; ++tap) {
        weights[tap] /= total;
        max_weight = larger(weights[tap], max_weight);
    }
    return (struct taps){first, count, max_weight};
}

static struct taps box_taps(const struct sampling *sampling, int64_t i, double *weights) {
    return clipped_taps(sampling, i, weights, box);
}
static struct taps bilinear_taps(const struct sampling *sampling, int64_t i, double *weights) {
    return clipped_taps(sampling, i, weights, bilinear);
}
static struct taps hamming_taps(const struct sampling *sampling, int64_t i, double *weights) {
    return clipped_taps(sampling, i, weights, hamming);
}
static struct taps bicubic_taps(const struct sampling *sampling, int64_t i, double *weights) {
    return clipped_taps(sampling, i, weights, bicubic);
}
static struct taps lanczos_taps(const struct sampling *sampling, int64_t i, double *weights) {
    return clipped_taps(sampling, i, weights, lanczos);
}

// Return the position at or before a center, and store the distance to the center, 0 to 1, in `fraction`.
static int64_t floor_and_fraction(const struct sampling *sampling, double center, double *fraction) {
    int64_t floor = min((int64_t)floorf((float)center), sampling->length - 1);
    double distance = larger(center - floor, 0);
    *fraction = distance > 1 ? 1 : distance;
    return floor;
}

// Return `taps` taps from `begin` on. The weight of a position beyond the border is added to the border position. As in PyTorch,
// `max_weight` also includes the partial sums.
static struct taps nearest_taps(const struct sampling *sampling, int64_t begin, const double *tap_weights, int taps,
                                double *weights) {
    int64_t first = max(begin, 0), count = min(begin + taps, sampling->length) - first;
    double max_weight = 0;
    for (int tap = 0; tap < taps; ++tap) weights[tap] = 0;
    for (int tap = 0; tap < taps; ++tap) {
        int64_t position = max(min(begin + tap, sampling->length - 1), 0);
        weights[position - first] += tap_weights[tap];
        max_weight = larger(weights[position - first], max_weight);
    }
    return (struct taps){first, count, max_weight};
}

static struct taps two_taps(const struct sampling *sampling, int64_t index, double *weights) {
    double t;
    int64_t floor = floor_and_fraction(sampling, larger((index + 0.5) * sampling->ratio - 0.5, 0), &t);
    return nearest_taps(sampling, floor, (double[]){1 - t, t}, 2, weights);
}

static struct taps four_taps(const struct sampling *sampling, int64_t index, double *weights) {
    double t;
    int64_t floor = floor_and_fraction(sampling, (index + 0.5) * sampling->ratio - 0.5, &t);
    return nearest_taps(sampling, floor - 1, (double[]){cubic_far(1 + t), cubic_near(t), cubic_near(1 - t), cubic_far(2 - t)},
                        4, weights);
}

static generator *const GENERATORS[] = {
    [FILTER_BOX] = box_taps,         [FILTER_BILINEAR] = bilinear_taps, [FILTER_HAMMING] = hamming_taps,
    [FILTER_BICUBIC] = bicubic_taps, [FILTER_LANCZOS] = lanczos_taps,   [FILTER_TWO] = two_taps,
    [FILTER_FOUR] = four_taps,
};

static double filter_scale(const struct resize_filter *filter, const struct axis *axis) {
    return filter->is_antialiased ? larger(axis->ratio, 1) : 1;
}

static const struct resize_filter *effective_filter(const struct resize_filter *filter, const struct axis *axis) {
    return axis->length == axis->out_length && axis->ratio == 1 && axis->offset == 0 ? &IDENTITY : filter;
}

int64_t max_taps(const struct resize_filter *filter, const struct axis *axis) {
    if (is_library_filter(filter)) return max_library_taps(filter, axis);
    filter = effective_filter(filter, axis);
    double support = RADIUS[filter->type] * filter_scale(filter, axis);
    return min(2 * (int64_t)ceil(support) + 1, axis->length);
}

// Return the maximum number of fractional bits with which each weight of the axis is below 2^15.
static int max_precision(generator *generate, const struct sampling *sampling, int64_t out_length, double *weights) {
    double max_weight = 0;
    int bits = 0;
    for (int64_t index = 0; index < out_length; ++index)
        max_weight = larger(generate(sampling, index, weights).max_weight, max_weight);
    while (bits < MAX_BITS && (int64_t)(0.5 + max_weight * (1 << (bits + 1))) < 1 << INT16_BITS) ++bits;
    return bits;
}

void compute_coefficients(const struct resize_filter *filter, const struct axis *axis, struct coefficients *coefficients,
                          double *weights) {
    if (is_library_filter(filter)) return compute_library_coefficients(filter, axis, coefficients);
    filter = effective_filter(filter, axis);
    generator *generate = GENERATORS[filter->type];
    double scale = filter_scale(filter, axis);
    struct sampling sampling = {axis->ratio, axis->offset, RADIUS[filter->type] * scale, 1 / scale, axis->length};
    coefficients->bits = filter->bits ? filter->bits : max_precision(generate, &sampling, axis->out_length, weights);
    double unit = 1 << coefficients->bits;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        struct taps taps = generate(&sampling, axis->begin + index, weights);
        int32_t *to = coefficients->weights + index * coefficients->taps;
        coefficients->first[index] = (int32_t)taps.first;
        coefficients->count[index] = (int32_t)taps.count;
        NARROW_VECTORS for (int64_t tap = 0; tap < taps.count; ++tap) {
            double weight = weights[tap] * unit;
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
