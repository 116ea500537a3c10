// A complete resize in one call: the filter coefficients of both axes, both passes, and the values of the tensor.
//
// If the horizontal pass comes first, a ring buffer keeps its results for the rows that the vertical pass needs next. If the
// vertical pass comes first, it computes as many rows as a block of the horizontal pass has.
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "passes.h"
#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

enum { ROWS_PER_WRITE = 8 };  // rows of the result that are converted to tensor values together

// The positions of an axis that any tap reads, in ascending order. A position beyond the axis is replaced by the nearest one
// inside.
struct read_positions {
    int64_t *offsets;  // offset in bytes of each position, relative to the first pixel
    int32_t *first;    // index in `offsets` of each output position's first tap
    int64_t count;
    int64_t begin;  // range of `offsets` that is inside the image; all others are in the padding
    int64_t end;
};

// State of a resize.
struct resampling {
    const struct resize *n;
    const struct coefficients *rows;
    const struct coefficients *columns;
    struct read_positions vertical;
    struct read_positions horizontal;
    int64_t consecutive_stride;  // result of the function with this name
    int64_t channels;  // channels per pixel while resampling: 1 or 4
    int64_t block;     // rows per block of the horizontal pass
    uint8_t *away;     // PASSES_DALI: see `struct ties`; as long as a row of the result
};

static void list_positions(struct read_positions *read_positions, const struct coefficients *w, int64_t length, int64_t before,
                           int64_t inside, int64_t column_stride, int keeps_duplicates) {
    int64_t next = w->size ? w->first[0] : 0, count = 0;
    read_positions->begin = read_positions->end = 0;
    for (int64_t index = 0; index < w->size; ++index) {
        int64_t first = w->first[index], end = first + w->count[index];
        for (next = keeps_duplicates ? first : max(next, first); next < end; ++next) {
            int64_t position = max(min(next, length - 1), 0) - before;
            if (position < 0 || position >= inside) {
                read_positions->offsets[count++] = 0;
                if (position < 0) read_positions->begin = read_positions->end = count;
                continue;
            }
            read_positions->offsets[count++] = position * column_stride;
            read_positions->end = count;
        }
        read_positions->first[index] = (int32_t)(count - (next - first));
    }
    read_positions->count = count;
}

// Copy the listed pixels of a row to 1 or 4 channels per pixel and a column stride of `stride` bytes. Without a row, copy the
// color of the padding.
INLINE void copy_pixels(const struct resize *n, const struct read_positions *read_positions, const uint8_t *row,
                        int64_t channels, uint8_t *to, int64_t stride) {
    const int64_t *offsets = read_positions->offsets, begin = row ? read_positions->begin : read_positions->count,
                  end = row ? read_positions->end : begin;
    // A pixel of 3 channels is copied as 4 bytes, with an arbitrary last byte. This is not possible in the last row, whose last
    // pixel ends at the end of the memory.
    const uint8_t *last = n->pixels + (n->row_stride > 0 ? (n->height - 1) * n->row_stride : 0);
    const int is_word = n->channel_stride == 1 && (n->channels == channels || (channels == 4 && row != last));
    for (int64_t i = 0; i < begin; ++i) memcpy(to + i * stride, &n->fill, channels);
    for (int64_t i = begin; is_word && i < end; ++i) memcpy(to + i * stride, row + offsets[i], channels);
    for (int64_t i = begin; !is_word && i < end; ++i)
        for (int64_t channel = 0; channel < n->channels; ++channel)
            to[i * stride + channel] = row[offsets[i] + channel * n->channel_stride];
    for (int64_t i = end; i < read_positions->count; ++i) memcpy(to + i * stride, &n->fill, channels);
}

static const uint8_t *row_of(const struct resampling *k, int64_t index) {
    return index < k->vertical.begin || index >= k->vertical.end ? 0 : k->n->pixels + k->vertical.offsets[index];
}

static __attribute__((noinline)) void copy_row(const struct resampling *k, int64_t index, uint8_t *to, int64_t stride) {
    if (k->channels == 1) copy_pixels(k->n, &k->horizontal, row_of(k, index), 1, to, stride);
    else copy_pixels(k->n, &k->horizontal, row_of(k, index), 4, to, stride);
}

