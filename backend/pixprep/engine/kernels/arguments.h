// Arguments of the exported C functions. Each function receives the address of one struct. engine/kernels/layout.py parses
// this file, so that the structs are declared only once.
#pragma once
#include <stdint.h>

#define KERNEL __attribute__((visibility("default")))

// Filter kernels, in the order of `Curve` and `Rule` in plan/profiles/windows.py.
enum filter_type {
    FILTER_BOX,
    FILTER_BILINEAR,
    FILTER_HAMMING,
    FILTER_BICUBIC,
    FILTER_LANCZOS,
    FILTER_TWO,   // linear interpolation between the two nearest positions, without antialiasing
    FILTER_FOUR,  // cubic interpolation between the four nearest positions, without antialiasing
    FILTER_OPENCV_LINEAR,    // from here on: implemented in library_filters.c
    FILTER_OPENCV_REPEATED,  // INTER_AREA that enlarges an axis, or halves both
    FILTER_OPENCV_CUBIC,
    FILTER_OPENCV_LANCZOS4,
    FILTER_OPENCV_AREA,      // INTER_AREA with integer ratios
    FILTER_OPENCV_CUT,       // INTER_AREA with other ratios of at least 1
    FILTER_TORCH_BILINEAR,
    FILTER_TORCH_BICUBIC,
    FILTER_TORCH_TWO,           // FILTER_TWO and FILTER_FOUR in float32
    FILTER_TORCH_FOUR,
    FILTER_TORCH_CORNERS_TWO,   // the same, with align_corners
    FILTER_TORCH_CORNERS_FOUR,
    FILTER_TORCH_LINEAR,        // linear interpolation with integer weights
    FILTER_DALI_BILINEAR,
    FILTER_DALI_BICUBIC,
    FILTER_DALI_LANCZOS,
    FILTER_TENSORFLOW_LINEAR,
    FILTER_TENSORFLOW_TRIANGLE,
};

enum { DONE = 0, NO_MEMORY = 1, NOT_DECODED = 2 };  // return codes; after NOT_DECODED, another decoder must decode the image

// Arithmetic of the two passes of a resize, in the order of `Passes` in plan/profiles/windows.py.
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
    PASSES_FLOAT_PAIRS,
    PASSES_SMOOTHED,  // implemented in smoothing.c
    PASSES_COPIED,  // PASSES_FIXED with one tap per output position, which is copied
};

// Arithmetic of a tensor value: the operations of OPERATIONS in engine/kernels/resize.py.
enum operation { AFFINE, SUBTRACT, MULTIPLY, DIVIDE, CLIP };

// Resampling filter of an axis: see `Formula` in plan/profiles/windows.py.
struct resize_filter {
    int32_t type;            // a value of `enum filter_type`
    int32_t is_antialiased;  // whether the support is scaled by the ratio when the axis shrinks
    int32_t bits;            // fractional bits of fixed-point weights; 0: the maximum that fits, chosen per axis
};

// An axis, and the range of output positions to compute: see `Axis` in plan/profiles/windows.py. An axis that keeps its
// length is copied.
struct axis {
    int64_t length;
    int64_t out_length;
    double ratio;         // input positions per output position
    int64_t begin;        // range of output positions to compute
    int64_t end;
    double offset;        // input position at which output position 0 begins
    int64_t is_vertical;
    int64_t across;       // output length of the other axis, for filters that depend on it
};

// Filter coefficients of an axis: the input positions (taps) of each output position, and their weights. The caller owns the
// memory. Each output position has space for `taps` weights.
struct coefficients {
    int32_t *first;    // first input position of each output position
    int32_t *count;    // number of taps of each output position
    int32_t *weights;  // integers, or the bits of float32
    int64_t size;      // number of output positions
    int64_t taps;      // maximum number of taps of an output position
    int64_t bits;      // fractional bits of fixed-point weights
};

struct coefficients_request {
    struct resize_filter filter;
    struct axis axis;
    struct coefficients coefficients;  // result: bits, and the contents of the memory; without memory only `taps`
};

