// Steps on pixel values for levels.cu: steps that compute each pixel only from itself, and steps that read neighboring
// or other pixels. launch.py places this file after canvas.cu and formulas.h, and defines the constants LEVEL_....

#define LEVEL_THREADS 512  // threads per block
#define LEVELS 256

// One step. The meaning of several fields depends on the kind of the step:
//
//   crop (take):   top, left, height and width: crop window in the input image; flip_y and flip_x: whether the result
//                  is mirrored; fill: color outside of the image; mode: PADDING_...
//   erase:         top, left, height and width: rectangle; fill: its color
//   curve:         data: 256 output values, indexed by the input value
//   matrix:        data: float32 matrix of 3 x 4
//   blend:         factor: weight of the image; one_minus_factor and matrix[0]: 1 - factor, the weight of gray
//   hue:           factor: rotation of the hue
//   hsv:           data: table of 256 hues; top and left: offsets of saturation and value; width: width of the image
//   permute:       mode: index of the input channel for each output channel, with 2 bits per output channel
//   sharpness:     factor: weight of the image; one_minus_factor: 1 - factor, the weight of the smoothed image
//   blur:          data: float32 filter weights, first those of the horizontal filter and then those of the vertical
//                  filter; full_width and full_height: numbers of taps of the horizontal and the vertical filter
//   warp:          matrix: coefficients of the transform; top, left, height and width: region of the full result that
//                  is computed; full_height and full_width: size of the full result; fill: color outside of the image,
//                  or -1 for black; bit 0 of mode: whether the transform is a homography; other bits of mode (OpenCV
//                  and DALI): PADDING_...; data: OpenCV's bicubic weights
struct LevelStep {
    double matrix[9];
    const unsigned char *data;
    int kind;
    int like;
    float factor;
    float one_minus_factor;        // 1 - factor
    int top;
    int left;
    int height;
    int width;
    int flip_y;
    int flip_x;
    int fill;          // color, one byte per channel
    int full_height;
    int full_width;
    int mode;
};

// The only mode of BorderMode in spec.py that is not a PaddingMode.
enum { PADDING_FIRST_PIXEL = PADDING_SYMMETRIC + 1 };

// A rectangle to erase in the tensor. `values` contains the bits of one value per channel. For noise, `values` contains
// the key of the random generator (elements 0 and 1) and one word of the generator's counter (element 2).
struct Erasure {
    int top;
    int left;
    int height;
    int width;
    unsigned values[3];
    int is_noise;
};

// Statistics of the whole image that a step requires, and the look-up tables that are computed from the statistics.
struct Statistics {
    unsigned long long sum;                 // sum of the luma values
    unsigned counts[CHANNELS][LEVELS];      // histogram of each channel
    unsigned char table[CHANNELS][LEVELS];  // result of the step for each pixel value
    VALUE values[CHANNELS][LEVELS];         // tensor value of each pixel value, if a statistic normalizes the tensor
};

// An image with contiguous rows.
struct Levels {
    unsigned char *pixels;
    int height;
    int width;

    __device__ bool has(int y, int x) const { return y >= 0 && y < height && x >= 0 && x < width; }
    __device__ unsigned char *at(int y, int x) const { return pixels + (y * width + x) * CHANNELS; }
    __device__ int level(int y, int x, int c) const { return at(min(max(y, 0), height - 1), min(max(x, 0), width - 1))[c]; }
};

// Return whether a step reads pixels at positions other than that of the output pixel.
__device__ static inline bool reads_neighbors(int kind) { return kind >= LEVEL_TAKE; }

__device__ static inline bool needs_statistics(int kind) {
    return kind == LEVEL_BLEND_MEAN || (kind >= LEVEL_AUTOCONTRAST && kind <= LEVEL_OWN_MEAN);
}

// Return whether a step normalizes the tensor by a statistic of the image. Such a step is always the last step, and
// does not change the pixels of the canvas.
__device__ static inline bool is_normalization(int kind) { return kind == LEVEL_OWN_MAX || kind == LEVEL_OWN_MEAN; }

// Convert a value to a pixel value by truncation and clipping. The magnitude of the value must be far below 2^31.
__device__ static inline int level_of(float value) { return clip8((int)value); }

// Round a value to an integer, with ties to even, and clip it to a pixel value.
__device__ static inline int rounded(float value) { return level_of(rintf(value)); }

