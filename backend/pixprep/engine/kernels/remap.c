// Warps with the arithmetic of OpenCV 4: positions in 1/32 pixel, integer weights. See plan/profiles/opencv.py.
#include "warp.h"
#include "coefficients.h"

enum { CHUNK = 256, BAND = 32 };  // columns and rows of a tile, whose source pixels are close together

typedef int16_t shorts __attribute__((vector_size(4 * LANES)));  // two of each pixel
typedef int32_t quad __attribute__((vector_size(16)));

struct places {
    int32_t x[CHUNK + LANES];
    int32_t y[CHUNK + LANES];
};

INLINE int32_t nearest_int(double x) { return round_opencv(SPLAT(vdouble, x))[0]; }

// Two channels of 16 bits: 32 times the interpolation between two pixels.
INLINE shorts across(vuint one, vuint other, shorts share) {
    shorts a = (shorts)(one & 0x00FF00FF), b = (shorts)(other & 0x00FF00FF);
    return (a << 5) + (b - a) * share;
}

INLINE vuint down(vuint upper, vuint lower, vint share) {
    vint a = (vint)upper, b = (vint)lower;
    return (vuint)(((a << 5) + (b - a) * share + 512) >> 10);
}

INLINE vuint blended(vuint a, vuint b, vuint c, vuint d, vint share_x, vint share_y, int channels) {
    shorts share = (shorts)(share_x | share_x << 16);
    vuint upper = (vuint)across(a, b, share), lower = (vuint)across(c, d, share);
    vuint made = down(upper & 0xFFFF, lower & 0xFFFF, share_y);
    if (channels == 1) return made;
    made |= down(upper >> 16, lower >> 16, share_y) << 16;
    upper = (vuint)across(a >> 8, b >> 8, share), lower = (vuint)across(c >> 8, d >> 8, share);
    return made | down(upper & 0xFFFF, lower & 0xFFFF, share_y) << 8;
}

INLINE int is_true(vint each) {
    int every = -1;
    for (int lane = 0; lane < LANES; ++lane) every &= each[lane];
    return every;
}

INLINE vuint by_bilinear(const struct image *image, vint x, vint y, vint share_x, vint share_y) {
    const int next = 8 * image->column_stride;
    if (is_true((x >= 0) & (x < image->width - 1) & (y >= 0) & (y < image->height - 1))) {
        pairs upper = load_pairs(image, x, y), lower = load_pairs(image, x, y + 1);
        return blended(pixel_of(upper, 0), pixel_of(upper, next), pixel_of(lower, 0), pixel_of(lower, next), share_x,
                       share_y, image->channels);
    }
    vuint a = picked(image, x, y), b = picked(image, x + 1, y), c = picked(image, x, y + 1), d = picked(image, x + 1, y + 1);
    return blended(a, b, c, d, share_x, share_y, image->channels);
}

