// Fills the image structs of a chunk for fast.cu, followed by the packed filter coefficients.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "structs.h"
#include "coefficients.h"

static int64_t round_up(int64_t value, int64_t group) { return (value + group - 1) & -group; }

// Destination of filter coefficients in the format of fast.cu: first | count | weights. `count` is the number of groups of four
// taps. The weights are group-major, with 16 bytes per group and output position: three words with one signed byte per tap, so
// that `weight = d[0] + 256 d[1] + 65536 d[2]`, and a word of 0.
struct packed {
    int32_t *first;
    int32_t *count;
    uint8_t *weights;
    int64_t alignment;    // alignment of the first input position, in positions
    int64_t is_flipped;     // whether to reverse the order of the output positions
    int64_t is_mirrored;   // whether to reverse the input positions
    int64_t length;   // length of the axis
    int64_t begin;    // result: range of input positions that the taps read
    int64_t end;
};

static void pack(const struct coefficients *coefficients, struct packed *n) {
    n->begin = n->length;
    n->end = 0;
    for (int64_t index = 0; index < coefficients->size; ++index) {
        int64_t output = n->is_flipped ? coefficients->size - 1 - index : index, count = coefficients->count[output];
        int64_t first = n->is_mirrored ? n->length - coefficients->first[output] - count : coefficients->first[output];
        int64_t shift = first & (n->alignment - 1), groups = (shift + count + TAPS - 1) / TAPS;
        const int32_t *weights = coefficients->weights + output * coefficients->taps;
        n->first[index] = first - shift;
        n->count[index] = groups;
        for (int64_t group = 0; group < groups; ++group) {
            uint32_t words[4] = {0};
            for (int tap = 0; tap < TAPS; ++tap) {
                int64_t position = group * TAPS + tap - shift;
                int32_t weight = 0;
                if (position >= 0 && position < count) weight = weights[n->is_mirrored ? count - 1 - position : position];
                for (int digit = 0; digit < DIGITS; ++digit) {
                    words[digit] |= (uint32_t)(weight & 255) << (8 * tap);
                    weight = (weight - (int8_t)weight) >> 8;
                }
            }
            memcpy(n->weights + sizeof words * (group * coefficients->size + index), words, sizeof words);
        }
        n->begin = min(n->begin, first);
        n->end = max(n->end, first + count);
    }
}

// Append the coefficients of one axis of a placement to the memory, and store the range of input positions that the taps read
// in `read`.
static int fill_axis(struct chunk *n, const struct placed_image *p, int axis, struct Coefficients *filled, int64_t *read) {
    int64_t length = p->crop_end[axis] - p->crop_begin[axis];
    struct axis axis_range = {length, p->resized[axis], p->ratio[axis], p->region_begin[axis], p->region_end[axis], 0, axis == 0, 0};
    struct coefficients coefficients = {.size = axis_range.end - axis_range.begin, .taps = max_taps(&n->filter, &axis_range)};
    int64_t alignment = (axis == 0) == !p->is_vertical_first ? TAPS : 1;
    int64_t groups = (coefficients.taps + alignment + TAPS - 2) / TAPS;  // upper bound
    int64_t offset = n->n_bytes, weights = round_up(2 * sizeof(int32_t) * coefficients.size, 16);
    n->n_bytes += weights + 4 * sizeof(int32_t) * groups * coefficients.size;
    read[0] = read[1] = 0;
    if (n->memory && coefficients.size) {
        int64_t scratch_bytes = sizeof(double) * max(coefficients.taps, 4);
        uint8_t *scratch = malloc(scratch_bytes + sizeof(int32_t) * coefficients.size * (2 + coefficients.taps));
        if (!scratch) return NO_MEMORY;
        coefficients.first = (int32_t *)(scratch + scratch_bytes);
        coefficients.count = coefficients.first + coefficients.size;
        coefficients.weights = coefficients.count + coefficients.size;
        compute_coefficients(&n->filter, &axis_range, &coefficients, (double *)scratch);
        int32_t *to = (int32_t *)(n->memory + offset);
        struct packed packed = {
            .first = to, .count = to + coefficients.size, .weights = n->memory + offset + weights, .alignment = alignment,
            .is_flipped = p->is_flipped[axis], .is_mirrored = axis ? p->is_mirrored[1] : 0, .length = length,
        };
        pack(&coefficients, &packed);
        read[0] = packed.begin;
        read[1] = packed.end;
        free(scratch);
    }
    int64_t at = n->device_address + offset;
    *filled = (struct Coefficients){
        (const int *)at, (const int *)(at + sizeof(int32_t) * coefficients.size), (const int *)(at + weights), coefficients.size,
        coefficients.size ? coefficients.bits : IDENTITY_BITS,
    };
    return DONE;
}

// Fill the fields of an image's struct that depend only on its placement.
static int fill_image(struct chunk *n, const struct placed_image *p, struct Image *image) {
    int64_t read_rows[2], read_columns[2];
    *image = (struct Image){0};
    if (fill_axis(n, p, 0, &image->rows, read_rows) || fill_axis(n, p, 1, &image->columns, read_columns)) return NO_MEMORY;
    const int64_t *read = p->is_vertical_first ? read_columns : read_rows;
    int64_t top = read[0] & -TAPS, extent = round_up(read[1] - top, TAPS), height = image->rows.size, width = image->columns.size;
    n->max_width = max(n->max_width, p->is_vertical_first ? extent : width);
    n->max_height = max(n->max_height, p->is_vertical_first ? height : extent);
    image->column_stride = n->channels;
    image->height = p->crop_end[0] - p->crop_begin[0];
    image->width = p->crop_end[1] - p->crop_begin[1];
    image->vertical_first = p->is_vertical_first;
    image->intermediate_top = top;
    image->intermediate_height = p->is_vertical_first ? height : extent / TAPS;
    image->intermediate_width = p->is_vertical_first ? extent / TAPS : round_up(width + (p->position[1] & (PIXELS - 1)), TAPS);
    image->top = p->position[0];
    image->left = p->position[1];
    return DONE;
}

KERNEL int fill_chunk(struct chunk *n) {
    struct Image *images = (struct Image *)n->memory, unused;
    n->n_bytes = round_up(n->count * sizeof *images, 16);
    n->intermediate_bytes = n->max_width = n->max_height = 0;
    for (int64_t index = 0; index < n->count; ++index) {
        const struct placed_image *p = n->images + index;
        struct Image *image = images ? images + index : &unused;
        if (p->same_as == index) {
            if (fill_image(n, p, image)) return NO_MEMORY;
        } else if (images) {
            *image = images[p->same_as];
        }
        if (!images) continue;
        int64_t row = p->is_mirrored[0] ? p->crop_end[0] - 1 : p->crop_begin[0];
        image->pixels = (const uint8_t *)(p->pixels + row * p->row_stride + p->crop_begin[1] * n->channels);
        image->intermediate = (unsigned char *)n->intermediate_bytes;
        image->tensor = (void *)p->tensor;
        image->begin = (const uint8_t *)p->pixels;
        image->end = (const uint8_t *)(p->pixels + (p->height - 1) * p->row_stride + p->width * n->channels);
        image->pitch = p->is_mirrored[0] ? -p->row_stride : p->row_stride;
        n->intermediate_bytes += round_up(4ll * image->intermediate_height * image->intermediate_width * n->channels, ALIGNMENT);
    }
    return DONE;
}
