// Whole resizes: the windows of both axes, both passes, and the values of the tensor.
//
// Across first, the lines that a window reads are kept in a ring. Down first, as many lines are made as a block has.
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "passes.h"
#include "arena.h"
#include "vectors.h"
#include "coefficients.h"

enum { FINISHED = 8 };  // rows at a time

// Positions of an axis that are read, as offsets in bytes from the first pixel; one beyond the axis is the nearest inside.
struct reads {
    int64_t *offsets;
    int32_t *first;     // of each window: the number of its first position here
    int64_t count;
    int64_t begin;      // before these and from `end` on they are in the margin
    int64_t end;
};

// A resize on its way.
struct work {
    const struct resize *n;
    const struct coefficients *rows;
    const struct coefficients *columns;
    struct reads down;
    struct reads across;
    int64_t channels;  // of a pixel: 1 or 4
    int64_t block;     // rows of a block
    uint8_t *away;     // of DALI's ties, as long as a line of the result
};

static void list_reads(struct reads *reads, const struct coefficients *w, int64_t length, int64_t before, int64_t inside,
                       int64_t column_stride, int is_each) {
    int64_t next = w->size ? w->first[0] : 0, count = 0;
    reads->begin = reads->end = 0;
    for (int64_t window = 0; window < w->size; ++window) {
        int64_t first = w->first[window], end = first + w->count[window];
        for (next = is_each ? first : max(next, first); next < end; ++next) {
            int64_t position = max(min(next, length - 1), 0) - before;
            if (position < 0 || position >= inside) {
                reads->offsets[count++] = 0;
                if (position < 0) reads->begin = reads->end = count;
                continue;
            }
            reads->offsets[count++] = position * column_stride;
            reads->end = count;
        }
        reads->first[window] = (int32_t)(count - (next - first));
    }
    reads->count = count;
}

// Pixels of a row, 1 or 4 channels each, `stride` bytes apart; no row: the margin's colour.
ALWAYS void copy_pixels(const struct resize *n, const struct reads *reads, const uint8_t *row, int64_t channels, uint8_t *to,
                        int64_t stride) {
    const int64_t *offsets = reads->offsets, begin = row ? reads->begin : reads->count, end = row ? reads->end : begin;
    // A word of fewer channels ends in bytes of no meaning, which but in the last row are inside.
    const uint8_t *last = n->pixels + (n->row_stride > 0 ? (n->height - 1) * n->row_stride : 0);
    const int is_word = n->channel_stride == 1 && (n->channels == channels || (channels == 4 && row != last));
    for (int64_t i = 0; i < begin; ++i) memcpy(to + i * stride, &n->fill, channels);
    for (int64_t i = begin; is_word && i < end; ++i) memcpy(to + i * stride, row + offsets[i], channels);
    for (int64_t i = begin; !is_word && i < end; ++i)
        for (int64_t channel = 0; channel < n->channels; ++channel)
            to[i * stride + channel] = row[offsets[i] + channel * n->channel_stride];
    for (int64_t i = end; i < reads->count; ++i) memcpy(to + i * stride, &n->fill, channels);
}

static const uint8_t *row_of(const struct work *k, int64_t index) {
    return index < k->down.begin || index >= k->down.end ? 0 : k->n->pixels + k->down.offsets[index];
}

static __attribute__((noinline)) void copy_row(const struct work *k, int64_t index, uint8_t *to, int64_t stride) {
    if (k->channels == 1) copy_pixels(k->n, &k->across, row_of(k, index), 1, to, stride);
    else copy_pixels(k->n, &k->across, row_of(k, index), 4, to, stride);
}

// The steps of a plan's arithmetic on real values of one plane.
static void calculate(const struct resize *n, int64_t plane, float *values, int64_t count) {
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
        default:
            for (int64_t i = 0; i < count; ++i) values[i] /= by;
        }
    }
}

