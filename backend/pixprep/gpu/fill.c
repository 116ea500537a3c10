// Fills the image structs of a chunk for fast.cu, followed by the packed filter windows.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "structs.h"
#include "windows.h"

static int64_t whole(int64_t value, int64_t group) { return (value + group - 1) & -group; }

// Destination of windows in the format of fast.cu: first | count | weights. `count` is the number of groups of four
// taps. The weights are group-major, with 16 bytes per group and window: three words with one signed byte per tap, so
// that `weight = d[0] + 256 d[1] + 65536 d[2]`, and a word of 0.
struct packed {
    int32_t *first;
    int32_t *count;
    uint8_t *weights;
    int64_t align;    // alignment of the first input position of a window
    int64_t flip;     // whether to reverse the order of the windows
    int64_t mirror;   // whether to reverse the input positions
    int64_t length;   // length of the axis
    int64_t begin;    // result: range of input positions that the windows read
    int64_t end;
};

static void pack(const struct windows *windows, struct packed *n) {
    n->begin = n->length;
    n->end = 0;
    for (int64_t index = 0; index < windows->size; ++index) {
        int64_t window = n->flip ? windows->size - 1 - index : index, count = windows->count[window];
        int64_t first = n->mirror ? n->length - windows->first[window] - count : windows->first[window];
        int64_t shift = first & (n->align - 1), groups = (shift + count + TAPS - 1) / TAPS;
        const int32_t *weights = windows->weights + window * windows->taps;
        n->first[index] = first - shift;
        n->count[index] = groups;
        for (int64_t group = 0; group < groups; ++group) {
            uint32_t words[4] = {0};
            for (int tap = 0; tap < TAPS; ++tap) {
                int64_t position = group * TAPS + tap - shift;
                int32_t weight = 0;
                if (position >= 0 && position < count) weight = weights[n->mirror ? count - 1 - position : position];
                for (int digit = 0; digit < DIGITS; ++digit) {
                    words[digit] |= (uint32_t)(weight & 255) << (8 * tap);
                    weight = (weight - (int8_t)weight) >> 8;
                }
            }
            memcpy(n->weights + sizeof words * (group * windows->size + index), words, sizeof words);
        }
        n->begin = min(n->begin, first);
        n->end = max(n->end, first + count);
    }
}

// Appends the windows of one axis of a placement to the memory. `read` receives the range of input positions that they
// read.
static int fill_axis(struct chunk *n, const struct placed *p, int axis, struct Windows *filled, int64_t *read) {
    int64_t length = p->end[axis] - p->begin[axis];
    struct axis line = {length, p->resized[axis], p->ratio[axis], p->first[axis], p->last[axis], 0, axis == 0, 0};
    struct windows made = {.size = line.end - line.begin, .taps = max_taps(&n->formula, &line)};
    int64_t align = (axis == 0) == !p->is_vertical_first ? TAPS : 1;
    int64_t groups = (made.taps + align + TAPS - 2) / TAPS;  // upper bound
    int64_t place = n->n_bytes, weights = whole(2 * sizeof(int32_t) * made.size, 16);
    n->n_bytes += weights + 4 * sizeof(int32_t) * groups * made.size;
    read[0] = read[1] = 0;
    if (n->memory && made.size) {
        int64_t numbers = sizeof(double) * max(made.taps, 4);
        uint8_t *scratch = malloc(numbers + sizeof(int32_t) * made.size * (2 + made.taps));
        if (!scratch) return NO_MEMORY;
        made.first = (int32_t *)(scratch + numbers);
        made.count = made.first + made.size;
        made.weights = made.count + made.size;
        fill_windows(&n->formula, &line, &made, (double *)scratch);
        int32_t *to = (int32_t *)(n->memory + place);
        struct packed packed = {
            .first = to, .count = to + made.size, .weights = n->memory + place + weights, .align = align,
            .flip = p->flip[axis], .mirror = axis ? p->mirror[1] : 0, .length = length,
        };
        pack(&made, &packed);
        read[0] = packed.begin;
        read[1] = packed.end;
        free(scratch);
    }
    int64_t at = n->address + place;
    *filled = (struct Windows){
        (const int *)at, (const int *)(at + sizeof(int32_t) * made.size), (const int *)(at + weights), made.size,
        made.size ? made.bits : IDENTITY_BITS,
    };
    return DONE;
}

// Fills the fields of an image's struct that depend only on its placement.
static int fill_placed(struct chunk *n, const struct placed *p, struct Image *image) {
    int64_t read_rows[2], read_columns[2];
    *image = (struct Image){0};
    if (fill_axis(n, p, 0, &image->rows, read_rows) || fill_axis(n, p, 1, &image->columns, read_columns)) return NO_MEMORY;
    const int64_t *read = p->is_vertical_first ? read_columns : read_rows;
    int64_t top = read[0] & -TAPS, extent = whole(read[1] - top, TAPS), high = image->rows.size, wide = image->columns.size;
    n->wide = max(n->wide, p->is_vertical_first ? extent : wide);
    n->high = max(n->high, p->is_vertical_first ? high : extent);
    image->stride = n->channels;
    image->height = p->end[0] - p->begin[0];
    image->width = p->end[1] - p->begin[1];
    image->vertical_first = p->is_vertical_first;
    image->middle_top = top;
    image->middle_height = p->is_vertical_first ? high : extent / TAPS;
    image->middle_width = p->is_vertical_first ? extent / TAPS : whole(wide + (p->at[1] & (PIXELS - 1)), TAPS);
    image->top = p->at[0];
    image->left = p->at[1];
    return DONE;
}

KERNEL int fill_chunk(struct chunk *n) {
    struct Image *images = (struct Image *)n->memory, measured;
    n->n_bytes = whole(n->count * sizeof *images, 16);
    n->middle = n->wide = n->high = 0;
    for (int64_t index = 0; index < n->count; ++index) {
        const struct placed *p = n->images + index;
        struct Image *image = images ? images + index : &measured;
        if (p->like == index) {
            if (fill_placed(n, p, image)) return NO_MEMORY;
        } else if (images) {
            *image = images[p->like];
        }
        if (!images) continue;
        int64_t row = p->mirror[0] ? p->end[0] - 1 : p->begin[0];
        image->pixels = (const uint8_t *)(p->address + row * p->pitch + p->begin[1] * n->channels);
        image->middle = (unsigned char *)n->middle;
        image->tensor = (void *)p->tensor;
        image->begin = (const uint8_t *)p->address;
        image->end = (const uint8_t *)(p->address + (p->height - 1) * p->pitch + p->width * n->channels);
        image->pitch = p->mirror[0] ? -p->pitch : p->pitch;
        n->middle += whole(4ll * image->middle_height * image->middle_width * n->channels, ALIGNMENT);
    }
    return DONE;
}
