// Filter coefficients with the arithmetic of OpenCV, PyTorch, DALI and TensorFlow; plan/profiles describes the sources. Each
// intermediate result has the library's type and rounding. Except in `multiply_add`, operations are not fused.
#include "library_filters.h"

#include <math.h>
#include <string.h>

static const float COEFFICIENT = 2048;    // scale of OpenCV's fixed-point weights, INTER_RESIZE_COEF_SCALE
static const double MIN_FRACTION = 1e-3;  // OpenCV's INTER_AREA ignores a fraction of a pixel that is not larger

// Store the bits of a float32 weight.
static void set_weight(const struct coefficients *coefficients, int64_t index, int64_t tap, float weight) {
    memcpy(coefficients->weights + index * coefficients->taps + tap, &weight, sizeof weight);
}

static float get_weight(const struct coefficients *coefficients, int64_t index, int64_t tap) {
    float weight;
    memcpy(&weight, coefficients->weights + index * coefficients->taps + tap, sizeof weight);
    return weight;
}

static void set_taps(const struct coefficients *coefficients, int64_t index, int64_t first, int64_t count) {
    coefficients->first[index] = (int32_t)first;
    coefficients->count[index] = (int32_t)count;
}

static float larger(float a, float b) { return a > b ? a : b; }
static double clip(double x, double output, double high) { return x < output ? output : x > high ? high : x; }

// Return the input positions per output position: `fx` if the user specified it. If not, divide twice as OpenCV does, which may
// differ from an integer in the last bit.
static double opencv_ratio(const struct axis *axis) {
    const int is_given = axis->ratio != (double)axis->length / axis->out_length;
    return is_given ? axis->ratio : 1.0 / ((double)axis->out_length / axis->length);
}

// Cubic convolution (Keys 1981) with a = -0.75. The last weight is 1 minus the others.
static void opencv_cubic(float t, float *weights) {
    const float a = -0.75f, far = t + 1, complement = 1 - t;
    weights[0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
    weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weights[2] = ((a + 2) * complement - (a + 3)) * complement * complement + 1;
    weights[3] = 1 - weights[0] - weights[1] - weights[2];
}

// sinc(x) sinc(x / 4), normalized. The quotient is computed in float64 and then rounded to float32. sin(x pi) is omitted: apart
// from its sign it is equal for all taps, so that the normalization cancels it. A tap at distance 0 has the weight 1e30 before
// the normalization.
static void opencv_lanczos(float t, float *weights) {
    const double s = sqrt(0.5);
    // Factors of sin(a) and cos(a) in sin(a + 45 k degrees), for tap k, multiplied by the sign of sin(x pi).
    const double rotations[8][2] = {{1, 0}, {-s, -s}, {0, 1}, {s, -s}, {-1, 0}, {s, s}, {0, -1}, {-s, s}};
    const float far = t + 3;
    const double angle = -(double)far * M_PI * 0.25, sine = sin(angle), cosine = cos(angle);
    float total = 0;
    for (int tap = 0; tap < 8; ++tap) {
        const float x = far - tap;
        const double y = -(double)x * M_PI * 0.25;
        weights[tap] = fabsf(x) < 1e-6f ? 1e30f : (float)((rotations[tap][0] * sine + rotations[tap][1] * cosine) / (y * y));
        total += weights[tap];
    }
    for (int tap = 0; tap < 8; ++tap) weights[tap] *= 1 / total;
}

static void opencv_interpolation(const struct resize_filter *filter, const struct axis *axis,
                                 const struct coefficients *coefficients) {
    const double ratio = opencv_ratio(axis), inverse = (double)axis->out_length / axis->length;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const int64_t position = axis->begin + index;
        float first, t, weights[8];
        int taps = 2, before = 0;
        if (filter->type == FILTER_OPENCV_REPEATED) {
            const double floored = floor(position * ratio);
            first = (float)floored;
            t = (float)((position + 1) - (floored + 1) * inverse);
            t = t <= 0 ? 0 : t - floorf(t);
        } else {
            const float center = (float)((position + 0.5) * ratio - 0.5);
            first = floorf(center);
            t = center - first;
        }
        if (filter->type == FILTER_OPENCV_CUBIC) {
            opencv_cubic(t, weights);
            taps = 4, before = 1;
        } else if (filter->type == FILTER_OPENCV_LANCZOS4) {
            opencv_lanczos(t, weights);
            taps = 8, before = 3;
        } else {
            weights[0] = 1 - t, weights[1] = t;
        }
        set_taps(coefficients, index, (int64_t)first - before, taps);
        for (int tap = 0; tap < taps; ++tap)
            coefficients->weights[index * coefficients->taps + tap] = (int32_t)rintf(weights[tap] * COEFFICIENT);
    }
}

