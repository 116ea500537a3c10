// Applies steps that change pixel values after the geometry, in one launch for many images. Each block processes one
// image, which has its own list of steps.
//
// A block processes its image in sweeps. In a sweep, each thread first reads a pixel, or computes the pixel by a step
// that reads other pixels (a crop, a warp, a blur). While the pixel is in registers, the thread applies all following
// steps that require only this pixel. Finally, the thread writes the pixel. The destination is the tensor in the last
// sweep, the other buffer if the sweep began with a step that reads other pixels, and the same buffer in all other
// sweeps. A step that requires a statistic of the whole image (the mean for a contrast, the histogram for an equalize)
// ends the sweep before it. That sweep computes the statistic in integers, so that the order of the threads does not
// matter. The step then becomes a look-up table per channel.
//
// The formulas are those of pixprep/plan/steps/levels.py and formulas.h. Each product and sum is rounded separately,
// because NVRTC compiles with --fmad=false. launch.py places this file after canvas.cu, formulas.h and steps.cu.

// Return the maximum or the mean of an image's pixel values. The result is 1 instead of 0, because it is a divisor.
__device__ static inline double own_statistic(const struct LevelStep &step, const struct Statistics &statistics) {
    unsigned long long sum = 0, count = 0;
    int maximum = 0;
    for (int entry = 0; entry < CHANNELS * LEVELS; ++entry) {
        int level = entry % LEVELS;
        unsigned long long times = statistics.counts[entry / LEVELS][level];
        sum += times * level;
        count += times;
        if (times) maximum = max(maximum, level);
    }
    double own = step.kind == LEVEL_OWN_MAX ? maximum : __ddiv_rn(sum, count);
    return own ? own : 1;
}

