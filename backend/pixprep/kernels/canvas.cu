// What fast.cu, plain.cu and levels.cu share: the structs, and where the tensor has each value.
//
// launch.py puts this file before each of them, and fills the structs; keep both alike. Coordinates: x to the right,
// y down. Sizes and offsets are in pixels, pitches in bytes. Compiled with -DCHANNELS=3|1 -DLAYOUT_CHW=1|0
// -DVALUE=unsigned char|unsigned short|unsigned int: the bits of one value of the tensor. With -DCANVASES=1 the tensor
// is a canvas for levels.cu, and each image's has its own size.

#define TILE_WIDTH 64   // threads a block in x
#define TILE_HEIGHT 4   // threads a block in y
#define TILE_ROWS 32    // rows that a block of `first_pass` makes

// For each output position i of one axis, flipped if the canvas shows it so: the first input position, how many taps, and
// the weights, tap by tap (weights[tap * size + i]); for fast.cu groups of taps in place of taps.
struct Windows {
    const int *first;
    const int *count;
    const int *weights;
    int size;
    int bits;  // of fixed-point weights
};

struct Image {
    const unsigned char *pixels;  // the first pixel that the resize sees: of a mirrored axis the last one in memory, but
                                  // in fast.cu a mirror of the columns is in their windows
    unsigned char *middle;        // between the passes: plain.cu has rows of pixels there, 32 bits a value; fast.cu
                                  // words, and middle_height and middle_width count these
    VALUE *tensor;
    const unsigned char *begin;   // of the decoded image in memory: fast.cu reads nothing outside
    const unsigned char *end;
    struct Windows rows;          // vertical windows, of the region's rows
    struct Windows columns;       // horizontal windows, of the region's columns
    long long pitch;              // bytes from a row of pixels to the next; negative if mirrored
    int stride;                   // bytes from a pixel to the next in its row; negative if mirrored
    int height;                   // of the pixels
    int width;
    int vertical_first;           // the order of the passes
    int middle_top;               // the input row or column at which `middle` begins
    int middle_height;
    int middle_width;
    int top;                      // the region's place on the canvas
    int left;
    int passes;                   // their arithmetic, which some libraries choose by the size
    float factor;                 // of PASSES_AREA
    int margin_top;               // rows and columns of the fill that lie around the pixels before the resize, and
    int margin_left;              // which the windows count; plain.cu alone has any
    int margin_bottom;
    int margin_right;
    int fill;                     // their colour, a byte for each decoded channel
};

struct Step {
    double scale[3];   // of each channel of the tensor
    double offset[3];
    int operation;
    int unused;
};

// What levels.cu does to an image.
struct Canvas {
    unsigned char *levels;           // uint8 (height, width, CHANNELS), the decoded channels, which the second pass has
                                     // written; 0 where it has written the tensor
    unsigned char *other;            // memory for what a step makes of other places
    VALUE *tensor;                   // of levels.cu
    const struct LevelStep *steps;
    const struct Erasure *erasures;  // what is done to the tensor
    const VALUE *noise;              // the 65,536 values of its noise
    int step_count;
    int erasure_count;
    int height;                      // of the canvas
    int width;
};

struct Plan {
    const VALUE *tables;       // CHANNELS x 256, in the order of the tensor's channels
    const struct Step *steps;  // what the tables are made by, for values that are no levels
    int step_count;
    int canvas_height;
    int canvas_width;
    int channel[3];            // for each channel of the tensor the decoded channel it is made of
    int fill[3];               // for each channel of the tensor the level outside the region
    int unused;
    const struct Canvas *canvases;  // of -DCANVASES=1: in place of the size above
};

__device__ static inline int clip8(int level) {
    return level < 0 ? 0 : level > 255 ? 255 : level;
}

__device__ static inline int canvas_height(const struct Plan &plan) {
    return CANVASES ? plan.canvases[blockIdx.z].height : plan.canvas_height;
}

__device__ static inline int canvas_width(const struct Plan &plan) {
    return CANVASES ? plan.canvases[blockIdx.z].width : plan.canvas_width;
}

// The place in the tensor of channel c of the canvas pixel (x, y); a tensor has less than 2^31 bytes.
__device__ static inline int place(const struct Plan &plan, int c, int x, int y) {
    return LAYOUT_CHW ? (c * canvas_height(plan) + y) * canvas_width(plan) + x
                      : (y * canvas_width(plan) + x) * CHANNELS + c;
}
