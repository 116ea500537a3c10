// Contrast limited adaptive histogram equalization with OpenCV's arithmetic: see `Clahe` in plan/steps/neighborhoods.py.
#include "vectors.h"
#include "coefficients.h"

enum { LEVELS = 256, XYZ_BITS = 12, LAB_BITS = 15, BASE = 1 << 14, MIN_AB = -8145 };

static inline int descale(int value, int bits) { return (value + (1 << (bits - 1))) >> bits; }
static inline uint8_t clip_level(int value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

// Convert RGB to CIELAB with 8 bits per value.
static void rgb_to_lab(const struct clahe *n) {
    for (const uint8_t *rgb = n->pixels, *end = rgb + 3 * n->height * n->width; rgb < end; rgb += 3) {
        uint8_t *lab = n->out + (rgb - n->pixels);
        const int r = n->gamma[rgb[0]], g = n->gamma[rgb[1]], b = n->gamma[rgb[2]];
        int f[3];
        for (int k = 0; k < 3; ++k) {
            const int32_t *row = n->rgb_to_xyz + 3 * k;
            f[k] = n->cube_roots[descale(r * row[0] + g * row[1] + b * row[2], XYZ_BITS)];
        }
        lab[0] = clip_level(descale(296 * f[1] - 1336934, LAB_BITS));
        lab[1] = clip_level(descale(500 * (f[0] - f[1]) + (128 << LAB_BITS), LAB_BITS));
        lab[2] = clip_level(descale(200 * (f[1] - f[2]) + (128 << LAB_BITS), LAB_BITS));
    }
}

// Convert CIELAB back to RGB, in place.
static void lab_to_rgb(const struct clahe *n) {
    for (uint8_t *lab = n->out, *end = lab + 3 * n->height * n->width; lab < end; lab += 3) {
        const int y = n->lightness_to_y[2 * lab[0]], f = n->lightness_to_y[2 * lab[0] + 1];
        const int x = n->root_to_xz[f + ((5 * lab[1] * 53687 + (1 << 7)) >> 13) - 128 * BASE / 500 - MIN_AB];
        const int z = n->root_to_xz[f - (((lab[2] * 41943 + (1 << 4)) >> 9) - 128 * BASE / 200 + 1) - MIN_AB];
        uint8_t rgb[3];
        for (int k = 0; k < 3; ++k) {
            const int32_t *row = n->xyz_to_rgb + 3 * k;
            const int linear = descale(row[0] * x + row[1] * y + row[2] * z, 14);
            rgb[k] = n->inverse_gamma[linear < 0 ? 0 : linear > 4095 ? 4095 : linear];
        }
        memcpy(lab, rgb, sizeof rgb);
    }
}

// Compute the look-up table of each tile. Where a tile extends beyond the image, the image is mirrored.
static void equalize_tiles(const struct clahe *n, const uint8_t *plane) {
    const float scale = 255.0f / (float)(n->tile_height * n->tile_width);
    for (int64_t tile = 0; tile < n->tile_rows * n->tile_columns; ++tile) {
        const int64_t top = tile / n->tile_columns * n->tile_height, left = tile % n->tile_columns * n->tile_width;
        int counts[LEVELS] = {0}, excess = 0, sum = 0;
        for (int64_t y = top; y < top + n->tile_height; ++y) {
            const uint8_t *row = plane + border_position(PADDING_REFLECT, (int)y, (int)n->height) * n->width * n->channels;
            for (int64_t x = left; x < left + n->tile_width; ++x)
                ++counts[row[border_position(PADDING_REFLECT, (int)x, (int)n->width) * n->channels]];
        }
        for (int level = 0; level < LEVELS; ++level)
            if (counts[level] > n->clip_limit) excess += counts[level] - (int)n->clip_limit, counts[level] = (int)n->clip_limit;
        const int share = excess / LEVELS;
        int rest = excess - share * LEVELS;
        const int step = rest && LEVELS / rest > 1 ? LEVELS / rest : 1;
        for (int level = 0; level < LEVELS; ++level) counts[level] += share;
        for (int level = 0; level < LEVELS && rest > 0; level += step, --rest) ++counts[level];
        for (int level = 0; level < LEVELS; ++level) {
            sum += counts[level];
            n->tables[tile * LEVELS + level] = clip_level((int)lrintf((float)sum * scale));
        }
    }
}

// Return the index of the tile whose center is at or before a position, and the distance from this center in tiles.
static inline int64_t tile_before(int64_t position, int64_t length, float *distance) {
    const float tile = (float)position * (1.0f / (float)length) - 0.5f, first = floorf(tile);
    *distance = tile - first;
    return (int64_t)first;
}

static inline int64_t clamp_tile(int64_t tile, int64_t count) { return tile < 0 ? 0 : tile < count ? tile : count - 1; }

// Interpolate between the tables of the four nearest tiles.
static void interpolate_tiles(const struct clahe *n, uint8_t *plane) {
    for (int64_t row = 0; row < n->height; ++row) {
        float dy, dx;
        const int64_t above = tile_before(row, n->tile_height, &dy);
        const uint8_t *upper = n->tables + clamp_tile(above, n->tile_rows) * n->tile_columns * LEVELS;
        const uint8_t *lower = n->tables + clamp_tile(above + 1, n->tile_rows) * n->tile_columns * LEVELS;
        for (int64_t column = 0; column < n->width; ++column) {
            uint8_t *value = plane + (row * n->width + column) * n->channels;
            const int64_t before = tile_before(column, n->tile_width, &dx);
            const int64_t left = clamp_tile(before, n->tile_columns) * LEVELS + *value;
            const int64_t right = clamp_tile(before + 1, n->tile_columns) * LEVELS + *value;
            const float top = (float)upper[left] * (1.0f - dx) + (float)upper[right] * dx;
            const float bottom = (float)lower[left] * (1.0f - dx) + (float)lower[right] * dx;
            *value = clip_level((int)lrintf(top * (1.0f - dy) + bottom * dy));
        }
    }
}

KERNEL void equalize_adaptively(const struct clahe *n) {
    if (n->channels == 3) rgb_to_lab(n);
    else memcpy(n->out, n->pixels, n->height * n->width);
    equalize_tiles(n, n->out);
    interpolate_tiles(n, n->out);
    if (n->channels == 3) lab_to_rgb(n);
}
