// Steps on colours, in place, on 16 words at a time; words behind the last of the image are changed, too.
#include <string.h>

#include "arguments.h"

#define LANES 16
#include "formulas.h"

enum { PILLOW, TORCHVISION };
enum step { FADE, BLEND, TURN, MIX };

#define ALWAYS static inline __attribute__((always_inline))

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
            if (step == BLEND) gray = REAL((like == PILLOW ? luma_pillow : luma_torchvision)(red, green, blue));
            whole (*blended)(whole, real, float, float) = like == PILLOW ? blended_pillow : blended_torchvision;
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
            sums += (like == PILLOW ? luma_pillow : luma_torchvision)(red, green, blue);
        }
        for (int lane = 0; lane < LANES; ++lane) total += sums[lane];
    }
    return total;
}

KERNEL void fade(const struct colours *n) { n->like == PILLOW ? change(n, FADE, PILLOW) : change(n, FADE, TORCHVISION); }
KERNEL void blend(const struct colours *n) { n->like == PILLOW ? change(n, BLEND, PILLOW) : change(n, BLEND, TORCHVISION); }
KERNEL void turn(const struct colours *n) { n->like == PILLOW ? change(n, TURN, PILLOW) : change(n, TURN, TORCHVISION); }
KERNEL void mix(const struct colours *n) { change(n, MIX, PILLOW); }
KERNEL void add_luma(struct colours *n) { n->total = n->like == PILLOW ? sum(n, PILLOW) : sum(n, TORCHVISION); }
