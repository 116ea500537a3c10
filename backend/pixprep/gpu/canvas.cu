// Structs and functions that fast.cu, plain.cu and levels.cu share: the memory layout of the tensor, and the arithmetic
// steps that compute its values.
//
// launch.py prepends structs.h and this file to each of the three files, and structs.py reads the structs. x points to
// the right, and y points down. Sizes and offsets are in pixels, and pitches are in bytes. Compiler options:
//
//     -DCHANNELS=3|1      channels of the decoded image
//     -DPLANES=3|1        channels of the tensor, without the constant fourth channel
//     -DFOURTH=1          the tensor has a constant fourth channel
//     -DINTERLEAVED=1     the channels of a pixel are adjacent in the tensor (HWC)
//     -DVALUE=TYPE        unsigned integer type with the size of a tensor value (8, 16 or 32 bits)
//     -DFILL_VALUE=1      pixels outside of the region have the values `fill_value`, and not the pixel values `fill`
//     -DPATCH_HEIGHT=14   size of a patch in a tensor of patches, 0 for all other tensors
//     -DPATCH_WIDTH=14
//     -DMERGE=2           edge length of a merge window in patches
//     -DSLICES=1          the image may be cut into several slices
//     -DFRAMES=2          number of frames of a patch; each value is written to all of them
//     -DFRAME_STRIDE=588  stride between consecutive frames of a patch, in values

#define TILE_WIDTH 64   // threads per block in x
#define TILE_HEIGHT 4   // threads per block in y
#define TILE_ROWS 32    // rows that each block of `first_pass` computes

struct Step {
    double scale[3];   // one factor per channel of the tensor
    double offset[3];
    int operation;
    int unused;
};

// Input and output of levels.cu for one image.
struct Canvas {
    unsigned char *levels;           // canvas that the second pass has written, uint8 (height, width, CHANNELS); null
                                     // if the second pass has written the tensor
    unsigned char *other;            // memory for the result of steps that read other pixels of the canvas
    VALUE *tensor;                   // output of levels.cu
    const struct LevelStep *steps;
    const struct Erasure *erasures;  // rectangles to erase in the tensor
    const VALUE *noise;              // table of 65,536 noise values
    int step_count;
    int erasure_count;
    int height;                      // size of the canvas
    int width;
    struct Layout layout;            // memory layout of the tensor
};

struct Plan {
    const VALUE *tables;       // tensor value of each pixel value, CHANNELS x 256, in the tensor's channel order
    const struct Step *steps;  // the steps that computed the tables, for float32 values, which cannot index a table
    int step_count;
    int channel[3];            // decoded channel for each channel of the tensor
    int fill[3];               // pixel value outside of the region, for each channel of the tensor
    unsigned fill_value[3];    // bits of the values outside of the region, with -DFILL_VALUE=1
    unsigned fourth;           // bits of the fourth channel's value, with -DFOURTH=1
};

__device__ static inline int clip8(int level) {
    return level < 0 ? 0 : level > 255 ? 255 : level;
}

// Return the index of the first channel of the pixel (x, y) in the tensor or in the canvas. In a tensor of patches, it is
// the index in the first frame of the patch. A tensor without patches has less than 2^31 bytes, so an int suffices.
#if PATCH_WIDTH
typedef long long Index;
__device__ static inline Index pixel_index(const struct Layout &layout, unsigned x, unsigned y) {
    unsigned row = y / PATCH_HEIGHT, column = x / PATCH_WIDTH;
    Index index = y % PATCH_HEIGHT * layout.strides[1] + x % PATCH_WIDTH * layout.strides[2];
#if SLICES
    unsigned slices_per_row = layout.width / PATCH_WIDTH / layout.columns;
    index += (row / layout.rows * slices_per_row + column / layout.columns) * layout.slice_stride;
    row %= layout.rows;
    column %= layout.columns;
#endif
    unsigned window = row / MERGE * (layout.columns / MERGE) + column / MERGE;
    unsigned patch = window * (MERGE * MERGE) + row % MERGE * MERGE + column % MERGE;
    return index + patch * layout.patch_stride;
}
#else
typedef int Index;
__device__ static inline Index pixel_index(const struct Layout &layout, int x, int y) {
    return y * layout.strides[1] + x * layout.strides[2];
}
#endif

// Write a value of channel c of a pixel to all frames. `index` is the index of the pixel's first channel. T is VALUE,
// or a vector of contiguous values.
template <typename T>
__device__ static inline void put_value(VALUE *tensor, const struct Layout &layout, int c, Index index, T value) {
    for (int frame = 0; frame < FRAMES; ++frame) *(T *)(tensor + (c * layout.strides[0] + index + frame * FRAME_STRIDE)) = value;
}

// Write the constant fourth channel of a pixel, if the tensor has such a channel.
__device__ static inline void put_fourth(const struct Plan &plan, const struct Layout &layout, VALUE *tensor, Index index) {
    if (FOURTH) put_value(tensor, layout, CHANNELS, index, (VALUE)plan.fourth);
}

// Round a value to float16, with ties to even, and return its bits. The absolute value must be below 65520. From
// 2^exponent to 2^(exponent + 1), the float16 values are the multiples of 2^(exponent - 10), and their bits are
// consecutive integers. The minimum exponent is -14.
__device__ static inline unsigned half_bits(double value) {
    long long bits = __double_as_longlong(value);
    int exponent = max((int)(bits >> 52 & 2047) - 1023, -14);
    double scale = __longlong_as_double((1023LL + 10 - exponent) << 52);
    unsigned multiple = __double2uint_rn(fabs(__dmul_rn(value, scale)));
    return (unsigned)(bits >> 63 & 1) << 15 | (((unsigned)(exponent + 14) << 10) + multiple);
}

// Apply the arithmetic steps of the plan to a value of channel c of the tensor, and return the bits of the result.
// `own` is the statistic of the image (its maximum or mean) by which values are normalized. This function is not
// static. Otherwise, the compiler would warn in files that do not call it.
__device__ inline VALUE computed(const struct Plan &plan, int c, float value, double own) {
    double result = value;
    for (int index = 0; index < plan.step_count; ++index) {
        const struct Step &step = plan.steps[index];
        float before = (float)result;
        float by = (float)step.scale[c];
        if (step.operation == STEP_AFFINE) result = __dadd_rn(__dmul_rn(before, step.scale[c]), step.offset[c]);
#ifdef LEVEL_OWN_MAX  // defined only for levels.cu, because a float64 division in plain.cu would need a stack
        else if (step.operation == STEP_BY_OWN) result = __ddiv_rn(__ddiv_rn(before, own) - step.offset[c], step.scale[c]);
#endif
        else if (step.operation == STEP_CLIP) result = fminf(fmaxf(before, by), (float)step.offset[c]);
        else if (step.operation == STEP_SUBTRACT) result = __fsub_rn(before, by);
        else if (step.operation == STEP_MULTIPLY) result = __fmul_rn(before, by);
        else result = __fdiv_rn(before, by);
    }
    return sizeof(VALUE) == 2 ? half_bits(result) : __float_as_uint((float)result);
}