__device__ static inline int fill_value(const struct LevelStep &step, int c) { return step.fill < 0 ? 0 : step.fill >> 8 * c & 255; }

__device__ static inline int luma(const int *pixel, int like) {
    if (CHANNELS == 1) return pixel[0];
    return luma_of(pixel[0], pixel[CHANNELS / 2], pixel[CHANNELS - 1], like);
}

// Apply a step that requires only the pixel (x, y) and, for some kinds of steps, the look-up table in `statistics`.
__device__ static inline void apply_pixel_step(const struct LevelStep &step, const struct Statistics &statistics, int y, int x,
                                     int *pixel) {
    switch (step.kind) {
    case LEVEL_CURVE:
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = __ldg(step.data + pixel[c]);
        break;
    case LEVEL_MATRIX: {
        const float *rows = (const float *)step.data;
        int red = pixel[0], green = pixel[CHANNELS / 2], blue = pixel[CHANNELS - 1];
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = matrix_row(red, green, blue, rows + 4 * c);
        break;
    }
#if CHANNELS == 3
    case LEVEL_BLEND_OWN: {
        float gray = luma(pixel, step.like);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = blend_with_gray(pixel[c], gray, step.factor, step.one_minus_factor, step.like);
        break;
    }
    case LEVEL_HUE: {
        unsigned shifted = step.like == LIKE_PILLOW ? shift_hue_pillow(pixel[0], pixel[1], pixel[2], step.factor)
                                                   : shift_hue_torchvision(pixel[0], pixel[1], pixel[2], step.factor);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = shifted >> 8 * c & 255;
        break;
    }
    case LEVEL_HSV: {
        int hsv[3];
        hsv_opencv(pixel[0], pixel[1], pixel[2], hsv);
        int saturation = hsv[1] ? clip8(hsv[1] + step.top) : 0;
        unsigned result = rgb_opencv(__ldg(step.data + hsv[0]), saturation, clip8(hsv[2] + step.left),
                                   x >= step.width - step.width % 32);
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = result >> 8 * c & 255;
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
            for (int c = 0; c < CHANNELS; ++c) pixel[c] = fill_value(step, c);
        break;
    default:  // steps whose look-up table is computed from statistics of the image
        for (int c = 0; c < CHANNELS; ++c) pixel[c] = statistics.table[c][pixel[c]];
    }
}

__device__ static inline void sharpen(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    bool is_edge = y == 0 || x == 0 || y == image.height - 1 || x == image.width - 1;
    for (int c = 0; c < CHANNELS; ++c) {
        int level = image.at(y, x)[c];
        if (!is_edge) {
            int sum = 4 * level;  // the loop adds the centre pixel once more, so that its weight is 5
            for (int dy = -1; dy <= 1; ++dy)
                for (int dx = -1; dx <= 1; ++dx) sum += image.at(y + dy, x + dx)[c];
            int smooth = (2 * sum + 13) / 26;
            level = step.like == LIKE_PILLOW ? blend_with_gray(level, smooth, step.factor, step.one_minus_factor, step.like)
                                             : level_of(fma_v(step.one_minus_factor, smooth - level, level));
        }
        pixel[c] = level;
    }
}

// Compute the weighted sum of the neighbors of a position in a line of pixels, for each channel. `stride` is the
// distance between neighboring pixels in values. With LIKE_OPENCV, the sums are fused multiply-adds.
template <typename T>
__device__ static inline void weighted_sums(const struct LevelStep &step, const float *weights, int taps, const T *line, int stride,
                                            int position, int length, float *sums) {
    for (int tap = 0; tap < taps; ++tap) {
        const T *values = line + border_position(PADDING_REFLECT, position + tap - taps / 2, length) * stride;
        float weight = __ldg(weights + tap);
        for (int c = 0; c < CHANNELS; ++c) {
            float product = values[c] * weight;
            if (tap == 0) sums[c] = product;
            else sums[c] = step.like == LIKE_OPENCV ? fma_v(values[c], weight, sums[c]) : sums[c] + product;
        }
    }
}

// Blur the image along its rows (horizontally), with all threads of a block.
__device__ static inline void blur_across(const struct LevelStep &step, const struct Levels &image, float *out) {
    for (int at = threadIdx.x; at < image.height * image.width; at += LEVEL_THREADS) {
        int y = at / image.width, x = at - y * image.width;
        float sums[CHANNELS];
        weighted_sums(step, (const float *)step.data, step.full_width, image.at(y, 0), CHANNELS, x, image.width, sums);
        for (int c = 0; c < CHANNELS; ++c) out[at * CHANNELS + c] = sums[c];
    }
}

// Compute one pixel by blurring the result of `blur_across` along the columns (vertically).
__device__ static inline void blur_down(const struct LevelStep &step, const struct Levels &image, const float *across,
                                        int y, int x, int *pixel) {
    const float *weights = (const float *)step.data + step.full_width;
    float sums[CHANNELS];
    const float *column = across + x * CHANNELS;
    const int stride = image.width * CHANNELS, center = step.full_height / 2;
    if (step.like == LIKE_OPENCV) {  // OpenCV begins with the center row, and then adds pairs of rows
        for (int tap = center; tap < step.full_height; ++tap) {
            const float *below = column + border_position(PADDING_REFLECT, y + tap - center, image.height) * stride;
            const float *above = column + border_position(PADDING_REFLECT, y + center - tap, image.height) * stride;
            float weight = __ldg(weights + tap);
            for (int c = 0; c < CHANNELS; ++c)
                sums[c] = tap == center ? below[c] * weight : fma_v(below[c] + above[c], weight, sums[c]);
        }
    } else weighted_sums(step, weights, step.full_height, column, stride, y, image.height, sums);
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = rounded(sums[c]);
}

// Read the pixel at (x, y), or the fill color if the position is outside of the image.
__device__ static inline void read_or_fill(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    bool is_inside = image.has(y, x);
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = is_inside ? image.at(y, x)[c] : fill_value(step, c);
}

__device__ static inline void warp_pillow(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    double source[2];
    source_pillow(step.matrix, step.mode, x + 0.5, y + 0.5, source);
    double from_x = source[0], from_y = source[1];
    bool is_inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
    if (step.kind == LEVEL_WARP_PILLOW_NEAREST) {
        read_or_fill(step, image, is_inside ? (int)from_y : -1, is_inside ? (int)from_x : -1, pixel);
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
                rows[row] = cubic_pillow(image.level(j + row - 1, i - 1, c), image.level(j + row - 1, i, c),
                                  image.level(j + row - 1, i + 1, c), image.level(j + row - 1, i + 2, c), dx);
            double level = cubic_pillow(rows[0], rows[1], rows[2], rows[3], dy);
            pixel[c] = is_inside ? (int)fmin(fmax(level, 0.0), 255.0) : fill_value(step, c);
            continue;
        }
        int level = bilinear_pillow(image.level(j, i, c), image.level(j, i + 1, c), image.level(j + 1, i, c),
                            image.level(j + 1, i + 1, c), dx, dy);
        pixel[c] = is_inside ? level : fill_value(step, c);
    }
}

