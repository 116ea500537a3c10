// Runs random resizes, colour ops, warps and noise in a kernel library for tests/package/test_wheel.py, and prints a hash
// of the results, which is the same on every processor.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

static uint64_t state = 88172645463325252u, hash = 14695981039346656037u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int between(int low, int high) { return low + next() % (high - low + 1); }

static void add(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
}

static void *random_bytes(size_t count) {
    uint8_t *made = malloc(count);
    for (size_t i = 0; i < count; ++i) made[i] = next();
    return made;
}

static void *library;

static int run(const char *name, void *arguments) {
    int (*function)(void *) = (int (*)(void *))dlsym(library, name);
    if (!function) exit(2);
    return function(arguments);
}

// Each arithmetic is combined with filter taps that it supports. `fixed` supports any filter.
static const struct {
    int passes, type;
} WAYS[] = {
    {PASSES_FIXED, -1},
    {PASSES_FIXED, -1},
    {PASSES_OPENCV_LINEAR, FILTER_OPENCV_LINEAR},
    {PASSES_OPENCV_LINEAR, FILTER_OPENCV_REPEATED},
    {PASSES_OPENCV_CUBIC, FILTER_OPENCV_CUBIC},
    {PASSES_OPENCV_LANCZOS, FILTER_OPENCV_LANCZOS4},
    {PASSES_AREA, FILTER_OPENCV_AREA},
    {PASSES_FLOAT_EVEN, FILTER_OPENCV_CUT},
    {PASSES_DALI, FILTER_DALI_BILINEAR},
    {PASSES_DALI, FILTER_DALI_BICUBIC},
    {PASSES_DALI, FILTER_DALI_LANCZOS},
    {PASSES_FLOAT_FUSED, FILTER_TORCH_BILINEAR},
    {PASSES_FLOAT_FUSED, FILTER_TORCH_BICUBIC},
    {PASSES_REAL, FILTER_TENSORFLOW_TRIANGLE},
    {PASSES_LERP, FILTER_TENSORFLOW_LINEAR},
};

static void resize_one(int way) {
    int passes = WAYS[way].passes, type = passes == PASSES_FIXED ? between(FILTER_BOX, FILTER_FOUR) : WAYS[way].type;
    int is_real = passes >= PASSES_REAL, is_area = type == FILTER_OPENCV_AREA || type == FILTER_OPENCV_CUT, channels = (int[]){1, 3, 4}[next() % 3], planes = channels == 1 ? 1 : 3;
    int height = between(2, 200), width = between(2, 300), high = between(2, 150), wide = between(2, 150);
    int above = is_area ? 0 : 2, more = is_area ? 0 : 6;
    if (is_area) high = between(2, 40), wide = between(2, 40), height = high * between(1, 4), width = wide * between(2, 5);
    if (type == FILTER_OPENCV_CUT) height += between(0, 9), width += between(0, 9);
    uint8_t *pixels = random_bytes(height * width * channels);
    double lines[6];
    float *table = malloc(planes * 256 * sizeof *table), *out = calloc(planes * high * wide, sizeof *out);
    for (int i = 0; i < 6; ++i) lines[i] = between(-1000, 1000) / 333.0;
    for (int i = 0; i < planes * 256; ++i) table[i] = i % 256 * lines[i / 256 * 2] + lines[i / 256 * 2 + 1];
    struct arithmetic steps[4];
    for (int i = 0; i < 4; ++i) {
        steps[i].operation = i;
        for (int plane = 0; plane < 3; ++plane) steps[i].operand[plane] = lines[plane] + 4, steps[i].offset[plane] = lines[5 - plane];
    }
    struct resize n = {
        .filter = {type, type < FILTER_TWO || (type > FILTER_TWO && next() % 2), next() % 2 ? 22 : 0},
        .rows = {(double)(height + more) / high, 0, height + more, high, 0, high, 1, 0},
        .columns = {(double)width / wide, 0, width, wide, 0, wide, 0, 0},
        .pixels = pixels, .row_stride = width * channels, .column_stride = channels, .channel_stride = 1, .height = height, .width = width,
        .channels = channels, .pad_top = above, .fill = next(),
        .is_vertical_first = next() % 2 && (passes == PASSES_FIXED || passes == PASSES_DALI || passes == PASSES_REAL),
        .is_flipped = next() % 2, .is_mirrored = next() % 2, .order = next() % 3, .channel_step = 1,
        .values = {.out = (uint8_t *)out, .out_plane_stride = 4 * high * wide, .out_row_stride = 4 * wide, .out_column_stride = 4,
                   .table = is_real ? 0 : table, .affine = next() % 2 ? lines : 0, .planes = planes, .value_size = 4},
        .passes = passes, .factor = (double)high * wide / ((double)height * width), .steps = steps, .step_count = 4,
    };
    int answer = run("resize", &n);
    add(&answer, sizeof answer);
    add(out, planes * high * wide * sizeof *out);
    free(pixels), free(table), free(out);
}

