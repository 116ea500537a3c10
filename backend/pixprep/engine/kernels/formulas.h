// Formulas of levels and of the positions of a warp, for the CPU and for CUDA, each once.
//
// In C a number is a vector of LANES pixels, and in CUDA one pixel's: of 32 bits `whole`, `word` and `real`, of 64 bits
// `wide`. Each product and sum is rounded by itself, but for `fused`: compile with -ffp-contract=off, or --fmad=false.
#ifndef FORMULAS
#define FORMULAS

#ifdef __cplusplus  // CUDA

#define SHARED __device__ static inline
typedef int whole;
typedef unsigned word;
typedef float real;
typedef double wide;
typedef unsigned long long long_word;
#define WHOLE(x) ((int)(x))
#define WORD(x) ((unsigned)(x))
#define LONG(x) ((unsigned long long)(x))
#define REAL(x) ((float)(x))
#define WIDE(x) ((double)(x))
#define ALL(type, x) ((type)(x))
#define CHOOSE(condition, one, other) ((condition) ? (one) : (other))
SHARED float fused(float a, float b, float c) { return fmaf(a, b, c); }
SHARED float rounded_even(float x) { return rintf(x); }

#else

#include <math.h>
#include <stdint.h>

#define SHARED static inline __attribute__((always_inline))
typedef int32_t whole __attribute__((vector_size(4 * LANES)));
typedef uint32_t word __attribute__((vector_size(4 * LANES)));
typedef float real __attribute__((vector_size(4 * LANES)));
typedef double wide __attribute__((vector_size(8 * LANES)));
typedef uint64_t long_word __attribute__((vector_size(8 * LANES)));
typedef int64_t wide_whole __attribute__((vector_size(8 * LANES)));
#define WHOLE(x) __builtin_convertvector(x, whole)  // cut off
#define WORD(x) __builtin_convertvector(x, word)
#define LONG(x) __builtin_convertvector(x, long_word)
#define REAL(x) __builtin_convertvector(x, real)
#define WIDE(x) __builtin_convertvector(x, wide)
#define ALL(type, x) ((x) - (type){0})
// A condition has all bits of a number, or none.
#define CHOOSE(condition, one, other)                                                              \
    ({                                                                                             \
        __typeof__((one) + (other)) one_ = (one) - (__typeof__((one) + (other))){0};               \
        __typeof__(one_) other_ = (other) - (__typeof__(one_)){0};                                 \
        __typeof__(condition) if_ = (condition);                                                   \
        (__typeof__(one_))((if_ & (__typeof__(if_))one_) | (~if_ & (__typeof__(if_))other_));      \
    })
#define EACH(type, function, ...)                                                                  \
    type made_;                                                                                    \
    for (int lane = 0; lane < LANES; ++lane) made_[lane] = function(__VA_ARGS__);                  \
    return made_

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_elementwise_fma)
SHARED real fused(real a, real b, real c) { return __builtin_elementwise_fma(a, b, c); }
SHARED real real_floor(real x) { return __builtin_elementwise_floor(x); }
SHARED wide wide_floor(wide x) { return __builtin_elementwise_floor(x); }
SHARED real rounded_even(real x) { return __builtin_elementwise_rint(x); }
#else  // GCC
SHARED real fused(real a, real b, real c) { EACH(real, fmaf, a[lane], b[lane], c[lane]); }
SHARED real real_floor(real x) { EACH(real, floorf, x[lane]); }
SHARED wide wide_floor(wide x) { EACH(wide, floor, x[lane]); }
SHARED real rounded_even(real x) { EACH(real, rintf, x[lane]); }
#endif
#define rounded_down(x) _Generic((x), real: real_floor, wide: wide_floor)(x)
#define ALWAYS SHARED

#endif

// In the order of PaddingMode and of BlendLike in spec.py.
enum padding { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };
enum like { LIKE_PILLOW, LIKE_TORCHVISION, LIKE_OPENCV };