static void opencv_area_integer(const struct axis *axis, const struct coefficients *coefficients) {
    const int64_t factor = (int64_t)rint(opencv_ratio(axis));
    for (int64_t index = 0; index < coefficients->size; ++index) {
        set_taps(coefficients, index, (axis->begin + index) * factor, factor);
        for (int64_t tap = 0; tap < factor; ++tap) coefficients->weights[index * coefficients->taps + tap] = 1;
    }
}

// Average `ratio` pixels. The first and the last one are weighted by the fraction that is inside of the interval.
static void opencv_area_fractional(const struct axis *axis, const struct coefficients *coefficients) {
    const double ratio = opencv_ratio(axis);
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const double begin = (axis->begin + index) * ratio, end = begin + ratio;
        const double width = fmin(ratio, axis->length - begin), last = fmin(floor(end), axis->length - 1);
        const double first = fmin(ceil(begin), last);
        const int has_head = first - begin > MIN_FRACTION, has_tail = end - last > MIN_FRACTION;
        const int64_t count = has_head + (int64_t)(last - first) + has_tail;
        set_taps(coefficients, index, (int64_t)first - has_head, count);
        for (int64_t tap = 0; tap < count; ++tap) set_weight(coefficients, index, tap, (float)(1 / width));
        if (has_head) set_weight(coefficients, index, 0, (float)((first - begin) / width));
        if (has_tail) set_weight(coefficients, index, count - 1, (float)(fmin(fmin(end - last, 1), width) / width));
    }
}

// Return a * b + c, rounded to float32 once. The product is exact in float64. The sum is first rounded to float64, which changes
// about one in 2^29 results.
static float multiply_add(float a, float b, float c) { return (float)((double)a * b + c); }

// Cubic convolution (Keys 1981) with a = -0.5, with the fused multiply-adds of PyTorch's binaries.
static float torch_bicubic(float x) {
    if (x < 1) return multiply_add(multiply_add(1.5f, x, -2.5f) * x, x, 1);
    return x < 2 ? multiply_add(multiply_add(multiply_add(-0.5f, x, 2.5f), x, -4), x, 2) : 0;
}

static double torch_ratio(const struct axis *axis) { return (float)axis->length / (float)axis->out_length; }

static float torch_support(const struct resize_filter *filter, const struct axis *axis) {
    return (float)((filter->type == FILTER_TORCH_BICUBIC ? 2.0 : 1.0) * fmax(torch_ratio(axis), 1));
}

