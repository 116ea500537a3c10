// What is done to the levels of images after their geometry: one launch, one block an image, which has steps of its own.
//
// A block goes over its image in sweeps. A sweep takes each pixel from where it lies, or from other places by a step that
// looks there; does all steps to it that need that pixel alone, while it is in registers; and writes it: over itself,
// into other memory if the sweep has looked elsewhere, or, the last time, as values of the tensor. A step that needs a
// number of the whole image (the mean of a contrast, the histogram of an equalize) ends a sweep, which measures it
// meanwhile, in integers, so that threads may come in any order. It is then a table for each channel.
//
// Formulas are those of pixprep/steps/levels.py and kernels/levels.py, operation by operation. Each product and sum is rounded
// by itself: the compiler may fuse a * b + c, but not the intrinsics that are used here. Comes after canvas.cu. launch.py
// defines LEVEL_... and LIKE_....

#define LEVEL_THREADS 512  // of a block
#define LEVELS 256

struct LevelStep {
    double matrix[6];           // of a warp: the numbers that its way needs
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
    int unused;
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

__device__ static inline float blended(const struct LevelStep &step, float level, float gray) {
    if (step.like == LIKE_PILLOW) return __fadd_rn(gray, __fmul_rn(step.factor, __fsub_rn(level, gray)));
    return __fmaf_rn(gray, step.rest, __fmul_rn(level, step.factor));
}

__device__ static inline int luma(const int *pixel, int like) {
#if CHANNELS == 1
    return pixel[0];
#else
    if (like == LIKE_PILLOW) return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16;
    return (int)__fmaf_rn(pixel[2], 0.114f, __fmaf_rn(pixel[1], 0.587f, __fmul_rn(pixel[0], 0.2989f)));
#endif
}

#if CHANNELS == 3
// What the sixth `sector` of the circle makes of the four levels of a colour.
__device__ static inline void by_sector(int sector, int v, int p, int q, int t, int *pixel) {
    pixel[0] = sector == 0 || sector == 5 ? v : sector == 1 ? q : sector == 4 ? t : p;
    pixel[1] = sector == 1 || sector == 2 ? v : sector == 3 ? q : sector == 0 ? t : p;
    pixel[2] = sector == 3 || sector == 4 ? v : sector == 5 ? q : sector == 2 ? t : p;
}

// v * part, rounded, a half upwards.
__device__ static inline int half_up(int v, double part) { return (int)__dadd_rn(__dmul_rn(v, part), 0.5); }

// `shift`: what is added to the hue, of 256.
__device__ static inline void turn_pillow(int shift, int *pixel) {
    int top = max(max(pixel[0], pixel[1]), pixel[2]), range = top - min(min(pixel[0], pixel[1]), pixel[2]);
    if (range == 0) return;  // no saturation
    float r = __fdiv_rn(top - pixel[0], range), g = __fdiv_rn(top - pixel[1], range), b = __fdiv_rn(top - pixel[2], range);
    float h = pixel[0] == top   ? __fsub_rn(b, g)
              : pixel[1] == top ? (float)__dsub_rn(__dadd_rn(2, r), b)
                                : (float)__dsub_rn(__dadd_rn(4, g), r);
    double turns = __dadd_rn(__ddiv_rn(h, 6), 1);
    h = (float)(turns >= 1 ? __dsub_rn(turns, 1) : turns);
    int hue = clip8((int)__dmul_rn(h, 255)) + shift & 255;
    int saturation = (int)__dmul_rn(__fdiv_rn(range, top), 255);
    int sector = hue * 6 / 255;
    double f = (float)__dsub_rn(__ddiv_rn(hue * 6, 255), sector);
    double s = (float)__ddiv_rn(saturation, 255);
    int p = half_up(top, __dsub_rn(1, s)), q = half_up(top, __dsub_rn(1, __fmul_rn((float)s, (float)f)));
    int t = half_up(top, __dsub_rn(1, __dmul_rn(s, __dsub_rn(1, f))));
    by_sector(sector % 6, top, p, q, t, pixel);
}

// 0 to 1 as a level.
__device__ static inline int level_of_one(float value) {
    return (int)__fmul_rn(fminf(fmaxf(value, 0.0f), 1.0f), 255.999f);
}

// x without its whole part; of a negative one a negative number.
__device__ static inline float fraction(float x) { return __fsub_rn(x, truncf(x)); }

__device__ static inline void turn_torchvision(float shift, int *pixel) {
    float red = __fmul_rn(pixel[0], 1.0f / 255), green = __fmul_rn(pixel[1], 1.0f / 255);
    float blue = __fmul_rn(pixel[2], 1.0f / 255);
    float top = fmaxf(fmaxf(red, green), blue), range = __fsub_rn(top, fminf(fminf(red, green), blue));
    float s = range == 0 ? 0 : __fdiv_rn(range, top), divisor = range == 0 ? 1 : range;
    float r = __fdiv_rn(__fsub_rn(top, red), divisor), g = __fdiv_rn(__fsub_rn(top, green), divisor);
    float b = __fdiv_rn(__fsub_rn(top, blue), divisor);
    float h = red == top     ? __fsub_rn(b, g)
              : green == top ? __fsub_rn(__fadd_rn(r, 2), b)
                             : __fsub_rn(__fadd_rn(g, 4), r);
    h = fraction(__fadd_rn(__fmul_rn(h, 1.0f / 6), 1));
    h = fraction(__fadd_rn(h, shift));
    if (h < 0) h = __fadd_rn(h, 1);
    float x = __fmul_rn(h, 6), sector = truncf(x);
    float product = __fmul_rn(s, __fsub_rn(x, sector)), rest = __fsub_rn(1, s);
    int p = level_of_one(__fmul_rn(rest, top)), q = level_of_one(__fmul_rn(__fsub_rn(1, product), top));
    int t = level_of_one(__fmul_rn(__fadd_rn(product, rest), top));
    by_sector((int)sector % 6, level_of_one(top), p, q, t, pixel);
}
#endif

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
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = level_of(blended(step, pixel[c], gray));
        break;
    }
    case LEVEL_HUE:
        if (step.like == LIKE_PILLOW) turn_pillow((int)step.factor, pixel);
        else turn_torchvision(step.factor, pixel);
        break;
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
                                                  : __fdiv_rn((float)measured->sum, (float)pixels);
            value = level_of(blended(step, level, mean));
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
                    double scale = __ddiv_rn(255, reach);
                    value = (int)fmin(fmax(__dadd_rn(__dmul_rn(level, scale), __dmul_rn(-low, scale)), 0.0), 255.0);
                } else value = level_of(__fdiv_rn(level - low, __fmul_rn(reach, 1.0f / 255)));
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
            float smooth = (2 * sum + 13) / 26;
            level = level_of(step.like == LIKE_PILLOW ? blended(step, level, smooth)
                                                      : __fmaf_rn(step.rest, __fsub_rn(smooth, level), level));
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
                float product = __fmul_rn(pixel[c], weight);
                sums[c] = tap ? __fadd_rn(sums[c], product) : product;
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
            float product = __fmul_rn(values[c], weight);
            sums[c] = tap ? __fadd_rn(sums[c], product) : product;
        }
    }
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = rounded(sums[c]);
}

