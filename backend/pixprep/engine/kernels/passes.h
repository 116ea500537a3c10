// The two passes of a resize, with the arithmetic of `Passes` in plan/profiles/windows.py: each product and sum is computed in
// the library's order and rounded separately.
#pragma once
#include "arguments.h"

#ifdef __SSE2__
#define HAS_PAIRS
#endif

// Taps in pairs, for the functions in pairs.c. A pair consists of the columns 2 n and 2 n + 1 of the list of columns that are
// read. Its weight contains the 16-bit weight of column 2 n in its low half, and that of column 2 n + 1 in its high half. The
// weight of a column that is not a tap of the output column is 0.
struct tap_pairs {
    int64_t count;     // pairs per output column
    int32_t *first;    // index of each output column's first pair
    int32_t *weights;  // `count` weights per output column
};

// Arguments of a horizontal pass.
struct horizontal_pass {
    const struct coefficients *coefficients;
    const int32_t *first;  // index of each output column's first tap in the list of columns that are read
    int64_t is_mirrored;   // whether to reverse the order of the output columns
    const uint8_t *away;   // PASSES_DALI: see `struct ties`
    const struct tap_pairs *pairs;
};

// Horizontal pass as the first pass: compute all output columns of a block of rows, each row to its own line of `out`. A block
// contains 4 rows of 4 channels, or 16 rows of one channel. It stores the 16 values of a column contiguously, column by column.
// The values are uint8, or float32 if `struct resize` has `levels`.
typedef void horizontal(const struct horizontal_pass *p, const char *block, char *const *out);

// Horizontal pass as the second pass: compute all output columns of the same number of rows, which are separate lines.
// `offsets` contains the offset in a line of each column that is read.
typedef void horizontal_last(const struct horizontal_pass *p, const char *const *lines, const int32_t *offsets, char *const *out);

// Vertical pass: compute one output row. `lines` contains the address of each tap. Each line has `length` values, at least 16.
// `factor` is used by PASSES_AREA, `away` by PASSES_DALI.
typedef void vertical(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length, char *out,
                      float factor, const uint8_t *away);

// The functions of an arithmetic. Those of horizontal passes are pairs, for one channel and for 4 channels.
struct pass_functions {
    horizontal *horizontal[2];             // horizontal pass first
    vertical *vertical;
    int64_t value_size;                    // bytes per value between the passes
    vertical *vertical_first;              // vertical pass first; null if no library uses this order with the arithmetic
    horizontal_last *horizontal_last[2];
};

// `has_floats`: whether the resize has `levels`.
struct pass_functions pass_functions_of(enum passes passes, int64_t row_bits, int64_t column_bits, int has_floats);

#ifdef HAS_PAIRS
enum {
    PAIR_BYTES = 32,       // size in bytes of a pair of columns in a block of `horizontal_pairs`
    MAX_PAIRED_WIDTH = 64  // maximum size in bytes of a vector, which is the minimum length of a line of `vertical_pairs`
};

// Compute `first` and `weights` of `pairs`. The argument `first` is the field of `struct horizontal_pass`.
void make_pairs(const struct coefficients *w, const int32_t *first, struct tap_pairs *pairs);

// Return whether `interleave_rows` supports this number of bytes per pixel.
int can_interleave(int64_t stride);

// Write groups of 4 columns of 4 rows to a block for `horizontal_pairs`. 16 bytes per group and row are read.
//
// Args:
//     rows: Address of the first column in each row.
//     stride: Bytes per pixel.
//     groups: Number of groups.
//     block: Memory of the block. It receives 8 bytes per row for each pair of columns, in which both values of a channel are
//         adjacent.
void interleave_rows(const uint8_t *const *rows, int64_t stride, int64_t groups, char *block);

// Horizontal pass as the first pass, for 4 channels. Each line of `out` has at least 16 bytes.
void horizontal_pairs(const struct horizontal_pass *k, const char *block, char *const *out);

// Vertical pass from uint8 to uint8. Each line has at least `MAX_PAIRED_WIDTH` values.
void vertical_pairs(const struct coefficients *w, int64_t output, const char *const *lines, int64_t length, char *out);
#endif
