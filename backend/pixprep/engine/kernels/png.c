// Reversal of the filters of a PNG with one byte per pixel: see "Filter types for filter method 0" in the PNG specification.
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

enum { NONE, SUB, UP, AVERAGE, PAETH };
enum { BLOCK = 8 };

// Return the neighbor that is nearest to left + up - corner; in case of a tie, the first of left, up and corner.
static inline int paeth(int left, int up, int corner) {
    int to_left = abs(up - corner), to_up = abs(left - corner), to_corner = abs(left + up - 2 * corner);
    int nearest = to_left <= to_up ? left : up;
    return (to_left <= to_up ? to_left : to_up) <= to_corner ? nearest : corner;
}

static inline uint64_t block(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, BLOCK);
    return word;
}

// Reverse the filter of one row. `up` is the row above, or a row of zeros. Where the labels are constant, as in most of a mask,
// the filtered bytes are 0, and a block of pixels is copied at a time.
static inline void unfilter_row(int filter, const uint8_t *from, const uint8_t *up, uint8_t *to, int64_t n) {
    int left = 0, corner = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t same = 0x0101010101010101 * (uint64_t)left;
        while (i + BLOCK <= n && !block(from + i) && (filter == SUB || (corner == left && block(up + i) == same))) {
            memcpy(to + i, &same, BLOCK);
            i += BLOCK;
        }
        if (i == n) return;
        const int above = up[i];
        const int guess = filter == SUB ? left : filter == AVERAGE ? (left + above) / 2 : paeth(left, above, corner);
        to[i] = left = (uint8_t)(from[i] + guess);
        corner = above;
    }
}

// Return DONE, NOT_DECODED if a row has an unknown filter, or NO_MEMORY.
KERNEL int unfilter_png(const struct png_rows *png) {
    const int64_t n = png->row_bytes;
    uint8_t *zeros = calloc(n, 1);
    if (!zeros) return NO_MEMORY;
    const uint8_t *from = png->filtered, *up = zeros;
    int code = DONE;
    for (int64_t row = 0; row < png->rows && code == DONE; ++row, from += n) {
        uint8_t *to = png->out + row * n;
        switch (*from++) {
            case NONE: memcpy(to, from, n); break;
            case UP: for (int64_t i = 0; i < n; ++i) to[i] = from[i] + up[i]; break;
            case SUB: unfilter_row(SUB, from, up, to, n); break;
            case AVERAGE: unfilter_row(AVERAGE, from, up, to, n); break;
            case PAETH: unfilter_row(PAETH, from, up, to, n); break;
            default: code = NOT_DECODED;
        }
        up = to;
    }
    free(zeros);
    return code;
}