// The pixel that lies at (x, y), or the fill.
__device__ static inline void look(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    bool is_inside = image.has(y, x);
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = is_inside ? image.at(y, x)[c] : fill_of(step, c);
}

// The place that a warp looks at from row y and column x of its whole result, in float64.
__device__ static inline double warped(const double *numbers, double y, double x) {
    return __dadd_rn(__dadd_rn(__dmul_rn(numbers[0], x), __dmul_rn(numbers[1], y)), numbers[2]);
}

__device__ static inline double between(int left, int right, double share) {
    return __dadd_rn(left, __dmul_rn(right - left, share));
}

__device__ static inline void warp_pillow(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    double from_x = warped(step.matrix, y + 0.5, x + 0.5), from_y = warped(step.matrix + 3, y + 0.5, x + 0.5);
    bool is_inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
    from_x = is_inside ? __dsub_rn(from_x, 0.5) : 0;
    from_y = is_inside ? __dsub_rn(from_y, 0.5) : 0;
    int i = (int)floor(from_x), j = (int)floor(from_y);
    double dx = __dsub_rn(from_x, i), dy = __dsub_rn(from_y, j);
    for (int c = 0; c < CHANNELS; ++c) {
        double upper = between(image.level(j, i, c), image.level(j, i + 1, c), dx);
        double lower = between(image.level(j + 1, i, c), image.level(j + 1, i + 1, c), dx);
        pixel[c] = is_inside ? (int)__dadd_rn(upper, __dmul_rn(__dsub_rn(lower, upper), dy)) : fill_of(step, c);
    }
}

// The same in torchvision's float32; `length` of the image.
__device__ static inline float warped_float(const double *numbers, float y, float x, int length) {
    float place = __fadd_rn(__fmul_rn(x, (float)numbers[0]), __fmul_rn(y, (float)numbers[1]));
    place = __fadd_rn(place, (float)numbers[2]);
    return __fmaf_rn(__fadd_rn(place, 1), __fmul_rn(length, 0.5f), -0.5f);
}

