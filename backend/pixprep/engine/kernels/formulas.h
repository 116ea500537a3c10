// Formulas of levels and of the positions of a warp, for the CPU and for CUDA, each once.
//
// In C a number is a vector of LANES pixels, and in CUDA one pixel's: of 32 bits `vint`, `vuint` and `vfloat`, of 64 bits
// `vdouble`. Each product and sum is rounded by itself, but for `fma_v`: compile with -ffp-contract=off, or --fmad=false.
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
#define TO_INT(x) __builtin_convertvector(x, vint)  // cut off
#define TO_UINT(x) __builtin_convertvector(x, vuint)
#define TO_UINT64(x) __builtin_convertvector(x, vuint64)
#define TO_FLOAT(x) __builtin_convertvector(x, vfloat)
#define TO_DOUBLE(x) __builtin_convertvector(x, vdouble)
#define SPLAT(type, x) ((x) - (type){0})
// A condition has all bits of a number, or none.
#define SELECT(condition, one, other)                                                              \
    ({                                                                                             \
        __typeof__((one) + (other)) one_ = (one) - (__typeof__((one) + (other))){0};               \
        __typeof__(one_) other_ = (other) - (__typeof__(one_)){0};                                 \
        __typeof__(condition) if_ = (condition);                                                   \
        (__typeof__(one_))((if_ & (__typeof__(if_))one_) | (~if_ & (__typeof__(if_))other_));      \
    })
#define PER_LANE(type, function, ...)                                                                  \
    type made_;                                                                                    \
    for (int lane = 0; lane < LANES; ++lane) made_[lane] = function(__VA_ARGS__);                  \
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

// In the order of PaddingMode and of BlendLike in spec.py.
enum padding { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };
enum like { LIKE_PILLOW, LIKE_TORCHVISION, LIKE_OPENCV };

// The position in the image that replaces a position beyond an edge, by the padding mode; -1 for the fill.
INLINE int border_position(int padding, int position, int length) {
    if ((unsigned)position < (unsigned)length) return position;
    if (padding == PADDING_CONSTANT) return -1;
    if (padding == PADDING_EDGE || length == 1) return position < 0 ? 0 : length - 1;
    const int edge = padding == PADDING_SYMMETRIC, period = 2 * (length - 1 + edge);
    position %= period;
    if (position < 0) position += period;
    return position < length ? position : period - edge - position;
}

INLINE vfloat clip(vfloat value, float most) {
    value = SELECT(value > 0, value, 0.0f);
    return SELECT(value < most, value, most);
}

