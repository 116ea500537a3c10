// Warps with the arithmetic of Pillow, torchvision and DALI: see plan/profiles.
#include <math.h>

#include "warp.h"

enum { ANEW = 256 };

INLINE vint round_shift(vuint pixel, int channel) { return (vint)(pixel >> (8 * channel) & 255); }

// Pillow's cubic of 4 x 4 levels, in float64; those beyond an edge are the edge's.
INLINE vuint by_cubics(const struct image *image, vint first, vint above, vdouble dx, vdouble dy) {
    vuint found[4][4], made = {0};
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            vint x = inner(first + (j - 1), image->width), y = inner(above + (i - 1), image->height);
            found[i][j] = pixel_of(load_pairs(image, x, y), 0);
        }
    for (int k = 0; k < image->channels; ++k) {
        vdouble rows[4];
        for (int i = 0; i < 4; ++i) {
            const vuint *of = found[i];
            rows[i] = cubic_pillow(TO_DOUBLE(round_shift(of[0], k)), TO_DOUBLE(round_shift(of[1], k)), TO_DOUBLE(round_shift(of[2], k)),
                            TO_DOUBLE(round_shift(of[3], k)), dx);
        }
        vdouble level = cubic_pillow(rows[0], rows[1], rows[2], rows[3], dy);
        level = SELECT(level > 0, level, 0.0);
        made |= (vuint)TO_INT(SELECT(level < 255, level, 255.0)) << (8 * k);
    }
    return made;
}

INLINE vuint by_pillow(const struct image *image, const struct warp *n, vint column, vint row, enum warps arithmetic) {
    vdouble along = TO_DOUBLE(column) + 0.5, down = TO_DOUBLE(row) + 0.5;
    vdouble found[2];
    source_pillow(n->matrix, n->is_perspective, along, down, found);
    vdouble x = found[0], y = found[1];
    const double width = image->width, height = image->height;
    vint is_seen = __builtin_convertvector((x >= 0) & (x < width) & (y >= 0) & (y < height), vint);
    x = SELECT(x > 0, x, 0.0);
    y = SELECT(y > 0, y, 0.0);
    x = SELECT(x < width, x, width);
    y = SELECT(y < height, y, height);
    if (arithmetic == WARP_PILLOW_NEAREST) return SELECT(is_seen, picked(image, TO_INT(x), TO_INT(y)), image->fill);
    vdouble u = x - 0.5, v = y - 0.5;
    vdouble left = round_down(u), top = round_down(v), dx = u - left, dy = v - top;
    vint first = TO_INT(left), above = TO_INT(top);
    if (arithmetic == WARP_PILLOW_BICUBIC) return SELECT(is_seen, by_cubics(image, first, above, dx, dy), image->fill);
    // Where two columns are one, the pair begins at the image's edge, and weighs 0 or 1: the same levels.
    const int last = image->width > 2 ? image->width - 2 : 0;
    dx = SELECT(left < 0, 0.0, dx);
    dx = SELECT(left > (double)last, 1.0, dx);
    first = inner(first, last + 1);
    pairs upper = load_pairs(image, first, inner(above, image->height));
    pairs lower = load_pairs(image, first, inner(above + 1, image->height));
    const int next = 8 * image->column_stride;
    vuint a = pixel_of(upper, 0), b = pixel_of(upper, next), c = pixel_of(lower, 0), d = pixel_of(lower, next), made = {0};
    for (int k = 0; k < image->channels; ++k)
        made |= (vuint)bilinear_pillow(round_shift(a, k), round_shift(b, k), round_shift(c, k), round_shift(d, k), dx, dy) << (8 * k);
    return SELECT(is_seen, made, image->fill);
}