// The position in the image that replaces a position beyond an edge, by the padding mode; -1 for the fill.
SHARED int beyond(int padding, int position, int length) {
    if ((unsigned)position < (unsigned)length) return position;
    if (padding == PADDING_CONSTANT) return -1;
    if (padding == PADDING_EDGE || length == 1) return position < 0 ? 0 : length - 1;
    const int edge = padding == PADDING_SYMMETRIC, period = 2 * (length - 1 + edge);
    position %= period;
    if (position < 0) position += period;
    return position < length ? position : period - edge - position;
}

SHARED real clipped(real value, float most) {
    value = CHOOSE(value > 0, value, 0.0f);
    return CHOOSE(value < most, value, most);
}

// The gray of a pixel, a level; torchvision's is floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))).
SHARED whole luma_of(whole red, whole green, whole blue, int like) {
    if (like == LIKE_PILLOW) return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16;
    if (like == LIKE_OPENCV) return (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15;
    real gray = fused(REAL(green), ALL(real, 0.587f), REAL(red) * 0.2989f);
    return WHOLE(fused(REAL(blue), ALL(real, 0.114f), gray));
}

// A level blended with gray; `rest` is float32(1 - factor).
SHARED whole with_gray(whole level, real gray, float factor, float rest, int like) {
    if (like == LIKE_PILLOW) return WHOLE(clipped(gray + (REAL(level) - gray) * factor, 255));
    if (like == LIKE_OPENCV) return WHOLE(clipped(rounded_even(fused(REAL(level), ALL(real, factor), gray * rest)), 255));
    return WHOLE(clipped(fused(gray, ALL(real, rest), REAL(level) * factor), 255));
}

// A channel as a sum of all: four numbers of a ``ColorMatrix``.
SHARED whole mixed(whole red, whole green, whole blue, const float *row) {
    real value = REAL(red) * row[0];
    value = value + REAL(green) * row[1];
    value = value + REAL(blue) * row[2];
    return WHOLE(clipped(value + row[3], 255) + 0.5f);
}

#if !defined CHANNELS || CHANNELS == 3

// A colour by its levels in order, and by its corner of the circle of hues.
struct hue {
    whole top, middle, low;
    whole base;        // 0, 2, 4: red, green, blue is the top
    whole is_falling;  // the hue falls where the middle rises
};

SHARED struct hue hue_of(whole red, whole green, whole blue) {
    struct hue made;
    made.top = CHOOSE(red > green, red, green);
    made.top = CHOOSE(made.top > blue, made.top, blue);
    made.low = CHOOSE(red < green, red, green);
    made.low = CHOOSE(made.low < blue, made.low, blue);
    made.middle = red + green + blue - made.top - made.low;
    made.base = CHOOSE(red == made.top, 0, CHOOSE(green == made.top, ALL(whole, 2), 4));
    made.is_falling = CHOOSE(red == made.top, blue, CHOOSE(green == made.top, red, green)) == made.low;
    return made;
}

// The colour, as a word, in the sixth `sector` of the circle.
SHARED word by_sector(whole sector, whole top, whole low, whole other) {
    sector = CHOOSE(sector == 6, 0, sector);
    whole red = CHOOSE((sector == 0) | (sector == 5), top, CHOOSE((sector == 1) | (sector == 4), other, low));
    whole green = CHOOSE((sector == 1) | (sector == 2), top, CHOOSE((sector == 0) | (sector == 3), other, low));
    whole blue = CHOOSE((sector == 3) | (sector == 4), top, CHOOSE((sector == 2) | (sector == 5), other, low));
    return (word)(red | green << 8 | blue << 16);
}

SHARED whole part_pillow(whole top, whole saturation, whole phi) {
    return WHOLE(REAL(top * (65025 - saturation * phi)) * (float)(1.0 / 65025) + 0.5f);
}

// A pixel whose hue is turned, a word. Of (top - channel) / (top - low), which both libraries form of each channel, two are 0
// and 1; what is left is x.
//
// Pillow, in float32 but where float64 is said: h = ((base + 1 - x or base - 1 + x) / 6 + 1) mod 1 in float64; hue = int(h *
// 255) in float64, plus the turn, modulo 256; saturation = int((top - low) / top * 255), the product in float64. Back, in
// float64: y = hue * 6 / 255, sector = floor(y), f = y - sector, s = saturation / 255; p = top * (1 - s), q = top * (1 - s *
// f), t = top * (1 - s * (1 - f)), each rounded half up. Here all is whole or float32, and the same for every colour and hue:
// q is that of 65025 - saturation * phi 65025ths of top, with phi = hue * 6 mod 255; t has 255 - phi, p 255 in its place.
SHARED word turned_pillow(whole red, whole green, whole blue, float turn) {
    struct hue c = hue_of(red, green, blue);
    whole span = c.top - c.low;
    real x = REAL(c.top - c.middle) / REAL(CHOOSE(span > 0, span, 1));
    real h = CHOOSE(c.is_falling, REAL(c.base + 1) - x, REAL(c.base - 1) + x) / 6.0f;
    whole hue = (WHOLE(CHOOSE(h < 0, h + 1.0f, h) * 255.0f) + (int)turn) & 255;
    whole saturation = WHOLE(REAL(span) / REAL(CHOOSE(c.top > 0, c.top, 1)) * 255.0f);
    whole sector = ((hue * 6 + 1) * 257) >> 16, phi = hue * 6 - sector * 255;
    phi = CHOOSE((sector & 1) == 1, phi, 255 - phi);
    return by_sector(sector, c.top, part_pillow(c.top, saturation, ALL(whole, 255)), part_pillow(c.top, saturation, phi));
}

SHARED word turned_torchvision(whole red, whole green, whole blue, float turn) {
    const float unit = (float)(1.0 / 255);
    struct hue c = hue_of(red, green, blue);
    real one = REAL(CHOOSE(c.top > 0, c.top, 1)) * unit, top = REAL(c.top) * unit, middle = REAL(c.middle) * unit;
    real span = top - REAL(c.low) * unit;
    real x = (top - middle) / CHOOSE(span > 0, span, one), s = span / one;
    real h = CHOOSE(c.is_falling, REAL(c.base + 1) - x, (x + REAL(c.base)) - 1.0f);
    h = h * (float)(1.0 / 6) + 1.0f;
    h = CHOOSE(h < 1, h, h - 1.0f) + turn;
    h = CHOOSE(h < 1, CHOOSE(h < 0, h + 1.0f, h), h - 1.0f);
    real y = h * 6.0f;
    whole sector = WHOLE(y);
    real product = s * (y - REAL(sector)), rest = ALL(real, 1.0f) - s;
    real share = CHOOSE((sector & 1) == 1, ALL(real, 1.0f) - product, product + rest);
    return by_sector(sector, c.top, WHOLE(clipped(rest * top, 1) * 255.999f), WHOLE(clipped(share * top, 1) * 255.999f));
}

// OpenCV's HSV in integers: hue of 0 to 179, saturation, value. 1044480 is 255 times 4096, and 122880 180 / 6 times.
// A quotient of float32 is never so near to a half that its rounding differs from that of the exact one.
SHARED void hsv_opencv(whole red, whole green, whole blue, whole *hsv) {
    struct hue c = hue_of(red, green, blue);
    whole span = c.top - c.low;
    real one_span = REAL(CHOOSE(span > 0, span, 1)), one_top = REAL(CHOOSE(c.top > 0, c.top, 1));
    whole turn = CHOOSE(c.base == 0, green - blue, CHOOSE(c.base == 2, blue - red + 2 * span, red - green + 4 * span));
    whole hue = (turn * WHOLE(rounded_even(122880.0f / one_span)) + 2048) >> 12;
    hsv[0] = CHOOSE(hue < 0, hue + 180, hue);
    hsv[1] = (span * WHOLE(rounded_even(1044480.0f / one_top)) + 2048) >> 12;
    hsv[2] = c.top;
}

// Back, a word. The last columns of a row, which fill no vector of 32, are rounded, and the others cut off.
SHARED word rgb_opencv(whole hue, whole saturation, whole value, whole is_last) {
    real y = REAL(hue) * (float)(6.0 / 180), s = REAL(saturation) * (float)(1.0 / 255), v = REAL(value) * (float)(1.0 / 255);
    whole sector = WHOLE(y);
    real f = y - REAL(sector), one = ALL(real, 1.0f), part = CHOOSE((sector & 1) == 1, f, one - f);
    real top = v * 255.0f, low = v * (one - s) * 255.0f, other = v * fused(-s, part, one) * 255.0f;
    top = CHOOSE(is_last, rounded_even(top), top);
    low = CHOOSE(is_last, rounded_even(low), low);
    other = CHOOSE(is_last, rounded_even(other), other);
    return by_sector(sector, WHOLE(top), WHOLE(low), WHOLE(other));
}

#endif

// The position that Pillow's warps look at, in float64: x and y.
SHARED void look_pillow(const double *m, int is_perspective, wide x, wide y, wide *found) {
    wide below = is_perspective ? x * m[6] + y * m[7] + 1.0 : ALL(wide, 1.0);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        found[axis] = x * m[0] + y * m[1] + m[2];
        if (is_perspective) found[axis] = found[axis] / below;
    }
}