// The gray of a pixel, a level; torchvision's is floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))).
INLINE vint luma_of(vint red, vint green, vint blue, int like) {
    if (like == LIKE_PILLOW) return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16;
    if (like == LIKE_OPENCV) return (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15;
    vfloat gray = fma_v(TO_FLOAT(green), SPLAT(vfloat, 0.587f), TO_FLOAT(red) * 0.2989f);
    return TO_INT(fma_v(TO_FLOAT(blue), SPLAT(vfloat, 0.114f), gray));
}

// A level blended with gray; `rest` is float32(1 - factor).
INLINE vint blend_with_gray(vint level, vfloat gray, float factor, float rest, int like) {
    if (like == LIKE_PILLOW) return TO_INT(clip(gray + (TO_FLOAT(level) - gray) * factor, 255));
    if (like == LIKE_OPENCV) return TO_INT(clip(round_even(fma_v(TO_FLOAT(level), SPLAT(vfloat, factor), gray * rest)), 255));
    return TO_INT(clip(fma_v(gray, SPLAT(vfloat, rest), TO_FLOAT(level) * factor), 255));
}

// A channel as a sum of all: four numbers of a ``ColorMatrix``.
INLINE vint matrix_row(vint red, vint green, vint blue, const float *row) {
    vfloat value = TO_FLOAT(red) * row[0];
    value = value + TO_FLOAT(green) * row[1];
    value = value + TO_FLOAT(blue) * row[2];
    return TO_INT(clip(value + row[3], 255) + 0.5f);
}

#if !defined CHANNELS || CHANNELS == 3

// A colour by its levels in order, and by its corner of the circle of hues.
struct hue {
    vint top, middle, low;
    vint base;        // 0, 2, 4: red, green, blue is the top
    vint is_decreasing;  // the hue falls where the middle rises
};

INLINE struct hue hue_of(vint red, vint green, vint blue) {
    struct hue made;
    made.top = SELECT(red > green, red, green);
    made.top = SELECT(made.top > blue, made.top, blue);
    made.low = SELECT(red < green, red, green);
    made.low = SELECT(made.low < blue, made.low, blue);
    made.middle = red + green + blue - made.top - made.low;
    made.base = SELECT(red == made.top, 0, SELECT(green == made.top, SPLAT(vint, 2), 4));
    made.is_decreasing = SELECT(red == made.top, blue, SELECT(green == made.top, red, green)) == made.low;
    return made;
}

// The colour, as a word, in the sixth `sector` of the circle.
INLINE vuint rgb_of_sector(vint sector, vint top, vint low, vint other) {
    sector = SELECT(sector == 6, 0, sector);
    vint red = SELECT((sector == 0) | (sector == 5), top, SELECT((sector == 1) | (sector == 4), other, low));
    vint green = SELECT((sector == 1) | (sector == 2), top, SELECT((sector == 0) | (sector == 3), other, low));
    vint blue = SELECT((sector == 3) | (sector == 4), top, SELECT((sector == 2) | (sector == 5), other, low));
    return (vuint)(red | green << 8 | blue << 16);
}

INLINE vint channel_pillow(vint top, vint saturation, vint phi) {
    return TO_INT(TO_FLOAT(top * (65025 - saturation * phi)) * (float)(1.0 / 65025) + 0.5f);
}

// A pixel whose hue is turned, a word. Of (top - channel) / (top - low), which both libraries form of each channel, two are 0
// and 1; what is left is x.
//
// Pillow, in float32 but where float64 is said: h = ((base + 1 - x or base - 1 + x) / 6 + 1) mod 1 in float64; hue = int(h *
// 255) in float64, plus the turn, modulo 256; saturation = int((top - low) / top * 255), the product in float64. Back, in
// float64: y = hue * 6 / 255, sector = floor(y), f = y - sector, s = saturation / 255; p = top * (1 - s), q = top * (1 - s *
// f), t = top * (1 - s * (1 - f)), each rounded half up. Here all is whole or float32, and the same for every colour and hue:
// q is that of 65025 - saturation * phi 65025ths of top, with phi = hue * 6 mod 255; t has 255 - phi, p 255 in its place.
INLINE vuint shift_hue_pillow(vint red, vint green, vint blue, float turn) {
    struct hue c = hue_of(red, green, blue);
    vint span = c.top - c.low;
    vfloat x = TO_FLOAT(c.top - c.middle) / TO_FLOAT(SELECT(span > 0, span, 1));
    vfloat h = SELECT(c.is_decreasing, TO_FLOAT(c.base + 1) - x, TO_FLOAT(c.base - 1) + x) / 6.0f;
    vint hue = (TO_INT(SELECT(h < 0, h + 1.0f, h) * 255.0f) + (int)turn) & 255;
    vint saturation = TO_INT(TO_FLOAT(span) / TO_FLOAT(SELECT(c.top > 0, c.top, 1)) * 255.0f);
    vint sector = ((hue * 6 + 1) * 257) >> 16, phi = hue * 6 - sector * 255;
    phi = SELECT((sector & 1) == 1, phi, 255 - phi);
    return rgb_of_sector(sector, c.top, channel_pillow(c.top, saturation, SPLAT(vint, 255)), channel_pillow(c.top, saturation, phi));
}

INLINE vuint shift_hue_torchvision(vint red, vint green, vint blue, float turn) {
    const float unit = (float)(1.0 / 255);
    struct hue c = hue_of(red, green, blue);
    vfloat one = TO_FLOAT(SELECT(c.top > 0, c.top, 1)) * unit, top = TO_FLOAT(c.top) * unit, middle = TO_FLOAT(c.middle) * unit;
    vfloat span = top - TO_FLOAT(c.low) * unit;
    vfloat x = (top - middle) / SELECT(span > 0, span, one), s = span / one;
    vfloat h = SELECT(c.is_decreasing, TO_FLOAT(c.base + 1) - x, (x + TO_FLOAT(c.base)) - 1.0f);
    h = h * (float)(1.0 / 6) + 1.0f;
    h = SELECT(h < 1, h, h - 1.0f) + turn;
    h = SELECT(h < 1, SELECT(h < 0, h + 1.0f, h), h - 1.0f);
    vfloat y = h * 6.0f;
    vint sector = TO_INT(y);
    vfloat product = s * (y - TO_FLOAT(sector)), rest = SPLAT(vfloat, 1.0f) - s;
    vfloat share = SELECT((sector & 1) == 1, SPLAT(vfloat, 1.0f) - product, product + rest);
    return rgb_of_sector(sector, c.top, TO_INT(clip(rest * top, 1) * 255.999f), TO_INT(clip(share * top, 1) * 255.999f));
}

// OpenCV's HSV in integers: hue of 0 to 179, saturation, value. 1044480 is 255 times 4096, and 122880 180 / 6 times.
// A quotient of float32 is never so near to a half that its rounding differs from that of the exact one.
INLINE void hsv_opencv(vint red, vint green, vint blue, vint *hsv) {
    struct hue c = hue_of(red, green, blue);
    vint span = c.top - c.low;
    vfloat one_span = TO_FLOAT(SELECT(span > 0, span, 1)), one_top = TO_FLOAT(SELECT(c.top > 0, c.top, 1));
    vint turn = SELECT(c.base == 0, green - blue, SELECT(c.base == 2, blue - red + 2 * span, red - green + 4 * span));
    vint hue = (turn * TO_INT(round_even(122880.0f / one_span)) + 2048) >> 12;
    hsv[0] = SELECT(hue < 0, hue + 180, hue);
    hsv[1] = (span * TO_INT(round_even(1044480.0f / one_top)) + 2048) >> 12;
    hsv[2] = c.top;
}

// Back, a word. The last columns of a row, which fill no vector of 32, are rounded, and the others cut off.
INLINE vuint rgb_opencv(vint hue, vint saturation, vint value, vint is_last) {
    vfloat y = TO_FLOAT(hue) * (float)(6.0 / 180), s = TO_FLOAT(saturation) * (float)(1.0 / 255), v = TO_FLOAT(value) * (float)(1.0 / 255);
    vint sector = TO_INT(y);
    vfloat f = y - TO_FLOAT(sector), one = SPLAT(vfloat, 1.0f), part = SELECT((sector & 1) == 1, f, one - f);
    vfloat top = v * 255.0f, low = v * (one - s) * 255.0f, other = v * fma_v(-s, part, one) * 255.0f;
    top = SELECT(is_last, round_even(top), top);
    low = SELECT(is_last, round_even(low), low);
    other = SELECT(is_last, round_even(other), other);
    return rgb_of_sector(sector, TO_INT(top), TO_INT(low), TO_INT(other));
}

#endif

// The position that Pillow's warps look at, in float64: x and y.
INLINE void source_pillow(const double *m, int is_perspective, vdouble x, vdouble y, vdouble *position) {
    vdouble below = is_perspective ? x * m[6] + y * m[7] + 1.0 : SPLAT(vdouble, 1.0);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        position[axis] = x * m[0] + y * m[1] + m[2];
        if (is_perspective) position[axis] = position[axis] / below;
    }
}

