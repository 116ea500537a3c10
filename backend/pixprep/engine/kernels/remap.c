// Warps with the arithmetic of OpenCV 4: positions in units of 1/32 pixel, and integer weights. See plan/profiles/opencv.py.
#include "warp.h"
#include "coefficients.h"

enum { TILE_COLUMNS = 256, TILE_ROWS = 32 };  // size of a tile; its source pixels are close together in memory

typedef int16_t shorts __attribute__((vector_size(4 * LANES)));  // two lanes per pixel
typedef int32_t quad __attribute__((vector_size(16)));

struct positions {
    int32_t x[TILE_COLUMNS + LANES];
    int32_t y[TILE_COLUMNS + LANES];
};

INLINE int32_t round_scalar(double x) { return round_opencv(SPLAT(vdouble, x))[0]; }

// Interpolate horizontally between two pixels, for two channels of 16 bits. The result is multiplied by 32.
INLINE shorts interpolate_x(vuint one, vuint other, shorts fraction) {
    shorts a = (shorts)(one & 0x00FF00FF), b = (shorts)(other & 0x00FF00FF);
    return (a << 5) + (b - a) * fraction;
}

INLINE vuint interpolate_y(vuint upper, vuint lower, vint fraction) {
    vint a = (vint)upper, b = (vint)lower;
    return (vuint)(((a << 5) + (b - a) * fraction + 512) >> 10);
}

INLINE vuint interpolate_bilinear(vuint a, vuint b, vuint c, vuint d, vint fraction_x, vint fraction_y, int channels) {
    shorts fraction = (shorts)(fraction_x | fraction_x << 16);
    vuint upper = (vuint)interpolate_x(a, b, fraction), lower = (vuint)interpolate_x(c, d, fraction);
    vuint pixels = interpolate_y(upper & 0xFFFF, lower & 0xFFFF, fraction_y);
    if (channels == 1) return pixels;
    pixels |= interpolate_y(upper >> 16, lower >> 16, fraction_y) << 16;
    upper = (vuint)interpolate_x(a >> 8, b >> 8, fraction), lower = (vuint)interpolate_x(c >> 8, d >> 8, fraction);
    return pixels | interpolate_y(upper & 0xFFFF, lower & 0xFFFF, fraction_y) << 8;
}

INLINE int is_true_in_all_lanes(vint condition) {
    int result = -1;
    for (int lane = 0; lane < LANES; ++lane) result &= condition[lane];
    return result;
}

INLINE vuint bilinear_pixels(const struct image *image, vint x, vint y, vint fraction_x, vint fraction_y) {
    const int next = 8 * image->column_stride;
    if (is_true_in_all_lanes((x >= 0) & (x < image->width - 1) & (y >= 0) & (y < image->height - 1))) {
        pixel_pairs upper = load_pairs(image, x, y), lower = load_pairs(image, x, y + 1);
        return interpolate_bilinear(pixel_of(upper, 0), pixel_of(upper, next), pixel_of(lower, 0), pixel_of(lower, next),
                                    fraction_x, fraction_y, image->channels);
    }
    vuint a = read_pixels(image, x, y), b = read_pixels(image, x + 1, y), c = read_pixels(image, x, y + 1),
          d = read_pixels(image, x + 1, y + 1);
    return interpolate_bilinear(a, b, c, d, fraction_x, fraction_y, image->channels);
}

