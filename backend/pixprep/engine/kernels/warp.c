// Warps with the arithmetic of Pillow, torchvision, DALI and SciPy, which plan/profiles describes.
#include <math.h>

#include "warp.h"

INLINE vint channel_of(vuint pixel, int channel) { return (vint)(pixel >> (8 * channel) & 255); }

// Pillow's bicubic interpolation of 4 x 4 pixels, in float64. Positions beyond the image are clamped to it.
INLINE vuint bicubic_pillow(const struct image *image, vint left_column, vint top_row, vdouble dx, vdouble dy) {
    vuint neighbors[4][4], result = {0};
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            vint x = clamp_position(left_column + (j - 1), image->width), y = clamp_position(top_row + (i - 1), image->height);
            neighbors[i][j] = pixel_of(load_pairs(image, x, y), 0);
        }
    for (int k = 0; k < image->channels; ++k) {
        vdouble rows[4];
        for (int i = 0; i < 4; ++i) {
            const vuint *row_pixels = neighbors[i];
            rows[i] = cubic_pillow(TO_DOUBLE(channel_of(row_pixels[0], k)), TO_DOUBLE(channel_of(row_pixels[1], k)),
                                   TO_DOUBLE(channel_of(row_pixels[2], k)), TO_DOUBLE(channel_of(row_pixels[3], k)), dx);
        }
        vdouble value = cubic_pillow(rows[0], rows[1], rows[2], rows[3], dy);
        value = SELECT(value > 0, value, 0.0);
        result |= (vuint)TO_INT(SELECT(value < 255, value, 255.0)) << (8 * k);
    }
    return result;
}

INLINE vuint warp_pillow(const struct image *image, const struct warp *n, vint column, vint row, enum warps arithmetic) {
    vdouble out_x = TO_DOUBLE(column) + 0.5, out_y = TO_DOUBLE(row) + 0.5;
    vdouble source[2];
    source_pillow(n->matrix, n->is_perspective, out_x, out_y, source);
    vdouble x = source[0], y = source[1];
    const double width = image->width, height = image->height;
    vint inside = __builtin_convertvector((x >= 0) & (x < width) & (y >= 0) & (y < height), vint);
    x = SELECT(x > 0, x, 0.0);
    y = SELECT(y > 0, y, 0.0);
    x = SELECT(x < width, x, width);
    y = SELECT(y < height, y, height);
    if (arithmetic == WARP_PILLOW_NEAREST) return SELECT(inside, read_pixels(image, TO_INT(x), TO_INT(y)), image->fill);
    vdouble u = x - 0.5, v = y - 0.5;
    vdouble left = round_down(u), top = round_down(v), dx = u - left, dy = v - top;
    vint left_column = TO_INT(left), top_row = TO_INT(top);
    if (arithmetic == WARP_PILLOW_BICUBIC)
        return SELECT(inside, bicubic_pillow(image, left_column, top_row, dx, dy), image->fill);
    // At the left and the right edge, both columns of the interpolation are the same one. The loaded pair is then moved into the
    // image, and the weight is 0 or 1, which has the same result.
    const int last = image->width > 2 ? image->width - 2 : 0;
    dx = SELECT(left < 0, 0.0, dx);
    dx = SELECT(left > (double)last, 1.0, dx);
    left_column = clamp_position(left_column, last + 1);
    pixel_pairs upper = load_pairs(image, left_column, clamp_position(top_row, image->height));
    pixel_pairs lower = load_pairs(image, left_column, clamp_position(top_row + 1, image->height));
    const int next = 8 * image->column_stride;
    vuint a = pixel_of(upper, 0), b = pixel_of(upper, next), c = pixel_of(lower, 0), d = pixel_of(lower, next), result = {0};
    for (int k = 0; k < image->channels; ++k)
        result |= (vuint)bilinear_pillow(channel_of(a, k), channel_of(b, k), channel_of(c, k), channel_of(d, k), dx, dy)
                  << (8 * k);
    return SELECT(inside, result, image->fill);
}

