// What is done to the levels of images after their geometry: one launch, one block an image, which has steps of its own.
//
// A block goes over its image in sweeps. A sweep takes each pixel from where it lies, or from other places by a step that
// looks there; does all steps to it that need that pixel alone, while it is in registers; and writes it: over itself,
// into other memory if the sweep has looked elsewhere, or, the last time, as values of the tensor. A step that needs a
// number of the whole image (the mean of a contrast, the histogram of an equalize) ends a sweep, which measures it
// meanwhile, in integers, so that threads may come in any order. It is then a table for each channel.
//
// Formulas are those of pixprep/steps/levels.py and formulas.h. Each product and sum is rounded by itself, as NVRTC is told
// --fmad=false. Comes after canvas.cu and formulas.h. launch.py defines LEVEL_... and the like.

#define LEVEL_THREADS 512  // of a block
#define LEVELS 256

struct LevelStep {
    double matrix[8];           // of a warp: the numbers that its way needs
    const unsigned char *data;  // of a curve: 256 levels; of a blur: weights, columns before rows
    int kind;
    int like;
    float factor;
    float rest;                 // 1 - factor
    int top;                    // of a window: of the image before, of an erase this image, of a warp its whole result
    int left;
    int height;
    int width;
    int flip_y;
    int flip_x;
    int fill;                   // a byte for each channel; of a warp -1: none
    int whole_height;           // of a warp's result; of a blur: how many weights
    int whole_width;
    int mode;                   // of a take: PADDING_...; of a permutation: 2 bits a channel; of a warp: a perspective
};

// A rectangle of the tensor, and for each of its channels the bits of a value; of noise, the words that make it.
struct Erasure {
    int top;
    int left;
    int height;
    int width;
    unsigned values[3];
    int is_noise;
};

// What steps need of the whole image, and what follows from it.
struct Measured {
    unsigned long long sum;                 // of the lumas
    unsigned counts[CHANNELS][LEVELS];      // of the levels
    unsigned char table[CHANNELS][LEVELS];  // what the step makes of a level
};

// An image whose rows lie one after the other.
struct Levels {
    unsigned char *pixels;
    int height;
    int width;

    __device__ bool has(int y, int x) const { return y >= 0 && y < height && x >= 0 && x < width; }
    __device__ unsigned char *at(int y, int x) const { return pixels + (y * width + x) * CHANNELS; }
    __device__ int level(int y, int x, int c) const { return at(min(max(y, 0), height - 1), min(max(x, 0), width - 1))[c]; }
};

// Whether a step looks at other places: canvases.is_elsewhere.
__device__ static inline bool is_elsewhere(int kind) { return kind >= LEVEL_TAKE; }

__device__ static inline bool is_measured(int kind) {
    return kind == LEVEL_BLEND_MEAN || kind == LEVEL_AUTOCONTRAST || kind == LEVEL_EQUALIZE;
}

// A value, far from 2^31, cut off to a level.
__device__ static inline int level_of(float value) { return clip8((int)value); }

// A value rounded to a level, ties to even.
__device__ static inline int rounded(float value) { return level_of(rintf(value)); }

__device__ static inline int fill_of(const struct LevelStep &step, int c) { return step.fill >> 8 * c & 255; }

__device__ static inline int blended(const struct LevelStep &step, int level, float gray) {
    return step.like == LIKE_PILLOW ? blended_pillow(level, gray, step.factor, step.rest)
                                    : blended_torchvision(level, gray, step.factor, step.rest);
}

__device__ static inline int luma(const int *pixel, int like) {
    if (CHANNELS == 1) return pixel[0];
    const int green = pixel[CHANNELS / 2], blue = pixel[CHANNELS - 1];
    return like == LIKE_PILLOW ? luma_pillow(pixel[0], green, blue) : luma_torchvision(pixel[0], green, blue);
}