enum { ORDER_AS_DECODED, ORDER_REVERSED, ORDER_SINGLE };  // order of the channels: RGB, BGR, or a single channel

// Request: which values of a row DALI rounds away from 0 when they are halfway between two integers.
struct ties {
    struct resize_filter filter;
    struct axis columns;
    int64_t column_stride;      // in values: 1 for gray, 3 or 4 for color
    int32_t is_vertical_first;  // whether the vertical pass comes first
    int32_t order;              // channel order of the library: `Order` in plan/profiles/windows.py
    int64_t is_mirrored;        // whether the row is mirrored
    uint8_t *away;              // result: 1 for each value that is rounded away from 0
};

// Layout of a tensor of patches. Each patch is a block of the image, stored contiguously. The strides of `struct values` then
// apply within a patch.
struct patches {
    int64_t height;           // rows of the image per patch
    int64_t width;            // columns of the image per patch
    int64_t merge;            // patches per edge of a merge window, whose patches are adjacent in memory
    int64_t patches_per_row;  // number of patches per row of the image
    int64_t patch_stride;     // in bytes
    int64_t frames;           // number of times that each patch repeats its block
    int64_t frame_stride;     // bytes between the repetitions within a patch
    int64_t first_row;        // row of the image at which `struct values` begins
};

// Converts the pixel values of an image to the values of a tensor, (planes, rows, columns). All strides are in bytes.
struct values {
    const uint8_t *pixels;
    int64_t plane_stride;   // from channel to channel of `pixels`
    int64_t row_stride;
    int64_t column_stride;
    uint8_t *out;
    int64_t out_plane_stride;
    int64_t out_row_stride;
    int64_t out_column_stride;
    const void *table;      // look-up table with 256 values per plane; null: copy the pixel values, which requires uint8 values
    const double *affine;   // scale and offset per plane, which compute the same values as the table; null: use the table
    int64_t planes;
    int64_t rows;
    int64_t columns;
    int64_t value_size;     // bytes per value
    const struct patches *patches;  // layout of a tensor of patches; null: the strides apply to the whole tensor
};

// A step of a plan's arithmetic on float32 values.
struct arithmetic {
    int64_t operation;  // a value of `enum operation`
    double operand[4];  // one per plane. AFFINE: the scale; CLIP: the minimum; others: the second operand
    double offset[4];   // AFFINE: the offset, CLIP: the maximum
};

// A complete resize of uint8 (rows, columns, channels) with padding around them: filter coefficients, both passes, and tensor
// values.
struct resize {
    struct resize_filter filter;
    struct axis rows;                 // the axes include the padding
    struct axis columns;
    const struct coefficients *given_rows;  // null: the call computes them
    const struct coefficients *given_columns;
    const uint8_t *pixels;
    int64_t row_stride;               // in bytes, as the next two; strides may be negative
    int64_t column_stride;
    int64_t channel_stride;
    int64_t height;                   // size of the image without padding
    int64_t width;
    int64_t channels;                 // 1 to 4
    int64_t pad_top;                  // rows of padding above the image
    int64_t pad_left;                 // columns of padding to the left of the image
    uint32_t fill;                    // color of the padding, one byte per channel
    int32_t is_vertical_first;        // whether the vertical pass comes first
    int32_t is_flipped;               // whether to flip the result vertically
    int32_t is_mirrored;              // whether to flip the result horizontally
    int32_t order;                    // channel order, as in `ties`
    int64_t first_channel;            // channel of the first plane
    int64_t channel_step;             // channels from one plane to the next: 1 or -1
    struct values values;             // `pixels` is unused. With 0 planes, the result is not a tensor but an image of uint8
                                      // or float32 values with 1 or 4 channels
    int64_t passes;                   // a value of `enum passes`
    double factor;                    // PASSES_AREA: 1 / number of pixels per output pixel
    const struct arithmetic *steps;   // arithmetic on float32 values
    int64_t step_count;
    const float *levels;              // PASSES_FLOAT_FUSED and PASSES_FLOAT_PAIRS: float32 value that replaces each pixel
                                      // value, 256 for each of 4 channels; the result is then not rounded.
                                      // null: the pixel values are resized, and the result is uint8
};

