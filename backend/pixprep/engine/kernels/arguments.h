// Arguments of the kernels in C: each function is given one struct, by address. engine/kernels/layout.py reads them here.
#pragma once
#include <stdint.h>

#define KERNEL __attribute__((visibility("default")))

// In the order of `Curve` and `Rule` in plan/profiles/windows.py.
enum curve {
    BOX,
    BILINEAR,
    HAMMING,
    BICUBIC,
    LANCZOS,
    TWO,
    FOUR,
    OPENCV_LINEAR,  // the first of those that rules.c makes
    OPENCV_REPEATED,
    OPENCV_CUBIC,
    OPENCV_LANCZOS4,
    OPENCV_AREA,
    OPENCV_CUT,
    TORCH_BILINEAR,
    TORCH_BICUBIC,
    DALI_BILINEAR,
    DALI_BICUBIC,
    DALI_LANCZOS,
    TENSORFLOW_LINEAR,
    TENSORFLOW_TRIANGLE,
};

enum { DONE = 0, NO_MEMORY = 1, NOT_HERE = 2 };  // what a function answers

// In the order of `Passes` in plan/profiles/windows.py.
enum passes {
    PASSES_FIXED,
    PASSES_OPENCV_LINEAR,
    PASSES_OPENCV_CUBIC,
    PASSES_OPENCV_LANCZOS,
    PASSES_AREA,
    PASSES_FLOAT_EVEN,
    PASSES_DALI,
    PASSES_FLOAT_FUSED,
    PASSES_REAL,
    PASSES_LERP,
    PASSES_COPIED,  // PASSES_FIXED, of one position a window
};

// In the order of OPERATIONS in engine/kernels/resize.py, after the scale and offset.
enum operation { AFFINE, SUBTRACT, MULTIPLY, DIVIDE };

// A formula of windows: plan/profiles/windows.py says what it means.
struct formula {
    int32_t curve;
    int32_t is_widened;
    int32_t bits;  // 0: the axis has its own
};

// An axis, and the part of its result that is wanted: the fields of plan/profiles/windows.py. One that keeps its length stays as it is.
struct axis {
    int64_t length;
    int64_t out_length;
    double ratio;
    int64_t begin;
    int64_t end;
    double offset;
    int64_t is_vertical;
    int64_t across;
};

// The windows of an axis. Memory is the caller's: `taps` weights a window.
struct windows {
    int32_t *first;    // the first position of each window
    int32_t *count;    // its positions
    int32_t *weights;  // or the bits of float32
    int64_t size;      // how many windows
    int64_t taps;      // the most positions of a window
    int64_t bits;      // of the weights
};

struct making {
    struct formula formula;
    struct axis axis;
    struct windows windows;  // made: bits, and what lies in the memory; without memory the taps alone
};

enum { AS_DECODED, BACKWARDS, ONE };  // orders of channels

// Values of a row that are rounded away from 0 if they are ties, by DALI's rule.
struct ties {
    struct formula formula;
    struct axis columns;
    int64_t apart;              // values from column to column: 1 of gray, of three channels 3 or 4
    int32_t is_vertical_first;
    int32_t order;              // of the library's channels: `Order` in plan/profiles/windows.py
    int64_t is_mirrored;        // the row is
    uint8_t *away;              // made: of each value 1 or 0
};

// Values of a tensor, (planes, rows, columns), by the levels of an image.
struct values {
    const uint8_t *levels;
    int64_t levels_plane;  // bytes from one to the next
    int64_t levels_row;
    int64_t levels_column;
    uint8_t *out;
    int64_t out_plane;
    int64_t out_row;
    int64_t out_column;
    const void *table;     // of each plane 256 values; 0, of bytes alone: the levels
    const double *lines;   // of each plane scale and offset, which give the values, too; 0: nothing does
    int64_t planes;
    int64_t rows;
    int64_t columns;
    int64_t size;          // bytes of a value
};