// An axis that keeps its length is copied. If the result has a single column, every row equals the first one, because of a bug
// in PyTorch.
static void torch(const struct resize_filter *filter, const struct axis *axis, const struct coefficients *coefficients) {
    const double ratio = torch_ratio(axis), inverse_scale = (float)(1 / fmax(ratio, 1));
    const float support = torch_support(filter, axis);
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const int64_t position = axis->is_vertical && axis->across == 1 ? 0 : axis->begin + index;
        const float center = (float)((position + 0.5) * ratio);
        const int64_t first = max((int64_t)((double)(center - support) + 0.5), 0);
        const int64_t last = min((int64_t)((double)(center + support) + 0.5), axis->length);
        const int64_t count = min(last - first, (int64_t)ceilf(support) * 2 + 1);
        if (axis->length == axis->out_length) {
            set_taps(coefficients, index, axis->begin + index, 1);
            set_weight(coefficients, index, 0, 1);
            continue;
        }
        set_taps(coefficients, index, first, count);
        float total = 0;
        for (int64_t tap = 0; tap < count; ++tap) {
            const float offset = (float)(tap + first) - center, x = fabsf((float)((offset + 0.5) * inverse_scale));
            const float weight = filter->type == FILTER_TORCH_BICUBIC ? torch_bicubic(x) : larger(1 - x, 0);
            set_weight(coefficients, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < count; ++tap)
            set_weight(coefficients, index, tap, get_weight(coefficients, index, tap) / total);
    }
}

// Cubic convolution (Keys 1981) with a = -0.75, for x <= 1 and for 1 <= x <= 2, as PyTorch's compiler fuses it.
static float torch_near(float x) { return multiply_add(1.25f, x, -2.25f) * x * x + 1; }
static float torch_far(float x) { return multiply_add(multiply_add(-0.75f, x, 3.75f), x, -6) * x + 3; }

// Linear or cubic interpolation of PyTorch's `interpolate` without antialiasing.
static void torch_interpolation(const struct resize_filter *filter, const struct axis *axis,
                                const struct coefficients *coefficients) {
    const int is_cubic = filter->type == FILTER_TORCH_FOUR || filter->type == FILTER_TORCH_CORNERS_FOUR;
    const int has_corners = filter->type == FILTER_TORCH_CORNERS_TWO || filter->type == FILTER_TORCH_CORNERS_FOUR;
    const float ratio = !has_corners             ? (float)axis->length / (float)axis->out_length
                        : axis->out_length > 1 ? (float)(axis->length - 1) / (float)(axis->out_length - 1)
                                               : 0;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const float position = (float)(axis->begin + index);
        float center = has_corners ? ratio * position : multiply_add(ratio, position + 0.5f, -0.5f);
        center = is_cubic ? center : larger(center, 0);
        const int64_t first = min((int64_t)floorf(center), axis->length - 1);
        const float t = (float)clip(center - (float)first, 0, 1), complement = 1 - t;
        const float weights[] = {is_cubic ? torch_far(t + 1) : complement, is_cubic ? torch_near(t) : t,
                                 torch_near(complement), torch_far(complement + 1)};
        const int taps = is_cubic ? 4 : 2;
        set_taps(coefficients, index, first - is_cubic, taps);
        for (int tap = 0; tap < taps; ++tap) set_weight(coefficients, index, tap, weights[tap]);
    }
}

// Linear interpolation with weights in units of 1/2048, whose positions PyTorch computes in float32.
static void torch_linear(const struct axis *axis, const struct coefficients *coefficients) {
    const float ratio = (float)((double)axis->length / (double)axis->out_length);
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const float center = ((float)(axis->begin + index) + 0.5f) * ratio - 0.5f, first = floorf(center);
        int32_t *weights = coefficients->weights + index * coefficients->taps;
        set_taps(coefficients, index, (int64_t)first, 2);
        weights[1] = (int32_t)floorf((center - first) * COEFFICIENT + 0.5f);
        weights[0] = (int32_t)COEFFICIENT - weights[1];
    }
}

// DALI samples its filter kernels to tables and interpolates linearly between the points. Beyond the table the kernel is 0.
enum { DALI_BICUBIC_POINTS = 129, DALI_LANCZOS_POINTS = 193, DALI_LANES = 16 };
static float dali_bilinear_table[3 + 2] = {0, 1, 0}, dali_bicubic_table[DALI_BICUBIC_POINTS + 2],
                                     dali_lanczos_table[DALI_LANCZOS_POINTS + 2];
