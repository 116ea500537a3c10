// Color operations, in place, on 16 pixels at a time. Up to 15 words after the last pixel of the image are also changed.
#include "arguments.h"
#include "vectors.h"

enum color_operation { FADE, BLEND, HUE, MATRIX };

// Apply an operation to all pixels. `operation` and `like` are compile-time constants.
INLINE void apply(const struct colours *n, enum color_operation operation, int like) {
    const float factor = n->factor, one_minus_factor = n->one_minus_factor, hue_shift = n->hue_shift, constant_gray = n->gray;
    for (int64_t i = 0; i < n->count; i += LANES) {
        vuint pixels;
        memcpy(&pixels, n->pixels + i, sizeof pixels);
        vint red = (vint)(pixels & 255), green = (vint)(pixels >> 8 & 255), blue = (vint)(pixels >> 16 & 255);
        if (operation == HUE) {
            pixels = (like == LIKE_PILLOW ? shift_hue_pillow : shift_hue_torchvision)(red, green, blue, hue_shift);
        } else if (operation == MATRIX) {
            pixels = (vuint)(matrix_row(red, green, blue, n->matrix) | matrix_row(red, green, blue, n->matrix + 4) << 8 |
                             matrix_row(red, green, blue, n->matrix + 8) << 16);
        } else {
            vfloat gray = SPLAT(vfloat, constant_gray);
            if (operation == BLEND) gray = TO_FLOAT(luma_of(red, green, blue, like));
            pixels = (vuint)(blend_with_gray(red, gray, factor, one_minus_factor, like) |
                             blend_with_gray(green, gray, factor, one_minus_factor, like) << 8 |
                             blend_with_gray(blue, gray, factor, one_minus_factor, like) << 16);
        }
        memcpy(n->pixels + i, &pixels, sizeof pixels);
    }
}

// Return the sum of the luma of all pixels. The caller sets the words after the last pixel to 0, whose luma is 0.
INLINE int64_t sum(const struct colours *n, int like) {
    int64_t total = 0;
    for (int64_t begin = 0; begin < n->count; begin += 1 << 20) {  // the sum of a lane must fit into 32 bits
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

#define FOR_LIKE(n, function, ...)                                                                                             \
    ((n)->like == LIKE_PILLOW   ? function(n, ##__VA_ARGS__, LIKE_PILLOW)                                                      \
     : (n)->like == LIKE_OPENCV ? function(n, ##__VA_ARGS__, LIKE_OPENCV)                                                      \
                                : function(n, ##__VA_ARGS__, LIKE_TORCHVISION))

KERNEL void fade(const struct colours *n) {
    n->like == LIKE_PILLOW ? apply(n, FADE, LIKE_PILLOW) : apply(n, FADE, LIKE_TORCHVISION);
}
KERNEL void blend(const struct colours *n) { FOR_LIKE(n, apply, BLEND); }
KERNEL void turn(const struct colours *n) {
    n->like == LIKE_PILLOW ? apply(n, HUE, LIKE_PILLOW) : apply(n, HUE, LIKE_TORCHVISION);
}
KERNEL void mix(const struct colours *n) { apply(n, MATRIX, LIKE_PILLOW); }
KERNEL void add_luma(struct colours *n) { n->luma_sum = FOR_LIKE(n, sum); }

// Map the hue of OpenCV's HSV by a table, and add to saturation and value.
KERNEL void shift(const struct colours *n) {
    const int64_t first = n->width - n->width % 32;  // first column whose values are rounded: see `rgb_opencv`
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