// Its bilinear interpolation of four pixel values: two of the upper row, two of the lower one.
SHARED whole between(whole a, whole b, whole c, whole d, wide dx, wide dy) {
    wide upper = WIDE(a) + WIDE(b - a) * dx, lower = WIDE(c) + WIDE(d - c) * dx;
    return WHOLE(upper + (lower - upper) * dy);
}

// Its cubic interpolation between b and c, from four neighbors in a row.
SHARED wide cubic(wide a, wide b, wide c, wide d, wide t) {
    wide slope = c - a, bend = (a - b) * 2.0 + c - d, twist = b - a - c + d;
    return b + t * (slope + t * (bend + t * twist));
}

// The position that torchvision's warps look at, in float32: -1 to 1 in the image; of a perspective the quotient less 1.
SHARED void look_torchvision(const double *m, int is_perspective, real x, real y, real *found) {
    real below = is_perspective ? x * (float)m[6] + y * (float)m[7] + 1.0f : ALL(real, 1.0f);
    for (int axis = 0; axis < 2; ++axis, m += 3) {
        found[axis] = x * (float)m[0] + y * (float)m[1] + (float)m[2];
        if (is_perspective) found[axis] = found[axis] / below - 1.0f;
    }
}

// It in pixels; `half` of the image's length. Further away than these bounds nothing lies, and integers suffice.
SHARED real position_float(real place, float half) {
    real position = fused(place + 1.0f, ALL(real, half), ALL(real, -0.5f));
    position = CHOOSE(position > -3, position, -3.0f);
    return CHOOSE(position < 1e9f, position, 1e9f);
}