static const struct {
    const float *table;
    int radius;
    int intervals;
} DALI_FILTERS[] = {
    {dali_bilinear_table, 1, 2},
    {dali_bicubic_table, 2, DALI_BICUBIC_POINTS - 1},
    {dali_lanczos_table, 3, DALI_LANCZOS_POINTS - 1},
};

// sinf of glibc 2.28 and later, for arguments below a million. For 10 of the 386 arguments in DALI's table, its result is not the
// nearest float32. The polynomials are evaluated in float64, after a reduction to -pi / 4 to pi / 4.
static float glibc_sinf(float angle) {
    const double rotations = floor(angle * M_2_PI + 0.5), x = angle - rotations * M_PI_2, square = x * x,
                 fourth = square * square;
    const double sine =
        x + x * square * -0x1.555545995a603p-3 + x * fourth * (0x1.1107605230bc4p-7 + square * -0x1.994eb3774cf24p-13);
    const double cosine = 1 + square * -0x1.ffffffd0c621cp-2 + fourth * 0x1.55553e1068f19p-5 +
                          fourth * square * (-0x1.6c087e89a359dp-10 + square * 0x1.99343027bf8c3p-16);
    const double value = (int)rotations & 1 ? cosine : sine;
    return (float)((int)rotations & 2 ? -value : value);
}

// sin(pi x) / (pi x), each operation rounded to float32.
static float dali_sinc(float x) {
    const float angle = (float)(x * M_PI);
    return angle == 0 ? 1 : glibc_sinf(angle) / angle;
}

static __attribute__((constructor)) void make_dali_tables(void) {
    for (int i = 0; i < DALI_BICUBIC_POINTS; ++i) {
        const float x = fabsf((i - (DALI_BICUBIC_POINTS - 1) / 2) * 4.0f / (DALI_BICUBIC_POINTS - 1));
        const float square = x * x, cube = x * x * x;
        dali_bicubic_table[i] = x > 1 ? -0.5f * cube + 2.5f * square - 4 * x + 2 : 1.5f * cube - 2.5f * square + 1;
    }
    for (int i = 0; i < DALI_LANCZOS_POINTS; ++i) {
        const float x = (i - (DALI_LANCZOS_POINTS - 1) / 2) * 6.0f / (DALI_LANCZOS_POINTS - 1);
        dali_lanczos_table[i] = fabsf(x) < 3 ? dali_sinc(x) * dali_sinc(x / 3.0f) : 0;
    }
}

// DALI's parameters of an axis. The ratio is negative if the region of interest is given from its end to its begin.
struct dali_axis {
    float offset;   // left end of the kernel of output position 0
    float ratio;    // input positions per output position
    float density;  // points of the table per input position
    int64_t count;  // number of taps
};

static struct dali_axis dali_axis_of(const struct resize_filter *filter, const struct axis *axis) {
    const float low = (float)axis->offset, high = (float)(axis->offset + fabs(axis->ratio) * axis->out_length);
    const float extent = high - low, out = (float)axis->out_length, ratio = axis->ratio < 0 ? -extent / out : extent / out;
    const float intervals = DALI_FILTERS[filter->type - FILTER_DALI_BILINEAR].intervals;
    float radius = DALI_FILTERS[filter->type - FILTER_DALI_BILINEAR].radius;
    if (filter->is_antialiased && out < extent) radius = radius * extent / out;
    const float density = intervals / (2 * radius), anchor = intervals / 2 / density;
    const float offset = (axis->ratio < 0 ? high : low) + (0.5f * ratio - 0.5f - anchor);
    return (struct dali_axis){offset, ratio, density, (int64_t)ceilf(intervals / density)};
}

static float dali_left(const struct dali_axis *dali_axis, int64_t position) {
    return (float)position * dali_axis->ratio + dali_axis->offset;
}