// An image and its placement on the canvas. In arrays, index 0 is the vertical axis and 1 the horizontal axis.
struct placed_image {
    double ratio[2];           // input positions per output position
    int64_t crop_begin[2];     // crop of the decoded image
    int64_t crop_end[2];
    int64_t resized[2];        // size of the crop after the resize
    int64_t region_begin[2];   // region of the resized crop to compute
    int64_t region_end[2];
    int64_t position[2];       // position of the region on the canvas
    int64_t is_mirrored[2];    // whether the decoded image is flipped before the resize
    int64_t is_flipped[2];     // whether the result is flipped
    int64_t is_vertical_first; // whether the vertical pass comes first
    int64_t same_as;           // index of the first image with an equal placement
    int64_t pixels;            // device address
    int64_t height;            // size of the decoded image
    int64_t width;
    int64_t row_stride;        // in bytes
    int64_t tensor;            // device address of the output
};

// Host memory of a chunk for fast.cu: the structs of its images, followed by their filter coefficients.
struct chunk {
    struct resize_filter filter;
    const struct placed_image *images;
    int64_t count;               // number of images
    int64_t channels;
    uint8_t *memory;             // host memory to fill, which is then uploaded; null: only compute its size
    int64_t device_address;      // address of the uploaded memory
    int64_t n_bytes;             // result: size of the memory
    int64_t intermediate_bytes;  // result: size of the intermediate images between the passes
    int64_t max_width;           // result: maximum size of an intermediate image
    int64_t max_height;
};

// An operation on the colors of an image. Each pixel is a word of red, green, blue and an unused byte. Words are processed in
// groups of 16.
struct colours {
    uint32_t *pixels;
    int64_t count;           // number of pixels
    double hue_shift;        // rotation of the hue; its unit depends on the library
    float gray;              // gray value that `fade` blends all pixels with
    float factor;            // weight of the image in a blend or a fade
    float one_minus_factor;  // float32(1 - factor)
    int32_t like;            // a value of `enum like`
    int64_t luma_sum;        // result of `add_luma`
    uint8_t *tables;         // look-up tables (3, 256) of pixel values; for an HSV shift one table (256) of hues
    uint32_t *counts;        // result: histograms (3, 256), which the caller initializes to 0
    float matrix[12];        // one row each for red, green and blue: the factors of red, green and blue, and an offset
    int64_t width;           // HSV shift: width of the image
    int32_t saturation;      // HSV shift: number that is added to the saturation
    int32_t value;           // HSV shift: number that is added to the value
};

// A resize that smooths the image with a Gaussian and then interpolates linearly between the smoothed pixels.
struct smoothed_resize {
    const uint8_t *pixels;
    int64_t row_stride;
    int64_t column_stride;
    int64_t channel_stride;
    int64_t height;
    int64_t width;
    int64_t channels;
    const float *values;          // look-up table from pixel values to the resized values, (4, 256)
    const double *row_weights;    // Gaussian along the vertical axis, from its first tap to its center
    const double *column_weights; // Gaussian along the horizontal axis, from its first tap to its center
    int64_t row_radius;           // number of taps before the center; 0: this axis is not smoothed
    int64_t column_radius;
    int64_t out_height;           // size of the whole result
    int64_t out_width;
    int64_t top;                  // region of the result to compute
    int64_t left;
    int64_t bottom;
    int64_t right;
    int64_t is_flipped;           // whether to reverse the order of the rows of the region
    int64_t is_mirrored;          // the same for the columns
    float *out;                   // the region, with 1 or 4 values per pixel
};

// A sum of float32 values in the order of NumPy's `sum` of a contiguous array.
struct pairwise_sum {
    const uint8_t *pixels;
    int64_t count;
    float mean;       // subtracted from each pixel value
    int32_t squares;  // whether to sum the squares of these differences
    float sum;        // result
};