INLINE int round_fixed(int sum) {
    sum = (sum + (1 << 14)) >> 15;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

// Interpolate one pixel from 4 x 4 pixels, of which (x, y) is the upper left one.
INLINE uint32_t bicubic_pixel(const struct image *image, int x, int y, const int16_t *weights) {
    const int channels = image->channels, column_stride = image->column_stride;
    const int is_inside_image =
        x >= 0 && x + 4 <= image->width - (channels > 1 && column_stride == 3) && y >= 0 && y + 4 <= image->height;
    if (is_inside_image && channels > 1) {
        quad sum = {0};
        for (int i = 0; i < 4; ++i) {
            const uint8_t *row = image->pixels + (int64_t)(y + i) * image->row_stride + (int64_t)x * column_stride;
            for (int j = 0; j < 4; ++j) {
                uint8_t values __attribute__((vector_size(4)));
                memcpy(&values, row + j * column_stride, 4);
                sum += __builtin_convertvector(values, quad) * weights[4 * i + j];
            }
        }
        return (uint32_t)(round_fixed(sum[0]) | round_fixed(sum[1]) << 8 | round_fixed(sum[2]) << 16);
    }
    int columns[4], rows[4], sums[3] = {0};
    for (int i = 0; i < 4; ++i) {
        columns[i] = border_position(image->padding, x + i, image->width);
        rows[i] = border_position(image->padding, y + i, image->height);
    }
    for (int i = 0; i < 16; ++i) {
        const int row = rows[i / 4], column = columns[i % 4], is_fill = row < 0 || column < 0;
        const uint8_t *pixel =
            is_fill ? image->pixels : image->pixels + (int64_t)row * image->row_stride + (int64_t)column * column_stride;
        for (int k = 0; k < channels; ++k) sums[k] += (is_fill ? (int)(image->fill >> 8 * k & 255) : pixel[k]) * weights[i];
    }
    uint32_t pixels = 0;
    for (int k = 0; k < channels; ++k) pixels |= (uint32_t)round_fixed(sums[k]) << 8 * k;
    return pixels;
}

// Prefetch the pixels that the next row needs. Large images do not fit into the cache.
INLINE void prefetch_pixels(const struct image *image, vint x, vint y, enum warps arithmetic) {
    x = clamp_position(x, image->width);
    y = clamp_position(y, image->height);
    for (int lane = 0; lane < LANES; lane += 2) {
        const uint8_t *pixel = image->pixels + (int64_t)y[lane] * image->row_stride + x[lane] * image->column_stride;
        __builtin_prefetch(pixel);
        if (arithmetic != WARP_OPENCV_NEAREST) __builtin_prefetch(pixel + image->row_stride);
    }
}

// Convert positions to pixels. For nearest neighbor they are pixels already, in all other cases units of 1/32 pixel.
INLINE vint whole_pixels(vint position, enum warps arithmetic) {
    return clip_int16(arithmetic == WARP_OPENCV_NEAREST ? position : position >> 5);
}

// Return the width of OpenCV's blocks. For a homography, OpenCV computes the coordinates of a block's first column separately.
INLINE int64_t block_width(const struct warp *n) { return 1024 / min(16, n->full_height); }

// Compute the products of the columns from x on with an affine matrix, in units of 1/1024 pixel. They are equal for all rows.
INLINE void column_steps(const struct warp *n, int64_t x, int64_t count, struct positions *steps) {
    for (int64_t i = 0; i < count; i += LANES) {
        vdouble column = (vdouble){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i);
        vint steps_x = round_opencv(column * n->matrix[0] * 1024.0), steps_y = round_opencv(column * n->matrix[3] * 1024.0);
        memcpy(steps->x + i, &steps_x, sizeof steps_x);
        memcpy(steps->y + i, &steps_y, sizeof steps_y);
    }
}

// Compute the input positions of `count` columns of a row, from x on. An affine matrix adds the precomputed steps; a homography adds
// to the coordinates of the block's first column.
INLINE void compute_positions(const struct warp *n, const struct image *image, enum warps arithmetic, int64_t row, int64_t x,
                              int64_t count, const struct positions *steps, struct positions *positions) {
    const int64_t block = x / block_width(n) * block_width(n);
    const double *m = n->matrix;
    const int32_t rounding = arithmetic == WARP_OPENCV_NEAREST ? 512 : 16, bits = arithmetic == WARP_OPENCV_NEAREST ? 10 : 5;
    const double y = (double)(n->top + row), scale = arithmetic == WARP_OPENCV_NEAREST ? 1.0 : 32.0;
    const uint32_t begin_x = (uint32_t)round_scalar((m[1] * y + m[2]) * 1024.0) + rounding;
    const uint32_t begin_y = (uint32_t)round_scalar((m[4] * y + m[5]) * 1024.0) + rounding;
    const double base_x = m[0] * block + m[1] * y + m[2], base_y = m[3] * block + m[4] * y + m[5];
    const double base_w = m[6] * block + m[7] * y + m[8];
    for (int64_t i = 0; i < count; i += LANES) {
        vint position_x, position_y;
        if (n->source_x) {
            vfloat source_x, source_y;
            const int64_t index = row * n->columns + x - n->left + i;
            memcpy(&source_x, n->source_x + index, sizeof source_x);
            memcpy(&source_y, n->source_y + index, sizeof source_y);
            position_x = round_position(TO_DOUBLE(source_x) * scale);
            position_y = round_position(TO_DOUBLE(source_y) * scale);
        } else if (n->is_perspective) {
            vdouble column = (vdouble){0, 1, 2, 3, 4, 5, 6, 7} + (double)(x + i - block);
            vdouble inverse = inverse_depth(base_w + m[6] * column, scale);
            position_x = round_position((base_x + m[0] * column) * inverse);
            position_y = round_position((base_y + m[3] * column) * inverse);
        } else {
            vuint offset_x, offset_y;
            memcpy(&offset_x, steps->x + i, sizeof offset_x);
            memcpy(&offset_y, steps->y + i, sizeof offset_y);
            position_x = (vint)(offset_x + begin_x) >> bits;
            position_y = (vint)(offset_y + begin_y) >> bits;
        }
        prefetch_pixels(image, whole_pixels(position_x, arithmetic), whole_pixels(position_y, arithmetic), arithmetic);
        memcpy(positions->x + i, &position_x, sizeof position_x);
        memcpy(positions->y + i, &position_y, sizeof position_y);
    }
}

INLINE void compute_row(const struct warp *n, const struct image *image, enum warps arithmetic, int64_t count,
                        const struct positions *positions, uint8_t *out) {
    for (int64_t i = 0; i < count; i += LANES) {
        vint x, y;
        memcpy(&x, positions->x + i, sizeof x);
        memcpy(&y, positions->y + i, sizeof y);
        vint column = whole_pixels(x, arithmetic), row = whole_pixels(y, arithmetic), fraction_x = x & 31, fraction_y = y & 31;
        vuint pixels = {0};
        if (arithmetic == WARP_OPENCV_NEAREST) pixels = read_pixels(image, column, row);
        else if (arithmetic == WARP_OPENCV_BILINEAR) pixels = bilinear_pixels(image, column, row, fraction_x, fraction_y);
        else {
            vint weight_index = (fraction_y << 5 | fraction_x) << 4;
            for (int lane = 0; lane < LANES; ++lane)
                pixels[lane] = bicubic_pixel(image, column[lane] - 1, row[lane] - 1, n->weights + weight_index[lane]);
        }
        write_pixels(out + i * (image->channels == 1 ? 1 : 4), pixels, count - i, image->channels);
    }
}

INLINE void remap_image(const struct warp *arguments, enum warps arithmetic, int is_perspective, int channels,
                        int column_stride) {
    struct warp n = *arguments;
    n.is_perspective = is_perspective;
    const struct image image = image_of(&n, (int)n.padding, channels, column_stride);
    const int64_t size = channels == 1 ? 1 : 4, end = n.left + n.columns;
    struct positions steps, rows[2];
    for (int64_t top = 0, bottom; top < n.rows; top = bottom) {
        bottom = min(top + TILE_ROWS, n.rows);
        for (int64_t x = n.left, count; x < end; x += count) {  // one tile, which does not cross the end of a block
            count = min(min(TILE_COLUMNS, block_width(&n) - x % block_width(&n)), end - x);
            if (!is_perspective) column_steps(&n, x, count, &steps);
            for (int64_t row = top; row <= bottom; ++row) {
                if (row < bottom) compute_positions(&n, &image, arithmetic, row, x, count, &steps, &rows[row & 1]);
                if (row == top) continue;
                uint8_t *out = n.out + ((row - 1) * n.columns + x - n.left) * size;
                compute_row(&n, &image, arithmetic, count, &rows[(row - 1) & 1], out);
            }
        }
    }
}

void remap(const struct warp *n) {
    if (n->arithmetic == WARP_OPENCV_NEAREST) FOR_TRANSFORM(remap_image, n, WARP_OPENCV_NEAREST, 1);
    else if (n->arithmetic == WARP_OPENCV_BILINEAR) FOR_TRANSFORM(remap_image, n, WARP_OPENCV_BILINEAR, 0);
    else FOR_TRANSFORM(remap_image, n, WARP_OPENCV_BICUBIC, 0);
}