static void dali(const struct resize_filter *filter, const struct axis *axis, const struct coefficients *coefficients) {
    const struct dali_axis dali_axis = dali_axis_of(filter, axis);
    const float *table = DALI_FILTERS[filter->type - FILTER_DALI_BILINEAR].table;
    const int points = DALI_FILTERS[filter->type - FILTER_DALI_BILINEAR].intervals + 1;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const int64_t output = axis->begin + index, position = axis->ratio < 0 ? axis->out_length - 1 - output : output;
        const float left = dali_left(&dali_axis, position), first = ceilf(left);
        float total = 0;
        set_taps(coefficients, index, (int64_t)first, dali_axis.count);
        for (int64_t tap = 0; tap < dali_axis.count; ++tap) {
            const float point = (first - left + tap) * dali_axis.density, whole = floorf(point);
            const int at = (int)min((int64_t)whole, points);
            const float weight = table[at] + (point - whole) * (table[at + 1] - table[at]);
            set_weight(coefficients, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < dali_axis.count; ++tap)
            set_weight(coefficients, index, tap, get_weight(coefficients, index, tap) / total);
    }
}

// Return whether the taps of an output position begin before the input (or, if `at_end`, end after it).
static int reads_outside(const struct dali_axis *dali_axis, int64_t position, int64_t length, int at_end) {
    const float first = ceilf(dali_left(dali_axis, position));
    return at_end ? first + dali_axis->count > length : first < 0;
}

// DALI rounds the values of complete vectors to even if they are ties, and the remaining values of a run away from 0.
//
// If the vertical pass is last, all values of a row are one run. If the horizontal pass is last, a row has up to four runs of
// columns: those whose taps begin before the input, those whose taps exceed it on both sides (with more taps than input
// positions), those whose taps are inside, and those whose taps end after it.
KERNEL int find_ties(const struct ties *n) {
    const struct axis *axis = &n->columns;
    const int64_t channels = n->is_vertical_first || n->order == ORDER_SINGLE || n->column_stride == 1 ? 1 : 3,
                  end = axis->out_length * channels;
    int64_t inside = 0, after = end;
    if (n->is_vertical_first) {
        const struct dali_axis dali_axis = dali_axis_of(&n->filter, axis);
        const int is_decreasing = ceilf(dali_left(&dali_axis, end - 1)) < ceilf(dali_left(&dali_axis, 0));
        while (inside < end && reads_outside(&dali_axis, inside, axis->length, is_decreasing)) ++inside;
        while (after > 0 && reads_outside(&dali_axis, after - 1, axis->length, !is_decreasing)) --after;
    }
    const int64_t ends[] = {min(inside, after), inside, max(inside, after), end}, size = axis->end - axis->begin;
    memset(n->away, 0, size * n->column_stride);
    for (int64_t part = 0, begin = 0; part < 4; begin = ends[part++]) {
        for (int64_t index_in_row = begin + (ends[part] - begin) / DALI_LANES * DALI_LANES; index_in_row < ends[part];
             ++index_in_row) {
            const int64_t column = index_in_row / channels,
                          channel = n->order == ORDER_REVERSED ? 2 - index_in_row % channels : index_in_row % channels;
            const int64_t output = axis->ratio < 0 ? axis->out_length - 1 - column : column;
            const int64_t index = n->is_mirrored ? axis->end - 1 - output : output - axis->begin;
            if (index < 0 || index >= size) continue;
            if (channels == 1) memset(n->away + index * n->column_stride, 1, n->column_stride);
            else n->away[index * n->column_stride + channel] = 1;
        }
    }
    return DONE;
}

static void tensorflow_linear(const struct axis *axis, const struct coefficients *coefficients) {
    const float ratio = (float)axis->length / (float)axis->out_length;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const float position = ((float)(axis->begin + index) + 0.5f) * ratio - 0.5f, first = floorf(position);
        set_taps(coefficients, index, (int64_t)first, 2);
        set_weight(coefficients, index, 0, 1 - (position - first));
        set_weight(coefficients, index, 1, position - first);
    }
}

