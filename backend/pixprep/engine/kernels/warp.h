// Pixels of a warp: rows of gray bytes, or of words of colours. Eight pixels are made together. Two that stand side by side
// are in one word of 64 bits, so that bilinear takes two loads.
#pragma once
#include <string.h>

#include "arguments.h"

#define LANES 8
#include "formulas.h"

typedef uint64_t pairs __attribute__((vector_size(8 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

// Arguments that are the same for all pixels, in registers.
struct image {
    const uint8_t *pixels;
    int row_stride;     // 32 bits: a 64-bit product takes three times as long
    int64_t last;  // where the last 8 bytes begin
    int height;
    int width;
    int column_stride;
    int channels;
    int padding;
    uint32_t fill;
};

INLINE struct image image_of(const struct warp *n, int padding, int channels, int column_stride) {
    const int64_t last = (n->height - 1) * n->row_stride + (n->width > 1 ? n->width - 1 : 1) * column_stride + channels - 8;
    return (struct image){n->pixels, (int)n->row_stride, last > 0 ? last : 0, n->height, n->width, column_stride, channels, padding, n->fill};
}

INLINE vint inner(vint place, int length) {
    place = SELECT(place > 0, place, 0);
    return SELECT(place < length, place, length - 1);
}

INLINE vint bordered(const struct image *image, vint place, int length) {
    if (image->padding == PADDING_REFLECT || image->padding == PADDING_SYMMETRIC)
        for (int lane = 0; lane < LANES; ++lane) place[lane] = border_position(image->padding, place[lane], length);
    return inner(place, length);
}

INLINE vint is_inside(const struct image *image, vint x, vint y) {
    return (x >= 0) & (x < image->width) & (y >= 0) & (y < image->height);
}

// The 64 bits that begin with the pixel at a place, which is in the image.
INLINE pairs load_pairs(const struct image *image, vint x, vint y) {
    pairs found;
    for (int lane = 0; lane < LANES; ++lane) {
        const int64_t offset = (int64_t)y[lane] * image->row_stride + (int64_t)x[lane] * image->column_stride;
        const int64_t begin = offset < image->last ? offset : image->last;
        uint64_t one;
        memcpy(&one, image->pixels + begin, sizeof one);
        found[lane] = one >> 8 * (offset - begin);
    }
    return found;
}

// The first pixel of two, or the second.
INLINE vuint pixel_of(pairs two, int shift) { return __builtin_convertvector(two >> shift, vuint); }

// The pixel at a position, which may be beyond the border.
INLINE vuint picked(const struct image *image, vint x, vint y) {
    vuint pixel = pixel_of(load_pairs(image, bordered(image, x, image->width), bordered(image, y, image->height)), 0);
    return image->padding == PADDING_CONSTANT ? SELECT(is_inside(image, x, y), pixel, image->fill) : pixel;
}

// Write so many of the pixels, or all eight.
INLINE void write_pixels(uint8_t *out, vuint made, int64_t count, int channels) {
    if (channels == 1) {
        bytes levels = __builtin_convertvector(made, bytes);
        if (count >= LANES) memcpy(out, &levels, LANES);
        else memcpy(out, &levels, count);
    } else {
        if (count >= LANES) memcpy(out, &made, sizeof made);
        else memcpy(out, &made, 4 * count);
    }
}

// A function compiled for each layout of pixels, and for affine maps and perspectives.
#define BY_LAYOUT(function, n, arithmetic, is_nearest, is_perspective)                                 \
    ((n)->channels == 1                   ? function(n, arithmetic, is_perspective, 1, 1)              \
     : (n)->channels == 4 && (is_nearest) ? function(n, arithmetic, is_perspective, 4, 4)              \
     : (n)->column_stride == 3                    ? function(n, arithmetic, is_perspective, 3, 3)              \
                                          : function(n, arithmetic, is_perspective, 3, 4))
#define BY_FORM(function, n, arithmetic, is_nearest)                                                   \
    ((n)->is_perspective ? BY_LAYOUT(function, n, arithmetic, is_nearest, 1)                           \
                         : BY_LAYOUT(function, n, arithmetic, is_nearest, 0))

// OpenCV's.
void remap(const struct warp *n);