// Compute a step's look-up table from the statistics of the image, with all threads of the block. `sum` is the sum of
// the luma values of the pixels that this thread has processed.
__device__ static inline void make_table(const struct Plan &plan, const struct LevelStep &step, unsigned long long sum,
                                       unsigned pixels, struct Statistics *statistics) {
    if (step.kind == LEVEL_BLEND_MEAN) atomicAdd(&statistics->sum, sum);
    __syncthreads();
    double own = is_normalization(step.kind) ? own_statistic(step, *statistics) : 0;
    for (int entry = threadIdx.x; entry < CHANNELS * LEVELS; entry += LEVEL_THREADS) {
        int c = entry / LEVELS, level = entry % LEVELS;
        const unsigned *counts = statistics->counts[c];
        int value = level;
        if (step.kind == LEVEL_BLEND_MEAN) {
            float mean = step.like == LIKE_PILLOW ? (float)((2 * statistics->sum + pixels) / (2ull * pixels))
                                                  : (float)statistics->sum / (float)pixels;
            value = blend_with_gray(level, mean, step.factor, step.one_minus_factor, step.like);
            if (step.like == LIKE_OPENCV) {
                double gray = (double)statistics->sum / pixels;
                value = step.factor == 0 ? (int)(gray + 0.5)
                                         : level_of(level * step.factor + (float)(gray * step.matrix[0]));
            }
        } else if (own) {
            statistics->values[c][level] = computed(plan, c, level, own);
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
        statistics->table[c][level] = value;
    }
    __syncthreads();
}

// Write a pixel to the tensor in the last sweep. The pixel values are looked up in the image's own table if `own` is
// not null, and in the plan's table in all other cases.
__device__ static inline void put(const struct Plan &plan, const struct Statistics *own, const struct Canvas &canvas, int y,
                                  int x, const int *pixel) {
    Index index = pixel_index(canvas.layout, x, y);
    for (int c = 0; c < PLANES; ++c) {
        int level = pixel[0];
        for (int k = 1; k < CHANNELS; ++k)  // a dynamic index would move the array to local memory
            if (plan.channel[c] == k) level = pixel[k];
        put_value(canvas.tensor, canvas.layout, c, index, own ? own->values[c][level] : __ldg(plan.tables + c * LEVELS + level));
    }
    put_fourth(plan, canvas.layout, canvas.tensor, index);
}

// Apply all steps to an image and write its tensor, with all threads of a block.
__device__ static inline void apply_steps(const struct Canvas &canvas, const struct Plan &plan) {
    __shared__ struct Statistics statistics;
    const struct LevelStep *steps = canvas.steps;
    struct Levels image = {canvas.levels, canvas.height, canvas.width};
    unsigned char *other = canvas.other;
    int next = 0;
    bool is_ready = false;  // whether the statistic for the next step is complete
    const struct Statistics *own = canvas.step_count && is_normalization(steps[canvas.step_count - 1].kind) ? &statistics : 0;
    do {
        const struct LevelStep *neighborhood_step = 0;
        struct Levels result = image;
        if (next < canvas.step_count && reads_neighbors(steps[next].kind)) {
            neighborhood_step = steps + next++;
            if (neighborhood_step->kind == LEVEL_BLUR) {  // the vertical pass reads `other` and overwrites the image
                blur_across(*neighborhood_step, image, (float *)other);
                __syncthreads();
            } else {
                result = {other, neighborhood_step->height, neighborhood_step->width};
                other = image.pixels;
            }
            if (neighborhood_step->kind == LEVEL_WARP_PILLOW_WALK) {
                warp_pillow_incremental(*neighborhood_step, image, result);
                __syncthreads();
                image = result;
                neighborhood_step = 0;
            }
        }
        int first = next;
        for (; next < canvas.step_count; ++next, is_ready = false)
            if (reads_neighbors(steps[next].kind) || (needs_statistics(steps[next].kind) && !is_ready)) break;
        bool is_last = next == canvas.step_count;
        is_ready = !is_last && needs_statistics(steps[next].kind);
        if (is_ready) {
            if (threadIdx.x == 0) statistics.sum = 0;
            for (int i = threadIdx.x; i < CHANNELS * LEVELS; i += LEVEL_THREADS) statistics.counts[i / LEVELS][i % LEVELS] = 0;
            __syncthreads();
        }
        unsigned long long sum = 0;
        int count = result.height * result.width;
        for (int at = threadIdx.x; at < count; at += LEVEL_THREADS) {
            int pixel[CHANNELS], y = at / result.width, x = at - y * result.width;
            if (neighborhood_step) compute_pixel(*neighborhood_step, image, other, y, x, pixel);
            else
                for (int c = 0; c < CHANNELS; ++c) pixel[c] = result.at(y, x)[c];
#pragma unroll 1
            for (int step = first; step < next; ++step) apply_pixel_step(steps[step], statistics, y, x, pixel);
            if (is_last) put(plan, own, canvas, y, x, pixel);
            else
                for (int c = 0; c < CHANNELS; ++c) result.at(y, x)[c] = pixel[c];
            if (!is_ready) continue;
            if (steps[next].kind == LEVEL_BLEND_MEAN) sum += luma(pixel, steps[next].like);
            else
                for (int c = 0; c < CHANNELS; ++c) atomicAdd(&statistics.counts[c][pixel[c]], 1u);
        }
        if (is_last) return;
        if (is_ready) make_table(plan, steps[next], sum, count, &statistics);
        else __syncthreads();
        image = result;
    } while (true);
}

// Fill a rectangle with noise, as in engine/kernels/kernel.py. The Philox4x32-10 output for the counter
// (i, values[2], 0, 0) contains eight indices into the noise table, for the values 8 i to 8 i + 7.
__device__ void fill_with_noise(const struct Canvas &canvas, const struct Erasure &erasure) {
    int area = erasure.height * erasure.width, count = PLANES * area;
    for (int i = threadIdx.x; i * 8 < count; i += LEVEL_THREADS) {
        unsigned counter[4] = {(unsigned)i, erasure.values[2], 0, 0};
        philox(counter, erasure.values[0], erasure.values[1]);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (i * 8 + k >= count) break;
            int c = (i * 8 + k) / area, at = i * 8 + k - c * area, y = at / erasure.width, x = at - y * erasure.width;
            put_value(canvas.tensor, canvas.layout, c, pixel_index(canvas.layout, erasure.left + x, erasure.top + y),
                      canvas.noise[counter[k / 2] >> 16 * (k % 2) & 0xFFFF]);
        }
    }
}

// Grid: (images). Block: (LEVEL_THREADS).
extern "C" __global__ void __launch_bounds__(LEVEL_THREADS, 1)
change_levels(const struct Canvas *canvases, const struct Plan plan) {
    const struct Canvas canvas = canvases[blockIdx.x];
    if (canvas.levels) apply_steps(canvas, plan);
    for (int i = 0; i < canvas.erasure_count; ++i) {
        const struct Erasure &erasure = canvas.erasures[i];
        __syncthreads();
        if (erasure.is_noise) {
            fill_with_noise(canvas, erasure);
            continue;
        }
        for (int at = threadIdx.x; at < erasure.height * erasure.width; at += LEVEL_THREADS) {
            int y = at / erasure.width, x = at - y * erasure.width;
            Index index = pixel_index(canvas.layout, erasure.left + x, erasure.top + y);
            for (int c = 0; c < PLANES; ++c) put_value(canvas.tensor, canvas.layout, c, index, (VALUE)erasure.values[c]);
        }
    }
}
