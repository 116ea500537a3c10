// Formulas of color operations and warps, shared by the C kernels and the CUDA kernels.
//
// In C, the types `vint`, `vuint` and `vfloat` (32 bits) and `vdouble` (64 bits) are vectors with one lane for each of LANES
// pixels. In CUDA, they are scalars for a single pixel. Except in `fma_v`, each product and sum is rounded separately, so this
// file must be compiled with -ffp-contract=off (C) or --fmad=false (CUDA).
#ifndef FORMULAS
#define FORMULAS

#ifdef __cplusplus  // CUDA

#define INLINE __device__ static inline
typedef int vint;
typedef unsigned vuint;
typedef float vfloat;
typedef double vdouble;
typedef unsigned long long vuint64;
#define TO_INT(x) ((int)(x))
#define TO_UINT(x) ((unsigned)(x))
#define TO_UINT64(x) ((unsigned long long)(x))
#define TO_FLOAT(x) ((float)(x))
#define TO_DOUBLE(x) ((double)(x))
#define SPLAT(type, x) ((type)(x))
#define SELECT(condition, one, other) ((condition) ? (one) : (other))
INLINE float fma_v(float a, float b, float c) { return fmaf(a, b, c); }
INLINE float round_even(float x) { return rintf(x); }

#else

#include <math.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
typedef int32_t vint __attribute__((vector_size(4 * LANES)));
typedef uint32_t vuint __attribute__((vector_size(4 * LANES)));
typedef float vfloat __attribute__((vector_size(4 * LANES)));
typedef double vdouble __attribute__((vector_size(8 * LANES)));
typedef uint64_t vuint64 __attribute__((vector_size(8 * LANES)));
typedef int64_t vint64 __attribute__((vector_size(8 * LANES)));
#define TO_INT(x) __builtin_convertvector(x, vint)  // truncates
#define TO_UINT(x) __builtin_convertvector(x, vuint)
#define TO_UINT64(x) __builtin_convertvector(x, vuint64)
#define TO_FLOAT(x) __builtin_convertvector(x, vfloat)
#define TO_DOUBLE(x) __builtin_convertvector(x, vdouble)
#define SPLAT(type, x) ((x) - (type){0})
// In each lane of a vector condition, either all bits are set or none.
#define SELECT(condition, one, other)                                                                                          \
    ({                                                                                                                         \
        __typeof__((one) + (other)) one_ = (one) - (__typeof__((one) + (other))){0};                                           \
        __typeof__(one_) other_ = (other) - (__typeof__(one_)){0};                                                             \
        __typeof__(condition) if_ = (condition);                                                                               \
        (__typeof__(one_))((if_ & (__typeof__(if_))one_) | (~if_ & (__typeof__(if_))other_));                                  \
    })
#define PER_LANE(type, function, ...)                                                                                          \
    type made_;                                                                                                                \
    for (int lane = 0; lane < LANES; ++lane) made_[lane] = function(__VA_ARGS__);                                              \
    return made_

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_elementwise_fma)
INLINE vfloat fma_v(vfloat a, vfloat b, vfloat c) { return __builtin_elementwise_fma(a, b, c); }
INLINE vfloat floor_vfloat(vfloat x) { return __builtin_elementwise_floor(x); }
INLINE vdouble floor_vdouble(vdouble x) { return __builtin_elementwise_floor(x); }
INLINE vfloat round_even(vfloat x) { return __builtin_elementwise_rint(x); }
#else  // GCC
INLINE vfloat fma_v(vfloat a, vfloat b, vfloat c) { PER_LANE(vfloat, fmaf, a[lane], b[lane], c[lane]); }
INLINE vfloat floor_vfloat(vfloat x) { PER_LANE(vfloat, floorf, x[lane]); }
INLINE vdouble floor_vdouble(vdouble x) { PER_LANE(vdouble, floor, x[lane]); }
INLINE vfloat round_even(vfloat x) { PER_LANE(vfloat, rintf, x[lane]); }
#endif
#define round_down(x) _Generic((x), vfloat: floor_vfloat, vdouble: floor_vdouble)(x)

#endif

// In the order of PaddingMode and BlendLike in spec.py.
enum padding { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };
enum like { LIKE_PILLOW, LIKE_TORCHVISION, LIKE_OPENCV };

