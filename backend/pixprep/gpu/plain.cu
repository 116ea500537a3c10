// Resize kernels that support every arithmetic of plan/profiles/windows.py. They run in two launches, like the kernels
// of fast.cu. The values of the intermediate image are int32 or float32.
//
// The kernels are simpler than those of fast.cu: one thread computes one pixel, and shared memory is not used.
// Positions outside of the padded image are clamped to the nearest position inside. Each float32 product and sum is
// rounded separately, as in NumPy. The compiler could fuse a * b + c into one operation, but does not fuse the
// intrinsics that these kernels use.
//
// launch.py places this file after canvas.cu, and defines PASSES_... and STEP_.... If the resize produces float32
// values, the file is compiled with -DREAL_VALUES=1. The arithmetic of the plan is then applied to each value, as in
// output_plans.TensorPlan.values. In all other cases, the values are looked up in the plan's table.

// A row or a column of pixels, with padding at both ends. T is the type of a pixel value.
template <typename T>
struct Line {
    const T *pixels;    // first pixel after the padding
    long long stride;   // distance between neighboring pixels, in values
    int length;         // number of positions, including the padding
    int begin;          // position of the first pixel, which is the number of padding pixels before it
    int inside;         // number of pixels without the padding
    int fill;           // color of the padding, one byte per channel
};

// A line of pixels, and the filter coefficients of one output position.
template <typename T>
struct Taps {
    const Line<T> line;
    int first;
    int count;
    const int *weights;
    int size;           // distance between the weights of successive taps

    __device__ Taps(const Line<T> &line, int begin, const struct Coefficients &coefficients, int i)
        : line(line), first(coefficients.first[i] - begin), count(coefficients.count[i]), weights(coefficients.weights + i),
          size(coefficients.size) {}
    __device__ T value(int tap, int c) const {
        int position = min(max(first + tap, 0), line.length - 1) - line.begin;
        if ((unsigned)position >= (unsigned)line.inside) return line.fill >> 8 * c & 255;
        return line.pixels[position * line.stride + c];
    }
    __device__ int weight(int tap) const { return weights[tap * size]; }
};

// Compute sum(value * weight >> shift) for each channel, in int32.
template <typename T>
__device__ static inline void add_whole(const Taps<T> &taps, int shift, int *sums) {
    for (int c = 0; c < CHANNELS; ++c) sums[c] = 0;
    for (int tap = 0; tap < taps.count; ++tap)
        for (int c = 0; c < CHANNELS; ++c) sums[c] += taps.value(tap, c) * taps.weight(tap) >> shift;
}

// Compute sum(value * weight) for each channel in float32. PASSES_LERP interpolates between two taps: first + (second -
// first) * weight. PASSES_OPENCV_CUBIC begins with the last tap, and its weights are integers in units of 2^-22.
// PASSES_FLOAT_FUSED adds the first tap and then groups of four taps with separate rounding of products and sums. The
// remaining taps are added with fused multiply-adds. PASSES_FLOAT_PAIRS begins with the second tap, and adds all others
// with fused multiply-adds. If `table` is not null, each pixel value is first replaced by its entry in this table.
template <typename T>
__device__ static inline void add_real(const Taps<T> &taps, int passes, float *sums, const float *table = 0) {
    if (passes == PASSES_LERP) {
        float t = __int_as_float(taps.weight(1));
        for (int c = 0; c < CHANNELS; ++c) {
            float left = taps.value(0, c);
            sums[c] = __fadd_rn(left, __fmul_rn(__fsub_rn(taps.value(1, c), left), t));
        }
        return;
    }
    bool is_cubic = passes == PASSES_OPENCV_CUBIC, is_pairs = passes == PASSES_FLOAT_PAIRS;
    int fused = passes == PASSES_FLOAT_FUSED ? 1 + (taps.count - 1) / 4 * 4 : is_pairs ? 1 : taps.count;
    for (int index = 0; index < taps.count; ++index) {
        int tap = is_cubic ? taps.count - 1 - index : is_pairs && index < 2 ? 1 - index : index;
        int bits = taps.weight(tap);
        float weight = is_cubic ? __fmul_rn(bits, 1.0f / (1 << 22)) : __int_as_float(bits);
        for (int c = 0; c < CHANNELS; ++c) {
            float value = taps.value(tap, c);
            if (table) value = __ldg(table + 256 * c + (int)value);
            if (index == 0) sums[c] = __fmul_rn(value, weight);
            else if (index < fused) sums[c] = __fadd_rn(sums[c], __fmul_rn(value, weight));
            else sums[c] = __fmaf_rn(value, weight, sums[c]);
        }
    }
}

__device__ static inline bool is_whole(int passes) {
    return passes == PASSES_FIXED || passes == PASSES_OPENCV_LINEAR || passes == PASSES_OPENCV_CUBIC ||
           passes == PASSES_OPENCV_LANCZOS || passes == PASSES_AREA;
}

__device__ static inline int fixed_level(int sum, int bits) {
    return clip8((sum + (1 << (bits - 1))) >> bits);
}