// Noise from a table of quantiles, indexed by the random numbers of Philox4x32-10.
struct noise {
    float *out;
    int64_t count;         // number of values
    const float *table;    // 65,536 quantiles
    uint32_t key[2];
    uint32_t counter_word; // second word of the counter
};

// In the order of `ARITHMETICS` in plan/profiles/profile.py.
enum warps {
    WARP_PILLOW_FIXED, WARP_PILLOW_WALK, WARP_PILLOW_NEAREST, WARP_PILLOW_BILINEAR, WARP_PILLOW_BICUBIC,
    WARP_TORCHVISION_NEAREST, WARP_TORCHVISION_BILINEAR, WARP_DALI_NEAREST, WARP_DALI_BILINEAR,
    WARP_OPENCV_NEAREST, WARP_OPENCV_BILINEAR, WARP_OPENCV_BICUBIC, WARP_SCIPY_NEAREST, WARP_SCIPY_BILINEAR,
};

// A warp by an affine matrix, a homography, or given source positions. Gray pixels have 1 byte, color pixels 3 or 4 bytes.
struct warp {
    const uint8_t *pixels;   // at least two columns and 8 bytes
    int64_t row_stride;      // in bytes
    int64_t height;
    int64_t width;           // width of the image; if it is 1, the memory contains a second column
    int64_t channels;        // 1 or 3; nearest also supports 4
    int64_t column_stride;   // in bytes
    uint8_t *out;            // (rows, columns), a byte or a word per pixel, and space for 8 more pixels
    int64_t rows;            // size of the region to compute
    int64_t columns;
    int64_t left;            // position of the region in the complete result
    int64_t top;
    int64_t full_height;     // size of the complete result
    int64_t full_width;
    int64_t arithmetic;      // a value of `enum warps`
    double matrix[9];        // maps output to input positions, row by row; integers in 1/65536 for WARP_PILLOW_FIXED
    int64_t is_perspective;  // whether the matrix is a homography; if not, its last row is unused
    uint32_t fill;           // color outside of the image, one byte per channel
    int32_t is_filled;       // torchvision: whether to blend the fill with the pixels at the edge of the image
    int64_t padding;         // a value of `enum padding`
    const float *source_x;   // input position of each pixel, and space for 8 more; null: use `matrix`. torchvision: from -1 to 1 in
                             // the image; OpenCV: in pixels, and 0 is the center of the first pixel
    const float *source_y;
    const int16_t *weights;  // WARP_OPENCV_BICUBIC: 16 weights for each of 32 x 32 subpixel positions
};

// An elastic displacement field along one axis: see `Elastic` in plan/steps/warps.py.
struct displacement {
    float *out;                        // (rows, columns)
    const float *identity;             // coordinates along the axis, which are added to the displacement; null: add nothing
    int64_t is_vertical;               // whether the axis is the vertical one
    const double *horizontal_weights;  // Gaussian weights, scaled to integers
    const double *vertical_weights;
    int64_t taps;                      // number of weights, odd
    int64_t height;                    // size of the image
    int64_t width;
    int64_t top;                       // region of the image to compute
    int64_t left;
    int64_t rows;
    int64_t columns;
    uint32_t key[2];                   // key of Philox4x32-10
    uint32_t counter_word;             // second word of the counter
    float alpha;                       // scale of the displacement in pixels
    float axis_length;                 // in pixels
};

// A blur or a sharpness adjustment of an image with contiguous rows: see `Filter` in plan/steps/levels.py.
struct convolution {
    const uint8_t *pixels;
    int64_t row_stride;       // in bytes
    int64_t height;
    int64_t row_bytes;        // bytes from the first to the last pixel value of a row
    int64_t column_stride;    // in bytes
    uint8_t *out;             // the same layout
    int64_t out_row_stride;
    int64_t like;             // a value of `enum like`
    double one_minus_factor;  // sharpness: float32(1 - factor)
    const float *vertical_weights;  // blur
    const float *horizontal_weights;
    int64_t vertical_taps;    // numbers of weights, odd
    int64_t horizontal_taps;
    float factor;             // sharpness
};

