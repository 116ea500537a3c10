// Warps as OpenCV 4 computes them: places in 32nds of a pixel, weights in whole numbers. plan/steps/warps.py says how.
// Eight pixels are made together; of bilinear two that stand side by side are in one word of 64 bits.
#include <string.h>

#include "arguments.h"

#define LANES 8
#include "formulas.h"
#include "windows.h"

#define ALWAYS static inline __attribute__((always_inline))

// In the order of WarpFilter in plan/steps/warps.py, and of PaddingMode in spec.py.
enum taps { ONE_TAP, FOUR_TAPS, SIXTEEN_TAPS };
enum padding { CONSTANT, EDGE, REFLECT, SYMMETRIC };
enum { CHUNK = 256, BAND = 32 };  // columns and rows of a part, whose pixels lie near one another

typedef uint64_t pairs __attribute__((vector_size(8 * LANES)));
typedef int16_t shorts __attribute__((vector_size(4 * LANES)));  // two of each pixel
typedef int32_t quad __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

struct places {
    int32_t x[CHUNK + LANES];
    int32_t y[CHUNK + LANES];
};

struct image {
    const uint8_t *pixels;
    int pitch;
    int64_t last;  // where the last 8 bytes begin
    int height;
    int width;
    int apart;
    int channels;
    int padding;
    uint32_t fill;
    const int16_t *weights;
};

ALWAYS whole inner(whole place, int length) {
    place = CHOOSE(place > 0, place, 0);
    return CHOOSE(place < length, place, length - 1);
}

ALWAYS int32_t nearest_int(double x) { return nearest_whole(ALL(wide, x))[0]; }

// The position that stands for one beyond an edge; of a constant border -1.
static inline int beyond(int padding, int position, int length) {
    if ((unsigned)position < (unsigned)length) return position;
    if (padding == CONSTANT) return -1;
    if (padding == EDGE || length == 1) return position < 0 ? 0 : length - 1;
    const int edge = padding == SYMMETRIC, period = 2 * (length - 1 + edge);
    position %= period;
    if (position < 0) position += period;
    return position < length ? position : period - edge - position;
}

ALWAYS whole bordered(const struct image *image, whole place, int length) {
    if (image->padding == REFLECT || image->padding == SYMMETRIC)
        for (int lane = 0; lane < LANES; ++lane) place[lane] = beyond(image->padding, place[lane], length);
    return inner(place, length);
}

// The 64 bits that begin with the pixel at a place, which is in the image.
ALWAYS pairs load_pairs(const struct image *image, whole x, whole y) {
    pairs found;
    for (int lane = 0; lane < LANES; ++lane) {
        const int64_t offset = (int64_t)y[lane] * image->pitch + (int64_t)x[lane] * image->apart;
        const int64_t begin = offset < image->last ? offset : image->last;
        uint64_t one;
        memcpy(&one, image->pixels + begin, sizeof one);
        found[lane] = one >> 8 * (offset - begin);
    }
    return found;
}

ALWAYS word pixel_of(pairs two, int shift) { return __builtin_convertvector(two >> shift, word); }

// The pixel at a place, which may lie beyond the border.
ALWAYS word picked(const struct image *image, whole x, whole y) {
    word pixel = pixel_of(load_pairs(image, bordered(image, x, image->width), bordered(image, y, image->height)), 0);
    if (image->padding != CONSTANT) return pixel;
    whole is_inside = (x >= 0) & (x < image->width) & (y >= 0) & (y < image->height);
    return CHOOSE(is_inside, pixel, image->fill);
}

// Two channels of 16 bits, 32 times what lies between two pixels.
ALWAYS shorts across(word one, word other, shorts share) {
    shorts a = (shorts)(one & 0x00FF00FF), b = (shorts)(other & 0x00FF00FF);
    return (a << 5) + (b - a) * share;
}

ALWAYS word down(word upper, word lower, whole share) {
    whole a = (whole)upper, b = (whole)lower;
    return (word)(((a << 5) + (b - a) * share + 512) >> 10);
}

ALWAYS word blended(word a, word b, word c, word d, whole share_x, whole share_y, int channels) {
    shorts share = (shorts)(share_x | share_x << 16);
    word upper = (word)across(a, b, share), lower = (word)across(c, d, share);
    word made = down(upper & 0xFFFF, lower & 0xFFFF, share_y);
    if (channels == 1) return made;
    made |= down(upper >> 16, lower >> 16, share_y) << 16;
    upper = (word)across(a >> 8, b >> 8, share), lower = (word)across(c >> 8, d >> 8, share);
    return made | down(upper & 0xFFFF, lower & 0xFFFF, share_y) << 8;
}

ALWAYS int is_true(whole each) {
    int every = -1;
    for (int lane = 0; lane < LANES; ++lane) every &= each[lane];
    return every;
}