INLINE vuint warp_torchvision(const struct image *image, const struct warp *n, vint column, vint row, int64_t index,
                              int is_nearest) {
    vfloat out_x = TO_FLOAT(column) - (n->is_perspective ? -0.5f : (float)(n->full_width - 1) * 0.5f);
    vfloat out_y = TO_FLOAT(row) - (n->is_perspective ? -0.5f : (float)(n->full_height - 1) * 0.5f);
    vfloat source[2];
    source_torchvision(n->matrix, n->is_perspective, out_x, out_y, source);
    vfloat x = source[0], y = source[1];
    if (n->source_x) {
        memcpy(&x, n->source_x + index, sizeof x);
        memcpy(&y, n->source_y + index, sizeof y);
    }
    x = pixel_position(x, (float)n->width * 0.5f);
    y = pixel_position(y, (float)n->height * 0.5f);
    if (is_nearest) return read_pixels(image, TO_INT(round_even(x)), TO_INT(round_even(y)));
    vfloat left = round_down(x), top = round_down(y), dx = x - left, dy = y - top;
    vfloat one_minus_dx = SPLAT(vfloat, 1.0f) - dx, one_minus_dy = SPLAT(vfloat, 1.0f) - dy;
    const vfloat weights[] = {one_minus_dy * one_minus_dx, one_minus_dy * dx, dy * one_minus_dx, dy * dx};
    vint left_column = TO_INT(left), top_row = TO_INT(top);
    vint pair_column = clamp_position(left_column, image->width > 2 ? image->width - 1 : 1);
    vuint corners[4];
    vfloat mask_values[4];
    for (int lower = 0; lower < 2; ++lower) {
        pixel_pairs pair = load_pairs(image, pair_column, clamp_position(top_row + lower, image->height));
        vuint left_pixel = pixel_of(pair, 0), right_pixel = pixel_of(pair, 8 * image->column_stride);
        for (int right = 0; right < 2; ++right) {
            vint inside = is_inside(image, left_column + right, top_row + lower);
            corners[2 * lower + right] = SELECT(left_column + right == pair_column, left_pixel, right_pixel) & (vuint)inside;
            mask_values[2 * lower + right] = SELECT(inside, SPLAT(vfloat, 1.0f), 0.0f);
        }
    }
    vfloat mask = n->is_filled ? weighted_sum(mask_values, weights) : SPLAT(vfloat, 1.0f);
    vuint result = {0};
    for (int k = 0; k < image->channels; ++k) {
        const float fill = image->fill >> (8 * k) & 255;
        vfloat values[4];
        for (int corner = 0; corner < 4; ++corner) values[corner] = TO_FLOAT(channel_of(corners[corner], k));
        result |= (vuint)TO_INT(round_even((weighted_sum(values, weights) - fill) * mask + fill)) << (8 * k);
    }
    return result;
}

INLINE vuint warp_scipy(const struct image *image, const struct warp *n, vint column, vint row, int is_nearest) {
    const double last_column = image->width - 1, last_row = image->height - 1;
    vdouble source[2];
    source_scipy(n->matrix, TO_DOUBLE(column), TO_DOUBLE(row), source);
    vdouble x = source[0], y = source[1];
    vint inside = __builtin_convertvector((x >= 0) & (x <= last_column) & (y >= 0) & (y <= last_row), vint);
    x = SELECT(x > 0, x, 0.0);
    y = SELECT(y > 0, y, 0.0);
    x = SELECT(x < last_column, x, last_column);
    y = SELECT(y < last_row, y, last_row);
    if (is_nearest) return SELECT(inside, read_pixels(image, TO_INT(x + 0.5), TO_INT(y + 0.5)), image->fill);
    vint left = TO_INT(x), top = TO_INT(y);
    vdouble dx = x - TO_DOUBLE(left), dy = y - TO_DOUBLE(top);
    // Pixels to the right of the last column and below the last row have the weight 0.
    pixel_pairs upper = load_pairs(image, left, top), lower = load_pairs(image, left, clamp_position(top + 1, image->height));
    const int next = 8 * image->column_stride;
    vuint a = pixel_of(upper, 0), b = pixel_of(upper, next), c = pixel_of(lower, 0), d = pixel_of(lower, next), result = {0};
    for (int k = 0; k < image->channels; ++k)
        result |= (vuint)bilinear_scipy(channel_of(a, k), channel_of(b, k), channel_of(c, k), channel_of(d, k), dx, dy)
                  << (8 * k);
    return SELECT(inside, result, image->fill);
}