INLINE vuint by_torchvision(const struct image *image, const struct warp *n, vint column, vint row, int64_t place,
                           int is_nearest) {
    vfloat along = TO_FLOAT(column) - (n->is_perspective ? -0.5f : (float)(n->full_width - 1) * 0.5f);
    vfloat down = TO_FLOAT(row) - (n->is_perspective ? -0.5f : (float)(n->full_height - 1) * 0.5f);
    vfloat found[2];
    source_torchvision(n->matrix, n->is_perspective, along, down, found);
    vfloat x = found[0], y = found[1];
    if (n->source_x) {
        memcpy(&x, n->source_x + place, sizeof x);
        memcpy(&y, n->source_y + place, sizeof y);
    }
    x = pixel_position(x, (float)n->width * 0.5f);
    y = pixel_position(y, (float)n->height * 0.5f);
    if (is_nearest) return picked(image, TO_INT(round_even(x)), TO_INT(round_even(y)));
    vfloat left = round_down(x), top = round_down(y), right_share = x - left, lower_share = y - top;
    vfloat left_share = SPLAT(vfloat, 1.0f) - right_share, upper_share = SPLAT(vfloat, 1.0f) - lower_share;
    const vfloat shares[] = {upper_share * left_share, upper_share * right_share, lower_share * left_share,
                           lower_share * right_share};
    vint first = TO_INT(left), above = TO_INT(top);
    vint begin = inner(first, image->width > 2 ? image->width - 1 : 1);
    vuint corners[4];
    vfloat seen[4];
    for (int down = 0; down < 2; ++down) {
        pairs two = load_pairs(image, begin, inner(above + down, image->height));
        vuint one = pixel_of(two, 0), other = pixel_of(two, 8 * image->column_stride);
        for (int more = 0; more < 2; ++more) {
            vint inside = is_inside(image, first + more, above + down);
            corners[2 * down + more] = SELECT(first + more == begin, one, other) & (vuint)inside;
            seen[2 * down + more] = SELECT(inside, SPLAT(vfloat, 1.0f), 0.0f);
        }
    }
    vfloat mask = n->is_filled ? weighted_sum(seen, shares) : SPLAT(vfloat, 1.0f);
    vuint made = {0};
    for (int k = 0; k < image->channels; ++k) {
        const float fill = image->fill >> (8 * k) & 255;
        vfloat values[4];
        for (int corner = 0; corner < 4; ++corner) values[corner] = TO_FLOAT(round_shift(corners[corner], k));
        made |= (vuint)TO_INT(round_even((weighted_sum(values, shares) - fill) * mask + fill)) << (8 * k);
    }
    return made;
}

// Pillow's nearest, in 1/65536 pixel, with 32 bits.
INLINE vuint by_fixed(const struct image *image, const struct warp *n, vint column, vint row) {
    vuint along = (vuint)column, down = (vuint)row;
    uint32_t m[6];
    for (int i = 0; i < 6; ++i) m[i] = (uint32_t)(int64_t)n->matrix[i];
    vuint x = along * m[0] + down * m[1] + m[2], y = along * m[3] + down * m[4] + m[5];
    return picked(image, (vint)x >> 16, (vint)y >> 16);
}

INLINE void make(const struct warp *arguments, enum warps arithmetic, int is_perspective, int channels, int column_stride) {
    struct warp n = *arguments;
    n.is_perspective = is_perspective;
    const struct image image = image_of(&n, PADDING_CONSTANT, channels, column_stride);
    const vint steps = {0, 1, 2, 3, 4, 5, 6, 7};
    const int is_torchvision = arithmetic == WARP_TORCHVISION_NEAREST || arithmetic == WARP_TORCHVISION_BILINEAR;
    for (int64_t y = 0; y < n.rows; ++y)
        for (int64_t x = 0; x < n.columns; x += LANES) {
            int64_t place = y * n.columns + x;
            vint row = SPLAT(vint, (int)(n.top + y)), column = steps + (int)(n.left + x);
            vuint made;
            if (arithmetic == WARP_PILLOW_FIXED) made = by_fixed(&image, &n, column, row);
            else if (is_torchvision) made = by_torchvision(&image, &n, column, row, place, arithmetic == WARP_TORCHVISION_NEAREST);
            else made = by_pillow(&image, &n, column, row, arithmetic);
            write_pixels(n.out + place * (channels == 1 ? 1 : 4), made, LANES, channels);
        }
}

// Pillow's nearest that adds up its way.
static void walk(const struct warp *n) {
    const double a = n->matrix[0], b = n->matrix[1], d = n->matrix[3], e = n->matrix[4];
    const int64_t size = n->channels == 1 ? 1 : 4;
    double row_x = n->matrix[2] + b * 0.5 + a * 0.5, row_y = n->matrix[5] + e * 0.5 + d * 0.5;
    for (int64_t row = -n->top; row < n->rows; ++row, row_x += b, row_y += e) {
        double x = row_x, y = row_y;
        for (int64_t column = -n->left; row >= 0 && column < n->columns; ++column, x += a, y += d) {
            if (column < 0) continue;
            int is_seen = x >= 0 && x < n->width && y >= 0 && y < n->height;
            const void *from = is_seen ? n->pixels + (int64_t)y * n->row_stride + (int64_t)x * n->column_stride : (const void *)&n->fill;
            memcpy(n->out + (row * n->columns + column) * size, from, n->channels);
        }
    }
}