static void colour_one(void) {
    static const char *const names[] = {"fade", "blend", "turn", "add_luma"};
    enum { COUNT = 4096 };
    uint32_t *pixels = random_bytes(COUNT * sizeof *pixels);
    struct colours n = {.pixels = pixels, .count = COUNT, .gray = between(0, 255), .like = next() % 2};
    n.factor = between(-100, 300) / 100.0f;
    n.one_minus_factor = 1 - n.factor;
    n.hue_shift = n.like ? between(-50, 50) / 100.0 : between(0, 255);
    run(names[next() % 4], &n);
    for (int i = 0; i < COUNT; ++i) pixels[i] &= 0xFFFFFF;
    add(pixels, COUNT * sizeof *pixels);
    add(&n.luma_sum, sizeof n.luma_sum);
    free(pixels);
}

static void warp_one(void) {
    int height = between(2, 90), width = between(2, 90), column_stride = (int[]){1, 3, 4}[next() % 3];
    int arithmetic = between(WARP_PILLOW_FIXED, WARP_TORCHVISION_BILINEAR);
    int is_torchvision = arithmetic >= WARP_TORCHVISION_NEAREST;
    enum { ROWS = 60, COLUMNS = 50 };
    uint8_t *pixels = random_bytes(height * width * column_stride + 8);
    uint32_t *out = calloc(ROWS * COLUMNS + 8, sizeof *out);
    struct warp n = {
        .pixels = pixels, .row_stride = width * column_stride, .height = height, .width = width, .channels = column_stride == 1 ? 1 : 3,
        .column_stride = column_stride, .out = (uint8_t *)out, .rows = ROWS, .columns = COLUMNS, .full_height = ROWS,
        .full_width = COLUMNS, .arithmetic = arithmetic, .fill = next() & 0xFFFFFF, .is_filled = next() % 2,
    };
    n.is_perspective = arithmetic != WARP_PILLOW_FIXED && arithmetic != WARP_PILLOW_WALK && next() % 2;
    for (int i = 0; i < 8; ++i) {
        double value = between(-1000, 1000) / 700.0;
        int is_small = is_torchvision || i > 5;
        n.matrix[i] = arithmetic == WARP_PILLOW_FIXED ? (int)(value * 65536)
                      : is_small                      ? value / 25
                      : i % 3 == 2                    ? value * 20
                                                      : value;
    }
    n.matrix[8] = 1;
    static float places[2][ROWS * COLUMNS + 8];
    if (is_torchvision && next() % 3 == 0) {
        for (int i = 0; i < 2 * ROWS * COLUMNS; ++i) places[i % 2][i / 2] = between(-3000, 3000) / 2000.0f;
        n.source_x = places[0], n.source_y = places[1];
    }
    run("warp", &n);
    if (column_stride > 1)
        for (int i = 0; i < ROWS * COLUMNS; ++i) out[i] &= 0xFFFFFF;
    add(out, ROWS * COLUMNS * (column_stride == 1 ? 1 : 4));
    free(pixels), free(out);
}

static void noise_one(void) {
    float *table = malloc(65536 * sizeof *table), out[1001];
    for (int i = 0; i < 65536; ++i) table[i] = i;
    struct noise n = {out, 1001, table, {(uint32_t)next(), (uint32_t)next()}, between(0, 9)};
    run("make_noise", &n);
    add(out, sizeof out);
    free(table);
}

int main(int count, char **words) {
    if (count != 3 || !(library = dlopen(words[1], RTLD_NOW))) return 1;
    for (int i = 0; i < atoi(words[2]); ++i) {
        resize_one(i % (int)(sizeof WAYS / sizeof *WAYS));
        colour_one();
        warp_one();
        noise_one();
    }
    printf("%016llx\n", (unsigned long long)hash);
}