// Its bilinear interpolation of four pixel values: two of the upper row, two of the lower one.
INLINE vint bilinear_pillow(vint a, vint b, vint c, vint d, vdouble dx, vdouble dy) {
    vdouble upper = TO_DOUBLE(a) + TO_DOUBLE(b - a) * dx, lower = TO_DOUBLE(c) + TO_DOUBLE(d - c) * dx;
    return TO_INT(upper + (lower - upper) * dy);
}

// Its cubic interpolation between b and c, from four neighbors in a row.
INLINE vdouble cubic_pillow(vdouble a, vdouble b, vdouble c, vdouble d, vdouble t) {
    vdouble slope = c - a, bend = (a - b) * 2.0 + c - d, twist = b - a - c + d;
    return b + t * (slope + t * (bend + t * twist));
}

// The position that torchvision's warps look at, in float32: -1 to 1 in the image; of a perspective the quotient less 1.
INLINE void source_torchvision(const double *m, int is_perspective, vfloat x, vfloat y, vfloat *position) {
    vfloat below = is_perspective ? x * (float)m[6] + y * (float)m[7] + 1.0f : SPLAT(vfloat, 1.0f);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        position[axis] = x * (float)m[0] + y * (float)m[1] + (float)m[2];
        if (is_perspective) position[axis] = position[axis] / below - 1.0f;
    }
}

// It in pixels; `half` of the image's length. Further away than these bounds nothing lies, and integers suffice.
INLINE vfloat pixel_position(vfloat place, float half) {
    vfloat position = fma_v(place + 1.0f, SPLAT(vfloat, half), SPLAT(vfloat, -0.5f));
    position = SELECT(position > -3, position, -3.0f);
    return SELECT(position < 1e9f, position, 1e9f);
}

// Its sum of four.
INLINE vfloat weighted_sum(const vfloat *values, const vfloat *shares) {
    vfloat sum = fma_v(values[1], shares[1], values[0] * shares[0]);
    return fma_v(values[3], shares[3], fma_v(values[2], shares[2], sum));
}

// OpenCV's warps in integers. cvRound: half to even, and the lowest number where 32 bits do not hold it.
INLINE vint round_opencv(vdouble x) {
    vdouble rounded = (x + 6755399441055744.0) - 6755399441055744.0;
    return TO_INT(SELECT((rounded >= -2147483648.0) & (rounded <= 2147483647.0), rounded, -2147483648.0));
}

// What divides both places of a perspective, 0 on the horizon; and a place.
INLINE vdouble divide_depth(vdouble depth, double parts) { return SELECT(depth != 0, parts / depth, 0.0); }
INLINE vint round_position(vdouble place) {
    place = SELECT(place < 2147483647.0, place, 2147483647.0);
    return round_opencv(SELECT(place > -2147483648.0, place, -2147483648.0));
}

INLINE vint clip_int16(vint place) {
    place = SELECT(place > -32768, place, -32768);
    return SELECT(place < 32767, place, 32767);
}

// Philox4x32-10: a counter becomes random.
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