// Its sum of four.
SHARED real weighed(const real *values, const real *shares) {
    real sum = fused(values[1], shares[1], values[0] * shares[0]);
    return fused(values[3], shares[3], fused(values[2], shares[2], sum));
}

// OpenCV's warps in integers. cvRound: half to even, and the lowest number where 32 bits do not hold it.
SHARED whole nearest_whole(wide x) {
    wide rounded = (x + 6755399441055744.0) - 6755399441055744.0;
    return WHOLE(CHOOSE((rounded >= -2147483648.0) & (rounded <= 2147483647.0), rounded, -2147483648.0));
}

// What divides both places of a perspective, 0 on the horizon; and a place.
SHARED wide share_of(wide depth, double parts) { return CHOOSE(depth != 0, parts / depth, 0.0); }
SHARED whole projected(wide place) {
    place = CHOOSE(place < 2147483647.0, place, 2147483647.0);
    return nearest_whole(CHOOSE(place > -2147483648.0, place, -2147483648.0));
}

SHARED whole sixteen_bits(whole place) {
    place = CHOOSE(place > -32768, place, -32768);
    return CHOOSE(place < 32767, place, 32767);
}

// Philox4x32-10: a counter becomes random.
SHARED void philox(word *counter, unsigned first_key, unsigned second_key) {
#ifdef __cplusplus
#pragma unroll 1
#endif
    for (int round = 0; round < 10; ++round, first_key += 0x9E3779B9u, second_key += 0xBB67AE85u) {
        long_word a = LONG(counter[0]) * 0xD2511F53u, b = LONG(counter[2]) * 0xCD9E8D57u;
        counter[0] = WORD(b >> 32) ^ counter[1] ^ first_key;
        counter[1] = WORD(b);
        counter[2] = WORD(a >> 32) ^ counter[3] ^ second_key;
        counter[3] = WORD(a);
    }
}

#endif