// Filters of square neighborhoods, in the order of `NeighborhoodKind` in plan/steps/neighborhoods.py.
enum neighborhoods { NEIGHBORHOOD_MEAN, NEIGHBORHOOD_MEDIAN, NEIGHBORHOOD_WEIGHTS };

// A filter over the square neighborhood of each pixel value. The image has `size` / 2 pixels of padding on each side.
struct neighborhood {
    const uint8_t *pixels;   // first value of the padding, and space for 16 more values at the end
    int64_t row_stride;      // in bytes
    int64_t column_stride;   // in bytes
    int64_t height;          // size of the result
    int64_t row_bytes;
    uint8_t *out;
    int64_t out_row_stride;
    int64_t kind;            // a value of `enum neighborhoods`
    int64_t size;            // odd
    const int64_t *offsets;  // NEIGHBORHOOD_WEIGHTS: in bytes, from the first value of the neighborhood
    const float *weights;
    int64_t taps;
};

// Adaptive histogram equalization of an image with contiguous pixels. engine/kernels/neighborhoods.py computes the tables of the
// conversions between RGB and CIELAB.
struct clahe {
    const uint8_t *pixels;
    uint8_t *out;
    int64_t height;
    int64_t width;
    int64_t channels;                // 1 or 3
    int64_t clip_limit;              // maximum number of pixels per level and tile
    int64_t tile_rows;               // number of tiles
    int64_t tile_columns;
    int64_t tile_height;
    int64_t tile_width;
    uint8_t *tables;                 // memory for the look-up tables of the tiles, (tile_rows * tile_columns, 256)
    const uint16_t *gamma;           // (256)
    const uint16_t *cube_roots;      // (3072)
    const int32_t *rgb_to_xyz;       // (3, 3)
    const uint16_t *lightness_to_y;  // Y and its cube root, (256, 2)
    const int32_t *root_to_xz;       // (36864)
    const int32_t *xyz_to_rgb;       // (3, 3)
    const uint8_t *inverse_gamma;    // (4096)
};

// The structure of a JPEG: see engine/decoders/structure.py.
enum { MAX_KEPT = 16, MAX_SEGMENTS = 4096 };

struct jpeg {
    const uint8_t *data;
    int64_t size;              // bytes
    int64_t is_complete;       // result, like all following fields: whether this is one well-formed JPEG
    int64_t segment_count;     // number of entries of `segments`
    int64_t scans;             // number of scans
    int64_t restart_interval;  // restart interval of the first scan in MCUs; 0 without restart markers
    int64_t restart_markers;   // number of restart markers in the first scan
    int64_t segments[MAX_KEPT];  // last byte of each marker, plus 256 times the offset of the segment's length field
};

// Decodes a region of a JPEG to its position in the buffer of the complete image. Pixels around the region may be overwritten.
struct jpeg_region {
    const void *library;      // struct libjpeg
    int64_t abi;              // JPEG_LIB_VERSION of the library
    const uint8_t *data;
    int64_t size;             // bytes
    uint8_t *out;             // buffer of the complete image
    int64_t row_stride;       // row stride of the buffer in bytes
    int64_t channels;         // 1: gray; 4: red, green, blue and an unused byte
    uint32_t height;          // size of the complete image
    uint32_t width;
    uint32_t top;             // region to decode
    uint32_t left;
    uint32_t bottom;
    uint32_t right;
    int32_t is_fast_idct;     // whether to use JDCT_IFAST
    int32_t is_fast_chroma;   // whether to skip fancy upsampling; supported only for the complete image
    int32_t has_own_huffman;  // 1: huffman.c decodes the entropy-coded data; 0: the library does
};

// Reverses the filters of a PNG with up to 8 bits per pixel. In `filtered`, each row begins with the number of its filter.
struct png_rows {
    const uint8_t *filtered;  // (rows, 1 + row_bytes)
    uint8_t *out;             // (rows, row_bytes)
    int64_t rows;
    int64_t row_bytes;
};