__device__ static inline void warp_torchvision(const struct LevelStep &step, const struct Levels &image, int y, int x,
                                               int *pixel) {
    float out_y = step.mode ? y + 0.5f : y - (step.full_height - 1) * 0.5f;
    float out_x = step.mode ? x + 0.5f : x - (step.full_width - 1) * 0.5f;
    float source[2];
    source_torchvision(step.matrix, step.mode, out_x, out_y, source);
    float from_x = source[0], from_y = source[1];
    from_x = pixel_position(from_x, image.width * 0.5f);
    from_y = pixel_position(from_y, image.height * 0.5f);
    if (step.kind == LEVEL_WARP_TORCHVISION_NEAREST) {
        read_or_fill(step, image, (int)rintf(from_y), (int)rintf(from_x), pixel);
        return;
    }
    float left = floorf(from_x), top = floorf(from_y);
    float r = from_x - left, t = from_y - top, l = 1 - r, s = 1 - t;
    const float weights[4] = {s * l, s * r, t * l, t * r};
    float values[CHANNELS][4], mask_values[4];
    for (int corner = 0; corner < 4; ++corner) {
        int j = (int)top + corner / 2, i = (int)left + corner % 2;
        mask_values[corner] = image.has(j, i);
        for (int c = 0; c < CHANNELS; ++c) values[c][corner] = image.has(j, i) ? image.at(j, i)[c] : 0;
    }
    float mask = weighted_sum(mask_values, weights);
    for (int c = 0; c < CHANNELS; ++c) {
        float fill = fill_value(step, c), value = weighted_sum(values[c], weights);
        pixel[c] = rounded(step.fill < 0 ? value : (value - fill) * mask + fill);
    }
}

