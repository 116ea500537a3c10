// Shared by fast.cu, plain.cu and levels.cu: the structs, where the tensor has a value, and what its steps make of it.
//
// launch.py puts structs.h and this file before each of them; structs.py reads the structs here. Coordinates: x to the
// right, y down. Sizes and offsets are in pixels, pitches in bytes. Compiled with -DCHANNELS=3|1 of the image, with
// -DPLANES=3|1 of these in the tensor, with -DFOURTH=1 where a constant channel follows them, with -DINTERLEAVED=1
// where the channels of a pixel follow each other and then those of the next column, and with
// -DVALUE=unsigned char|unsigned short|unsigned int: the bits of one value of the tensor. With -DCANVASES=1 the tensor
// is a canvas for levels.cu, and each image's has its own size.

#define TILE_WIDTH 64   // threads per block in x
#define TILE_HEIGHT 4   // threads per block in y
#define TILE_ROWS 32    // rows that a block of `first_pass` computes

struct Step {
    double scale[3];   // one per channel of the tensor
    double offset[3];
    int operation;
    int unused;
};

// Work of levels.cu on an image.
struct Canvas {
    unsigned char *levels;           // uint8 (height, width, CHANNELS), the decoded channels, which the second pass has
                                     // written; 0 where it has written the tensor
    unsigned char *other;            // memory for the result of steps that read other pixels
    VALUE *tensor;                   // output of levels.cu
    const struct LevelStep *steps;
    const struct Erasure *erasures;  // erasures, which are applied to the tensor
    const VALUE *noise;              // table of 65,536 noise values
    int step_count;
    int erasure_count;
    int height;                      // of the canvas
    int width;
};

struct Plan {
    const VALUE *tables;       // CHANNELS x 256, in the order of the tensor's channels
    const struct Step *steps;  // arithmetic of the tables, for values other than integers of 0 to 255
    int step_count;
    int canvas_height;
    int canvas_width;
    int strides[3];            // of the tensor, in values: channel stride, row stride, column stride
    int channel[3];            // decoded channel for each channel of the tensor
    int fill[3];               // pixel value outside of the region, per channel of the tensor
    unsigned fourth;           // -DFOURTH=1: the bits of the constant channel's value
    const struct Canvas *canvases;  // -DCANVASES=1: replaces the size above
};

__device__ static inline int clip8(int level) {
    return level < 0 ? 0 : level > 255 ? 255 : level;
}

// levels.cu does not call it, so that it is not static.
__device__ inline int canvas_height(const struct Plan &plan) {
    return CANVASES ? plan.canvases[blockIdx.z].height : plan.canvas_height;
}

__device__ static inline int canvas_width(const struct Plan &plan) {
    return CANVASES ? plan.canvases[blockIdx.z].width : plan.canvas_width;
}

// The place in the tensor of channel c of the canvas pixel (x, y); a tensor has less than 2^31 bytes.
__device__ static inline int place(const struct Plan &plan, int c, int x, int y) {
    return CANVASES ? (y * canvas_width(plan) + x) * CHANNELS + c
                    : c * plan.strides[0] + y * plan.strides[1] + x * plan.strides[2];
}

// Give the canvas pixel (x, y) its value of the constant channel, if there is one.
__device__ static inline void put_fourth(const struct Plan &plan, VALUE *tensor, int x, int y) {
    if (FOURTH) tensor[place(plan, CHANNELS, x, y)] = (VALUE)plan.fourth;
}

// The bits of the nearest float16, ties to even, of a value below 65520. Where 2^exponent <= |value|, a float16 is a
// multiple of 2^(exponent - 10), and the bits of neighbours are neighbouring integers; the least exponent is -14.
__device__ static inline unsigned half_bits(double value) {
    long long bits = __double_as_longlong(value);
    int exponent = max((int)(bits >> 52 & 2047) - 1023, -14);
    double scale = __longlong_as_double((1023LL + 10 - exponent) << 52);
    unsigned multiple = __double2uint_rn(fabs(__dmul_rn(value, scale)));
    return (unsigned)(bits >> 63 & 1) << 15 | (((unsigned)(exponent + 14) << 10) + multiple);
}

// A value of channel c of the tensor, through the steps of the plan, of an image with this number of its own: the bits
// of the result. Not every kernel calls it, so that it is not static.
__device__ inline VALUE computed(const struct Plan &plan, int c, float value, double own) {
    double result = value;
    for (int index = 0; index < plan.step_count; ++index) {
        const struct Step &step = plan.steps[index];
        float before = (float)result;
        float by = (float)step.scale[c];
        if (step.operation == STEP_AFFINE) result = __dadd_rn(__dmul_rn(before, step.scale[c]), step.offset[c]);
#ifdef LEVEL_OWN_MAX  // of levels.cu alone: a division of float64 takes a stack in plain.cu
        else if (step.operation == STEP_BY_OWN) result = __ddiv_rn(__ddiv_rn(before, own) - step.offset[c], step.scale[c]);
#endif
        else if (step.operation == STEP_SUBTRACT) result = __fsub_rn(before, by);
        else if (step.operation == STEP_MULTIPLY) result = __fmul_rn(before, by);
        else result = __fdiv_rn(before, by);
    }
    return sizeof(VALUE) == 2 ? half_bits(result) : __float_as_uint((float)result);
}
