// Reads and writes the pixels of a warp, eight at a time. A gray pixel has one byte, a color pixel three or four. Two horizontal
// neighbors are loaded together as a 64-bit word, so that a bilinear interpolation needs only two loads per pixel.
#pragma once
#include <string.h>

#include "arguments.h"

#define LANES 8
#include "formulas.h"

typedef uint64_t pixel_pairs __attribute__((vector_size(8 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

// Arguments that are the same for all pixels. They are copied, so that the compiler can keep them in registers.
struct image {
    const uint8_t *pixels;
    int row_stride;       // 32 bits, because a 64-bit multiplication takes three times as long
    int64_t last_offset;  // offset of the last 8 bytes of the image
    int height;
    int width;
    int column_stride;
    int channels;
    int padding;
    uint32_t fill;
};

INLINE struct image image_of(const struct warp *n, int padding, int channels, int column_stride) {
    const int64_t last_offset =
        (n->height - 1) * n->row_stride + (n->width > 1 ? n->width - 1 : 1) * column_stride + channels - 8;
    return (struct image){
        n->pixels, (int)n->row_stride, last_offset > 0 ? last_offset : 0, n->height, n->width, column_stride, channels, padding,
        n->fill};
}

// Clamp positions to the image.
INLINE vint clamp_position(vint position, int length) {
    position = SELECT(position > 0, position, 0);
    return SELECT(position < length, position, length - 1);
}

// Map positions outside of the image to the positions that the padding mode repeats. With PADDING_CONSTANT, clamp them.
INLINE vint border_positions(const struct image *image, vint position, int length) {
    if (image->padding == PADDING_REFLECT || image->padding == PADDING_SYMMETRIC)
        for (int lane = 0; lane < LANES; ++lane) position[lane] = border_position(image->padding, position[lane], length);
    return clamp_position(position, length);
}

INLINE vint is_inside(const struct image *image, vint x, vint y) {
    return (x >= 0) & (x < image->width) & (y >= 0) & (y < image->height);
}

// Load the 64 bits from each pixel on. The positions are inside of the image.
INLINE pixel_pairs load_pairs(const struct image *image, vint x, vint y) {
    pixel_pairs pairs;
    for (int lane = 0; lane < LANES; ++lane) {
        const int64_t offset = (int64_t)y[lane] * image->row_stride + (int64_t)x[lane] * image->column_stride;
        const int64_t begin = offset < image->last_offset ? offset : image->last_offset;
        uint64_t word;
        memcpy(&word, image->pixels + begin, sizeof word);
        pairs[lane] = word >> 8 * (offset - begin);
    }
    return pairs;
}

// Extract the pixels that begin at bit `shift` of their words.
INLINE vuint pixel_of(pixel_pairs pairs, int shift) { return __builtin_convertvector(pairs >> shift, vuint); }

// Read the pixels at positions that may be outside of the image.
INLINE vuint read_pixels(const struct image *image, vint x, vint y) {
    vuint pixel =
        pixel_of(load_pairs(image, border_positions(image, x, image->width), border_positions(image, y, image->height)), 0);
    return image->padding == PADDING_CONSTANT ? SELECT(is_inside(image, x, y), pixel, image->fill) : pixel;
}

// Write `count` of the pixels, at most eight.
INLINE void write_pixels(uint8_t *out, vuint pixels, int64_t count, int channels) {
    if (channels == 1) {
        bytes values = __builtin_convertvector(pixels, bytes);
        if (count >= LANES) memcpy(out, &values, LANES);
        else memcpy(out, &values, count);
    } else {
        if (count >= LANES) memcpy(out, &pixels, sizeof pixels);
        else memcpy(out, &pixels, 4 * count);
    }
}

// Compile a function separately for each layout of pixels (channels, column stride), and for affine matrices and homographies.
#define FOR_LAYOUT(function, n, arithmetic, is_nearest, is_perspective)                                                        \
    ((n)->channels == 1                   ? function(n, arithmetic, is_perspective, 1, 1)                                      \
     : (n)->channels == 4 && (is_nearest) ? function(n, arithmetic, is_perspective, 4, 4)                                      \
     : (n)->column_stride == 3            ? function(n, arithmetic, is_perspective, 3, 3)                                      \
                                          : function(n, arithmetic, is_perspective, 3, 4))
#define FOR_TRANSFORM(function, n, arithmetic, is_nearest)                                                                     \
    ((n)->is_perspective ? FOR_LAYOUT(function, n, arithmetic, is_nearest, 1)                                                  \
                         : FOR_LAYOUT(function, n, arithmetic, is_nearest, 0))

// Compute a warp with OpenCV's arithmetic.
void remap(const struct warp *n);