// Write rows of the result, given as pixel values or float32 values, to the tensor.
static void finish(const struct work *k, const char *lines, int64_t row_stride, int64_t row, int64_t count, float *plane_line) {
    const struct resize *n = k->n;
    const int64_t wide = k->columns->size, high = k->rows->size;
    struct values values = n->values;
    struct patches patches;
    if (values.patches) {
        patches = *values.patches;
        patches.first_row = row;
        values.patches = &patches;
    } else values.out += (n->is_flipped ? high - 1 - row : row) * values.out_row_stride;
    if (n->is_flipped) values.out_row_stride = -values.out_row_stride;
    if (values.table) {
        values.pixels = (const uint8_t *)lines + n->first_channel;
        values.plane_stride = n->channel_step;
        values.row_stride = row_stride;
        values.column_stride = k->channels;
        values.rows = count;
        values.columns = wide;
        look_up(&values);
        return;
    }
    for (int64_t i = 0; i < count; ++i, lines += row_stride, values.out += values.out_row_stride) {
        if (!values.planes) {  // as they are
            memcpy(values.out, lines, wide * k->channels * values.value_size);
            continue;
        }
        for (int64_t plane = 0; plane < values.planes; ++plane) {
            const float *from = (const float *)lines + n->first_channel + plane * n->channel_step;
            uint8_t *to = values.out + plane * values.out_plane_stride;
            for (int64_t column = 0; column < wide; ++column) plane_line[column] = from[column * k->channels];
            calculate(n, plane, plane_line, wide);
            if (values.out_column_stride == sizeof *plane_line) memcpy(to, plane_line, wide * sizeof *plane_line);
            else for (int64_t column = 0; column < wide; ++column)
                memcpy(to + column * values.out_column_stride, &plane_line[column], sizeof *plane_line);
        }
    }
}

// Across, then down. The lines that a window reads are kept in a ring.
static int go_across_first(const struct work *k) {
    const struct coefficients *rows = k->rows;
    const int64_t length = max(k->columns->size * k->channels, LANES), is_real = k->n->passes >= PASSES_REAL;
    const struct both passes = passes_of(k->n->passes, k->rows->bits, k->columns->bits);
    const struct horizontal_pass across = {k->columns, k->across.first, k->n->is_mirrored, k->away};
    const int64_t row_stride = length * passes.size, out_row_stride = length * (is_real ? 4 : 1);
    const int64_t kept = (rows->taps + 2 * (k->block - 1)) / k->block * k->block;
    char *block, *ring, *made;
    const char **taps;
    float *line;
    struct arena arena = {0};
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        block = arena_alloc(&arena, k->across.count * LANES);
        ring = arena_alloc(&arena, kept * row_stride);
        made = arena_alloc(&arena, FINISHED * out_row_stride + 4);  // a look-up reads a few bytes more
        taps = arena_alloc(&arena, rows->taps * sizeof *taps);
        line = arena_alloc(&arena, k->columns->size * sizeof *line);
    }
    if (length > k->columns->size * k->channels) memset(ring, 0, kept * row_stride);  // what a pass reads beyond a short line
    int64_t done = 0;
    for (int64_t row = 0; row < rows->size; ++row) {
        const int64_t first = k->down.first[row], count = rows->count[row], place = row % FINISHED;
        for (; done < first + count; done += k->block) {
            char *lines[LANES];
            for (int64_t i = 0; i < k->block; ++i) {
                lines[i] = ring + (done + i) % kept * row_stride;
                copy_row(k, min(done + i, k->down.count - 1), (uint8_t *)block + i * k->channels, LANES);
            }
            passes.across[k->channels != 1](&across, block, lines);
        }
        for (int64_t tap = 0; tap < count; ++tap) taps[tap] = ring + (first + tap) % kept * row_stride;
        passes.down(rows, row, taps, length, made + place * out_row_stride, (float)k->n->factor, k->away);
        if (place == FINISHED - 1 || row == rows->size - 1) finish(k, made, out_row_stride, row - place, place + 1, line);
    }
    free(arena.memory);
    return DONE;
}