// A step that needs the pixel (x, y) alone, or a table.
__device__ static inline void change(const struct LevelStep &step, const struct Measured &measured, int y, int x,
                                     int *pixel) {
    switch (step.kind) {
    case LEVEL_CURVE:
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = __ldg(step.data + pixel[c]);
        break;
#if CHANNELS == 3
    case LEVEL_BLEND_OWN: {
        float gray = luma(pixel, step.like);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = blended(step, pixel[c], gray);
        break;
    }
    case LEVEL_HUE: {
        unsigned turned = step.like == LIKE_PILLOW ? turned_pillow(pixel[0], pixel[1], pixel[2], step.factor)
                                                   : turned_torchvision(pixel[0], pixel[1], pixel[2], step.factor);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = turned >> 8 * c & 255;
        break;
    }
    case LEVEL_PERMUTE: {
        int levels = pixel[0] | pixel[1] << 8 | pixel[2] << 16;
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = levels >> 8 * (step.mode >> 2 * c & 3) & 255;
        break;
    }
#endif
    case LEVEL_ERASE:
        if (y >= step.top && y < step.top + step.height && x >= step.left && x < step.left + step.width)
            for (int c = 0; c < CHANNELS; ++c) pixel[c] = fill_of(step, c);
        break;
    default:  // what is measured
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = measured.table[c][pixel[c]];
    }
}

// The threads of a block make what was measured a table: each has a part of the sum of the lumas.
__device__ static inline void conclude(const struct LevelStep &step, unsigned long long sum, unsigned pixels,
                                       struct Measured *measured) {
    if (step.kind == LEVEL_BLEND_MEAN) atomicAdd(&measured->sum, sum);
    __syncthreads();
    for (int entry = threadIdx.x; entry < CHANNELS * LEVELS; entry += LEVEL_THREADS) {
        int c = entry / LEVELS, level = entry % LEVELS;
        const unsigned *counts = measured->counts[c];
        int value = level;
        if (step.kind == LEVEL_BLEND_MEAN) {
            float mean = step.like == LIKE_PILLOW ? (float)((2 * measured->sum + pixels) / (2ull * pixels))
                                                  : (float)measured->sum / (float)pixels;
            value = blended(step, level, mean);
        } else {
            int low = -1, high = -1;
            unsigned below = 0;
            for (int i = 0; i < LEVELS; ++i) {
                if (counts[i] == 0) continue;
                if (low < 0) low = i;
                high = i;
                if (i < level) below += counts[i];
            }
            if (step.kind == LEVEL_EQUALIZE) {
                unsigned size = (pixels - counts[high]) / 255;
                if (size) value = min((size / 2 + below) / size, 255u);
            } else if (low < high) {
                float reach = high - low;
                if (step.like == LIKE_PILLOW) {
                    double scale = 255 / (double)reach;
                    value = (int)fmin(fmax(level * scale + -low * scale, 0.0), 255.0);
                } else value = level_of((level - low) / (reach * (1.0f / 255)));
            }
        }
        measured->table[c][level] = value;
    }
    __syncthreads();
}

// Where the last sweep puts a pixel.
__device__ static inline void put(const struct Plan &plan, VALUE *tensor, int y, int x, const int *pixel) {
    for (int c = 0; c < CHANNELS; ++c) {
        int level = pixel[0];
        for (int k = 1; k < CHANNELS; ++k)  // an index known at run time only would put the array into local memory
            if (plan.channel[c] == k) level = pixel[k];
        tensor[place(plan, c, x, y)] = __ldg(plan.tables + c * LEVELS + level);
    }
}

__device__ static inline void sharpen(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    bool is_edge = y == 0 || x == 0 || y == image.height - 1 || x == image.width - 1;
    for (int c = 0; c < CHANNELS; ++c) {
        int level = image.at(y, x)[c];
        if (!is_edge) {
            int sum = 4 * level;  // and once more below
            for (int dy = -1; dy <= 1; ++dy)
                for (int dx = -1; dx <= 1; ++dx) sum += image.at(y + dy, x + dx)[c];
            int smooth = (2 * sum + 13) / 26;
            level = step.like == LIKE_PILLOW ? blended(step, level, smooth) : level_of(fused(step.rest, smooth - level, level));
        }
        pixel[c] = level;
    }
}

// The mirror image of a position beyond an edge, without the edge itself.
__device__ static inline int reflected(int position, int length) {
    if (length == 1) return 0;
    while (position < 0 || position >= length) position = position < 0 ? -position : 2 * (length - 1) - position;
    return position;
}

// The position that a take sees beyond an edge; itself where that is the fill.
__device__ static inline int beyond(int mode, int position, int length) {
    if (mode == PADDING_CONSTANT) return position;
    if (mode == PADDING_EDGE || length == 1) return min(max(position, 0), length - 1);
    int edge = mode == PADDING_SYMMETRIC, period = 2 * (length - 1 + edge);
    position %= period;
    if (position < 0) position += period;
    return position < length ? position : period - edge - position;
}