// Return the position inside of the image whose pixel a padding mode repeats at `position`; -1 for PADDING_CONSTANT, which uses
// the fill color.
INLINE int border_position(int padding, int position, int length) {
    if ((unsigned)position < (unsigned)length) return position;
    if (padding == PADDING_CONSTANT) return -1;
    if (padding == PADDING_EDGE || length == 1) return position < 0 ? 0 : length - 1;
    const int edge = padding == PADDING_SYMMETRIC, period = 2 * (length - 1 + edge);
    position %= period;
    if (position < 0) position += period;
    return position < length ? position : period - edge - position;
}

INLINE vfloat clip(vfloat value, float max_value) {
    value = SELECT(value > 0, value, 0.0f);
    return SELECT(value < max_value, value, max_value);
}

// Return the luma of pixels, 0 to 255. torchvision's is floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))).
INLINE vint luma_of(vint red, vint green, vint blue, int like) {
    if (like == LIKE_PILLOW) return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16;
    if (like == LIKE_OPENCV) return (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15;
    vfloat gray = fma_v(TO_FLOAT(green), SPLAT(vfloat, 0.587f), TO_FLOAT(red) * 0.2989f);
    return TO_INT(fma_v(TO_FLOAT(blue), SPLAT(vfloat, 0.114f), gray));
}

// Blend a pixel value with gray. `one_minus_factor` is float32(1 - factor).
INLINE vint blend_with_gray(vint value, vfloat gray, float factor, float one_minus_factor, int like) {
    if (like == LIKE_PILLOW) return TO_INT(clip(gray + (TO_FLOAT(value) - gray) * factor, 255));
    if (like == LIKE_OPENCV)
        return TO_INT(clip(round_even(fma_v(TO_FLOAT(value), SPLAT(vfloat, factor), gray * one_minus_factor)), 255));
    return TO_INT(clip(fma_v(gray, SPLAT(vfloat, one_minus_factor), TO_FLOAT(value) * factor), 255));
}

// Compute one channel as a weighted sum of all channels. `row` contains three weights and an offset of a `ColorMatrix`.
INLINE vint matrix_row(vint red, vint green, vint blue, const float *row) {
    vfloat value = TO_FLOAT(red) * row[0];
    value = value + TO_FLOAT(green) * row[1];
    value = value + TO_FLOAT(blue) * row[2];
    return TO_INT(clip(value + row[3], 255) + 0.5f);
}

#if !defined CHANNELS || CHANNELS == 3

// The sorted channels of a color, and its position on the color wheel.
struct hue {
    vint maximum, median, minimum;
    vint base;           // 0, 2 or 4 if red, green or blue is the maximum
    vint is_decreasing;  // whether the hue decreases when the median channel increases
};

INLINE struct hue hue_of(vint red, vint green, vint blue) {
    struct hue result;
    result.maximum = SELECT(red > green, red, green);
    result.maximum = SELECT(result.maximum > blue, result.maximum, blue);
    result.minimum = SELECT(red < green, red, green);
    result.minimum = SELECT(result.minimum < blue, result.minimum, blue);
    result.median = red + green + blue - result.maximum - result.minimum;
    result.base = SELECT(red == result.maximum, 0, SELECT(green == result.maximum, SPLAT(vint, 2), 4));
    result.is_decreasing = SELECT(red == result.maximum, blue, SELECT(green == result.maximum, red, green)) == result.minimum;
    return result;
}

// Return the color of a sector of the color wheel, 0 to 6, from its sorted channels. Its bytes are red, green and blue.
INLINE vuint rgb_of_sector(vint sector, vint maximum, vint minimum, vint median) {
    sector = SELECT(sector == 6, 0, sector);
    vint red = SELECT((sector == 0) | (sector == 5), maximum, SELECT((sector == 1) | (sector == 4), median, minimum));
    vint green = SELECT((sector == 1) | (sector == 2), maximum, SELECT((sector == 0) | (sector == 3), median, minimum));
    vint blue = SELECT((sector == 3) | (sector == 4), maximum, SELECT((sector == 2) | (sector == 5), median, minimum));
    return (vuint)(red | green << 8 | blue << 16);
}

INLINE vint channel_pillow(vint maximum, vint saturation, vint phi) {
    return TO_INT(TO_FLOAT(maximum * (65025 - saturation * phi)) * (float)(1.0 / 65025) + 0.5f);
}

// Rotate the hue of pixels. The result has the bytes red, green and blue. Both libraries compute (maximum - channel) / chroma for
// each channel. It is 0 for the maximum and 1 for the minimum, so only the value of the median, x, is computed here.
//
// Pillow computes in float64: h = ((base + 1 - x or base - 1 + x) / 6 + 1) mod 1, with x in float32; hue = int(h * 255) + shift,
// modulo 256; saturation = int(chroma / maximum * 255), with the quotient in float32. It then converts back, in float64:
// y = hue * 6 / 255, sector = floor(y), f = y - sector, s = saturation / 255. The other channels are p = maximum * (1 - s) and
// q = maximum * (1 - s * f) or t = maximum * (1 - s * (1 - f)), rounded half up.
//
// This function uses integers and float32, with the same result for every color and shift: q is maximum * (65025 - saturation *
// phi) / 65025, where phi = hue * 6 mod 255. In place of phi, t has 255 - phi, and p has 255.
INLINE vuint shift_hue_pillow(vint red, vint green, vint blue, float shift) {
    struct hue c = hue_of(red, green, blue);
    vint chroma = c.maximum - c.minimum;
    vfloat x = TO_FLOAT(c.maximum - c.median) / TO_FLOAT(SELECT(chroma > 0, chroma, 1));
    vfloat h = SELECT(c.is_decreasing, TO_FLOAT(c.base + 1) - x, TO_FLOAT(c.base - 1) + x) / 6.0f;
    vint hue = (TO_INT(SELECT(h < 0, h + 1.0f, h) * 255.0f) + (int)shift) & 255;
    vint saturation = TO_INT(TO_FLOAT(chroma) / TO_FLOAT(SELECT(c.maximum > 0, c.maximum, 1)) * 255.0f);
    vint sector = ((hue * 6 + 1) * 257) >> 16, phi = hue * 6 - sector * 255;
    phi = SELECT((sector & 1) == 1, phi, 255 - phi);
    return rgb_of_sector(sector, c.maximum, channel_pillow(c.maximum, saturation, SPLAT(vint, 255)),
                         channel_pillow(c.maximum, saturation, phi));
}

INLINE vuint shift_hue_torchvision(vint red, vint green, vint blue, float shift) {
    const float unit = (float)(1.0 / 255);
    struct hue c = hue_of(red, green, blue);
    vfloat one = TO_FLOAT(SELECT(c.maximum > 0, c.maximum, 1)) * unit, maximum = TO_FLOAT(c.maximum) * unit,
           median = TO_FLOAT(c.median) * unit;
    vfloat chroma = maximum - TO_FLOAT(c.minimum) * unit;
    vfloat x = (maximum - median) / SELECT(chroma > 0, chroma, one), s = chroma / one;
    vfloat h = SELECT(c.is_decreasing, TO_FLOAT(c.base + 1) - x, (x + TO_FLOAT(c.base)) - 1.0f);
    h = h * (float)(1.0 / 6) + 1.0f;
    h = SELECT(h < 1, h, h - 1.0f) + shift;
    h = SELECT(h < 1, SELECT(h < 0, h + 1.0f, h), h - 1.0f);
    vfloat y = h * 6.0f;
    vint sector = TO_INT(y);
    vfloat product = s * (y - TO_FLOAT(sector)), one_minus_s = SPLAT(vfloat, 1.0f) - s;
    vfloat factor = SELECT((sector & 1) == 1, SPLAT(vfloat, 1.0f) - product, product + one_minus_s);
    return rgb_of_sector(sector, c.maximum, TO_INT(clip(one_minus_s * maximum, 1) * 255.999f),
                         TO_INT(clip(factor * maximum, 1) * 255.999f));
}

// Convert RGB to OpenCV's HSV, with a hue of 0 to 179, in fixed point with 12 fractional bits: 1044480 is 255 * 4096, and 122880
// is 180 / 6 * 4096. No quotient is so close to a tie that float32 and the exact quotient are rounded differently.
INLINE void hsv_opencv(vint red, vint green, vint blue, vint *hsv) {
    struct hue c = hue_of(red, green, blue);
    vint chroma = c.maximum - c.minimum;
    vfloat divisor_chroma = TO_FLOAT(SELECT(chroma > 0, chroma, 1)),
           divisor_maximum = TO_FLOAT(SELECT(c.maximum > 0, c.maximum, 1));
    vint scaled_hue = SELECT(c.base == 0, green - blue, SELECT(c.base == 2, blue - red + 2 * chroma, red - green + 4 * chroma));
    vint hue = (scaled_hue * TO_INT(round_even(122880.0f / divisor_chroma)) + 2048) >> 12;
    hsv[0] = SELECT(hue < 0, hue + 180, hue);
    hsv[1] = (chroma * TO_INT(round_even(1044480.0f / divisor_maximum)) + 2048) >> 12;
    hsv[2] = c.maximum;
}

// Convert OpenCV's HSV to RGB, with the bytes red, green and blue. OpenCV processes a row in vectors of 32 columns, and truncates
// their values. It rounds the values of the remaining columns (`is_last`).
INLINE vuint rgb_opencv(vint hue, vint saturation, vint value, vint is_last) {
    vfloat y = TO_FLOAT(hue) * (float)(6.0 / 180), s = TO_FLOAT(saturation) * (float)(1.0 / 255),
           v = TO_FLOAT(value) * (float)(1.0 / 255);
    vint sector = TO_INT(y);
    vfloat f = y - TO_FLOAT(sector), one = SPLAT(vfloat, 1.0f), fraction = SELECT((sector & 1) == 1, f, one - f);
    vfloat maximum = v * 255.0f, minimum = v * (one - s) * 255.0f, median = v * fma_v(-s, fraction, one) * 255.0f;
    maximum = SELECT(is_last, round_even(maximum), maximum);
    minimum = SELECT(is_last, round_even(minimum), minimum);
    median = SELECT(is_last, round_even(median), median);
    return rgb_of_sector(sector, TO_INT(maximum), TO_INT(minimum), TO_INT(median));
}

#endif

// Map an output position to the input position, (x, y), as Pillow does, in float64.
INLINE void source_pillow(const double *m, int is_perspective, vdouble x, vdouble y, vdouble *position) {
    vdouble denominator = is_perspective ? x * m[6] + y * m[7] + 1.0 : SPLAT(vdouble, 1.0);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        position[axis] = x * m[0] + y * m[1] + m[2];
        if (is_perspective) position[axis] = position[axis] / denominator;
    }
}