// Compute one pixel of DALI's warp. DALI adds a constant to the float32 position from column to column, and restarts every
// RESTART_INTERVAL columns; the additions are repeated here for each pixel, so that the sums are equal.
__device__ static inline void warp_dali(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    const float a = step.matrix[0], b = step.matrix[1], c = step.matrix[2];
    const float d = step.matrix[3], e = step.matrix[4], f = step.matrix[5];
    const float row_center = (float)y + 0.5f, half = step.kind == LEVEL_WARP_DALI_NEAREST ? 0.0f : 0.5f;
    float from_x = (c + a * 0.5f) + b * row_center, from_y = (f + d * 0.5f) + e * row_center;
    for (int restart = 0; restart < x / RESTART_INTERVAL; ++restart) from_x += RESTART_INTERVAL * a, from_y += RESTART_INTERVAL * d;
    for (int column = 0; column < x % RESTART_INTERVAL; ++column) from_x += a, from_y += d;
    from_x = clamp_dali(from_x - half, image.width);
    from_y = clamp_dali(from_y - half, image.height);
    const float left = floorf(from_x), top = floorf(from_y), dx = from_x - left, dy = from_y - top;
    int rows[2], columns[2], corners[4][CHANNELS];
    for (int i = 0; i < 2; ++i) {
        rows[i] = border_position(step.mode >> 1, (int)top + i, image.height);
        columns[i] = border_position(step.mode >> 1, (int)left + i, image.width);
    }
    if (step.kind == LEVEL_WARP_DALI_NEAREST) {
        read_or_fill(step, image, rows[0], columns[0], pixel);
        return;
    }
    for (int corner = 0; corner < 4; ++corner) read_or_fill(step, image, rows[corner / 2], columns[corner % 2], corners[corner]);
    for (int k = 0; k < CHANNELS; ++k)
        pixel[k] = bilinear_dali(corners[0][k], corners[1][k], corners[2][k], corners[3][k], dx, dy);
}

__device__ static inline void warp_scipy(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    double source[2];
    source_scipy(step.matrix, x, y, source);
    double from_x = source[0], from_y = source[1];
    bool is_inside = from_x >= 0 && from_x <= image.width - 1 && from_y >= 0 && from_y <= image.height - 1;
    if (step.kind == LEVEL_WARP_SCIPY_NEAREST) {
        read_or_fill(step, image, is_inside ? (int)(from_y + 0.5) : -1, is_inside ? (int)(from_x + 0.5) : -1, pixel);
        return;
    }
    int i = is_inside ? (int)from_x : 0, j = is_inside ? (int)from_y : 0;
    for (int c = 0; c < CHANNELS; ++c) {
        int level = bilinear_scipy(image.level(j, i, c), image.level(j, i + 1, c), image.level(j + 1, i, c),
                                   image.level(j + 1, i + 1, c), from_x - i, from_y - j);
        pixel[c] = is_inside ? level : fill_value(step, c);
    }
}