// Return the ratio as TensorFlow computes it: the inverse ratio is a float32, by which 1 is divided in float64.
static float tensorflow_ratio(const struct axis *axis) {
    return (float)(1 / (double)((float)axis->out_length / (float)axis->length));
}

// A triangle kernel with the radius max(ratio, 1) and the center (i + 0.5) ratio.
static void tensorflow_triangle(const struct axis *axis, const struct coefficients *coefficients) {
    const float ratio = tensorflow_ratio(axis), radius = larger(ratio, 1), inverse_scale = 1 / radius;
    const int64_t last = axis->length - 1;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        const float center = ((float)(axis->begin + index) + 0.5f) * ratio;
        const int64_t first = (int64_t)clip(ceilf(center - radius - 0.5f), 0, last);
        const int64_t count = (int64_t)clip(floorf(center + radius - 0.5f), 0, last) + 1 - first;
        float total = 0;
        set_taps(coefficients, index, first, count);
        for (int64_t tap = 0; tap < count; ++tap) {
            const float weight = larger(1 - fabsf(((float)(first + tap) + 0.5f - center) * inverse_scale), 0);
            set_weight(coefficients, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < count; ++tap)
            set_weight(coefficients, index, tap, get_weight(coefficients, index, tap) * (1 / total));
    }
}

int64_t max_library_taps(const struct resize_filter *filter, const struct axis *axis) {
    switch (filter->type) {
    case FILTER_OPENCV_CUBIC:
    case FILTER_TORCH_FOUR:
    case FILTER_TORCH_CORNERS_FOUR: return 4;
    case FILTER_OPENCV_LANCZOS4: return 8;
    case FILTER_OPENCV_AREA: return (int64_t)rint(opencv_ratio(axis));
    case FILTER_OPENCV_CUT: return (int64_t)ceil(opencv_ratio(axis)) + 2;
    case FILTER_TORCH_BILINEAR:
    case FILTER_TORCH_BICUBIC:
        return axis->length == axis->out_length ? 1 : (int64_t)ceilf(torch_support(filter, axis)) * 2 + 1;
    case FILTER_DALI_BILINEAR:
    case FILTER_DALI_BICUBIC:
    case FILTER_DALI_LANCZOS: return dali_axis_of(filter, axis).count;
    case FILTER_TENSORFLOW_TRIANGLE: return 2 * (int64_t)ceilf(larger(tensorflow_ratio(axis), 1)) + 2;
    default: return 2;
    }
}

void compute_library_coefficients(const struct resize_filter *filter, const struct axis *axis,
                                  struct coefficients *coefficients) {
    coefficients->bits = IDENTITY_BITS;
    switch (filter->type) {
    case FILTER_OPENCV_AREA: opencv_area_integer(axis, coefficients); break;
    case FILTER_OPENCV_CUT: opencv_area_fractional(axis, coefficients); break;
    case FILTER_TORCH_BILINEAR:
    case FILTER_TORCH_BICUBIC: torch(filter, axis, coefficients); break;
    case FILTER_TORCH_TWO:
    case FILTER_TORCH_FOUR:
    case FILTER_TORCH_CORNERS_TWO:
    case FILTER_TORCH_CORNERS_FOUR: torch_interpolation(filter, axis, coefficients); break;
    case FILTER_TORCH_LINEAR: torch_linear(axis, coefficients); break;
    case FILTER_DALI_BILINEAR:
    case FILTER_DALI_BICUBIC:
    case FILTER_DALI_LANCZOS: dali(filter, axis, coefficients); break;
    case FILTER_TENSORFLOW_LINEAR: tensorflow_linear(axis, coefficients); break;
    case FILTER_TENSORFLOW_TRIANGLE: tensorflow_triangle(axis, coefficients); break;
    default: opencv_interpolation(filter, axis, coefficients);
    }
}
