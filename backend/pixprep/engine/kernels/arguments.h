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

enum { DONE = 0, NO_MEMORY = 1, NOT_HERE = 2 };  // return codes; NOT_HERE: a different decoder must decode

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
    PASSES_COPIED,  // PASSES_FIXED with one tap per window
};

// In the order of OPERATIONS in engine/kernels/resize.py, after the scale and offset.
enum operation { AFFINE, SUBTRACT, MULTIPLY, DIVIDE };

// Filter kernel, or rule, that determines the windows (filter coefficients): see `Formula` in plan/profiles/windows.py.
struct formula {
    int32_t curve;
    int32_t is_widened;
    int32_t bits;  // of fixed-point weights; 0: chosen per axis
};

// An axis, and the range of its result to compute: see `Axis` in plan/profiles/windows.py. An axis that keeps its length is
// copied.
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

// The windows of an axis: for each output position, its input positions and weights. The caller owns the memory, which has
// `taps` weights per window.
struct windows {
    int32_t *first;    // first input position of each window
    int32_t *count;    // number of taps of each window
    int32_t *weights;  // integers, or the bits of float32
    int64_t size;      // number of windows
    int64_t taps;      // maximum number of taps of a window
    int64_t bits;      // fractional bits of fixed-point weights
};

struct making {
    struct formula formula;
    struct axis axis;
    struct windows windows;  // result: bits, and the contents of the memory; without memory only `taps`
};

enum { AS_DECODED, BACKWARDS, ONE };  // order of channels: RGB, BGR, or a single channel

// Which values of a row DALI rounds away from 0 if they are ties.
struct ties {
    struct formula formula;
    struct axis columns;
    int64_t apart;              // column stride in values: 1 for gray, 3 or 4 for color
    int32_t is_vertical_first;
    int32_t order;              // channel order of the library: `Order` in plan/profiles/windows.py
    int64_t is_mirrored;        // whether the row is mirrored
    uint8_t *away;              // result: 1 for each value that is rounded away from 0
};

// A tensor of patches: each patch is a block of the image, in memory of its own. The strides of `struct values` then apply
// within a patch.
struct patches {
    int64_t height;     // rows of the image per patch
    int64_t width;      // columns of the image per patch
    int64_t merge;      // patches per side of a merge window, whose patches are adjacent in memory
    int64_t grid;       // patches per row of the image
    int64_t stride;     // bytes from patch to patch
    int64_t frames;     // number of times that a patch contains the image
    int64_t frame;      // bytes from frame to frame within a patch
    int64_t first;      // row of the image at which `struct values` begins
};

// Converts the pixel values of an image to the values of a tensor, (planes, rows, columns).
struct values {
    const uint8_t *levels;
    int64_t levels_plane;  // strides in bytes, as all that follow
    int64_t levels_row;
    int64_t levels_column;
    uint8_t *out;
    int64_t out_plane;
    int64_t out_row;
    int64_t out_column;
    const void *table;     // 256 values per plane; 0, only for bytes: copy the pixel values
    const double *lines;   // scale and offset per plane, which compute the same values as the table; 0: use the table
    int64_t planes;
    int64_t rows;
    int64_t columns;
    int64_t size;          // bytes per value
    const struct patches *patches;  // layout of a tensor of patches; 0: the strides apply to the whole tensor
};

// A step of a plan's arithmetic on float32 values, with a number, or a scale and an offset, per plane.
struct arithmetic {
    int64_t operation;
    double by[4];
    double offset[4];
};

// A complete resize of uint8 (rows, columns, channels) with padding around them: windows, both passes, tensor values.
struct resize {
    struct formula formula;
    struct axis rows;                 // the pixels including their padding
    struct axis columns;
    const struct windows *made_rows;  // 0: computed by the call
    const struct windows *made_columns;
    const uint8_t *pixels;
    int64_t pitch;                    // row stride in bytes; like the next two it may be negative
    int64_t apart;                    // column stride in bytes
    int64_t step;                     // channel stride in bytes
    int64_t height;                   // size of the pixels without padding
    int64_t width;
    int64_t channels;                 // 1 to 4
    int64_t above;                    // rows and columns of padding before the pixels
    int64_t before;
    uint32_t fill;                    // color of the padding, one byte per channel
    int32_t is_vertical_first;
    int32_t is_flipped;               // flip the result vertically
    int32_t is_mirrored;
    int32_t order;                    // as in `ties`
    int64_t first_channel;            // channel of the first plane
    int64_t channel_step;             // channels from one plane to the next
    struct values values;             // `levels` is unused. With 0 planes, the result is pixel values or float32 values,
                                      // 1 or 4 per pixel
    int64_t passes;
    double factor;                    // PASSES_AREA: 1 / number of pixels per window
    const struct arithmetic *steps;   // arithmetic on float32 values
    int64_t step_count;
};

// An image and its placement. Axis 0 is the rows, 1 the columns.
struct placed {
    double ratio[2];
    int64_t begin[2];    // the box: crop of the input
    int64_t end[2];
    int64_t resized[2];
    int64_t first[2];    // the region: range of the resized image to compute
    int64_t last[2];
    int64_t at[2];
    int64_t mirror[2];
    int64_t flip[2];
    int64_t is_vertical_first;
    int64_t like;        // index of the first image with an equal placement
    int64_t address;     // device address of the pixels
    int64_t height;
    int64_t width;
    int64_t pitch;
    int64_t tensor;
};