// Pillow's affine nearest-neighbor warp, with positions in units of 1/65536 in 32 bits.
INLINE vuint warp_pillow_fixed(const struct image *image, const struct warp *n, vint column, vint row) {
    vuint out_x = (vuint)column, out_y = (vuint)row;
    uint32_t m[6];
    for (int i = 0; i < 6; ++i) m[i] = (uint32_t)(int64_t)n->matrix[i];
    vuint x = out_x * m[0] + out_y * m[1] + m[2], y = out_x * m[3] + out_y * m[4] + m[5];
    return read_pixels(image, (vint)x >> 16, (vint)y >> 16);
}

INLINE void warp_image(const struct warp *arguments, enum warps arithmetic, int is_perspective, int channels,
                       int column_stride) {
    struct warp n = *arguments;
    n.is_perspective = is_perspective;
    const struct image image = image_of(&n, PADDING_CONSTANT, channels, column_stride);
    const vint lane_numbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const int is_torchvision = arithmetic == WARP_TORCHVISION_NEAREST || arithmetic == WARP_TORCHVISION_BILINEAR;
    for (int64_t y = 0; y < n.rows; ++y)
        for (int64_t x = 0; x < n.columns; x += LANES) {
            int64_t index = y * n.columns + x;
            vint row = SPLAT(vint, (int)(n.top + y)), column = lane_numbers + (int)(n.left + x);
            vuint result;
            if (arithmetic == WARP_PILLOW_FIXED) result = warp_pillow_fixed(&image, &n, column, row);
            else if (is_torchvision)
                result = warp_torchvision(&image, &n, column, row, index, arithmetic == WARP_TORCHVISION_NEAREST);
            else if (arithmetic == WARP_SCIPY_NEAREST || arithmetic == WARP_SCIPY_BILINEAR)
                result = warp_scipy(&image, &n, column, row, arithmetic == WARP_SCIPY_NEAREST);
            else result = warp_pillow(&image, &n, column, row, arithmetic);
            write_pixels(n.out + index * (channels == 1 ? 1 : 4), result, LANES, channels);
        }
}

// Pillow's affine nearest-neighbor warp for positions that 16.16 fixed point cannot represent. It adds a constant to the float64
// position from pixel to pixel.
static void warp_pillow_incremental(const struct warp *n) {
    const double a = n->matrix[0], b = n->matrix[1], d = n->matrix[3], e = n->matrix[4];
    const int64_t size = n->channels == 1 ? 1 : 4;
    double row_x = n->matrix[2] + b * 0.5 + a * 0.5, row_y = n->matrix[5] + e * 0.5 + d * 0.5;
    for (int64_t row = -n->top; row < n->rows; ++row, row_x += b, row_y += e) {
        double x = row_x, y = row_y;
        for (int64_t column = -n->left; row >= 0 && column < n->columns; ++column, x += a, y += d) {
            if (column < 0) continue;
            int inside = x >= 0 && x < n->width && y >= 0 && y < n->height;
            const void *from =
                inside ? n->pixels + (int64_t)y * n->row_stride + (int64_t)x * n->column_stride : (const void *)&n->fill;
            memcpy(n->out + (row * n->columns + column) * size, from, n->channels);
        }
    }
}

// Return the address of the pixel at a position. Outside of the image, return the nearest pixel, or the fill with PADDING_CONSTANT.
static inline const uint8_t *pixel_at(const struct warp *n, int64_t x, int64_t y) {
    if (x < 0 || x >= n->width || y < 0 || y >= n->height) {
        if (n->padding == PADDING_CONSTANT) return (const uint8_t *)&n->fill;
        x = x < 0 ? 0 : x < n->width ? x : n->width - 1;
        y = y < 0 ? 0 : y < n->height ? y : n->height - 1;
    }
    return n->pixels + y * n->row_stride + x * n->column_stride;
}