__device__ static inline void warp_torchvision(const struct LevelStep &step, const struct Levels &image, int y, int x,
                                               int *pixel) {
    float out_y = __fsub_rn(y, __fmul_rn(step.whole_height - 1, 0.5f)), out_x = __fsub_rn(x, __fmul_rn(step.whole_width - 1, 0.5f));
    float from_x = warped_float(step.matrix, out_y, out_x, image.width);
    float from_y = warped_float(step.matrix + 3, out_y, out_x, image.height);
    bool is_near = from_x > -2 && from_x < image.width + 1 && from_y > -2 && from_y < image.height + 1;
    if (!is_near) from_x = from_y = -2;  // where int could not hold it
    if (step.kind == LEVEL_WARP_TORCHVISION_NEAREST) {
        int j = (int)rintf(from_y), i = (int)rintf(from_x);
        bool is_inside = image.has(j, i);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = is_inside ? image.at(j, i)[c] : step.fill < 0 ? 0 : fill_of(step, c);
        return;
    }
    float left = floorf(from_x), top = floorf(from_y);
    float r = __fsub_rn(from_x, left), t = __fsub_rn(from_y, top), l = __fsub_rn(1, r), s = __fsub_rn(1, t);
    float values[CHANNELS] = {}, seen = 0;
    for (int corner = 0; corner < 4; ++corner) {
        int j = (int)top + corner / 2, i = (int)left + corner % 2;
        float weight = __fmul_rn(corner / 2 ? t : s, corner % 2 ? r : l);
        bool is_inside = image.has(j, i);
        for (int c = 0; c < CHANNELS; ++c) values[c] = __fmaf_rn(is_inside ? image.at(j, i)[c] : 0, weight, values[c]);
        seen = __fmaf_rn(is_inside, weight, seen);
    }
    for (int c = 0; c < CHANNELS; ++c) {
        float fill = fill_of(step, c);
        float value = step.fill < 0 ? values[c] : __fadd_rn(__fmul_rn(__fsub_rn(values[c], fill), seen), fill);
        pixel[c] = rounded(value);
    }
}

// The threads of a block make the rows of Pillow's nearest warp that adds up its way, one thread a row.
__device__ static inline void walk(const struct LevelStep &step, const struct Levels &image, const struct Levels &out) {
    const double *m = step.matrix;
    for (int y = threadIdx.x; y < out.height; y += LEVEL_THREADS) {
        double from_x = __dadd_rn(__dadd_rn(m[2], __dmul_rn(m[1], 0.5)), __dmul_rn(m[0], 0.5));
        double from_y = __dadd_rn(__dadd_rn(m[5], __dmul_rn(m[4], 0.5)), __dmul_rn(m[3], 0.5));
        for (int row = 0; row < step.top + y; ++row) {
            from_x = __dadd_rn(from_x, m[1]);
            from_y = __dadd_rn(from_y, m[4]);
        }
        for (int x = -step.left; x < out.width; ++x) {
            bool is_inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
            const unsigned char *pixel = is_inside ? image.at((int)from_y, (int)from_x) : image.pixels;
            for (int c = 0; c < CHANNELS && x >= 0; ++c) out.at(y, x)[c] = is_inside ? pixel[c] : fill_of(step, c);
            from_x = __dadd_rn(from_x, m[0]);
            from_y = __dadd_rn(from_y, m[3]);
        }
    }
}

// The pixel (x, y) of what a step makes of an image; `other`: what `blur_across` has made.
__device__ static inline void make(const struct LevelStep &step, const struct Levels &image, const unsigned char *other, int y,
                                   int x, int *pixel) {
    switch (step.kind) {
    case LEVEL_TAKE:
        look(step, image, step.top + (step.flip_y ? step.height - 1 - y : y),
             step.left + (step.flip_x ? step.width - 1 - x : x), pixel);
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
    case LEVEL_WARP_PILLOW_BILINEAR:
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
        unsigned word[4] = {(unsigned)i, erasure.values[2], 0, 0}, key[2] = {erasure.values[0], erasure.values[1]};
#pragma unroll 1
        for (int round = 0; round < 10; ++round, key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u) {
            unsigned long long a = 0xD2511F53ull * word[0], b = 0xCD9E8D57ull * word[2];
            word[0] = (unsigned)(b >> 32) ^ word[1] ^ key[0];
            word[1] = (unsigned)b;
            word[2] = (unsigned)(a >> 32) ^ word[3] ^ key[1];
            word[3] = (unsigned)a;
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (i * 8 + k >= count) break;
            int c = (i * 8 + k) / area, at = i * 8 + k - c * area, y = at / erasure.width, x = at - y * erasure.width;
            tensor[place(plan, c, erasure.left + x, erasure.top + y)] = noise[word[k / 2] >> 16 * (k % 2) & 0xFFFF];
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
