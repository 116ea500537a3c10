// Windows by the rules of OpenCV, PyTorch, DALI and TensorFlow, as their profiles name them. Each number is rounded where
// the library rounds it, and nothing is fused.
#include "library_filters.h"

#include <math.h>
#include <string.h>

static const float COEFFICIENT = 2048;  // OpenCV's weights have 11 bits
static const double CUT = 1e-3;         // OpenCV's area leaves out a piece of a pixel that is not wider

// The weight of a tap: the bits of a float32.
static void put(const struct coefficients *made, int64_t index, int64_t tap, float weight) {
    memcpy(made->weights + index * made->taps + tap, &weight, sizeof weight);
}

static float got(const struct coefficients *made, int64_t index, int64_t tap) {
    float weight;
    memcpy(&weight, made->weights + index * made->taps + tap, sizeof weight);
    return weight;
}

static void set_taps(const struct coefficients *made, int64_t index, int64_t first, int64_t count) {
    made->first[index] = (int32_t)first;
    made->count[index] = (int32_t)count;
}

static float larger(float a, float b) { return a > b ? a : b; }
static double clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// Input positions for each output position: those of `fx`, or divided twice as in OpenCV, which may miss an integer by a bit.
static double opencv_ratio(const struct axis *axis) {
    const int is_by_scale = axis->ratio != (double)axis->length / axis->out_length;
    return is_by_scale ? axis->ratio : 1.0 / ((double)axis->out_length / axis->length);
}