// DALI's affine warp, which adds a constant to the float32 position from pixel to pixel. After every RESTART_INTERVAL columns, it
// restarts from a position that is computed separately, which limits rounding errors.
INLINE void warp_dali(const struct warp *n, int is_nearest) {
    const int64_t size = n->channels == 1 ? 1 : 4;
    const float a = (float)n->matrix[0], b = (float)n->matrix[1], c = (float)n->matrix[2];
    const float d = (float)n->matrix[3], e = (float)n->matrix[4], f = (float)n->matrix[5];
    for (int64_t row = 0; row < n->rows; ++row) {
        const float row_center = (float)(n->top + row) + 0.5f;
        float restart_x = (c + a * 0.5f) + b * row_center, restart_y = (f + d * 0.5f) + e * row_center, source_x = 0,
              source_y = 0;
        for (int64_t restart = 0; restart < n->left / RESTART_INTERVAL; ++restart)
            restart_x += RESTART_INTERVAL * a, restart_y += RESTART_INTERVAL * d;
        for (int64_t column = -(n->left % RESTART_INTERVAL); column < n->columns; ++column, source_x += a, source_y += d) {
            if ((n->left + column) % RESTART_INTERVAL == 0) {
                source_x = restart_x, source_y = restart_y;
                restart_x += RESTART_INTERVAL * a, restart_y += RESTART_INTERVAL * d;
            }
            if (column < 0) continue;
            uint8_t *out = n->out + (row * n->columns + column) * size;
            const float half = is_nearest ? 0.0f : 0.5f;
            const float x = clamp_dali(source_x - half, (int)n->width), y = clamp_dali(source_y - half, (int)n->height);
            const float left = floorf(x), top = floorf(y), dx = x - left, dy = y - top;
            const int64_t i = (int64_t)left, j = (int64_t)top;
            const uint8_t *p00 = pixel_at(n, i, j);
            if (is_nearest) {
                memcpy(out, p00, n->channels);
                continue;
            }
            const uint8_t *p01 = pixel_at(n, i + 1, j), *p10 = pixel_at(n, i, j + 1), *p11 = pixel_at(n, i + 1, j + 1);
            for (int k = 0; k < n->channels; ++k) out[k] = (uint8_t)bilinear_dali(p00[k], p01[k], p10[k], p11[k], dx, dy);
        }
    }
}

KERNEL void warp(const struct warp *n) {
    switch ((enum warps)n->arithmetic) {
    case WARP_PILLOW_FIXED: return FOR_LAYOUT(warp_image, n, WARP_PILLOW_FIXED, 1, 0);
    case WARP_PILLOW_WALK: return warp_pillow_incremental(n);
    case WARP_PILLOW_NEAREST: return FOR_LAYOUT(warp_image, n, WARP_PILLOW_NEAREST, 1, 1);
    case WARP_PILLOW_BILINEAR: return FOR_TRANSFORM(warp_image, n, WARP_PILLOW_BILINEAR, 0);
    case WARP_PILLOW_BICUBIC: return FOR_TRANSFORM(warp_image, n, WARP_PILLOW_BICUBIC, 0);
    case WARP_TORCHVISION_NEAREST: return FOR_TRANSFORM(warp_image, n, WARP_TORCHVISION_NEAREST, 1);
    case WARP_TORCHVISION_BILINEAR: return FOR_TRANSFORM(warp_image, n, WARP_TORCHVISION_BILINEAR, 0);
    case WARP_DALI_NEAREST: return warp_dali(n, 1);
    case WARP_DALI_BILINEAR: return warp_dali(n, 0);
    case WARP_SCIPY_NEAREST: return FOR_LAYOUT(warp_image, n, WARP_SCIPY_NEAREST, 1, 0);
    case WARP_SCIPY_BILINEAR: return FOR_LAYOUT(warp_image, n, WARP_SCIPY_BILINEAR, 0, 0);
    case WARP_OPENCV_NEAREST:
    case WARP_OPENCV_BILINEAR:
    case WARP_OPENCV_BICUBIC: return remap(n);
    }
}