// Return the column stride in bytes if the columns that are read are consecutive and inside the image, and the channels of a
// pixel are contiguous. If not, return 0.
static int64_t consecutive_stride(const struct resize *n, const struct read_positions *columns) {
    if (n->channel_stride != 1 || columns->begin || columns->end < columns->count) return 0;
    for (int64_t i = 1; i < columns->count; ++i)
        if (columns->offsets[i] - columns->offsets[i - 1] != n->column_stride) return 0;
    return n->column_stride;
}

// Copy 4 consecutive pixels of 4 rows, with 4 bytes per pixel, so that the pixels of a column are consecutive.
INLINE void transpose_pixels(const uint8_t *const *rows, int64_t from, uint8_t *to) {
    uint32_t row[4][4], columns[4][4];
    UNROLL for (int i = 0; i < 4; ++i)
        memcpy(row[i], rows[i] + from, sizeof row[i]);
    UNROLL for (int column = 0; column < 4; ++column)
        UNROLL for (int i = 0; i < 4; ++i)
            columns[column][i] = row[i][column];
    memcpy(to, columns, sizeof columns);
}

// Copy the pixels of some rows to a block for the horizontal pass. If fewer rows remain, the last one is repeated.
static void copy_block(const struct resampling *k, int64_t first_row, uint8_t *block) {
    const struct read_positions *columns = &k->horizontal;
    const int64_t count = columns->count;
    const uint8_t *rows[LANES];
    int is_consecutive = k->n->channels == 4 && k->consecutive_stride == 4 && count >= 4;
    for (int64_t i = 0; i < k->block; ++i) {
        const int64_t row = min(first_row + i, k->vertical.count - 1);
        rows[i] = row_of(k, row);
        is_consecutive &= rows[i] != 0;
        if (!is_consecutive) break;
    }
    for (int64_t i = 0; is_consecutive && i < count; i += 4) {
        const int64_t at = min(i, count - 4);
        transpose_pixels(rows, columns->offsets[at], block + at * LANES);
    }
    for (int64_t i = 0; !is_consecutive && i < k->block; ++i)
        copy_row(k, min(first_row + i, k->vertical.count - 1), block + i * k->channels, LANES);
}

#ifdef HAS_PAIRS
// Copy the pixels of 4 rows to a block for `horizontal_pairs`. `copied` has space for 4 rows of `row_stride` bytes.
static void copy_pairs(const struct resampling *k, int64_t first_row, char *block, uint8_t *copied, int64_t row_stride) {
    const int64_t count = k->horizontal.count, stride = k->consecutive_stride;
    const int64_t n_bytes = (count - 1) * stride + k->n->channels;  // size of a row; the memory may end after it
    int64_t groups = can_interleave(stride) && n_bytes >= 16 ? (n_bytes - 16) / (4 * stride) + 1 : 0;
    const uint8_t *rows[4], *rests[4];
    for (int64_t i = 0; i < 4; ++i) {
        rows[i] = row_of(k, min(first_row + i, k->vertical.count - 1));
        rests[i] = copied + i * row_stride;
        if (!rows[i]) groups = 0;
    }
    const struct read_positions rest = {.offsets = k->horizontal.offsets + 4 * groups,
                                        .count = count - 4 * groups,
                                        .begin = groups ? 0 : k->horizontal.begin,
                                        .end = k->horizontal.end - 4 * groups};
    for (int64_t i = 0; i < 4; ++i) copy_pixels(k->n, &rest, rows[i], 4, copied + i * row_stride, 4);
    interleave_rows(rests, 4, (rest.count + 3) / 4, block + 2 * PAIR_BYTES * groups);
    for (int64_t i = 0; groups && i < 4; ++i) rows[i] += k->horizontal.offsets[0];
    interleave_rows(rows, stride, groups, block);
}
#endif

// Apply the plan's arithmetic to float32 values of one plane.
static void apply_arithmetic(const struct resize *n, int64_t plane, float *values, int64_t count) {
    for (int64_t step = 0; step < n->step_count; ++step) {
        const struct arithmetic *a = &n->steps[step];
        const double scale = a->operand[plane], offset = a->offset[plane];
        const float by = (float)scale;
        switch (a->operation) {
        case AFFINE:
            for (int64_t i = 0; i < count; ++i) values[i] = (float)(values[i] * scale + offset);
            break;
        case SUBTRACT:
            for (int64_t i = 0; i < count; ++i) values[i] -= by;
            break;
        case MULTIPLY:
            for (int64_t i = 0; i < count; ++i) values[i] *= by;
            break;
        case CLIP:
            for (int64_t i = 0; i < count; ++i)
                values[i] = values[i] < by ? by : values[i] > (float)offset ? (float)offset : values[i];
            break;
        default:
            for (int64_t i = 0; i < count; ++i) values[i] /= by;
        }
    }
}