// Grid: (tiles over the widest intermediate image, tiles over the highest one, images). Block: (TILE_WIDTH,
// TILE_HEIGHT).
extern "C" __global__ void first_pass(const struct Image *images) {
    const struct Image &image = images[blockIdx.z];
    int passes = image.passes;
    bool is_down = image.vertical_first;
    const struct Coefficients &coefficients = is_down ? image.rows : image.columns;
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    int end = min((int)(blockIdx.y + 1) * TILE_ROWS, image.intermediate_height);
    if (x >= image.intermediate_width) return;
    for (int y = blockIdx.y * TILE_ROWS + threadIdx.y; y < end; y += TILE_HEIGHT) {
        int row = image.intermediate_top + y - image.pad_top, column = image.intermediate_top + x - image.pad_left;
        bool is_seen = is_down ? column >= 0 && column < image.width : row >= 0 && row < image.height;
        Line<unsigned char> line = {image.pixels, image.column_stride, image.pad_left + image.width + image.pad_right,
                                    image.pad_left, is_seen ? image.width : 0, image.fill};
        if (is_down)
            line = {image.pixels, image.pitch, image.pad_top + image.height + image.pad_bottom, image.pad_top,
                    is_seen ? image.height : 0, image.fill};
        if (is_seen) line.pixels += is_down ? (long long)column * image.column_stride : row * image.pitch;
        const Taps<unsigned char> taps(line, 0, coefficients, is_down ? y : x);
        int sums[CHANNELS];
        float values[CHANNELS];
        if (is_whole(passes)) add_whole(taps, 0, sums);
        else add_real(taps, passes, values, image.values);
        void *out = (int *)image.intermediate + ((long long)y * image.intermediate_width + x) * CHANNELS;
        for (int c = 0; c < CHANNELS; ++c) {
            if (passes == PASSES_FIXED) ((int *)out)[c] = fixed_level(sums[c], coefficients.bits);
            else if (passes == PASSES_OPENCV_LINEAR) ((int *)out)[c] = sums[c] >> 4;
            else if (passes == PASSES_OPENCV_LANCZOS || passes == PASSES_AREA) ((int *)out)[c] = sums[c];
            else ((float *)out)[c] = passes == PASSES_OPENCV_CUBIC ? sums[c] : values[c];  // sums below 2^24 are exact
        }
    }
}

// Round a float32 value to an integer, and clip it to a pixel value. Ties are rounded to even or, if `is_away` is true,
// away from 0.
__device__ static inline int level_of(float value, bool is_away = false) {
    float even = rintf(value);
    if (is_away && value - even == 0.5f) even += 1.0f;
    return (int)fminf(fmaxf(even, 0.0f), 255.0f);
}

// Compute the result of the second pass for a pixel of the region. The values are pixel values or, with
// -DREAL_VALUES=1, float32 values.
__device__ static inline void finish(const struct Image &image, int x, int y, float *values) {
    int passes = image.passes;
    bool is_down = !image.vertical_first;
    const struct Coefficients &coefficients = is_down ? image.rows : image.columns;
    long long pitch = (long long)image.intermediate_width * CHANNELS;
    long long line = is_down ? x * CHANNELS : y * pitch;
    long long stride = is_down ? pitch : CHANNELS;
    int length = is_down ? image.intermediate_height : image.intermediate_width;
    int i = is_down ? y : x;
    if (!is_whole(passes) || passes == PASSES_OPENCV_CUBIC) {
        const Taps<float> taps({(const float *)image.intermediate + line, stride, length, 0, length, 0}, image.intermediate_top,
                                   coefficients, i);
        add_real(taps, passes, values);
        if (!REAL_VALUES)
            for (int c = 0; c < CHANNELS; ++c)
                values[c] = level_of(values[c], passes == PASSES_DALI && image.away[x * CHANNELS + c]);
        return;
    }
    int sums[CHANNELS];
    add_whole(Taps<int>({(const int *)image.intermediate + line, stride, length, 0, length, 0}, image.intermediate_top, coefficients, i),
              passes == PASSES_OPENCV_LINEAR ? 16 : 0, sums);
    for (int c = 0; c < CHANNELS; ++c) {
        if (passes == PASSES_FIXED || passes == PASSES_OPENCV_LANCZOS) values[c] = fixed_level(sums[c], coefficients.bits);
        else if (passes == PASSES_OPENCV_LINEAR) values[c] = clip8((sums[c] + 2) >> 2);
        else values[c] = level_of(__fmul_rn(sums[c], image.factor));
    }
}

#if REAL_VALUES
__device__ static inline VALUE value_bits(const struct Plan &plan, int c, float value) { return computed(plan, c, value, 0); }
#else
__device__ static inline VALUE value_bits(const struct Plan &plan, int c, float level) {
    return plan.tables[c * 256 + (int)level];
}
#endif

// Grid: (tiles over the canvas in x, tiles in y, images). Block: (TILE_WIDTH, TILE_HEIGHT).
extern "C" __global__ void second_pass(const struct Image *images, const struct Plan plan) {
    const struct Image &image = images[blockIdx.z];
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    int y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    if (x >= image.layout.width || y >= image.layout.height) return;
    int region_x = x - image.left, region_y = y - image.top;
    bool is_inside = region_x >= 0 && region_x < image.columns.size && region_y >= 0 && region_y < image.rows.size;
    float values[CHANNELS];
    if (is_inside) finish(image, region_x, region_y, values);
    Index index = pixel_index(image.layout, x, y);
    for (int c = 0; c < PLANES; ++c) {
        float value = is_inside ? values[0] : image.fill >> 8 * plan.channel[c] & 255;
        for (int k = 1; k < CHANNELS; ++k)  // a dynamic index would move the array to local memory
            if (is_inside && plan.channel[c] == k) value = values[k];
        VALUE bits = FILL_VALUE && !is_inside ? (VALUE)plan.fill_value[c] : value_bits(plan, c, value);
        put_value(image.tensor, image.layout, c, index, bits);
    }
    put_fourth(plan, image.layout, image.tensor, index);
}