// A chunk for fast.cu: the structs of its images, followed by their windows.
struct chunk {
    struct formula formula;
    const struct placed *images;
    int64_t count;
    int64_t channels;
    uint8_t *memory;    // host memory to fill, which is then uploaded; 0: only compute its size
    int64_t address;    // device address of the uploaded memory
    int64_t n_bytes;    // result: size of the memory
    int64_t middle;     // result: bytes of the intermediate images between the passes
    int64_t wide;       // result: maximum extent of the first pass
    int64_t high;
};

// A step on colors. Each pixel is a word of red, green, blue and an unused byte; words are processed in groups of 16.
struct colours {
    uint32_t *pixels;
    int64_t count;     // number of pixels of the image
    double turn;       // rotation of the hue
    float gray;        // gray that a fade blends with
    float factor;      // factor of a blend or a fade
    float rest;        // float32(1 - factor)
    int32_t like;      // of `enum like`
    int64_t total;     // result: the sum of the luma
    uint8_t *curves;   // look-up tables (3, 256) of pixel values; for an HSV shift (256), of hues
    uint32_t *counts;  // result: histograms (3, 256), which the caller sets to 0
    float matrix[12];  // 3 rows for red, green and blue: factors of red, green and blue, and an offset
    int64_t width;     // HSV shift: width of the image; the next two: values that are added
    int32_t saturation;
    int32_t value;
};

// Noise: values of a table, at indices that Philox4x32-10 generates.
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

// A warp of gray pixels of 1 byte, or of color pixels of 3 or 4 bytes.
struct warp {
    const uint8_t *pixels;  // at least two columns and 8 bytes
    int64_t pitch;
    int64_t height;
    int64_t width;          // of the image; an image of width 1 has a second column in memory
    int64_t channels;       // 1 or 3; nearest also supports 4
    int64_t apart;          // column stride in bytes
    uint8_t *out;           // (rows, columns), a byte or a word per pixel, and space for 8 more pixels
    int64_t rows;
    int64_t columns;
    int64_t left;           // position of the first computed pixel in the complete result
    int64_t top;
    int64_t whole_height;
    int64_t whole_width;
    int64_t arithmetic;     // of `enum warps`
    double matrix[9];       // integers in 1/65536 for WARP_PILLOW_FIXED; the last three are those of a homography
    int64_t is_perspective;
    uint32_t fill;          // one byte per channel
    int32_t is_filled;      // torchvision: blend the fill with the pixels at the edge
    int64_t padding;        // in the order of PaddingMode in spec.py
    const float *x;         // source position per pixel, -1 to 1 in the image, and space for 8 more; null: use `matrix`
    const float *y;
    const int16_t *weights; // WARP_OPENCV_BICUBIC: 16 weights for each of 32 x 32 subpixel positions
};

// An elastic displacement field along one axis: see `Elastic` in plan/steps/warps.py.
struct field {
    float *out;            // (rows, columns)
    const float *places;   // coordinates of all columns or rows, to which the displacement is added; 0: none
    int64_t is_vertical;
    const double *across;  // `taps` symmetric weights with integer values
    const double *down;
    int64_t taps;          // odd
    int64_t height;        // of the image
    int64_t width;
    int64_t top;           // region of the image to compute
    int64_t left;
    int64_t rows;
    int64_t columns;
    uint32_t key[2];
    uint32_t which;
    float alpha;
    float side;            // length of the image along the axis
};

// A filter (blur or sharpness) of an image with contiguous rows: see plan/steps/levels.py.
struct filter {
    const uint8_t *pixels;
    int64_t pitch;        // row stride in bytes
    int64_t height;
    int64_t length;       // bytes per row, from its first to its last pixel value
    int64_t apart;        // column stride in bytes
    uint8_t *out;         // the same layout
    int64_t out_pitch;
    int64_t like;         // of `enum like`
    double rest;          // sharpness: float32(1 - factor)
    const float *rows;    // blur: weights of the vertical and the horizontal pass
    const float *columns;
    int64_t row_taps;     // odd
    int64_t column_taps;
    float factor;
};

// The structure of a JPEG: see engine/decoders/structure.py.
enum { MAX_KEPT = 16, MAX_SEGMENTS = 4096 };

struct jpeg {
    const uint8_t *data;
    int64_t size;
    int64_t is_whole;  // result, like all following fields
    int64_t kept;
    int64_t scans;
    int64_t interval;
    int64_t restarts;
    int64_t segments[MAX_KEPT];
};

// Region of a JPEG, decoded to its position in the buffer of the complete image. Pixels around the region may be overwritten.
struct jpeg_part {
    const void *library;  // struct libjpeg
    int64_t abi;          // JPEG_LIB_VERSION of the library
    const uint8_t *data;
    int64_t size;
    uint8_t *out;         // buffer of the complete image
    int64_t pitch;        // row stride in bytes
    int64_t channels;     // 1: gray; 4: red, green, blue and an unused byte
    uint32_t height;      // size of the image, then the region
    uint32_t width;
    uint32_t top;
    uint32_t left;
    uint32_t bottom;
    uint32_t right;
    int32_t is_fast_idct;
    int32_t is_fast_chroma;   // only for a complete image
    int32_t has_own_huffman;  // 1: huffman.c decodes the entropy-coded data; 0: the library's own loop
};