// Write rows of the result, given as pixel values or float32 values, to the tensor.
static void write_rows(const struct resampling *k, const char *lines, int64_t row_stride, int64_t row, int64_t count,
                       float *scratch) {
    const struct resize *n = k->n;
    const int64_t width = k->columns->size, height = k->rows->size;
    struct values values = n->values;
    struct patches patches;
    if (values.patches) {
        patches = *values.patches;
        patches.first_row = row;
        values.patches = &patches;
    } else values.out += (n->is_flipped ? height - 1 - row : row) * values.out_row_stride;
    if (n->is_flipped) values.out_row_stride = -values.out_row_stride;
    if (values.table) {
        values.pixels = (const uint8_t *)lines + n->first_channel;
        values.plane_stride = n->channel_step;
        values.row_stride = row_stride;
        values.column_stride = k->channels;
        values.rows = count;
        values.columns = width;
        look_up(&values);
        return;
    }
    for (int64_t i = 0; i < count; ++i, lines += row_stride, values.out += values.out_row_stride) {
        if (!values.planes) {  // the result is an image
            memcpy(values.out, lines, width * k->channels * values.value_size);
            continue;
        }
        for (int64_t plane = 0; plane < values.planes; ++plane) {
            const float *from = (const float *)lines + n->first_channel + plane * n->channel_step;
            uint8_t *to = values.out + plane * values.out_plane_stride;
            for (int64_t column = 0; column < width; ++column) scratch[column] = from[column * k->channels];
            apply_arithmetic(n, plane, scratch, width);
            if (values.out_column_stride == sizeof *scratch) memcpy(to, scratch, width * sizeof *scratch);
            else
                for (int64_t column = 0; column < width; ++column)
                    memcpy(to + column * values.out_column_stride, &scratch[column], sizeof *scratch);
        }
    }
}

// Horizontal pass first. Its results for the taps of a row are kept in a ring buffer.
static int resample_horizontal_first(const struct resampling *k) {
    const struct coefficients *rows = k->rows;
    const int64_t length = max(k->columns->size * k->channels, LANES), is_real = k->n->passes >= PASSES_REAL || k->n->levels;
    const struct pass_functions passes = pass_functions_of(k->n->passes, k->rows->bits, k->columns->bits, k->n->levels != 0);
#ifdef HAS_PAIRS
    const int is_paired = passes.horizontal[k->channels != 1] == horizontal_pairs;
#else
    const int is_paired = 0;  // `copied` is then unused
#endif
    struct tap_pairs pairs = {0};
    for (int64_t i = 0; is_paired && i < k->columns->size; ++i)
        pairs.count = max(pairs.count, (k->horizontal.first[i] % 2 + k->columns->count[i] + 1) / 2);
    const struct horizontal_pass horizontal = {k->columns, k->horizontal.first, k->n->is_mirrored, k->away, &pairs};
    const int64_t row_stride = length * passes.value_size, out_row_stride = length * (is_real ? 4 : 1);
    const int64_t ring_rows = (rows->taps + 2 * (k->block - 1)) / k->block * k->block;
    const float *levels = k->n->levels;
    const int64_t block_values = (k->horizontal.count + 2 * pairs.count) * LANES;  // pairs with the weight 0 are also read
    const int64_t copied_stride = (k->horizontal.count + 3) / 4 * 16;
    char *block, *ring, *output;
    uint8_t *copied __attribute__((unused));
    const char **taps;
    float *line, *converted;
    struct arena arena = {0};
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        block = arena_alloc(&arena, block_values);
        converted = arena_alloc(&arena, levels ? block_values * sizeof *converted : 0);
        copied = arena_alloc(&arena, is_paired ? 4 * copied_stride : 0);
        pairs.first = arena_alloc(&arena, is_paired ? k->columns->size * sizeof *pairs.first : 0);
        pairs.weights = arena_alloc(&arena, k->columns->size * pairs.count * sizeof *pairs.weights);
        ring = arena_alloc(&arena, ring_rows * row_stride);
        output = arena_alloc(&arena, ROWS_PER_WRITE * out_row_stride + 4);  // the look-up may read up to 3 bytes beyond the end
        taps = arena_alloc(&arena, rows->taps * sizeof *taps);
        line = arena_alloc(&arena, k->columns->size * sizeof *line);
    }
    if (length > k->columns->size * k->channels)
        memset(ring, 0, ring_rows * row_stride);  // a pass reads at least LANES values per line
