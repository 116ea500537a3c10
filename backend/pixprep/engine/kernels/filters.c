// Filters (blur, sharpness) on rows of bytes with a column stride of `apart` bytes: see plan/steps/levels.py.
#include <stdlib.h>
#include <string.h>

#include "room.h"
#include "vectors.h"
#include "windows.h"

ALWAYS void sharpen_rows(const struct filter *arguments, const int is_pillow) {
    const struct filter filter = *arguments, *n = &filter;
    const float factor = n->factor;
    const double rest = n->rest;
    for (int64_t row = 0; row < n->height; ++row) {
        const uint8_t *own = n->pixels + row * n->pitch, *above = own - n->pitch, *below = own + n->pitch;
        uint8_t *restrict out = n->out + row * n->out_pitch;
        memcpy(out, own, n->length);
        if (row == 0 || row == n->height - 1) continue;
        for (int64_t i = n->apart; i < n->length - n->apart; ++i) {
            const int64_t before = i - n->apart, behind = i + n->apart;
            int sum = above[before] + own[before] + below[before] + above[i] + 5 * own[i] + below[i] + above[behind] +
                      own[behind] + below[behind];
            int smooth = (int)((unsigned)(2 * sum + 13) / 26);
            float value = is_pillow ? (float)smooth + factor * (float)(own[i] - smooth)
                                    : (float)((double)(smooth - own[i]) * rest + (double)own[i]);
            value = value > 0 ? value : 0;
            out[i] = (uint8_t)(int)(value < 255 ? value : 255);
        }
    }
}

KERNEL void sharpen(const struct filter *n) { n->like == LIKE_PILLOW ? sharpen_rows(n, 1) : sharpen_rows(n, 0); }

ALWAYS real load_real(const float *from) {
    real loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

ALWAYS int blur_rows(const struct filter *arguments, const int is_fused) {
    const struct filter filter = *arguments, *n = &filter;
    const int64_t reach = n->column_taps / 2, width = (n->length + n->apart - 1) / n->apart;
    const int64_t pitch = (n->length + LANES - 1) / LANES * LANES;
    struct room room = {0};
    float *padded, *ring;
    const float **lines;
    for (int is_laid = 0; is_laid < 2; ++is_laid) {
        if (is_laid && !(room.memory = malloc(room.used))) return NO_MEMORY;
        room.used = 0;
        padded = take(&room, ((width + 2 * reach) * n->apart + LANES) * sizeof *padded);
        ring = take(&room, n->row_taps * pitch * sizeof *ring);
        lines = take(&room, n->row_taps * sizeof *lines);
    }
    memset(padded, 0, ((width + 2 * reach) * n->apart + LANES) * sizeof *padded);
    float *line = padded + reach * n->apart;
    int64_t made = 0;
    for (int64_t row = 0; row < n->height; ++row) {
        for (; made <= min(row + n->row_taps / 2, n->height - 1); ++made) {
            const uint8_t *from = n->pixels + made * n->pitch;
            for (int64_t i = 0; i < n->length; ++i) line[i] = (float)from[i];
            for (int64_t column = 1; column <= reach; ++column)
                for (int64_t i = 0; i < n->apart; ++i) {
                    line[-column * n->apart + i] = line[beyond(PADDING_REFLECT, -column, width) * n->apart + i];
                    line[(width - 1 + column) * n->apart + i] = line[beyond(PADDING_REFLECT, width - 1 + column, width) * n->apart + i];
                }
            for (int64_t i = 0; i < n->length; i += LANES) {
                real total = load_real(padded + i) * n->columns[0];
                for (int64_t tap = 1; tap < n->column_taps; ++tap) {
                    const real own = load_real(padded + i + tap * n->apart);
                    total = is_fused ? fused(own, ALL(real, n->columns[tap]), total) : total + own * n->columns[tap];
                }
                memcpy(ring + made % n->row_taps * pitch + i, &total, sizeof total);
            }
        }
        for (int64_t tap = 0; tap < n->row_taps; ++tap)
            lines[tap] = ring + beyond(PADDING_REFLECT, row - n->row_taps / 2 + tap, n->height) % n->row_taps * pitch;
        for (int64_t i = 0; i < n->length; i += LANES) {
            const int64_t first = is_fused ? n->row_taps / 2 : 0;
            real total = load_real(lines[first] + i) * n->rows[first];
            for (int64_t tap = first + 1; tap < n->row_taps; ++tap) {
                const real own = load_real(lines[tap] + i);
                total = is_fused ? fused(own + load_real(lines[2 * first - tap] + i), ALL(real, n->rows[tap]), total)
                                 : total + own * n->rows[tap];
            }
            total = (total + 0x1.8p23f) - 0x1.8p23f;  // half to even
            bytes levels = narrowed(WHOLE(total));
            memcpy(n->out + row * n->out_pitch + i, &levels, min(LANES, n->length - i));
        }
    }
    free(room.memory);
    return DONE;
}

KERNEL int blur(const struct filter *n) { return n->like == LIKE_OPENCV ? blur_rows(n, 1) : blur_rows(n, 0); }