// Pillow's bilinear interpolation of two pixel values of the upper row and two of the lower one.
INLINE vint bilinear_pillow(vint a, vint b, vint c, vint d, vdouble dx, vdouble dy) {
    vdouble upper = TO_DOUBLE(a) + TO_DOUBLE(b - a) * dx, lower = TO_DOUBLE(c) + TO_DOUBLE(d - c) * dx;
    return TO_INT(upper + (lower - upper) * dy);
}

// Pillow's cubic interpolation between b and c, the middle ones of four neighbors in a row.
INLINE vdouble cubic_pillow(vdouble a, vdouble b, vdouble c, vdouble d, vdouble t) {
    vdouble slope = c - a, bend = (a - b) * 2.0 + c - d, twist = b - a - c + d;
    return b + t * (slope + t * (bend + t * twist));
}

// Map an output position to the input position, (x, y), as torchvision does, in float32. Input positions inside of the image are
// -1 to 1. For a homography, 1 is subtracted from the quotient.
INLINE void source_torchvision(const double *m, int is_perspective, vfloat x, vfloat y, vfloat *position) {
    vfloat denominator = is_perspective ? x * (float)m[6] + y * (float)m[7] + 1.0f : SPLAT(vfloat, 1.0f);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        position[axis] = x * (float)m[0] + y * (float)m[1] + (float)m[2];
        if (is_perspective) position[axis] = position[axis] / denominator - 1.0f;
    }
}

