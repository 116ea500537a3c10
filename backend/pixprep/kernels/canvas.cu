// What fused.cu and profiles.cu share: the structs, and which pixel of the region each value of the tensor comes from.
//
// launch.py puts this file before either of them, and fills the structs; keep both in step. Coordinates: x to the right,
// y down. Sizes and offsets are in pixels, pitches in bytes. Compiled with -DCHANNELS=3|1 -DLAYOUT_CHW=1|0
// -DVALUE=unsigned char|unsigned short|unsigned int: the bits of one value of the tensor.

#define TILE_WIDTH 64   // threads a block in x
#define TILE_HEIGHT 4   // threads a block in y
#define TILE_ROWS 16    // rows that a block of `first_pass` works through, TILE_HEIGHT at a time

// For each output position of one axis: the first input position, and the weights, tap by tap (weights[tap * size + i]).
struct Axis {
    const int *first;
    const int *count;
    const int *weights;
    int size;
    int bits;  // of fixed-point weights
};

struct Image {
    const unsigned char *source;  // the first pixel that the resize sees: of a mirrored axis the last one in memory
    unsigned char *middle;        // between the passes: rows of `middle_width` pixels without gaps
    VALUE *tensor;
    struct Axis rows;             // vertical windows, of the region's rows
    struct Axis columns;          // horizontal windows, of the region's columns
    long long pitch;              // bytes from a source row to the next; negative if mirrored
    int step;                     // bytes from a source pixel to the next in its row; negative if mirrored
    int height;                   // of the source
    int width;
    int vertical_first;           // the order of the passes
    int middle_top;               // the source row or column at which `middle` begins
    int middle_height;
    int middle_width;
    int top;                      // the region's place on the canvas
    int left;
    int flip_y;
    int flip_x;
    int kind;                     // the arithmetic, which some libraries choose by the size
    float factor;                 // of KIND_AREA
    int unused;
};

struct Step {
    double scale[3];   // of each channel of the tensor
    double offset[3];
    int kind;
    int unused;
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
};

__device__ static inline int clip8(int level) {
    return level < 0 ? 0 : level > 255 ? 255 : level;
}

// Where on the region the canvas pixel (x, y) looks; false in the margin.
__device__ static inline bool find(const struct Image &image, int x, int y, int *region_x, int *region_y) {
    int rows = image.rows.size, columns = image.columns.size;
    *region_x = image.flip_x ? columns - 1 - (x - image.left) : x - image.left;
    *region_y = image.flip_y ? rows - 1 - (y - image.top) : y - image.top;
    return *region_x >= 0 && *region_x < columns && *region_y >= 0 && *region_y < rows;
}

// The place in the tensor of channel c of the canvas pixel (x, y).
__device__ static inline long long place(const struct Plan &plan, int c, int x, int y) {
    return LAYOUT_CHW ? ((long long)c * plan.canvas_height + y) * plan.canvas_width + x
                      : ((long long)y * plan.canvas_width + x) * CHANNELS + c;
}
