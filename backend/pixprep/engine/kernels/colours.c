// Steps on colours, in place, on 16 words at a time; words behind the last of the image are changed, too.
#include <string.h>

#include "arguments.h"

#define LANES 16
#include "formulas.h"

enum { PILLOW, TORCHVISION, OPENCV };
enum step { FADE, BLEND, TURN, MIX };

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS whole luma(whole red, whole green, whole blue, int like) {
    return (like == PILLOW ? luma_pillow : like == OPENCV ? luma_opencv : luma_torchvision)(red, green, blue);
}

ALWAYS void change(const struct colours *n, enum step step, int like) {
    const float factor = n->factor, rest = n->rest, turn = n->turn, gray_of_all = n->gray;
    for (int64_t i = 0; i < n->count; i += LANES) {
        word pixels;
        memcpy(&pixels, n->pixels + i, sizeof pixels);
        whole red = (whole)(pixels & 255), green = (whole)(pixels >> 8 & 255), blue = (whole)(pixels >> 16 & 255);
        if (step == TURN) {
            pixels = (like == PILLOW ? turned_pillow : turned_torchvision)(red, green, blue, turn);
        } else if (step == MIX) {
            pixels = (word)(mixed(red, green, blue, n->matrix) | mixed(red, green, blue, n->matrix + 4) << 8 |
                            mixed(red, green, blue, n->matrix + 8) << 16);
        } else {
            real gray = ALL(real, gray_of_all);
            if (step == BLEND) gray = REAL(luma(red, green, blue, like));
            whole (*blended)(whole, real, float, float) = like == PILLOW   ? blended_pillow
                                                          : like == OPENCV ? blended_opencv
                                                                           : blended_torchvision;
            pixels = (word)(blended(red, gray, factor, rest) | blended(green, gray, factor, rest) << 8 |
                            blended(blue, gray, factor, rest) << 16);
        }
        memcpy(n->pixels + i, &pixels, sizeof pixels);
    }
}

// The words behind the last one of the image are 0, whose luma is.
ALWAYS int64_t sum(const struct colours *n, int like) {
    int64_t total = 0;
    for (int64_t begin = 0; begin < n->count; begin += 1 << 20) {  // so that a lane of 32 bits holds its sum
        int64_t end = begin + (1 << 20) < n->count ? begin + (1 << 20) : n->count;
        whole sums = {0};
        for (int64_t i = begin; i < end; i += LANES) {
            word pixels;
            memcpy(&pixels, n->pixels + i, sizeof pixels);
            whole red = (whole)(pixels & 255), green = (whole)(pixels >> 8 & 255), blue = (whole)(pixels >> 16 & 255);
            sums += luma(red, green, blue, like);
        }
        for (int lane = 0; lane < LANES; ++lane) total += sums[lane];
    }
    return total;
}

#define BY_LIKE(n, function, ...)                                         \
    ((n)->like == PILLOW   ? function(n, ##__VA_ARGS__, PILLOW)           \
     : (n)->like == OPENCV ? function(n, ##__VA_ARGS__, OPENCV)           \
                           : function(n, ##__VA_ARGS__, TORCHVISION))

KERNEL void fade(const struct colours *n) { n->like == PILLOW ? change(n, FADE, PILLOW) : change(n, FADE, TORCHVISION); }
KERNEL void blend(const struct colours *n) { BY_LIKE(n, change, BLEND); }
KERNEL void turn(const struct colours *n) { n->like == PILLOW ? change(n, TURN, PILLOW) : change(n, TURN, TORCHVISION); }
KERNEL void mix(const struct colours *n) { change(n, MIX, PILLOW); }
KERNEL void add_luma(struct colours *n) { n->total = BY_LIKE(n, sum); }

ALWAYS whole clipped_whole(whole value) {
    value = CHOOSE(value > 0, value, 0);
    return CHOOSE(value < 255, value, 255);
}

// OpenCV's hue, saturation and value, shifted.
KERNEL void shift(const struct colours *n) {
    const int64_t first = n->width - n->width % 32;  // of the columns that are rounded
    int64_t column = 0;
    for (int64_t i = 0; i < n->count; i += LANES) {
        word pixels;
        memcpy(&pixels, n->pixels + i, sizeof pixels);
        whole hsv[3], is_last = {0};
        hsv_opencv((whole)(pixels & 255), (whole)(pixels >> 8 & 255), (whole)(pixels >> 16 & 255), hsv);
        for (int lane = 0; lane < LANES; ++lane) {
            is_last[lane] = -(column >= first);
            hsv[0][lane] = n->curves[hsv[0][lane]];
            if (++column == n->width) column = 0;
        }
        whole saturation = clipped_whole(hsv[1] + n->saturation);
        pixels = rgb_opencv(hsv[0], CHOOSE(hsv[1] > 0, saturation, 0), clipped_whole(hsv[2] + n->value), is_last);
        memcpy(n->pixels + i, &pixels, sizeof pixels);
    }
}