// Convert torchvision's coordinate of -1 to 1 to a position in pixels. It is clamped to a range outside of which all positions
// have the same result, so that it can be converted to an integer.
INLINE vfloat pixel_position(vfloat coordinate, float half_length) {
    vfloat position = fma_v(coordinate + 1.0f, SPLAT(vfloat, half_length), SPLAT(vfloat, -0.5f));
    position = SELECT(position > -3, position, -3.0f);
    return SELECT(position < 1e9f, position, 1e9f);
}

// torchvision's weighted sum of four pixels.
INLINE vfloat weighted_sum(const vfloat *values, const vfloat *weights) {
    vfloat sum = fma_v(values[1], weights[1], values[0] * weights[0]);
    return fma_v(values[3], weights[3], fma_v(values[2], weights[2], sum));
}

// OpenCV's cvRound: round ties to even. The result is the lowest integer if 32 bits are not enough.
INLINE vint round_opencv(vdouble x) {
    vdouble rounded = (x + 6755399441055744.0) - 6755399441055744.0;
    return TO_INT(SELECT((rounded >= -2147483648.0) & (rounded <= 2147483647.0), rounded, -2147483648.0));
}

// Return the factor by which OpenCV multiplies both coordinates of a homography: `scale / depth`, or 0 on the horizon.
INLINE vdouble inverse_depth(vdouble depth, double scale) { return SELECT(depth != 0, scale / depth, 0.0); }
// Round a coordinate of a homography, saturating.
INLINE vint round_position(vdouble position) {
    position = SELECT(position < 2147483647.0, position, 2147483647.0);
    return round_opencv(SELECT(position > -2147483648.0, position, -2147483648.0));
}

