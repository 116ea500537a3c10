// Structs that the host fills for the CUDA kernels, in C (fill.c) or in NumPy (fill.py with structs.py), and constants
// that the host and the kernels share. Sizes and offsets are in pixels, pitches in bytes.
#ifndef STRUCTS
#define STRUCTS

#ifndef VALUE
#define VALUE void
#endif

#define TAPS 4            // taps per group; one instruction multiplies a group and adds up the products
#define DIGITS 3          // signed bytes per weight
#define PIXELS 4          // pixels of a row that one thread of the second pass computes
#define ALIGNMENT 256     // alignment in bytes of each intermediate image between the passes

// Filter coefficients of one axis. For each output position i, in the order of the canvas: the first input position,
// the number of taps, and the weights, grouped by tap (weights[tap * size + i]). For fast.cu, groups of taps replace
// taps.
struct Coefficients {
    const int *first;
    const int *count;
    const int *weights;
    int size;
    int bits;  // fractional bits of fixed-point weights
};

// Memory layout of a tensor or a canvas of one image. All strides are numbers of values, not of bytes. In a tensor
// of patches, `strides` apply within a patch, and the image consists of slices of equal size, which are divided into
// patches.
struct Layout {
    int height;
    int width;
    int strides[3];          // channel, row and column stride
    int rows;                // number of rows and columns of patches in a slice
    int columns;
    long long patch_stride;  // stride between consecutive patches of a slice
    long long slice_stride;  // stride between consecutive slices
};

struct Image {
    const unsigned char *pixels;  // first pixel that the resize reads. On a mirrored axis, this pixel is the last one
                                  // in memory; fast.cu instead mirrors columns by the order of their coefficients
    unsigned char *intermediate;  // intermediate image between the passes, whose size is intermediate_height x
                                  // intermediate_width; in plain.cu in pixels with 32 bits per value, in fast.cu in
                                  // words
    VALUE *tensor;                // output of the second pass: the tensor, or the canvas for levels.cu
    const unsigned char *begin;   // bounds of the decoded image in memory; fast.cu does not read outside of them
    const unsigned char *end;
    struct Coefficients rows;     // vertical filter coefficients, for the rows of the region
    struct Coefficients columns;  // horizontal filter coefficients, for the columns of the region
    long long pitch;              // row stride in bytes; negative if mirrored
    int column_stride;            // column stride in bytes; negative if mirrored
    int height;                   // size of the pixels
    int width;
    int vertical_first;           // whether the first pass is vertical
    int intermediate_top;         // input row or column at which `intermediate` begins
    int intermediate_height;
    int intermediate_width;
    int top;                      // position of the region on the canvas
    int left;
    int passes;                   // `enum passes`: the arithmetic, which in some libraries depends on the size
    float factor;                 // PASSES_AREA: 1 / number of input pixels per output pixel
    int pad_top;                  // rows and columns of padding around the pixels before the resize, which the input
    int pad_left;                 // positions include; only plain.cu supports padding
    int pad_bottom;
    int pad_right;
    int fill;                     // color of the padding, one byte per decoded channel
    struct Layout layout;         // memory layout of `tensor`
    const unsigned char *away;    // PASSES_DALI: for each value of a row, whether ties are rounded away from 0
    const float *values;          // plain.cu: values that are resized instead of the pixel values, CHANNELS x 256; or null
};

#endif