ALWAYS word by_bilinear(const struct image *image, whole x, whole y, whole share_x, whole share_y) {
    const int next = 8 * image->apart;
    if (is_true((x >= 0) & (x < image->width - 1) & (y >= 0) & (y < image->height - 1))) {
        pairs upper = load_pairs(image, x, y), lower = load_pairs(image, x, y + 1);
        return blended(pixel_of(upper, 0), pixel_of(upper, next), pixel_of(lower, 0), pixel_of(lower, next), share_x,
                       share_y, image->channels);
    }
    word a = picked(image, x, y), b = picked(image, x + 1, y), c = picked(image, x, y + 1), d = picked(image, x + 1, y + 1);
    return blended(a, b, c, d, share_x, share_y, image->channels);
}

ALWAYS int rounded_level(int sum) {
    sum = (sum + (1 << 14)) >> 15;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

// One pixel of 4 x 4 others, which begin at a place.
ALWAYS uint32_t by_bicubic(const struct image *image, int x, int y, const int16_t *weights) {
    const int channels = image->channels, apart = image->apart;
    const int is_inside = x >= 0 && x + 4 <= image->width - (channels > 1 && apart == 3) && y >= 0 && y + 4 <= image->height;
    if (is_inside && channels > 1) {
        quad sum = {0};
        for (int i = 0; i < 4; ++i) {
            const uint8_t *row = image->pixels + (int64_t)(y + i) * image->pitch + (int64_t)x * apart;
            for (int j = 0; j < 4; ++j) {
                uint8_t levels __attribute__((vector_size(4)));
                memcpy(&levels, row + j * apart, 4);
                sum += __builtin_convertvector(levels, quad) * weights[4 * i + j];
            }
        }
        return (uint32_t)(rounded_level(sum[0]) | rounded_level(sum[1]) << 8 | rounded_level(sum[2]) << 16);
    }
    int columns[4], rows[4], sums[3] = {0};
    for (int i = 0; i < 4; ++i) {
        columns[i] = beyond(image->padding, x + i, image->width);
        rows[i] = beyond(image->padding, y + i, image->height);
    }
    for (int i = 0; i < 16; ++i) {
        const int row = rows[i / 4], column = columns[i % 4], is_fill = row < 0 || column < 0;
        const uint8_t *pixel = is_fill ? image->pixels : image->pixels + (int64_t)row * image->pitch + (int64_t)column * apart;
        for (int k = 0; k < channels; ++k)
            sums[k] += (is_fill ? (int)(image->fill >> 8 * k & 255) : pixel[k]) * weights[i];
    }
    uint32_t made = 0;
    for (int k = 0; k < channels; ++k) made |= (uint32_t)rounded_level(sums[k]) << 8 * k;
    return made;
}

ALWAYS void write_pixels(uint8_t *out, word made, int64_t count, int channels) {
    if (channels == 1) {
        bytes levels = __builtin_convertvector(made, bytes);
        if (count >= LANES) memcpy(out, &levels, LANES);
        else memcpy(out, &levels, count);
    } else {
        if (count >= LANES) memcpy(out, &made, sizeof made);
        else memcpy(out, &made, 4 * count);
    }
}

// Pixels of large photos come late from memory, so they are asked for a row before they are needed.
ALWAYS void ask_for(const struct image *image, whole x, whole y, enum taps taps) {
    x = inner(x, image->width);
    y = inner(y, image->height);
    for (int lane = 0; lane < LANES; lane += 2) {
        const uint8_t *pixel = image->pixels + (int64_t)y[lane] * image->pitch + x[lane] * image->apart;
        __builtin_prefetch(pixel);
        if (taps != ONE_TAP) __builtin_prefetch(pixel + image->pitch);
    }
}

// Whole pixels of places: of the nearest they are pixels, else 32nds of one.
ALWAYS whole pixels_of(whole place, enum taps taps) { return sixteen_bits(taps == ONE_TAP ? place : place >> 5); }

// Steps of an affine map along the columns from x on, in 1,024ths of a pixel.
ALWAYS void step_along(const struct warp *n, int64_t x, int64_t count, struct places *along) {
    for (int64_t i = 0; i < count; i += LANES) {
        wide column = (wide){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i);
        whole of_x = nearest_whole(column * n->a * 1024.0), of_y = nearest_whole(column * n->d * 1024.0);
        memcpy(along->x + i, &of_x, sizeof of_x);
        memcpy(along->y + i, &of_y, sizeof of_y);
    }
}

// Places of columns of a row, from x on: by the steps along it, or by three linear forms at its block's first column.
ALWAYS void place_row(const struct warp *n, const struct image *image, enum taps taps, int is_perspective, int64_t row,
                      int64_t x, int64_t count, const struct places *along, struct places *places) {
    const int64_t block = x / n->block * n->block;
    const int32_t half = taps == ONE_TAP ? 512 : 16, bits = taps == ONE_TAP ? 10 : 5;
    const double y = (double)(n->top + row), parts = taps == ONE_TAP ? 1.0 : 32.0;
    const uint32_t begin_x = (uint32_t)nearest_int((n->b * y + n->c) * 1024.0) + half;
    const uint32_t begin_y = (uint32_t)nearest_int((n->e * y + n->f) * 1024.0) + half;
    const double from_x = n->a * block + n->b * y + n->c, from_y = n->d * block + n->e * y + n->f;
    const double from_w = n->g * block + n->h * y + n->i;
    for (int64_t i = 0; i < count; i += LANES) {
        whole place_x, place_y;
        if (is_perspective) {
            wide column = (wide){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i - block);
            wide over = share_of(from_w + n->g * column, parts);
            place_x = projected((from_x + n->a * column) * over);
            place_y = projected((from_y + n->d * column) * over);
        } else {
            word steps_x, steps_y;
            memcpy(&steps_x, along->x + i, sizeof steps_x);
            memcpy(&steps_y, along->y + i, sizeof steps_y);
            place_x = (whole)(steps_x + begin_x) >> bits;
            place_y = (whole)(steps_y + begin_y) >> bits;
        }
        ask_for(image, pixels_of(place_x, taps), pixels_of(place_y, taps), taps);
        memcpy(places->x + i, &place_x, sizeof place_x);
        memcpy(places->y + i, &place_y, sizeof place_y);
    }
}

ALWAYS void make_row(const struct image *image, enum taps taps, int64_t count, const struct places *places, uint8_t *out) {
    for (int64_t i = 0; i < count; i += LANES) {
        whole x, y;
        memcpy(&x, places->x + i, sizeof x);
        memcpy(&y, places->y + i, sizeof y);
        whole column = pixels_of(x, taps), line = pixels_of(y, taps), share_x = x & 31, share_y = y & 31;
        word made = {0};
        if (taps == ONE_TAP) made = picked(image, column, line);
        else if (taps == FOUR_TAPS) made = by_bilinear(image, column, line, share_x, share_y);
        else {
            whole which = (share_y << 5 | share_x) << 4;
            for (int lane = 0; lane < LANES; ++lane)
                made[lane] = by_bicubic(image, column[lane] - 1, line[lane] - 1, image->weights + which[lane]);
        }
        write_pixels(out + i * (image->channels == 1 ? 1 : 4), made, count - i, image->channels);
    }
}

ALWAYS void make(const struct warp *arguments, enum taps taps, int is_perspective, int channels, int apart) {
    const struct warp n = *arguments;
    const int64_t last = (n.height - 1) * n.pitch + (n.width > 1 ? n.width - 1 : 1) * apart + channels - 8;
    const struct image image = {n.pixels, (int)n.pitch, last > 0 ? last : 0, n.height, n.width, apart, channels,
                                n.padding, n.fill, n.weights};
    const int64_t size = channels == 1 ? 1 : 4, end = n.left + n.columns;
    struct places along, rows[2];
    for (int64_t top = 0, bottom; top < n.rows; top = bottom) {
        bottom = least(top + BAND, n.rows);
        for (int64_t x = n.left, count; x < end; x += count) {  // a block begins anew
            count = least(least(CHUNK, n.block - x % n.block), end - x);
            if (!is_perspective) step_along(&n, x, count, &along);
            for (int64_t row = top; row <= bottom; ++row) {
                if (row < bottom) place_row(&n, &image, taps, is_perspective, row, x, count, &along, &rows[row & 1]);
                if (row == top) continue;
                uint8_t *out = n.out + ((row - 1) * n.columns + x - n.left) * size;
                make_row(&image, taps, count, &rows[(row - 1) & 1], out);
            }
        }
    }
}

ALWAYS void make_both(const struct warp *n, enum taps taps, int channels, int apart) {
    if (n->is_perspective) make(n, taps, 1, channels, apart);
    else make(n, taps, 0, channels, apart);
}

ALWAYS void make_taps(const struct warp *n, enum taps taps) {
    if (n->channels == 1) make_both(n, taps, 1, 1);
    else if (n->channels == 4 && taps == ONE_TAP) make_both(n, taps, 4, 4);
    else if (n->apart == 3) make_both(n, taps, 3, 3);
    else make_both(n, taps, 3, 4);
}

KERNEL void remap(const struct warp *n) {
    switch ((enum taps)n->kind) {
    case ONE_TAP: return make_taps(n, ONE_TAP);
    case FOUR_TAPS: return make_taps(n, FOUR_TAPS);
    case SIXTEEN_TAPS: return make_taps(n, SIXTEEN_TAPS);
    }
}
