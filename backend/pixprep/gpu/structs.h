// Structs that the host fills for the CUDA kernels, in C (fill.c) or in NumPy (fill.py, by structs.py), and numbers that
// both go by. Sizes and offsets are in pixels, pitches in bytes.
#ifndef STRUCTS
#define STRUCTS

#ifndef VALUE
#define VALUE void
#endif

#define TAPS 4            // of a group, which one instruction weighs
#define DIGITS 3          // signed bytes of a weight
#define PIXELS 4          // of a row, that one thread of the second pass makes
#define ALIGNMENT 256     // bytes: of each image's part of the memory between the passes

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
    const unsigned char *away;    // of PASSES_DALI: of each value of the region's rows whether its ties go away from 0
};

#endif