#ifdef HAS_PAIRS
    if (is_paired) make_pairs(k->columns, k->horizontal.first, &pairs);
#endif
    int64_t done = 0;
    for (int64_t row = 0; row < rows->size; ++row) {
        const int64_t first = k->vertical.first[row], count = rows->count[row], slot = row % ROWS_PER_WRITE;
        for (; done < first + count; done += k->block) {
            char *lines[LANES];
            for (int64_t i = 0; i < k->block; ++i) lines[i] = ring + (done + i) % ring_rows * row_stride;
#ifdef HAS_PAIRS
            if (is_paired) copy_pairs(k, done, block, copied, copied_stride);
            else
#endif
                copy_block(k, done, (uint8_t *)block);
            for (int64_t i = 0; levels && i < block_values; ++i)
                converted[i] = levels[i % k->channels * 256 + (uint8_t)block[i]];
            passes.horizontal[k->channels != 1](&horizontal, levels ? (const char *)converted : block, lines);
        }
        for (int64_t tap = 0; tap < count; ++tap) taps[tap] = ring + (first + tap) % ring_rows * row_stride;
        passes.vertical(rows, row, taps, length, output + slot * out_row_stride, (float)k->n->factor, k->away);
        if (slot == ROWS_PER_WRITE - 1 || row == rows->size - 1)
            write_rows(k, output, out_row_stride, row - slot, slot + 1, line);
    }
    free(arena.memory);
    return DONE;
}

// Vertical pass first, for as many rows of the result as a block has.
static int resample_vertical_first(const struct resampling *k) {
    const struct resize *n = k->n;
    const struct coefficients *rows = k->rows;
    const struct read_positions *read_positions = &k->horizontal;
    const int64_t is_real = n->passes >= PASSES_REAL, out_length = max(k->columns->size * k->channels, LANES);
    const int64_t out_row_stride = out_length * (is_real ? 4 : 1);
    // Contiguous rows without padding are read in place.
    const int64_t span = read_positions->count ? read_positions->offsets[read_positions->count - 1] -
                                                     read_positions->offsets[0] + n->column_stride
                                               : 0;
    const int is_gathered = n->channel_stride != 1 || n->column_stride < n->channels || n->column_stride > 4 || span < LANES ||
                            read_positions->begin || read_positions->end < read_positions->count || k->vertical.begin ||
                            k->vertical.end < k->vertical.count;
    const int64_t length = is_gathered ? max(read_positions->count * k->channels, LANES) : span;
    const struct pass_functions passes = pass_functions_of(n->passes, k->rows->bits, k->columns->bits, 0);
    const struct horizontal_pass horizontal = {k->columns, k->horizontal.first, k->n->is_mirrored, k->away, 0};
    const int64_t row_stride = (length + 4) * passes.value_size;  // the last pixel is read as 4 values, even if it has 3
    char *gathered, *output, *sums;
    int32_t *tap_offsets;
    const char **taps;
    float *line;
    struct arena arena = {0};
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        gathered = arena_alloc(&arena, is_gathered ? k->vertical.count * length : 0);
        sums = arena_alloc(&arena, k->block * row_stride);
        tap_offsets = arena_alloc(&arena, read_positions->count * sizeof *tap_offsets);
        output = arena_alloc(&arena, LANES * out_row_stride + 4);
        taps = arena_alloc(&arena, rows->taps * sizeof *taps);
        line = arena_alloc(&arena, k->columns->size * sizeof *line);
    }
    for (int64_t i = 0; is_gathered && i < k->vertical.count; ++i)
        copy_row(k, i, (uint8_t *)gathered + i * length, k->channels);
    for (int64_t i = 0; i < read_positions->count; ++i)
        tap_offsets[i] = (int32_t)(is_gathered ? i * k->channels : read_positions->offsets[i] - read_positions->offsets[0]);
    for (int64_t begin = 0; begin < rows->size; begin += k->block) {
        const char *between[LANES];
        char *lines[LANES];
        for (int64_t i = 0; i < k->block; ++i) {
            const int64_t row = min(begin + i, rows->size - 1), first = k->vertical.first[row];
            for (int64_t tap = 0; tap < rows->count[row]; ++tap)
                taps[tap] = is_gathered
                                ? gathered + (first + tap) * length
                                : (const char *)n->pixels + k->vertical.offsets[first + tap] + read_positions->offsets[0];
            passes.vertical_first(rows, row, taps, length, sums + i * row_stride, 1, 0);
            between[i] = sums + i * row_stride;
            lines[i] = output + i * out_row_stride;
        }
        passes.horizontal_last[k->channels != 1](&horizontal, between, tap_offsets, lines);
        write_rows(k, output, out_row_stride, begin, min(k->block, rows->size - begin), line);
    }
    free(arena.memory);
    return DONE;
}