INLINE vint clip_int16(vint position) {
    position = SELECT(position > -32768, position, -32768);
    return SELECT(position < 32767, position, 32767);
}

enum { RESTART_INTERVAL = 256 };  // columns after which DALI's summation of positions restarts

// Clamp a position of DALI's warp to the range from two pixels before the image to two pixels after it. All positions
// outside of this range yield the same result as its ends.
INLINE float clamp_dali(float position, int length) {
    const float last = (float)length + 2.0f;
    return position > -2.0f ? position < last ? position : last : -2.0f;
}

// Interpolate bilinearly as DALI does, between a and b in the upper row and c and d in the lower row. The result is
// rounded half up.
INLINE int bilinear_dali(int a, int b, int c, int d, float dx, float dy) {
    float upper = (float)a * (1.0f - dx) + (float)b * dx, lower = (float)c * (1.0f - dx) + (float)d * dx;
    const float value = upper + (lower - upper) * dy;
    return (int)value + (value - (float)(int)value >= 0.5f);
}

// Map an output position to the input position, (x, y), as SciPy does, in float64.
INLINE void source_scipy(const double *m, vdouble x, vdouble y, vdouble *position) {
    for (int axis = 0; axis < 2; ++axis, m += 3) position[axis] = (y * m[1] + m[2]) + x * m[0];
}

// SciPy's interpolation of order 1 between a and b in the upper row and c and d in the lower row, rounded half up.
INLINE vint bilinear_scipy(vint a, vint b, vint c, vint d, vdouble dx, vdouble dy) {
    vdouble left = 1.0 - dx, right = 1.0 - left, upper = 1.0 - dy, lower = 1.0 - upper;
    vdouble sum = TO_DOUBLE(a) * upper * left + TO_DOUBLE(b) * upper * right;
    return TO_INT(sum + TO_DOUBLE(c) * lower * left + TO_DOUBLE(d) * lower * right + 0.5);
}

// Replace a counter of four words by the output of Philox4x32-10.
INLINE void philox(vuint *counter, unsigned first_key, unsigned second_key) {
#ifdef __cplusplus
#pragma unroll 1
#endif
    for (int round = 0; round < 10; ++round, first_key += 0x9E3779B9u, second_key += 0xBB67AE85u) {
        vuint64 a = TO_UINT64(counter[0]) * 0xD2511F53u, b = TO_UINT64(counter[2]) * 0xCD9E8D57u;
        counter[0] = TO_UINT(b >> 32) ^ counter[1] ^ first_key;
        counter[1] = TO_UINT(b);
        counter[2] = TO_UINT(a >> 32) ^ counter[3] ^ second_key;
        counter[3] = TO_UINT(a);
    }
}

#endif