// A step of a plan's arithmetic on real values: by a number, or a scale and an offset, of each plane.
struct arithmetic {
    int64_t operation;
    double by[4];
    double offset[4];
};

// A whole resize of uint8 (rows, columns, channels) and of a margin around them: windows, both passes, values.
struct resize {
    struct formula formula;
    struct axis rows;                 // of the pixels with their margin
    struct axis columns;
    const struct windows *made_rows;  // 0: they are made here
    const struct windows *made_columns;
    const uint8_t *pixels;
    int64_t pitch;                    // bytes from row to row; it may be negative, as the next two
    int64_t apart;                    // bytes from column to column
    int64_t step;                     // bytes from channel to channel
    int64_t height;                   // of the pixels
    int64_t width;
    int64_t channels;                 // 1 to 4
    int64_t above;                    // rows and columns of the margin, before the pixels
    int64_t before;
    uint32_t fill;                    // of the margin: a byte a channel
    int32_t is_vertical_first;
    int32_t is_flipped;               // the result stands on its head
    int32_t is_mirrored;
    int32_t order;                    // as of `ties`
    int64_t first_channel;            // of the first plane
    int64_t channel_step;             // from plane to plane
    struct values values;             // without levels, and what follows from them. Without planes the result is levels
                                      // or real values, 1 or 4 of them a pixel
    int64_t passes;
    double factor;                    // of area: one over the pixels of a window
    const struct arithmetic *steps;   // of real values
    int64_t step_count;
};

// An image and its placement. Axis 0 is the rows, 1 the columns.
struct placed {
    double ratio[2];
    int64_t begin[2];    // of the box
    int64_t end[2];
    int64_t resized[2];
    int64_t first[2];    // of the region
    int64_t last[2];
    int64_t at[2];
    int64_t mirror[2];
    int64_t flip[2];
    int64_t is_vertical_first;
    int64_t like;        // the number of the first image with the same placement
    int64_t address;     // of the pixels, in the kernels' memory
    int64_t height;
    int64_t width;
    int64_t pitch;
    int64_t tensor;
};

// A chunk for fast.cu: the structs of its images, and behind them their windows.
struct chunk {
    struct formula formula;
    const struct placed *images;
    int64_t count;
    int64_t channels;
    uint8_t *memory;    // what is uploaded; 0: it is measured alone
    int64_t address;    // where the kernels find it
    int64_t n_bytes;    // made: of the memory
    int64_t middle;     // made: bytes between the passes
    int64_t wide;       // made: the largest extent of the first pass
    int64_t high;
};

// A step on colours: words of red, green, blue and a byte of no meaning, in groups of 16.
struct colours {
    uint32_t *pixels;
    int64_t count;     // of words that are the image's
    double turn;       // of the hue
    float gray;        // of a fade
    float factor;      // of a blend or a fade
    float rest;        // float32(1 - factor)
    int32_t like;      // of `enum like`
    int64_t total;     // made: the sum of the luma
    uint8_t *curves;   // (3, 256): what levels become; of a shift (256): what hues become
    uint32_t *counts;  // made: (3, 256), which begin as 0: of the levels
    float matrix[12];  // of red, green and blue: the factors of red, green and blue, and an offset
    int64_t width;     // of the image, as the next two of a shift
    int32_t saturation;
    int32_t value;
};

// Noise: values that Philox looks up.
struct noise {
    float *out;
    int64_t count;
    const float *table;  // 65,536 values
    uint32_t key[2];
    uint32_t which;
};

// In the order of `WarpArithmetic` in plan/profiles/warps.py.
enum warps {
    WARP_PILLOW_FIXED, WARP_PILLOW_WALK, WARP_PILLOW_NEAREST, WARP_PILLOW_BILINEAR, WARP_PILLOW_BICUBIC,
    WARP_TORCHVISION_NEAREST, WARP_TORCHVISION_BILINEAR, WARP_DALI_NEAREST, WARP_DALI_BILINEAR,
    WARP_OPENCV_NEAREST, WARP_OPENCV_BILINEAR, WARP_OPENCV_BICUBIC,
};

