// Steps on colours, in place, on 16 words at a time; words behind the last of the image are changed, too.
#include "arguments.h"
#include "vectors.h"

enum step { FADE, BLEND, TURN, MIX };

INLINE void change(const struct colours *n, enum step step, int like) {
    const float factor = n->factor, rest = n->one_minus_factor, turn = n->hue_shift, gray_of_all = n->gray;
    for (int64_t i = 0; i < n->count; i += LANES) {
        vuint pixels;
        memcpy(&pixels, n->pixels + i, sizeof pixels);
        vint red = (vint)(pixels & 255), green = (vint)(pixels >> 8 & 255), blue = (vint)(pixels >> 16 & 255);
        if (step == TURN) {
            pixels = (like == LIKE_PILLOW ? shift_hue_pillow : shift_hue_torchvision)(red, green, blue, turn);
        } else if (step == MIX) {
            pixels = (vuint)(matrix_row(red, green, blue, n->matrix) | matrix_row(red, green, blue, n->matrix + 4) << 8 |
                            matrix_row(red, green, blue, n->matrix + 8) << 16);
        } else {
            vfloat gray = SPLAT(vfloat, gray_of_all);
            if (step == BLEND) gray = TO_FLOAT(luma_of(red, green, blue, like));
            pixels = (vuint)(blend_with_gray(red, gray, factor, rest, like) | blend_with_gray(green, gray, factor, rest, like) << 8 |
                            blend_with_gray(blue, gray, factor, rest, like) << 16);
        }
        memcpy(n->pixels + i, &pixels, sizeof pixels);
    }
}

// Words after the last pixel of the image are 0, and so is their luma.
INLINE int64_t sum(const struct colours *n, int like) {
    int64_t total = 0;
    for (int64_t begin = 0; begin < n->count; begin += 1 << 20) {  // so that a lane of 32 bits holds its sum
        int64_t end = begin + (1 << 20) < n->count ? begin + (1 << 20) : n->count;
        vint sums = {0};
        for (int64_t i = begin; i < end; i += LANES) {
            vuint pixels;
            memcpy(&pixels, n->pixels + i, sizeof pixels);
            vint red = (vint)(pixels & 255), green = (vint)(pixels >> 8 & 255), blue = (vint)(pixels >> 16 & 255);
            sums += luma_of(red, green, blue, like);
        }
        for (int lane = 0; lane < LANES; ++lane) total += sums[lane];
    }
    return total;
}

#define BY_LIKE(n, function, ...)                                         \
    ((n)->like == LIKE_PILLOW   ? function(n, ##__VA_ARGS__, LIKE_PILLOW)           \
     : (n)->like == LIKE_OPENCV ? function(n, ##__VA_ARGS__, LIKE_OPENCV)           \
                           : function(n, ##__VA_ARGS__, LIKE_TORCHVISION))

KERNEL void fade(const struct colours *n) { n->like == LIKE_PILLOW ? change(n, FADE, LIKE_PILLOW) : change(n, FADE, LIKE_TORCHVISION); }
KERNEL void blend(const struct colours *n) { BY_LIKE(n, change, BLEND); }
KERNEL void turn(const struct colours *n) { n->like == LIKE_PILLOW ? change(n, TURN, LIKE_PILLOW) : change(n, TURN, LIKE_TORCHVISION); }
KERNEL void mix(const struct colours *n) { change(n, MIX, LIKE_PILLOW); }
KERNEL void add_luma(struct colours *n) { n->luma_sum = BY_LIKE(n, sum); }

// OpenCV's hue, saturation and value, shifted.
KERNEL void shift(const struct colours *n) {
    const int64_t first = n->width - n->width % 32;  // of the columns that are rounded
    int64_t column = 0;
    for (int64_t i = 0; i < n->count; i += LANES) {
        vuint pixels;
        memcpy(&pixels, n->pixels + i, sizeof pixels);
        vint hsv[3], is_last = {0};
        hsv_opencv((vint)(pixels & 255), (vint)(pixels >> 8 & 255), (vint)(pixels >> 16 & 255), hsv);
        for (int lane = 0; lane < LANES; ++lane) {
            is_last[lane] = -(column >= first);
            hsv[0][lane] = n->tables[hsv[0][lane]];
            if (++column == n->width) column = 0;
        }
        vint saturation = clip_uint8(hsv[1] + n->saturation);
        pixels = rgb_opencv(hsv[0], SELECT(hsv[1] > 0, saturation, 0), clip_uint8(hsv[2] + n->value), is_last);
        memcpy(n->pixels + i, &pixels, sizeof pixels);
    }
}