// The threads of a block blur along the rows.
__device__ static inline void blur_across(const struct LevelStep &step, const struct Levels &image, float *out) {
    const float *weights = (const float *)step.data;
    int reach = step.whole_width / 2, count = image.height * image.width;
    for (int at = threadIdx.x; at < count; at += LEVEL_THREADS) {
        int y = at / image.width, x = at - y * image.width;
        float sums[CHANNELS];
        for (int tap = 0; tap < step.whole_width; ++tap) {
            const unsigned char *pixel = image.at(y, reflected(x + tap - reach, image.width));
            float weight = __ldg(weights + tap);
            for (int c = 0; c < CHANNELS; ++c) {
                float product = pixel[c] * weight;
                sums[c] = tap ? sums[c] + product : product;
            }
        }
        for (int c = 0; c < CHANNELS; ++c) out[at * CHANNELS + c] = sums[c];
    }
}

// A pixel of what `blur_across` has made, blurred along the columns.
__device__ static inline void blur_down(const struct LevelStep &step, const struct Levels &image, const float *across,
                                        int y, int x, int *pixel) {
    const float *weights = (const float *)step.data + step.whole_width;
    float sums[CHANNELS];
    for (int tap = 0; tap < step.whole_height; ++tap) {
        const float *values = across + (reflected(y + tap - step.whole_height / 2, image.height) * image.width + x) * CHANNELS;
        float weight = __ldg(weights + tap);
        for (int c = 0; c < CHANNELS; ++c) {
            float product = values[c] * weight;
            sums[c] = tap ? sums[c] + product : product;
        }
    }
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = rounded(sums[c]);
}

// The pixel that lies at (x, y), or the fill.
__device__ static inline void look(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    bool is_inside = image.has(y, x);
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = is_inside ? image.at(y, x)[c] : fill_of(step, c);
}

__device__ static inline void warp_pillow(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    double from_x = warped(step.matrix, x + 0.5, y + 0.5), from_y = warped(step.matrix + 3, x + 0.5, y + 0.5);
    if (step.mode) {
        double below = depth(step.matrix, x + 0.5, y + 0.5);
        from_x /= below;
        from_y /= below;
    }
    bool is_inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
    if (step.kind == LEVEL_WARP_PILLOW_NEAREST) {
        look(step, image, is_inside ? (int)from_y : -1, is_inside ? (int)from_x : -1, pixel);
        return;
    }
    from_x = is_inside ? from_x - 0.5 : 0;
    from_y = is_inside ? from_y - 0.5 : 0;
    int i = (int)floor(from_x), j = (int)floor(from_y);
    double dx = from_x - i, dy = from_y - j;
    for (int c = 0; c < CHANNELS; ++c) {
        if (step.kind == LEVEL_WARP_PILLOW_BICUBIC) {
            double rows[4];
            for (int row = 0; row < 4; ++row)
                rows[row] = cubic(image.level(j + row - 1, i - 1, c), image.level(j + row - 1, i, c),
                                  image.level(j + row - 1, i + 1, c), image.level(j + row - 1, i + 2, c), dx);
            double level = cubic(rows[0], rows[1], rows[2], rows[3], dy);
            pixel[c] = is_inside ? (int)fmin(fmax(level, 0.0), 255.0) : fill_of(step, c);
            continue;
        }
        int level = between(image.level(j, i, c), image.level(j, i + 1, c), image.level(j + 1, i, c),
                            image.level(j + 1, i + 1, c), dx, dy);
        pixel[c] = is_inside ? level : fill_of(step, c);
    }
}