// Compute one pixel of OpenCV's warp. Positions are in units of 1/32 pixel or, for nearest-neighbor filters, in pixels.
__device__ static inline void warp_opencv(const struct LevelStep &step, const struct Levels &image, int y, int x, int *pixel) {
    const double *m = step.matrix;
    const bool is_nearest = step.kind == LEVEL_WARP_OPENCV_NEAREST;
    const int mode = step.mode >> 1, bits = is_nearest ? 0 : 5;
    int tensor_index[2];
    if (step.mode & 1) {
        const int width = max(1, min(1024 / min(16, step.full_height), step.full_width)), block = x / width * width;
        const double over = inverse_depth((m[6] * block + m[7] * y + m[8]) + m[6] * (x - block), is_nearest ? 1.0 : 32.0);
        for (int axis = 0; axis < 2; ++axis, m += 3) tensor_index[axis] = round_position(((m[0] * block + m[1] * y + m[2]) + m[0] * (x - block)) * over);
    } else {
        for (int axis = 0; axis < 2; ++axis, m += 3) {
            const unsigned begin = round_opencv((m[1] * y + m[2]) * 1024.0), along = round_opencv(m[0] * x * 1024.0);
            tensor_index[axis] = (int)(begin + (is_nearest ? 512 : 16) + along) >> (10 - bits);
        }
    }
    const int i = clip_int16(tensor_index[0] >> bits), j = clip_int16(tensor_index[1] >> bits), dx = tensor_index[0] & 31, dy = tensor_index[1] & 31;
    if (is_nearest) {
        read_or_fill(step, image, border_position(mode, j, image.height), border_position(mode, i, image.width), pixel);
        return;
    }
    const bool is_linear = step.kind == LEVEL_WARP_OPENCV_BILINEAR;
    const int taps = is_linear ? 2 : 4, before = is_linear ? 0 : 1;
    const short *weights = (const short *)step.data + 16 * (32 * dy + dx);
    int sums[CHANNELS];
    for (int c = 0; c < CHANNELS; ++c) sums[c] = 0;
    for (int row = 0; row < taps; ++row)
        for (int column = 0; column < taps; ++column) {
            int near[CHANNELS];
            read_or_fill(step, image, border_position(mode, j + row - before, image.height), border_position(mode, i + column - before, image.width), near);
            const int weight = is_linear ? 32 * (row ? dy : 32 - dy) * (column ? dx : 32 - dx) : __ldg(weights + 4 * row + column);
            for (int c = 0; c < CHANNELS; ++c) sums[c] += near[c] * weight;
        }
    for (int c = 0; c < CHANNELS; ++c) pixel[c] = clip8((sums[c] + 16384) >> 15);
}

// Compute the rows of Pillow's nearest-neighbor warp, which increments the input position by a constant from pixel to
// pixel. Each thread of a block computes one row at a time.
__device__ static inline void warp_pillow_incremental(const struct LevelStep &step, const struct Levels &image, const struct Levels &out) {
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
            for (int c = 0; c < CHANNELS && x >= 0; ++c) out.at(y, x)[c] = is_inside ? pixel[c] : fill_value(step, c);
            from_x += m[0];
            from_y += m[3];
        }
    }
}

// Read the pixel at (row, column) of the image. Outside of the image, `step.mode` selects the padding.
__device__ static inline void take(const struct LevelStep &step, const struct Levels &image, int row, int column, int *pixel) {
    const bool is_first_pixel = step.mode == PADDING_FIRST_PIXEL;
    const int mode = is_first_pixel ? PADDING_CONSTANT : step.mode;
    row = border_position(mode, row, image.height);
    column = border_position(mode, column, image.width);
    if (is_first_pixel && (row < 0 || column < 0)) row = column = 0;
    read_or_fill(step, image, row, column, pixel);
}

// Compute the pixel (x, y) of a step that reads other pixels of the image. For a blur, `other` contains the result of
// `blur_across`.
__device__ static inline void compute_pixel(const struct LevelStep &step, const struct Levels &image, const unsigned char *other, int y,
                                   int x, int *pixel) {
    switch (step.kind) {
    case LEVEL_TAKE:
        take(step, image, step.top + (step.flip_y ? step.height - 1 - y : y), step.left + (step.flip_x ? step.width - 1 - x : x),
             pixel);
        break;
    case LEVEL_SHARPNESS:
        sharpen(step, image, y, x, pixel);
        break;
    case LEVEL_BLUR:
        blur_down(step, image, (const float *)other, y, x, pixel);
        break;
    case LEVEL_WARP_PILLOW_FIXED: {
        long long row = step.top + y, column = step.left + x;
        long long positions[2];
        for (int axis = 0; axis < 2; ++axis) {
            const double *numbers = step.matrix + 3 * axis;
            positions[axis] = ((long long)numbers[0] * column + (long long)numbers[1] * row + (long long)numbers[2]) >> 16;
        }
        read_or_fill(step, image, (int)positions[1], (int)positions[0], pixel);
        break;
    }
    default:
        if (step.kind >= LEVEL_WARP_SCIPY_NEAREST) warp_scipy(step, image, step.top + y, step.left + x, pixel);
        else if (step.kind >= LEVEL_WARP_OPENCV_NEAREST) warp_opencv(step, image, step.top + y, step.left + x, pixel);
        else if (step.kind >= LEVEL_WARP_DALI_NEAREST) warp_dali(step, image, step.top + y, step.left + x, pixel);
        else if (step.kind >= LEVEL_WARP_TORCHVISION_NEAREST) warp_torchvision(step, image, step.top + y, step.left + x, pixel);
        else warp_pillow(step, image, step.top + y, step.left + x, pixel);
    }
}