INLINE int rounded_level(int sum) {
    sum = (sum + (1 << 14)) >> 15;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

// One pixel of 4 x 4 others, which begin at a place.
INLINE uint32_t by_bicubic(const struct image *image, int x, int y, const int16_t *weights) {
    const int channels = image->channels, column_stride = image->column_stride;
    const int is_whole = x >= 0 && x + 4 <= image->width - (channels > 1 && column_stride == 3) && y >= 0 && y + 4 <= image->height;
    if (is_whole && channels > 1) {
        quad sum = {0};
        for (int i = 0; i < 4; ++i) {
            const uint8_t *row = image->pixels + (int64_t)(y + i) * image->row_stride + (int64_t)x * column_stride;
            for (int j = 0; j < 4; ++j) {
                uint8_t levels __attribute__((vector_size(4)));
                memcpy(&levels, row + j * column_stride, 4);
                sum += __builtin_convertvector(levels, quad) * weights[4 * i + j];
            }
        }
        return (uint32_t)(rounded_level(sum[0]) | rounded_level(sum[1]) << 8 | rounded_level(sum[2]) << 16);
    }
    int columns[4], rows[4], sums[3] = {0};
    for (int i = 0; i < 4; ++i) {
        columns[i] = border_position(image->padding, x + i, image->width);
        rows[i] = border_position(image->padding, y + i, image->height);
    }
    for (int i = 0; i < 16; ++i) {
        const int row = rows[i / 4], column = columns[i % 4], is_fill = row < 0 || column < 0;
        const uint8_t *pixel = is_fill ? image->pixels : image->pixels + (int64_t)row * image->row_stride + (int64_t)column * column_stride;
        for (int k = 0; k < channels; ++k)
            sums[k] += (is_fill ? (int)(image->fill >> 8 * k & 255) : pixel[k]) * weights[i];
    }
    uint32_t made = 0;
    for (int k = 0; k < channels; ++k) made |= (uint32_t)rounded_level(sums[k]) << 8 * k;
    return made;
}

// Pixels of large photos come late from memory, so they are asked for a row before they are needed.
INLINE void ask_for(const struct image *image, vint x, vint y, enum warps arithmetic) {
    x = inner(x, image->width);
    y = inner(y, image->height);
    for (int lane = 0; lane < LANES; lane += 2) {
        const uint8_t *pixel = image->pixels + (int64_t)y[lane] * image->row_stride + x[lane] * image->column_stride;
        __builtin_prefetch(pixel);
        if (arithmetic != WARP_OPENCV_NEAREST) __builtin_prefetch(pixel + image->row_stride);
    }
}

// Whole pixels of places: of the nearest they are pixels, else 32nds of one.
INLINE vint pixels_of(vint place, enum warps arithmetic) {
    return clip_int16(arithmetic == WARP_OPENCV_NEAREST ? place : place >> 5);
}

// Columns after which a perspective begins again.
INLINE int64_t block_of(const struct warp *n) { return 1024 / min(16, n->full_height); }

// Steps of an affine map along the columns from x on, in 1,024ths of a pixel.
INLINE void step_along(const struct warp *n, int64_t x, int64_t count, struct places *along) {
    for (int64_t i = 0; i < count; i += LANES) {
        vdouble column = (vdouble){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i);
        vint of_x = round_opencv(column * n->matrix[0] * 1024.0), of_y = round_opencv(column * n->matrix[3] * 1024.0);
        memcpy(along->x + i, &of_x, sizeof of_x);
        memcpy(along->y + i, &of_y, sizeof of_y);
    }
}

// Places of columns of a row, from x on: by the steps along it, or by three linear forms at its block's first column.
INLINE void place_row(const struct warp *n, const struct image *image, enum warps arithmetic, int64_t row,
                      int64_t x, int64_t count, const struct places *along, struct places *places) {
    const int64_t block = x / block_of(n) * block_of(n);
    const double *m = n->matrix;
    const int32_t half = arithmetic == WARP_OPENCV_NEAREST ? 512 : 16, bits = arithmetic == WARP_OPENCV_NEAREST ? 10 : 5;
    const double y = (double)(n->top + row), parts = arithmetic == WARP_OPENCV_NEAREST ? 1.0 : 32.0;
    const uint32_t begin_x = (uint32_t)nearest_int((m[1] * y + m[2]) * 1024.0) + half;
    const uint32_t begin_y = (uint32_t)nearest_int((m[4] * y + m[5]) * 1024.0) + half;
    const double from_x = m[0] * block + m[1] * y + m[2], from_y = m[3] * block + m[4] * y + m[5];
    const double from_w = m[6] * block + m[7] * y + m[8];
    for (int64_t i = 0; i < count; i += LANES) {
        vint place_x, place_y;
        if (n->is_perspective) {
            vdouble column = (vdouble){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i - block);
            vdouble over = divide_depth(from_w + m[6] * column, parts);
            place_x = round_position((from_x + m[0] * column) * over);
            place_y = round_position((from_y + m[3] * column) * over);
        } else {
            vuint steps_x, steps_y;
            memcpy(&steps_x, along->x + i, sizeof steps_x);
            memcpy(&steps_y, along->y + i, sizeof steps_y);
            place_x = (vint)(steps_x + begin_x) >> bits;
            place_y = (vint)(steps_y + begin_y) >> bits;
        }
        ask_for(image, pixels_of(place_x, arithmetic), pixels_of(place_y, arithmetic), arithmetic);
        memcpy(places->x + i, &place_x, sizeof place_x);
        memcpy(places->y + i, &place_y, sizeof place_y);
    }
}

INLINE void make_row(const struct warp *n, const struct image *image, enum warps arithmetic, int64_t count,
                     const struct places *places, uint8_t *out) {
    for (int64_t i = 0; i < count; i += LANES) {
        vint x, y;
        memcpy(&x, places->x + i, sizeof x);
        memcpy(&y, places->y + i, sizeof y);
        vint column = pixels_of(x, arithmetic), line = pixels_of(y, arithmetic), share_x = x & 31, share_y = y & 31;
        vuint made = {0};
        if (arithmetic == WARP_OPENCV_NEAREST) made = picked(image, column, line);
        else if (arithmetic == WARP_OPENCV_BILINEAR) made = by_bilinear(image, column, line, share_x, share_y);
        else {
            vint which = (share_y << 5 | share_x) << 4;
            for (int lane = 0; lane < LANES; ++lane)
                made[lane] = by_bicubic(image, column[lane] - 1, line[lane] - 1, n->weights + which[lane]);
        }
        write_pixels(out + i * (image->channels == 1 ? 1 : 4), made, count - i, image->channels);
    }
}

INLINE void make(const struct warp *arguments, enum warps arithmetic, int is_perspective, int channels, int column_stride) {
    struct warp n = *arguments;
    n.is_perspective = is_perspective;
    const struct image image = image_of(&n, (int)n.padding, channels, column_stride);
    const int64_t size = channels == 1 ? 1 : 4, end = n.left + n.columns;
    struct places along, rows[2];
    for (int64_t top = 0, bottom; top < n.rows; top = bottom) {
        bottom = min(top + BAND, n.rows);
        for (int64_t x = n.left, count; x < end; x += count) {  // a block begins again
            count = min(min(CHUNK, block_of(&n) - x % block_of(&n)), end - x);
            if (!is_perspective) step_along(&n, x, count, &along);
            for (int64_t row = top; row <= bottom; ++row) {
                if (row < bottom) place_row(&n, &image, arithmetic, row, x, count, &along, &rows[row & 1]);
                if (row == top) continue;
                uint8_t *out = n.out + ((row - 1) * n.columns + x - n.left) * size;
                make_row(&n, &image, arithmetic, count, &rows[(row - 1) & 1], out);
            }
        }
    }
}

void remap(const struct warp *n) {
    if (n->arithmetic == WARP_OPENCV_NEAREST) BY_FORM(make, n, WARP_OPENCV_NEAREST, 1);
    else if (n->arithmetic == WARP_OPENCV_BILINEAR) BY_FORM(make, n, WARP_OPENCV_BILINEAR, 0);
    else BY_FORM(make, n, WARP_OPENCV_BICUBIC, 0);
}