// Keys 1981, a = -0.75; the last weight is 1 minus the others.
static void opencv_cubic(float t, float *weights) {
    const float a = -0.75f, far = t + 1, rest = 1 - t;
    weights[0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
    weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weights[2] = ((a + 2) * rest - (a + 3)) * rest * rest + 1;
    weights[3] = 1 - weights[0] - weights[1] - weights[2];
}

// sinc(x) sinc(x / 4), over their sum: float64 up to the quotient, then float32. The sine of x pi is the same for all taps but
// for its sign, so the division by the sum takes it away. A position that is met exactly has the weight 1e30 before.
static void opencv_lanczos(float t, float *weights) {
    const double s = sqrt(0.5);
    // The weight of tap k: sin(a + 45 k degrees), with the sign of sin(x pi), as so much of sin(a) and of cos(a).
    const double turns[8][2] = {{1, 0}, {-s, -s}, {0, 1}, {s, -s}, {-1, 0}, {s, s}, {0, -1}, {-s, s}};
    const float far = t + 3;
    const double angle = -(double)far * M_PI * 0.25, sine = sin(angle), cosine = cos(angle);
    float total = 0;
    for (int tap = 0; tap < 8; ++tap) {
        const float x = far - tap;
        const double y = -(double)x * M_PI * 0.25;
        weights[tap] = fabsf(x) < 1e-6f ? 1e30f : (float)((turns[tap][0] * sine + turns[tap][1] * cosine) / (y * y));
        total += weights[tap];
    }
    for (int tap = 0; tap < 8; ++tap) weights[tap] *= 1 / total;
}

static void opencv_whole(const struct resize_filter *filter, const struct axis *axis, const struct coefficients *made) {
    const double ratio = opencv_ratio(axis), inverse = (double)axis->out_length / axis->length;
    for (int64_t index = 0; index < made->size; ++index) {
        const int64_t position = axis->begin + index;
        float first, t, weights[8];
        int taps = 2, before = 0;
        if (filter->type == FILTER_OPENCV_REPEATED) {
            const double floored = floor(position * ratio);
            first = (float)floored;
            t = (float)((position + 1) - (floored + 1) * inverse);
            t = t <= 0 ? 0 : t - floorf(t);
        } else {
            const float middle = (float)((position + 0.5) * ratio - 0.5);
            first = floorf(middle);
            t = middle - first;
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
        set_taps(made, index, (int64_t)first - before, taps);
        for (int tap = 0; tap < taps; ++tap) made->weights[index * made->taps + tap] = (int32_t)rintf(weights[tap] * COEFFICIENT);
    }
}

static void opencv_area(const struct axis *axis, const struct coefficients *made) {
    const int64_t factor = (int64_t)rint(opencv_ratio(axis));
    for (int64_t index = 0; index < made->size; ++index) {
        set_taps(made, index, (axis->begin + index) * factor, factor);
        for (int64_t tap = 0; tap < factor; ++tap) made->weights[index * made->taps + tap] = 1;
    }
}

// Windows of `ratio` pixels, the pixels at their edges weighted by the part that is inside.
static void opencv_cut(const struct axis *axis, const struct coefficients *made) {
    const double ratio = opencv_ratio(axis);
    for (int64_t index = 0; index < made->size; ++index) {
        const double begin = (axis->begin + index) * ratio, end = begin + ratio;
        const double width = fmin(ratio, axis->length - begin), last = fmin(floor(end), axis->length - 1);
        const double first = fmin(ceil(begin), last);
        const int has_head = first - begin > CUT, has_tail = end - last > CUT;
        const int64_t count = has_head + (int64_t)(last - first) + has_tail;
        set_taps(made, index, (int64_t)first - has_head, count);
        for (int64_t tap = 0; tap < count; ++tap) put(made, index, tap, (float)(1 / width));
        if (has_head) put(made, index, 0, (float)((first - begin) / width));
        if (has_tail) put(made, index, count - 1, (float)(fmin(fmin(end - last, 1), width) / width));
    }
}

// a * b + c, rounded to float32 once; the product is exact in float64, where the sum is rounded first, which shows in about
// one of 2^29 results.
static float multiply_add(float a, float b, float c) { return (float)((double)a * b + c); }

// Keys 1981, a = -0.5, as PyTorch's compiler fuses it.
static float torch_bicubic(float x) {
    if (x < 1) return multiply_add(multiply_add(1.5f, x, -2.5f) * x, x, 1);
    return x < 2 ? multiply_add(multiply_add(multiply_add(-0.5f, x, 2.5f), x, -4), x, 2) : 0;
}

static double torch_ratio(const struct axis *axis) { return (float)axis->length / (float)axis->out_length; }

static float torch_support(const struct resize_filter *filter, const struct axis *axis) {
    return (float)((filter->type == FILTER_TORCH_BICUBIC ? 2.0 : 1.0) * fmax(torch_ratio(axis), 1));
}

// An axis that keeps its length has no pass. A mistake of PyTorch: where the result has one column, each row is the first.
static void torch(const struct resize_filter *filter, const struct axis *axis, const struct coefficients *made) {
    const double ratio = torch_ratio(axis), shrink = (float)(1 / fmax(ratio, 1));
    const float support = torch_support(filter, axis);
    for (int64_t index = 0; index < made->size; ++index) {
        const int64_t position = axis->is_vertical && axis->across == 1 ? 0 : axis->begin + index;
        const float middle = (float)((position + 0.5) * ratio);
        const int64_t first = max((int64_t)((double)(middle - support) + 0.5), 0);
        const int64_t last = min((int64_t)((double)(middle + support) + 0.5), axis->length);
        const int64_t count = min(last - first, (int64_t)ceilf(support) * 2 + 1);
        if (axis->length == axis->out_length) {
            set_taps(made, index, axis->begin + index, 1);
            put(made, index, 0, 1);
            continue;
        }
        set_taps(made, index, first, count);
        float total = 0;
        for (int64_t tap = 0; tap < count; ++tap) {
            const float offset = (float)(tap + first) - middle, x = fabsf((float)((offset + 0.5) * shrink));
            const float weight = filter->type == FILTER_TORCH_BICUBIC ? torch_bicubic(x) : larger(1 - x, 0);
            put(made, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < count; ++tap) put(made, index, tap, got(made, index, tap) / total);
    }
}

// DALI's filters are tables, from one end to the other, between whose points it interpolates; beyond them it is 0.
enum { DALI_BICUBIC_POINTS = 129, DALI_LANCZOS_POINTS = 193, DALI_LANES = 16 };
static float dali_bilinear_table[3 + 2] = {0, 1, 0}, dali_bicubic_table[DALI_BICUBIC_POINTS + 2],
             dali_lanczos_table[DALI_LANCZOS_POINTS + 2];
static const struct {
    const float *table;
    int radius;
    int intervals;
} DALI[] = {
    {dali_bilinear_table, 1, 2},
    {dali_bicubic_table, 2, DALI_BICUBIC_POINTS - 1},
    {dali_lanczos_table, 3, DALI_LANCZOS_POINTS - 1},
};

// sinf as glibc has had it since 2.28, below a million: 10 of the 386 that DALI's table takes are not the nearest float32.
// In float64, between multiples of a quarter turn.
static float glibc_sinf(float angle) {
    const double turns = floor(angle * M_2_PI + 0.5), x = angle - turns * M_PI_2, square = x * x, fourth = square * square;
    const double sine = x + x * square * -0x1.555545995a603p-3 +
                        x * fourth * (0x1.1107605230bc4p-7 + square * -0x1.994eb3774cf24p-13);
    const double cosine = 1 + square * -0x1.ffffffd0c621cp-2 + fourth * 0x1.55553e1068f19p-5 +
                          fourth * square * (-0x1.6c087e89a359dp-10 + square * 0x1.99343027bf8c3p-16);
    const double value = (int)turns & 1 ? cosine : sine;
    return (float)((int)turns & 2 ? -value : value);
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
        dali_bicubic_table[i] =
            x > 1 ? -0.5f * cube + 2.5f * square - 4 * x + 2 : 1.5f * cube - 2.5f * square + 1;
    }
    for (int i = 0; i < DALI_LANCZOS_POINTS; ++i) {
        const float x = (i - (DALI_LANCZOS_POINTS - 1) / 2) * 6.0f / (DALI_LANCZOS_POINTS - 1);
        dali_lanczos_table[i] = fabsf(x) < 3 ? dali_sinc(x) * dali_sinc(x / 3.0f) : 0;
    }
}

// An axis as DALI sees it: where the first window begins, positions for each of the output's, points of the table for each
// position, and the positions of a window. Of a swapped part the ratio is below 0.
struct dali {
    float offset, ratio, density;
    int64_t count;
};

static struct dali dali_axis(const struct resize_filter *filter, const struct axis *axis) {
    const float low = (float)axis->offset, high = (float)(axis->offset + fabs(axis->ratio) * axis->out_length);
    const float seen = high - low, out = (float)axis->out_length, ratio = axis->ratio < 0 ? -seen / out : seen / out;
    const float intervals = DALI[filter->type - FILTER_DALI_BILINEAR].intervals;
    float radius = DALI[filter->type - FILTER_DALI_BILINEAR].radius;
    if (filter->is_antialiased && out < seen) radius = radius * seen / out;
    const float density = intervals / (2 * radius), anchor = intervals / 2 / density;
    const float offset = (axis->ratio < 0 ? high : low) + (0.5f * ratio - 0.5f - anchor);
    return (struct dali){offset, ratio, density, (int64_t)ceilf(intervals / density)};
}

static float dali_left(const struct dali *line, int64_t position) { return (float)position * line->ratio + line->offset; }

static void dali(const struct resize_filter *filter, const struct axis *axis, const struct coefficients *made) {
    const struct dali line = dali_axis(filter, axis);
    const float *table = DALI[filter->type - FILTER_DALI_BILINEAR].table;
    const int points = DALI[filter->type - FILTER_DALI_BILINEAR].intervals + 1;
    for (int64_t index = 0; index < made->size; ++index) {
        const int64_t low = axis->begin + index, position = axis->ratio < 0 ? axis->out_length - 1 - low : low;
        const float left = dali_left(&line, position), first = ceilf(left);
        float total = 0;
        set_taps(made, index, (int64_t)first, line.count);
        for (int64_t tap = 0; tap < line.count; ++tap) {
            const float point = (first - left + tap) * line.density, whole = floorf(point);
            const int at = (int)min((int64_t)whole, points);
            const float weight = table[at] + (point - whole) * (table[at + 1] - table[at]);
            put(made, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < line.count; ++tap) put(made, index, tap, got(made, index, tap) / total);
    }
}

// Whether a window begins before the input, or ends after it.
static int is_outside(const struct dali *line, int64_t position, int64_t length, int at_end) {
    const float first = ceilf(dali_left(line, position));
    return at_end ? first + line->count > length : first < 0;
}

// DALI's vectors round ties to even, and what is left of a run away from 0. A run is a row's values where rows are added up
// last. Else it is columns: those whose windows begin before the input, those inside, those that end behind it; and in
// between, of windows as long as the input, those that do both.
KERNEL int find_ties(const struct ties *n) {
    const struct axis *axis = &n->columns;
    const int64_t channels = n->is_vertical_first || n->order == ORDER_SINGLE || n->column_stride == 1 ? 1 : 3, end = axis->out_length * channels;
    int64_t inside = 0, behind = end;
    if (n->is_vertical_first) {
        const struct dali line = dali_axis(&n->filter, axis);
        const int is_falling = ceilf(dali_left(&line, end - 1)) < ceilf(dali_left(&line, 0));
        while (inside < end && is_outside(&line, inside, axis->length, is_falling)) ++inside;
        while (behind > 0 && is_outside(&line, behind - 1, axis->length, !is_falling)) --behind;
    }
    const int64_t ends[] = {min(inside, behind), inside, max(inside, behind), end}, size = axis->end - axis->begin;
    memset(n->away, 0, size * n->column_stride);
    for (int64_t run = 0, begin = 0; run < 4; begin = ends[run++]) {
        for (int64_t place = begin + (ends[run] - begin) / DALI_LANES * DALI_LANES; place < ends[run]; ++place) {
            const int64_t column = place / channels, channel = n->order == ORDER_REVERSED ? 2 - place % channels : place % channels;
            const int64_t low = axis->ratio < 0 ? axis->out_length - 1 - column : column;
            const int64_t index = n->is_mirrored ? axis->end - 1 - low : low - axis->begin;
            if (index < 0 || index >= size) continue;
            if (channels == 1) memset(n->away + index * n->column_stride, 1, n->column_stride);
            else n->away[index * n->column_stride + channel] = 1;
        }
    }
    return DONE;
}

static void tensorflow_linear(const struct axis *axis, const struct coefficients *made) {
    const float ratio = (float)axis->length / (float)axis->out_length;
    for (int64_t index = 0; index < made->size; ++index) {
        const float position = ((float)(axis->begin + index) + 0.5f) * ratio - 0.5f, first = floorf(position);
        set_taps(made, index, (int64_t)first, 2);
        put(made, index, 0, 1 - (position - first));
        put(made, index, 1, position - first);
    }
}

// TensorFlow is given the inverse ratio in float32, and divides 1 by it in float64.
static float tensorflow_ratio(const struct axis *axis) {
    return (float)(1 / (double)((float)axis->out_length / (float)axis->length));
}

// The triangle of radius max(ratio, 1) about (i + 0.5) ratio.
static void tensorflow_triangle(const struct axis *axis, const struct coefficients *made) {
    const float ratio = tensorflow_ratio(axis), radius = larger(ratio, 1), shrink = 1 / radius;
    const int64_t last = axis->length - 1;
    for (int64_t index = 0; index < made->size; ++index) {
        const float middle = ((float)(axis->begin + index) + 0.5f) * ratio;
        const int64_t first = (int64_t)clip(ceilf(middle - radius - 0.5f), 0, last);
        const int64_t count = (int64_t)clip(floorf(middle + radius - 0.5f), 0, last) + 1 - first;
        float total = 0;
        set_taps(made, index, first, count);
        for (int64_t tap = 0; tap < count; ++tap) {
            const float weight = larger(1 - fabsf(((float)(first + tap) + 0.5f - middle) * shrink), 0);
            put(made, index, tap, weight);
            total += weight;
        }
        for (int64_t tap = 0; tap < count; ++tap) put(made, index, tap, got(made, index, tap) * (1 / total));
    }
}

int64_t max_library_taps(const struct resize_filter *filter, const struct axis *axis) {
    switch (filter->type) {
    case FILTER_OPENCV_CUBIC: return 4;
    case FILTER_OPENCV_LANCZOS4: return 8;
    case FILTER_OPENCV_AREA: return (int64_t)rint(opencv_ratio(axis));
    case FILTER_OPENCV_CUT: return (int64_t)ceil(opencv_ratio(axis)) + 2;
    case FILTER_TORCH_BILINEAR:
    case FILTER_TORCH_BICUBIC: return axis->length == axis->out_length ? 1 : (int64_t)ceilf(torch_support(filter, axis)) * 2 + 1;
    case FILTER_DALI_BILINEAR:
    case FILTER_DALI_BICUBIC:
    case FILTER_DALI_LANCZOS: return dali_axis(filter, axis).count;
    case FILTER_TENSORFLOW_TRIANGLE: return 2 * (int64_t)ceilf(larger(tensorflow_ratio(axis), 1)) + 2;
    default: return 2;
    }
}

void compute_library_coefficients(const struct resize_filter *filter, const struct axis *axis, struct coefficients *made) {
    made->bits = IDENTITY_BITS;
    switch (filter->type) {
    case FILTER_OPENCV_AREA: opencv_area(axis, made); break;
    case FILTER_OPENCV_CUT: opencv_cut(axis, made); break;
    case FILTER_TORCH_BILINEAR:
    case FILTER_TORCH_BICUBIC: torch(filter, axis, made); break;
    case FILTER_DALI_BILINEAR:
    case FILTER_DALI_BICUBIC:
    case FILTER_DALI_LANCZOS: dali(filter, axis, made); break;
    case FILTER_TENSORFLOW_LINEAR: tensorflow_linear(axis, made); break;
    case FILTER_TENSORFLOW_TRIANGLE: tensorflow_triangle(axis, made); break;
    default: opencv_whole(filter, axis, made);
    }
}