// Down, then across: as many rows of the result at a time as a block has.
static int go_down_first(const struct work *k) {
    const struct resize *n = k->n;
    const struct coefficients *rows = k->rows;
    const struct reads *reads = &k->across;
    const int64_t is_real = n->passes >= PASSES_REAL, made_length = max(k->columns->size * k->channels, LANES);
    const int64_t out_row_stride = made_length * (is_real ? 4 : 1);
    // Contiguous rows without padding are read in place.
    const int64_t seen = reads->count ? reads->offsets[reads->count - 1] - reads->offsets[0] + n->column_stride : 0;
    const int is_copied = n->channel_stride != 1 || n->column_stride < n->channels || n->column_stride > 4 || seen < LANES ||
                          reads->begin || reads->end < reads->count || k->down.begin || k->down.end < k->down.count;
    const int64_t length = is_copied ? max(reads->count * k->channels, LANES) : seen;
    const struct both passes = passes_of(k->n->passes, k->rows->bits, k->columns->bits);
    const struct horizontal_pass across = {k->columns, k->across.first, k->n->is_mirrored, k->away};
    const int64_t row_stride = (length + 4) * passes.size;  // the last pixel of three values is read as four
    char *copied, *made, *sums;
    int32_t *places;
    const char **taps;
    float *line;
    struct arena arena = {0};
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        copied = arena_alloc(&arena, is_copied ? k->down.count * length : 0);
        sums = arena_alloc(&arena, k->block * row_stride);
        places = arena_alloc(&arena, reads->count * sizeof *places);
        made = arena_alloc(&arena, LANES * out_row_stride + 4);
        taps = arena_alloc(&arena, rows->taps * sizeof *taps);
        line = arena_alloc(&arena, k->columns->size * sizeof *line);
    }
    for (int64_t i = 0; is_copied && i < k->down.count; ++i) copy_row(k, i, (uint8_t *)copied + i * length, k->channels);
    for (int64_t i = 0; i < reads->count; ++i)
        places[i] = (int32_t)(is_copied ? i * k->channels : reads->offsets[i] - reads->offsets[0]);
    for (int64_t begin = 0; begin < rows->size; begin += k->block) {
        const char *between[LANES];
        char *lines[LANES];
        for (int64_t i = 0; i < k->block; ++i) {
            const int64_t row = min(begin + i, rows->size - 1), first = k->down.first[row];
            for (int64_t tap = 0; tap < rows->count[row]; ++tap)
                taps[tap] = is_copied ? copied + (first + tap) * length
                                      : (const char *)n->pixels + k->down.offsets[first + tap] + reads->offsets[0];
            passes.down_first(rows, row, taps, length, sums + i * row_stride, 1, 0);
            between[i] = sums + i * row_stride;
            lines[i] = made + i * out_row_stride;
        }
        passes.beside[k->channels != 1](&across, between, places, lines);
        finish(k, made, out_row_stride, begin, min(k->block, rows->size - begin), line);
    }
    free(arena.memory);
    return DONE;
}

// Windows of one position: the pixels there.
static int go_nowhere(const struct work *k) {
    const int64_t wide = k->columns->size, row_stride = wide * k->channels;
    uint8_t *made = malloc(FINISHED * row_stride + 4);
    if (!made) return NO_MEMORY;
    for (int64_t row = 0; row < k->rows->size; ++row) {
        const int64_t place = row % FINISHED;
        uint8_t *to = made + place * row_stride;
        if (k->n->is_mirrored) copy_row(k, row, to + (wide - 1) * k->channels, -k->channels);
        else copy_row(k, row, to, k->channels);
        if (place == FINISHED - 1 || row == k->rows->size - 1) finish(k, (char *)made, row_stride, row - place, place + 1, 0);
    }
    free(made);
    return DONE;
}

static int resample(const struct resize *n, const struct coefficients *rows, const struct coefficients *columns) {
    struct work k = {.n = n, .rows = rows, .columns = columns, .channels = n->channels == 1 ? 1 : 4};
    struct arena arena = {0};
    k.block = LANES / k.channels;
    for (int is_measured = 0; is_measured < 2; ++is_measured) {
        if (is_measured && !(arena.memory = malloc(arena.used))) return NO_MEMORY;
        arena.used = 0;
        k.down.offsets = arena_alloc(&arena, rows->size * rows->taps * sizeof *k.down.offsets);
        k.down.first = arena_alloc(&arena, rows->size * sizeof *k.down.first);
        k.across.offsets = arena_alloc(&arena, columns->size * columns->taps * sizeof *k.across.offsets);
        k.across.first = arena_alloc(&arena, columns->size * sizeof *k.across.first);
        k.away = arena_alloc(&arena, max(columns->size * k.channels, LANES));
    }
    const int is_copied = n->passes == PASSES_COPIED;
    if (n->passes == PASSES_DALI) {
        memset(k.away, 0, LANES);  // what a pass reads beyond a short line
        find_ties(&(struct ties){n->filter, n->columns, k.channels, n->is_vertical_first, n->order, n->is_mirrored, k.away});
    }
    list_reads(&k.down, rows, n->rows.length, n->pad_top, n->height, n->row_stride, is_copied);
    list_reads(&k.across, columns, n->columns.length, n->pad_left, n->width, n->column_stride, is_copied);
    int answer = (is_copied ? go_nowhere : n->is_vertical_first ? go_down_first : go_across_first)(&k);
    free(arena.memory);
    return answer;
}

static struct coefficients alloc_coefficients(struct arena *arena, const struct resize_filter *filter, const struct axis *axis) {
    struct coefficients made = {.size = axis->end - axis->begin, .taps = max_taps(filter, axis)};
    made.first = arena_alloc(arena, sizeof *made.first * made.size);
    made.count = arena_alloc(arena, sizeof *made.count * made.size);
    made.weights = arena_alloc(arena, sizeof *made.weights * made.size * made.taps);
    return made;
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
    int answer = resample(n, &rows, &columns);
    free(arena.memory);
    return answer;
}