// The pixel at a place, the nearest at the edge, or the fill.
static inline const uint8_t *at(const struct warp *n, int64_t x, int64_t y) {
    if (x < 0 || x >= n->width || y < 0 || y >= n->height) {
        if (n->padding == PADDING_CONSTANT) return (const uint8_t *)&n->fill;
        x = x < 0 ? 0 : x < n->width ? x : n->width - 1;
        y = y < 0 ? 0 : y < n->height ? y : n->height - 1;
    }
    return n->pixels + y * n->row_stride + x * n->column_stride;
}

// Clamps a position in pixels to the image or its vicinity; positions further away have the same pixel values.
static inline float near(float place, int64_t length) {
    const float last = (float)length + 2.0f;
    return place > -2.0f ? place < last ? place : last : -2.0f;
}

// DALI's, which adds up its way along a row in float32, and begins again after so many columns.
INLINE void add_up(const struct warp *n, int is_nearest) {
    const int64_t size = n->channels == 1 ? 1 : 4;
    const float a = (float)n->matrix[0], b = (float)n->matrix[1], c = (float)n->matrix[2];
    const float d = (float)n->matrix[3], e = (float)n->matrix[4], f = (float)n->matrix[5];
    for (int64_t row = 0; row < n->rows; ++row) {
        const float down = (float)(n->top + row) + 0.5f;
        float first = (c + a * 0.5f) + b * down, top_first = (f + d * 0.5f) + e * down, along = 0, across = 0;
        for (int64_t begun = 0; begun < n->left / ANEW; ++begun) first += ANEW * a, top_first += ANEW * d;
        for (int64_t column = -(n->left % ANEW); column < n->columns; ++column, along += a, across += d) {
            if ((n->left + column) % ANEW == 0) {
                along = first, across = top_first;
                first += ANEW * a, top_first += ANEW * d;
            }
            if (column < 0) continue;
            uint8_t *out = n->out + (row * n->columns + column) * size;
            const float half = is_nearest ? 0.0f : 0.5f;
            const float x = near(along - half, n->width), y = near(across - half, n->height);
            const float left = floorf(x), top = floorf(y), dx = x - left, dy = y - top;
            const int64_t i = (int64_t)left, j = (int64_t)top;
            const uint8_t *p00 = at(n, i, j);
            if (is_nearest) {
                memcpy(out, p00, n->channels);
                continue;
            }
            const uint8_t *p01 = at(n, i + 1, j), *p10 = at(n, i, j + 1), *p11 = at(n, i + 1, j + 1);
            for (int k = 0; k < n->channels; ++k) {
                float upper = p00[k] * (1.0f - dx) + p01[k] * dx, lower = p10[k] * (1.0f - dx) + p11[k] * dx;
                const float level = upper + (lower - upper) * dy;
                out[k] = (uint8_t)level + (level - (uint8_t)level >= 0.5f);  // halves go up
            }
        }
    }
}

KERNEL void warp(const struct warp *n) {
    switch ((enum warps)n->arithmetic) {
    case WARP_PILLOW_FIXED: return BY_LAYOUT(make, n, WARP_PILLOW_FIXED, 1, 0);
    case WARP_PILLOW_WALK: return walk(n);
    case WARP_PILLOW_NEAREST: return BY_LAYOUT(make, n, WARP_PILLOW_NEAREST, 1, 1);
    case WARP_PILLOW_BILINEAR: return BY_FORM(make, n, WARP_PILLOW_BILINEAR, 0);
    case WARP_PILLOW_BICUBIC: return BY_FORM(make, n, WARP_PILLOW_BICUBIC, 0);
    case WARP_TORCHVISION_NEAREST: return BY_FORM(make, n, WARP_TORCHVISION_NEAREST, 1);
    case WARP_TORCHVISION_BILINEAR: return BY_FORM(make, n, WARP_TORCHVISION_BILINEAR, 0);
    case WARP_DALI_NEAREST: return add_up(n, 1);
    case WARP_DALI_BILINEAR: return add_up(n, 0);
    case WARP_OPENCV_NEAREST:
    case WARP_OPENCV_BILINEAR:
    case WARP_OPENCV_BICUBIC: return remap(n);
    }
}