// A warp of gray bytes, or of colours that lie 3 or 4 bytes apart.
struct warp {
    const uint8_t *pixels;  // of at least two columns and 8 bytes
    int64_t pitch;
    int64_t height;
    int64_t width;          // of the image: one of one column has a second behind it
    int64_t channels;       // 1 or 3; of what takes the nearest also 4
    int64_t apart;          // bytes from pixel to pixel
    uint8_t *out;           // (rows, columns), a byte or a word a pixel, and room for 8 pixels more
    int64_t rows;
    int64_t columns;
    int64_t left;           // of the first pixel in the whole result
    int64_t top;
    int64_t whole_height;
    int64_t whole_width;
    int64_t arithmetic;     // of `enum warps`
    double matrix[9];       // of WARP_PILLOW_FIXED in 65,536ths, integers; after the first six those of a perspective
    int64_t is_perspective;
    uint32_t fill;          // a level a byte
    int32_t is_filled;      // torchvision mixes the fill with what is at the edge
    int64_t padding;        // in the order of PaddingMode in spec.py
    const float *x;         // of each pixel made, -1 to 1 in the image, and room for 8 more; null: by the matrix
    const float *y;
    const int16_t *weights; // of WARP_OPENCV_BICUBIC: 16 for each of 32 x 32 places
};

// A field of an elastic displacement along one axis: plan/steps/warps.py says which.
struct field {
    float *out;            // (rows, columns)
    const float *places;   // of the whole image's columns or rows, to which it is added; 0: to nothing
    int64_t is_vertical;
    const double *across;  // `taps` weights, the same from both ends: integers
    const double *down;
    int64_t taps;          // odd
    int64_t height;        // of the image
    int64_t width;
    int64_t top;           // the window of it that is made
    int64_t left;
    int64_t rows;
    int64_t columns;
    uint32_t key[2];
    uint32_t which;
    float alpha;
    float side;            // of the image along the axis
};

// A filter of an image whose pixels lie side by side: plan/steps/levels.py says which.
struct filter {
    const uint8_t *pixels;
    int64_t pitch;        // bytes from row to row
    int64_t height;
    int64_t length;       // bytes of a row, from its first level to its last one
    int64_t apart;        // bytes from column to column
    uint8_t *out;         // of the same layout
    int64_t out_pitch;
    int64_t like;         // of `enum like`
    double rest;          // of a sharpness: float32(1 - factor)
    const float *rows;    // weights of a blur: of the rows that it adds up
    const float *columns;
    int64_t row_taps;     // odd
    int64_t column_taps;
    float factor;
};

// The structure of a JPEG, as engine/decoders/structure.py says.
enum { MAX_KEPT = 16, MAX_SEGMENTS = 4096 };

struct jpeg {
    const uint8_t *data;
    int64_t size;
    int64_t is_whole;  // made, as all that follows
    int64_t kept;
    int64_t scans;
    int64_t interval;
    int64_t restarts;
    int64_t segments[MAX_KEPT];
};

// Part of a JPEG, written to where it lies in the whole image; of the rest of that some is overwritten.
struct jpeg_part {
    const void *library;  // struct libjpeg
    int64_t abi;          // of the library
    const uint8_t *data;
    int64_t size;
    uint8_t *out;         // the whole image
    int64_t pitch;        // bytes from row to row
    int64_t channels;     // 1: gray; 4: red, green, blue and a byte of no meaning
    uint32_t height;      // of the image
    uint32_t width;
    uint32_t top;
    uint32_t left;
    uint32_t bottom;
    uint32_t right;
    int32_t is_fast_idct;
    int32_t is_fast_chroma;  // of a whole image alone
    int32_t has_own_huffman;  // entropy-coded data are decoded by huffman.c; 0: by the library's own loop
};
