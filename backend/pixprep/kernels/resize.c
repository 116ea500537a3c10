// Resizes of `fixed`: both passes, and the values of the result.
//
// A window is a dot product of levels and weights, and 16 of its products are one vector: of a row of four channels those
// of 4 pixels, whose sums are folded at the end; of a column those of 16 neighbours, whose sums stay apart. Four places at
// a time share the weights: rows, or 16 neighbours of a row.
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "windows.h"

enum { LANES = 16, PLACES = 4 };
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef uint16_t shorts __attribute__((vector_size(2 * LANES)));
typedef int32_t lanes __attribute__((vector_size(4 * LANES)));

ALWAYS lanes load_levels(const uint8_t *from) {
    bytes levels;
    memcpy(&levels, from, sizeof levels);
#ifdef __clang__
    return __builtin_convertvector(levels, lanes);
#else  // in two steps: of one, GCC 12 makes 16
    return __builtin_convertvector(__builtin_convertvector(levels, shorts), lanes);
#endif
}

// The weights of a group, each for `sums` products.
ALWAYS lanes load_weights(const int32_t *from, int sums) {
    lanes weights;
    if (sums == LANES) return *from - (lanes){0};
    if (sums == 1) {
        memcpy(&weights, from, sizeof weights);
        return weights;
    }
    typedef int32_t four __attribute__((vector_size(16)));
    four each;
    memcpy(&each, from, sizeof each);
    return __builtin_shufflevector(each, each, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
}

// clip8((half + total) >> bits)
ALWAYS bytes level_of(lanes total, int bits) {
    total = (total + (1 << (bits - 1))) >> bits;
    total &= total >= 0;  // a comparison gives all bits, or none
    total = (total & (total < 255)) | (255 & (total >= 255));
#ifdef __clang__
    return __builtin_convertvector(total, bytes);
#else
    return __builtin_convertvector(__builtin_convertvector(total, shorts), bytes);
#endif
}

// The sums of all places, `sums` of the first, then of the next.
ALWAYS lanes folded(const lanes *totals, int sums) {
    lanes halves[2];
    UNROLL for (int i = 0; i < 2; ++i) {
        lanes a = totals[2 * i], b = totals[2 * i + 1];
        halves[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    lanes a = halves[0], b = halves[1];
    lanes all = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    if (sums == 4) return all;
    all += __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    all += __builtin_shufflevector(all, all, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    return __builtin_shufflevector(all, all, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
}

// One window of four places, whose levels and results begin at these addresses.
ALWAYS void make_places(const struct windows *w, int64_t window, const uint8_t *const *from, uint8_t *const *to,
                        int64_t stride, int sums) {
    const int32_t *weights = w->weights + window * w->taps;
    int64_t count = w->count[window];
    lanes totals[PLACES] = {{0}};
    for (int64_t group = 0; group < count; ++group) {
        lanes share = load_weights(weights + group * (LANES / sums), sums);
        UNROLL for (int i = 0; i < PLACES; ++i) totals[i] += load_levels(from[i] + group * stride) * share;
    }
    if (sums == LANES) {
        UNROLL for (int i = 0; i < PLACES; ++i) {
            bytes made = level_of(totals[i], w->bits);
            memcpy(to[i], &made, sizeof made);
        }
        return;
    }
    bytes made = level_of(folded(totals, sums), w->bits);
    UNROLL for (int i = 0; i < PLACES; ++i) memcpy(to[i], (char *)&made + i * sums, sums);
}

// A pass along one axis of (rows, columns, channels).
struct pass {
    struct windows windows;
    const uint8_t *levels;  // the row, or the column, at which the windows begin
    int64_t pitch;          // bytes from row to row
    uint8_t *out;           // the first row and column of the result
    int64_t out_pitch;      // bytes from row to row; negative: the result stands on its head
    int64_t out_step;       // across: bytes from column to column; negative: the result is mirrored
    int64_t rows;           // across: how many
    const int32_t *which;   // across: their numbers; 0: all of them
    int64_t length;         // down: bytes of a row, at least 16
};

// From row to row; the last 16 neighbours may overlap those before. The result is written row after row.
static __attribute__((noinline)) void go_down(const struct pass *n) {
    const struct windows w = n->windows;
    int64_t last = n->length - LANES;
    for (int64_t window = 0; window < w.size; ++window) {
        const uint8_t *levels = n->levels + (w.first[window] - w.begin) * n->pitch;
        uint8_t *out = n->out + window * n->out_pitch;
        for (int64_t place = 0; place < n->length; place += PLACES * LANES) {
            const uint8_t *from[PLACES];
            uint8_t *to[PLACES];
            UNROLL for (int i = 0; i < PLACES; ++i) {
                int64_t at = least(place + i * LANES, last);
                from[i] = levels + at;
                to[i] = out + at;
            }
            make_places(&w, window, from, to, n->pitch, LANES);
        }
    }
}

// From column to column, four rows at a time; beyond the last row it is the last one again.
ALWAYS void go_across(const struct pass *n, int channels) {
    const struct windows w = n->windows;
    for (int64_t row = 0; row < n->rows; row += PLACES) {
        const uint8_t *begin[PLACES];
        uint8_t *out[PLACES];
        UNROLL for (int i = 0; i < PLACES; ++i) {
            int64_t at = least(row + i, n->rows - 1);
            if (n->which) at = n->which[at];
            begin[i] = n->levels + at * n->pitch - w.begin * channels;
            out[i] = n->out + at * n->out_pitch;
        }
        for (int64_t window = 0; window < w.size; ++window) {
            const uint8_t *from[PLACES];
            uint8_t *to[PLACES];
            UNROLL for (int i = 0; i < PLACES; ++i) {
                from[i] = begin[i] + w.first[window] * channels;
                to[i] = out[i] + window * n->out_step;
            }
            make_places(&w, window, from, to, LANES, channels);
        }
    }
}

// Each in a function of its own: inlined into `resample` they are a twentieth slower.
static __attribute__((noinline)) void across_gray(const struct pass *n) { go_across(n, 1); }
static __attribute__((noinline)) void across_words(const struct pass *n) { go_across(n, 4); }

// Room for what is made on the way, piece by piece; every piece is a multiple of 64 bytes.
struct room {
    uint8_t *memory;
    int64_t used;
};

static void *take(struct room *room, int64_t n_bytes) {
    int64_t at = room->used;
    room->used += (n_bytes + 63) & -64;
    return room->memory ? room->memory + at : 0;
}

static struct windows lay_windows(struct room *room, const struct formula *formula, const struct axis *axis, int64_t group) {
    struct windows made = {.size = axis->end - axis->begin, .taps = most_taps(formula, axis, group), .group = group};
    made.first = take(room, sizeof *made.first * made.size);
    made.count = take(room, sizeof *made.count * made.size);
    made.weights = take(room, sizeof *made.weights * made.size * made.taps);
    return made;
}

// The numbers of the rows that the windows read, which rise from window to window.
static int64_t list_rows(const struct windows *w, int32_t *which) {
    int64_t count = 0, next = w->begin;
    for (int64_t window = 0; window < w->size; ++window) {
        int64_t end = w->first[window] + w->count[window];
        for (next = most(next, w->first[window]); next < end; ++next) which[count++] = (int32_t)(next - w->begin);
    }
    return count;
}

static void put_fill(uint8_t *to, uint32_t fill, int64_t count, int64_t channels) {
    for (int64_t i = 0; i < count; ++i) memcpy(to + i * channels, &fill, channels);
}

// Make pixels that lie side by side, 1 or 4 bytes each: `columns` of `rows` from (top, left), perhaps in the margin.
static void copy(const struct resize *n, int64_t top, int64_t left, int64_t rows, int64_t columns, uint8_t *to) {
    const int64_t channels = n->channels == 1 ? 1 : 4, is_near = n->step == 1;
    const int64_t first = least(most(-left, 0), columns), last = most(first, least(n->width - left, columns));
    for (int64_t row = top; row < top + rows; ++row, to += columns * channels) {
        if (row < 0 || row >= n->height) {
            put_fill(to, n->fill, columns, channels);
            continue;
        }
        const uint8_t *from = n->pixels + row * n->pitch + (left + first) * n->apart;
        uint8_t *out = to + first * channels;
        int64_t count = last - first;
        put_fill(to, n->fill, first, channels);
        put_fill(to + last * channels, n->fill, columns - last, channels);
        if (is_near && n->apart == channels && n->channels == channels) {
            memcpy(out, from, count * channels);
            continue;
        }
        // A pixel of three channels and the byte behind it are one word, which but for the last of a row is inside.
        int64_t words = is_near && n->apart == 3 && n->channels == 3 ? count - 1 : 0;
        for (int64_t i = 0; i < words; ++i) memcpy(out + 4 * i, from + 3 * i, 4);
        for (int64_t i = most(words, 0); i < count; ++i)
            for (int64_t c = 0; c < n->channels; ++c) out[i * channels + c] = from[i * n->apart + c * n->step];
    }
}

static int resample(const struct resize *n, const struct windows *rows, const struct windows *columns) {
    const int64_t channels = n->channels == 1 ? 1 : 4, high = rows->size, wide = columns->size;
    const int64_t read_rows = rows->end - rows->begin, read_columns = columns->end - columns->begin;
    const int64_t top = rows->begin - n->above, left = columns->begin - n->before;
    // A row has room for a vector, and for the longest window.
    const int64_t copied = most(most(read_columns, columns->taps), LANES / channels), length = most(wide * channels, LANES);
    const int is_across = n->columns.length != n->columns.out_length || n->is_mirrored;
    const int is_down = n->rows.length != n->rows.out_length || !is_across, is_made = n->values.table != 0;
    const int is_down_first = is_down && (n->is_vertical_first || !is_across);
    const int is_copied = n->apart != channels || n->step != 1 || n->channels != channels || copied != read_columns ||
                          top < 0 || left < 0 || top + read_rows > n->height || left + read_columns > n->width;
    uint8_t *pixels, *middle, *levels;
    int32_t *which;
    struct room room = {0};
    for (int is_laid = 0; is_laid < 2; ++is_laid) {
        if (is_laid && !(room.memory = malloc(room.used))) return NO_MEMORY;
        room.used = 0;
        which = take(&room, sizeof *which * read_rows);
        pixels = take(&room, is_copied ? read_rows * copied * channels : 0);
        middle = take(&room, is_down_first ? high * copied * channels : read_rows * length);
        levels = take(&room, is_made ? length * high + 4 : 0);  // a line reads a few bytes more
    }
    struct pass down = {.windows = *rows}, across = {.windows = *columns, .out_step = channels};
    const uint8_t *begin = pixels;
    int64_t pitch = copied * channels, out_pitch = is_made ? length : n->values.out_row;
    if (!is_made) levels = n->values.out;
    if (is_copied) {
        copy(n, top, left, read_rows, copied, pixels);
    } else {
        begin = n->pixels + top * n->pitch + left * channels;
        pitch = n->pitch;
    }
    down.levels = across.levels = begin, down.pitch = across.pitch = pitch;
    down.out = across.out = levels, down.out_pitch = across.out_pitch = out_pitch;
    down.length = is_down_first ? copied * channels : length;
    across.rows = high;
    if (is_down && is_across && is_down_first) {
        down.out = middle, across.levels = middle;
        down.out_pitch = across.pitch = down.length;
    } else if (is_down && is_across) {
        across.out = middle, down.levels = middle;
        across.out_pitch = down.pitch = length;
        across.rows = list_rows(rows, which), across.which = which;
    }
    // A flip is a pass that writes its windows backwards.
    struct pass *flipped = is_down ? &down : &across;
    if (n->is_flipped) {
        flipped->out += (high - 1) * flipped->out_pitch;
        flipped->out_pitch = -flipped->out_pitch;
    }
    if (n->is_mirrored) {
        across.out += (wide - 1) * channels;
        across.out_step = -channels;
    }
    if (is_down_first) go_down(&down);
    if (is_across) (channels == 1 ? across_gray : across_words)(&across);
    if (is_down && !is_down_first) go_down(&down);
    if (is_made) {
        struct values values = n->values;
        values.levels = levels + n->first_channel;
        values.levels_plane = n->channel_step;
        values.levels_row = length;
        values.levels_column = channels;
        values.rows = high;
        values.columns = wide;
        look_up(&values);
    }
    free(room.memory);
    return DONE;
}

KERNEL int resize(const struct resize *n) {
    struct room room = {0};
    struct windows rows, columns;
    double *weights;
    for (int is_laid = 0; is_laid < 2; ++is_laid) {
        if (is_laid && !(room.memory = malloc(room.used))) return NO_MEMORY;
        room.used = 0;
        rows = n->made_rows ? *n->made_rows : lay_windows(&room, &n->formula, &n->rows, 1);
        columns = n->made_columns ? *n->made_columns
                                  : lay_windows(&room, &n->formula, &n->columns, n->channels == 1 ? LANES : LANES / 4);
        weights = take(&room, sizeof *weights * most(most(rows.taps, columns.taps), 4));
    }
    if (!n->made_rows) fill_windows(&n->formula, &n->rows, &rows, weights);
    if (!n->made_columns) fill_windows(&n->formula, &n->columns, &columns, weights);
    int answer = resample(n, &rows, &columns);
    free(room.memory);
    return answer;
}