__device__ static inline void warp_torchvision(const struct LevelStep &step, const struct Levels &image, int y, int x,
                                               int *pixel) {
    float out_y = step.mode ? y + 0.5f : y - (step.whole_height - 1) * 0.5f;
    float out_x = step.mode ? x + 0.5f : x - (step.whole_width - 1) * 0.5f;
    float from_x = warped_float(step.matrix, out_x, out_y), from_y = warped_float(step.matrix + 3, out_x, out_y);
    if (step.mode) {
        float below = depth_float(step.matrix, out_x, out_y);
        from_x = from_x / below - 1;
        from_y = from_y / below - 1;
    }
    from_x = position_float(from_x, image.width * 0.5f);
    from_y = position_float(from_y, image.height * 0.5f);
    if (step.kind == LEVEL_WARP_TORCHVISION_NEAREST) {
        int j = (int)rintf(from_y), i = (int)rintf(from_x);
        bool is_inside = image.has(j, i);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = is_inside ? image.at(j, i)[c] : step.fill < 0 ? 0 : fill_of(step, c);
        return;
    }
    float left = floorf(from_x), top = floorf(from_y);
    float r = from_x - left, t = from_y - top, l = 1 - r, s = 1 - t;
    const float shares[4] = {s * l, s * r, t * l, t * r};
    float values[CHANNELS][4], seen[4];
    for (int corner = 0; corner < 4; ++corner) {
        int j = (int)top + corner / 2, i = (int)left + corner % 2;
        seen[corner] = image.has(j, i);
        for (int c = 0; c < CHANNELS; ++c) values[c][corner] = image.has(j, i) ? image.at(j, i)[c] : 0;
    }
    float mask = weighed(seen, shares);
    for (int c = 0; c < CHANNELS; ++c) {
        float fill = fill_of(step, c), value = weighed(values[c], shares);
        pixel[c] = rounded(step.fill < 0 ? value : (value - fill) * mask + fill);
    }
}

// The threads of a block make the rows of Pillow's nearest warp that adds up its way, one thread a row.
__device__ static inline void walk(const struct LevelStep &step, const struct Levels &image, const struct Levels &out) {
    const double *m = step.matrix;
    for (int y = threadIdx.x; y < out.height; y += LEVEL_THREADS) {
        double from_x = m[2] + m[1] * 0.5 + m[0] * 0.5, from_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
        for (int row = 0; row < step.top + y; ++row) {
            from_x += m[1];
            from_y += m[4];
        }
        for (int x = -step.left; x < out.width; ++x) {
            bool is_inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
            const unsigned char *pixel = is_inside ? image.at((int)from_y, (int)from_x) : image.pixels;
            for (int c = 0; c < CHANNELS && x >= 0; ++c) out.at(y, x)[c] = is_inside ? pixel[c] : fill_of(step, c);
            from_x += m[0];
            from_y += m[3];
        }
    }
}

// The pixel (x, y) of what a step makes of an image; `other`: what `blur_across` has made.
__device__ static inline void make(const struct LevelStep &step, const struct Levels &image, const unsigned char *other, int y,
                                   int x, int *pixel) {
    switch (step.kind) {
    case LEVEL_TAKE:
        look(step, image, beyond(step.mode, step.top + (step.flip_y ? step.height - 1 - y : y), image.height),
             beyond(step.mode, step.left + (step.flip_x ? step.width - 1 - x : x), image.width), pixel);
        break;
    case LEVEL_SHARPNESS:
        sharpen(step, image, y, x, pixel);
        break;
    case LEVEL_BLUR:
        blur_down(step, image, (const float *)other, y, x, pixel);
        break;
    case LEVEL_WARP_PILLOW_FIXED: {
        long long row = step.top + y, column = step.left + x;
        long long places[2];
        for (int axis = 0; axis < 2; ++axis) {
            const double *numbers = step.matrix + 3 * axis;
            places[axis] = ((long long)numbers[0] * column + (long long)numbers[1] * row + (long long)numbers[2]) >> 16;
        }
        look(step, image, (int)places[1], (int)places[0], pixel);
        break;
    }
    case LEVEL_WARP_PILLOW_NEAREST:
    case LEVEL_WARP_PILLOW_BILINEAR:
    case LEVEL_WARP_PILLOW_BICUBIC:
        warp_pillow(step, image, step.top + y, step.left + x, pixel);
        break;
    default:
        warp_torchvision(step, image, step.top + y, step.left + x, pixel);
    }
}