// PASSES_COPIED: copy the single tap of each output position.
static int copy_positions(const struct resampling *k) {
    const int64_t width = k->columns->size, row_stride = width * k->channels;
    uint8_t *output = malloc(ROWS_PER_WRITE * row_stride + 4);
    if (!output) return NO_MEMORY;
    for (int64_t row = 0; row < k->rows->size; ++row) {
        const int64_t slot = row % ROWS_PER_WRITE;
        uint8_t *to = output + slot * row_stride;
        if (k->n->is_mirrored) copy_row(k, row, to + (width - 1) * k->channels, -k->channels);
        else copy_row(k, row, to, k->channels);
        if (slot == ROWS_PER_WRITE - 1 || row == k->rows->size - 1)
            write_rows(k, (char *)output, row_stride, row - slot, slot + 1, 0);
    }
    free(output);
    return DONE;
}

static int resample(const struct resize *n, const struct coefficients *rows, const struct coefficients *columns) {
    struct resampling k = {.n = n, .rows = rows, .columns = columns, .channels = n->channels == 1 ? 1 : 4};
    struct arena arena = {0};
    k.block = LANES / k.channels;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        k.vertical.offsets = arena_alloc(&arena, rows->size * rows->taps * sizeof *k.vertical.offsets);
        k.vertical.first = arena_alloc(&arena, rows->size * sizeof *k.vertical.first);
        k.horizontal.offsets = arena_alloc(&arena, columns->size * columns->taps * sizeof *k.horizontal.offsets);
        k.horizontal.first = arena_alloc(&arena, columns->size * sizeof *k.horizontal.first);
        k.away = arena_alloc(&arena, max(columns->size * k.channels, LANES));
    }
    const int is_gathered = n->passes == PASSES_COPIED;
    if (n->passes == PASSES_DALI) {
        memset(k.away, 0, LANES);  // a pass reads at least LANES values per line
        find_ties(&(struct ties){n->filter, n->columns, k.channels, n->is_vertical_first, n->order, n->is_mirrored, k.away});
    }
    list_positions(&k.vertical, rows, n->rows.length, n->pad_top, n->height, n->row_stride, is_gathered);
    list_positions(&k.horizontal, columns, n->columns.length, n->pad_left, n->width, n->column_stride, is_gathered);
    k.consecutive_stride = consecutive_stride(n, &k.horizontal);
    int status = (is_gathered            ? copy_positions
                  : n->is_vertical_first ? resample_vertical_first
                                         : resample_horizontal_first)(&k);
    free(arena.memory);
    return status;
}

static struct coefficients alloc_coefficients(struct arena *arena, const struct resize_filter *filter,
                                              const struct axis *axis) {
    struct coefficients output = {.size = axis->end - axis->begin, .taps = max_taps(filter, axis)};
    output.first = arena_alloc(arena, sizeof *output.first * output.size);
    output.count = arena_alloc(arena, sizeof *output.count * output.size);
    output.weights = arena_alloc(arena, sizeof *output.weights * output.size * output.taps);
    return output;
}

KERNEL int resize(const struct resize *n) {
    struct arena arena = {0};
    struct coefficients rows, columns;
    double *weights;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        rows = n->given_rows ? *n->given_rows : alloc_coefficients(&arena, &n->filter, &n->rows);
        columns = n->given_columns ? *n->given_columns : alloc_coefficients(&arena, &n->filter, &n->columns);
        weights = arena_alloc(&arena, sizeof *weights * max(max(rows.taps, columns.taps), 4));
    }
    if (!n->given_rows) compute_coefficients(&n->filter, &n->rows, &rows, weights);
    if (!n->given_columns) compute_coefficients(&n->filter, &n->columns, &columns, weights);
    int status = resample(n, &rows, &columns);
    free(arena.memory);
    return status;
}