// The threads of a block do all steps, and write the tensor.
__device__ static inline void do_steps(const struct Canvas &canvas, const struct Plan &plan) {
    __shared__ struct Measured measured;
    const struct LevelStep *steps = canvas.steps;
    struct Levels image = {canvas.levels, canvas.height, canvas.width};
    unsigned char *other = canvas.other;
    int next = 0;
    bool is_ready = false;  // what the next step needs has been measured
    do {
        const struct LevelStep *elsewhere = 0;
        struct Levels made = image;
        if (next < canvas.step_count && is_elsewhere(steps[next].kind)) {
            elsewhere = steps + next++;
            if (elsewhere->kind == LEVEL_BLUR) {  // over the image, when its rows have been blurred
                blur_across(*elsewhere, image, (float *)other);
                __syncthreads();
            } else {
                made = {other, elsewhere->height, elsewhere->width};
                other = image.pixels;
            }
            if (elsewhere->kind == LEVEL_WARP_PILLOW_WALK) {
                walk(*elsewhere, image, made);
                __syncthreads();
                image = made;
                elsewhere = 0;
            }
        }
        int first = next;
        for (; next < canvas.step_count; ++next, is_ready = false)
            if (is_elsewhere(steps[next].kind) || (is_measured(steps[next].kind) && !is_ready)) break;
        bool is_last = next == canvas.step_count;
        is_ready = !is_last && is_measured(steps[next].kind);
        if (is_ready) {
            if (threadIdx.x == 0) measured.sum = 0;
            for (int i = threadIdx.x; i < CHANNELS * LEVELS; i += LEVEL_THREADS) measured.counts[i / LEVELS][i % LEVELS] = 0;
            __syncthreads();
        }
        unsigned long long sum = 0;
        int count = made.height * made.width;
        for (int at = threadIdx.x; at < count; at += LEVEL_THREADS) {
            int pixel[CHANNELS], y = at / made.width, x = at - y * made.width;
            if (elsewhere) make(*elsewhere, image, other, y, x, pixel);
            else
                for (int c = 0; c < CHANNELS; ++c) pixel[c] = made.at(y, x)[c];
#pragma unroll 1
            for (int step = first; step < next; ++step) change(steps[step], measured, y, x, pixel);
            if (is_last) put(plan, canvas.tensor, y, x, pixel);
            else
                for (int c = 0; c < CHANNELS; ++c) made.at(y, x)[c] = pixel[c];
            if (!is_ready) continue;
            if (steps[next].kind == LEVEL_BLEND_MEAN) sum += luma(pixel, steps[next].like);
            else
                for (int c = 0; c < CHANNELS; ++c) atomicAdd(&measured.counts[c][pixel[c]], 1u);
        }
        if (is_last) return;
        if (is_ready) conclude(steps[next], sum, count, &measured);
        else __syncthreads();
        image = made;
    } while (true);
}

// What erasing.noise says: Philox4x32-10 of (i, values[2], 0, 0) is where eight values are looked up.
__device__ void fill_with_noise(const struct Plan &plan, VALUE *tensor, const struct Erasure &erasure, const VALUE *noise) {
    int area = erasure.height * erasure.width, count = CHANNELS * area;
    for (int i = threadIdx.x; i * 8 < count; i += LEVEL_THREADS) {
        unsigned counter[4] = {(unsigned)i, erasure.values[2], 0, 0};
        philox(counter, erasure.values[0], erasure.values[1]);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (i * 8 + k >= count) break;
            int c = (i * 8 + k) / area, at = i * 8 + k - c * area, y = at / erasure.width, x = at - y * erasure.width;
            tensor[place(plan, c, erasure.left + x, erasure.top + y)] = noise[counter[k / 2] >> 16 * (k % 2) & 0xFFFF];
        }
    }
}

// Grid: (images). Block: (LEVEL_THREADS).
extern "C" __global__ void __launch_bounds__(LEVEL_THREADS, 1)
change_levels(const struct Canvas *canvases, const struct Plan plan) {
    const struct Canvas canvas = canvases[blockIdx.x];
    if (canvas.levels) do_steps(canvas, plan);
    for (int i = 0; i < canvas.erasure_count; ++i) {
        const struct Erasure &erasure = canvas.erasures[i];
        __syncthreads();
        if (erasure.is_noise) {
            fill_with_noise(plan, canvas.tensor, erasure, canvas.noise);
            continue;
        }
        for (int at = threadIdx.x; at < erasure.height * erasure.width; at += LEVEL_THREADS) {
            int y = at / erasure.width, x = at - y * erasure.width;
            for (int c = 0; c < CHANNELS; ++c)
                canvas.tensor[place(plan, c, erasure.left + x, erasure.top + y)] = (VALUE)erasure.values[c];
        }
    }
}
