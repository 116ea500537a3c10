// The fast resize kernels convert decoded pixels to finished tensors in two launches, for a batch of images of any
// sizes. The kernels support resizes that round to uint8 after each pass and whose taps do not extend beyond the image.
// plain.cu supports all other resizes.
//
// The first launch resamples each image along one axis and stores uint8 values, as Pillow does. The second launch
// resamples along the other axis, looks up each pixel value in the table of its channel, and writes the result to the
// pixel's position on the canvas, in the tensor's type and layout. Only pixels that are visible on the canvas are
// computed. The arithmetic is `fixed` of plan/profiles/windows.py:
//
//     value = clip8((2^(bits - 1) + sum(value_k * weight_k)) >> bits)
//
// Four taps are processed at a time. One instruction (`dot`) multiplies four pixel values, which are the bytes of one
// word, by four signed bytes and adds up the products. A weight consists of three signed bytes, d[0] + 256 d[1] + 65536
// d[2]. Therefore, three sums are accumulated, and combined at the end. Taps are grouped by four: `count` is the number
// of groups, `weights` has 16 bytes per group and output position, and the last group is padded with weights of 0.
//
// The intermediate image is an array of words, [channel][intermediate_height][intermediate_width]. Each word contains
// four neighbors along the axis of the second pass: four rows of one column if the second pass is vertical, or four
// columns of one row if the second pass is horizontal. In the second pass, the first tap of each output position is at
// a multiple of four.
//
// If the length of an axis does not change, or the filter is nearest neighbor, each output position has a single tap.
// Its weight is 2^22, which reproduces the pixel value. The tables contain the bits of tensor values, so that the
// kernels do not need a float type.
//
// launch.py places this file after canvas.cu. If all weights have 22 fractional bits, the file is compiled with
// -DBITS=22, and in all other cases with -DBITS=coefficients.bits.

#define LEVELS 256
#define THREADS 256                 // threads per block: TILE_WIDTH * TILE_HEIGHT, which is also LEVELS
#define VECTOR 16                   // bytes that one thread copies at once
#define LANES (THREADS / VECTOR)    // threads that copy one row
#define WORDS (TILE_ROWS / VECTOR)  // words per channel that each thread of `first_pass` computes
#define PART 448                    // pixels of a row that are staged in shared memory at a time
#define VECTORS (((PART + TAPS) * CHANNELS + 2 * VECTOR) / VECTOR)  // vectors per staged row
#define FOUR_ROWS (TAPS * VECTORS + 2)                              // vectors from a row to the fourth below it
#define VECTOR_ROWS (VECTOR / TAPS * FOUR_ROWS)                     // vectors from a row to the VECTORth below it

// Return `sum` plus the products of the unsigned bytes of `levels` and the signed bytes of `digits`. CUDA has no
// built-in function that multiplies unsigned by signed bytes.
#ifdef __CUDA_ARCH__
__device__ static inline int dot(unsigned levels, int digits, int sum) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(levels), "r"(digits));
    return sum;
}

// Return clip8(low) | clip8(high) << 8 | above << 16.
__device__ static inline unsigned pack(int low, int high, unsigned above) {
    unsigned word;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(high), "r"(low), "r"(above));
    return word;
}
#endif

// Initialize the sums of an output value. The total is initially one half, so that the final shift rounds to nearest.
__device__ static inline void reset(int *sums, const struct Coefficients &coefficients) {
    for (int d = 0; d < DIGITS; ++d) sums[d] = d ? 0 : 1 << (BITS - 1);
}

// Add four taps to the sums of an output value.
__device__ static inline void add(unsigned levels, uint4 digits, int *sums) {
    sums[0] = dot(levels, digits.x, sums[0]);
    sums[1] = dot(levels, digits.y, sums[1]);
    sums[2] = dot(levels, digits.z, sums[2]);
}

// Combine the sums of an output value into an unclipped pixel value. The total fits into an int, but a partial sum may
// overflow, so that the addition must be unsigned.
__device__ static inline int level_of(const int *sums, const struct Coefficients &coefficients) {
    return (int)(sums[2] * 65536u + sums[1] * 256u + sums[0]) >> BITS;
}

// Split four interleaved pixels into one word per channel. The pixels begin at bit `shift` mod 32 of `*first` and
// continue in the CHANNELS words at `next`. Afterwards, `*first` contains the last of the words at `next`, because the
// next four pixels begin in this word.
__device__ static inline void split(unsigned *first, const unsigned *next, unsigned shift, unsigned *channels) {
    unsigned pixels[CHANNELS];
    for (int i = 0; i < CHANNELS; ++i) {
        pixels[i] = __funnelshift_r(*first, next[i], shift);
        *first = next[i];
    }
#if CHANNELS == 1
    channels[0] = pixels[0];
#else
    channels[0] = __byte_perm(__byte_perm(pixels[0], pixels[1], 0x0630), pixels[2], 0x5210);
    channels[1] = __byte_perm(__byte_perm(pixels[0], pixels[1], 0x0741), pixels[2], 0x6210);
    channels[2] = __byte_perm(__byte_perm(pixels[0], pixels[1], 0x0052), pixels[2], 0x7410);
#endif
}

// Copy only those bytes of a vector that are within the memory of the image.
__device__ static inline void copy_inside(uint4 *to, const unsigned char *from, const struct Image &image) {
    if (from >= image.begin && from + VECTOR <= image.end) {
        *to = __ldg((const uint4 *)from);
    } else if (from + VECTOR > image.begin && from < image.end) {
#pragma unroll 1
        for (int i = 0; i < VECTOR; ++i)
            if (from + i >= image.begin && from + i < image.end) ((unsigned char *)to)[i] = from[i];
    }
}

// Copy the first `bytes` bytes of TILE_ROWS rows to shared memory, with all threads of a block. The first row begins at
// `pixels`. The alignment is kept: the first byte of a row is stored at the offset (address mod VECTOR).
__device__ static inline void stage(uint4 *staged, const unsigned char *pixels, int bytes, const struct Image &image) {
    int thread = threadIdx.y * TILE_WIDTH + threadIdx.x, lane = thread % LANES, row = thread / LANES;
    uint4 *to = staged + row / TAPS * FOUR_ROWS + row % TAPS * VECTORS;
    const unsigned char *from = pixels + row * image.pitch;
    int shift = (int)((size_t)from % VECTOR);
    int vectors = (shift + bytes + VECTOR - 1) / VECTOR;
    from -= shift;
    long long next = VECTOR * image.pitch, last = (WORDS - 1) * next;
    if (from + min(0LL, last) >= image.begin && from + max(0LL, last) + vectors * VECTOR <= image.end) {
#pragma unroll 2
        for (int i = lane; i < vectors; i += LANES)
            for (int word = 0; word < WORDS; ++word)
                to[word * VECTOR_ROWS + i] = __ldg((const uint4 *)(from + word * next) + i);
    } else {
        for (int i = lane; i < vectors; i += LANES)
            for (int word = 0; word < WORDS; ++word)
                copy_inside(to + word * VECTOR_ROWS + i, from + word * next + i * VECTOR, image);
    }
}

// Resample along the rows (horizontally). A block stages the required section of the rows in shared memory, PART pixels
// at a time. Within a row's shared memory, the section begins at the same offset for all parts, and for all rows whose
// distance is a multiple of VECTOR. A thread computes WORDS times TAPS rows of one column. Rows below the image have
// arbitrary values, because their weight in the second pass is 0.
//
// A warp computes 8 columns of 4 groups of TAPS rows, with a gap of 2 vectors between the groups in shared memory. This
// layout causes 1.9-way bank conflicts on average, measured for 11 image sizes from 500 x 375 to 24 megapixels that are
// resized to 256. A warp with 32 columns would cause 2.2-way conflicts.
__device__ static inline void across(const struct Image &image) {
    __shared__ uint4 staged[WORDS * VECTOR_ROWS];
    const struct Coefficients &coefficients = image.columns;
    int left = blockIdx.x * TILE_WIDTH, top = blockIdx.y * TILE_ROWS;
    if (left >= coefficients.size || top >= image.intermediate_height * TAPS) return;  // for all threads of the block
    int thread = threadIdx.y * TILE_WIDTH + threadIdx.x;
    int right = min(left + TILE_WIDTH, coefficients.size) - 1;
    int column = left + thread / 32 * 8 + thread % 8, line = thread / 8 % 4;
    int x = min(column, right);
    int first = __ldg(coefficients.first + x), count = __ldg(coefficients.count + x);
    int first_left = __ldg(coefficients.first + left), first_right = __ldg(coefficients.first + right);
    int begin = min(first_left, first_right);  // the input positions decrease if the axis is mirrored
    int end = max(first_left + TAPS * __ldg(coefficients.count + left), first_right + TAPS * __ldg(coefficients.count + right));
    const unsigned char *pixels = image.pixels + (image.intermediate_top + top) * image.pitch + (long long)begin * CHANNELS;
    int sums[WORDS][TAPS][CHANNELS][DIGITS];
    for (int word = 0; word < WORDS; ++word)
        for (int i = 0; i < TAPS; ++i)
            for (int c = 0; c < CHANNELS; ++c) reset(sums[word][i][c], coefficients);
    for (int part = begin; part < end; part += PART) {
        if (part > begin) __syncthreads();  // all threads have used the previous part
        stage(staged, pixels + (part - begin) * CHANNELS, min(PART + TAPS - 1, end - part) * CHANNELS, image);
        __syncthreads();
        int group = max(0, part - first + TAPS - 1) / TAPS;  // first group that begins in this part
        int groups = min(count, max(0, part + PART - first + TAPS - 1) / TAPS) - group;
        if (column > right || groups <= 0) continue;
        const uint4 *weights = (const uint4 *)coefficients.weights + group * coefficients.size + x;
        const unsigned *rows = (const unsigned *)staged;
        unsigned words[TAPS], shifts[TAPS], firsts[WORDS][TAPS];  // indices, because sm_120 would spill pointers
        for (int i = 0; i < TAPS; ++i) {
            unsigned byte = (unsigned)(size_t)(pixels + (line * TAPS + i) * image.pitch) % VECTOR;
            byte += (first + group * TAPS - part) * CHANNELS;
            words[i] = (line * FOUR_ROWS + i * VECTORS) * (VECTOR / 4) + byte / 4;
            shifts[i] = byte * 8;
            for (int word = 0; word < WORDS; ++word) firsts[word][i] = rows[words[i] + word * VECTOR_ROWS * 4];
        }
#pragma unroll 1
        for (; groups > 0; --groups, weights += coefficients.size) {
            uint4 digits = __ldg(weights);
            for (int i = 0; i < TAPS; ++i, words[i - 1] += CHANNELS)
                for (int word = 0; word < WORDS; ++word) {
                    unsigned channels[CHANNELS];
                    split(&firsts[word][i], rows + words[i] + word * VECTOR_ROWS * 4 + 1, shifts[i], channels);
                    for (int c = 0; c < CHANNELS; ++c) add(channels[c], digits, sums[word][i][c]);
                }
        }
    }
    if (column > right) return;
    int plane = image.intermediate_height * image.intermediate_width;
    for (int word = 0; word < WORDS; ++word) {
        int y = top / TAPS + word * TILE_HEIGHT + line;
        if (y >= image.intermediate_height) return;
        unsigned *out = (unsigned *)image.intermediate + y * image.intermediate_width + image.left % PIXELS + x;
        for (int c = 0; c < CHANNELS; ++c) {
            int levels[TAPS];
            for (int i = 0; i < TAPS; ++i) levels[i] = level_of(sums[word][i][c], coefficients);
            out[c * plane] = pack(levels[0], levels[1], pack(levels[2], levels[3], 0));
        }
    }
}

// Resample along the columns (vertically), with one pixel per thread and iteration. This function is not optimized,
// because the first pass is vertical for few images only.
__device__ static inline void down(const struct Image &image) {
    const struct Coefficients &coefficients = image.rows;
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    if (x >= image.intermediate_width * TAPS || image.intermediate_top + x >= image.width) return;
    const unsigned char *column = image.pixels + (image.intermediate_top + x) * CHANNELS;
    int end = min((int)(blockIdx.y + 1) * TILE_ROWS, image.intermediate_height);
    for (int y = blockIdx.y * TILE_ROWS + threadIdx.y; y < end; y += TILE_HEIGHT) {
        int sums[CHANNELS][DIGITS];
        for (int c = 0; c < CHANNELS; ++c) reset(sums[c], coefficients);
        int row = __ldg(coefficients.first + y);
        const unsigned char *pixel = column + row * image.pitch;
        const uint4 *weights = (const uint4 *)coefficients.weights + y;
        for (int group = __ldg(coefficients.count + y); group > 0; --group, weights += coefficients.size) {
            unsigned channels[CHANNELS] = {};
            for (int i = 0; i < TAPS; ++i) {
                for (int c = 0; c < CHANNELS; ++c) channels[c] |= __ldg(pixel + c) << 8 * i;
                if (++row < image.height) pixel += image.pitch;  // taps beyond the last row have weight 0
            }
            for (int c = 0; c < CHANNELS; ++c) add(channels[c], __ldg(weights), sums[c]);
        }
        for (int c = 0; c < CHANNELS; ++c) {
            unsigned char *line = image.intermediate + (c * image.intermediate_height + y) * image.intermediate_width * (long long)TAPS;
            line[x] = clip8(level_of(sums[c], coefficients));
        }
    }
}

// Grid: (tiles over the columns of the intermediate image, tiles over its rows, images). Block: (TILE_WIDTH,
// TILE_HEIGHT).
extern "C" __global__ void __launch_bounds__(THREADS, 2) first_pass(const struct Image *images) {
    const struct Image image = images[blockIdx.z];
    if (image.vertical_first) down(image);
    else across(image);
}

// Compute the unclipped values of PIXELS pixels by resampling the result of `across` vertically. The pixels begin at
// position (x, y) of the region.
__device__ static inline void finish_down(const struct Image &image, const struct Plan &plan, int x, int y,
                                          int levels[CHANNELS][PIXELS]) {
    const struct Coefficients &coefficients = image.rows;
    int plane = image.intermediate_height * image.intermediate_width;
    int row = (__ldg(coefficients.first + y) - image.intermediate_top) / TAPS;
    const unsigned *words = (const unsigned *)image.intermediate + row * image.intermediate_width + image.left % PIXELS + x;
    const uint4 *weights = (const uint4 *)coefficients.weights + y;
    int sums[CHANNELS][PIXELS][DIGITS];
    for (int c = 0; c < CHANNELS; ++c)
        for (int i = 0; i < PIXELS; ++i) reset(sums[c][i], coefficients);
#pragma unroll 1
    for (int group = __ldg(coefficients.count + y); group > 0; --group, words += image.intermediate_width, weights += coefficients.size) {
        uint4 digits = __ldg(weights);
        for (int c = 0; c < CHANNELS; ++c) {
            uint4 columns = __ldg((const uint4 *)(words + plan.channel[c] * plane));
            add(columns.x, digits, sums[c][0]);
            add(columns.y, digits, sums[c][1]);
            add(columns.z, digits, sums[c][2]);
            add(columns.w, digits, sums[c][3]);
        }
    }
    for (int c = 0; c < CHANNELS; ++c)
        for (int i = 0; i < PIXELS; ++i) levels[c][i] = level_of(sums[c][i], coefficients);
}

// Compute the same values as `finish_down`, but by resampling the result of `down` horizontally.
__device__ static inline void finish_across(const struct Image &image, const struct Plan &plan, int x, int y,
                                            int levels[CHANNELS][PIXELS]) {
    const struct Coefficients &coefficients = image.columns;
    int plane = image.intermediate_height * image.intermediate_width;
    for (int i = 0; i < PIXELS; ++i) {
        int column = min(max(x + i, 0), coefficients.size - 1);
        const unsigned *words = (const unsigned *)image.intermediate + y * image.intermediate_width;
        words += (coefficients.first[column] - image.intermediate_top) / TAPS;
        const uint4 *weights = (const uint4 *)coefficients.weights + column;
        int sums[CHANNELS][DIGITS];
        for (int c = 0; c < CHANNELS; ++c) reset(sums[c], coefficients);
#pragma unroll 1
        for (int group = coefficients.count[column]; group > 0; --group, ++words, weights += coefficients.size)
            for (int c = 0; c < CHANNELS; ++c) add(__ldg(words + plan.channel[c] * plane), __ldg(weights), sums[c]);
        for (int c = 0; c < CHANNELS; ++c) levels[c][i] = level_of(sums[c], coefficients);
    }
}

struct __align__(PIXELS * sizeof(VALUE)) Values {
    VALUE of[PIXELS];
};

// Grid: (tiles over the canvas in x, with PIXELS pixels per thread; tiles in y; images). Block: (TILE_WIDTH,
// TILE_HEIGHT).
extern "C" __global__ void __launch_bounds__(THREADS, 3)
second_pass(const struct Image *images, const struct Plan plan) {
    __shared__ VALUE tables[CHANNELS][LEVELS];
    const struct Image image = images[blockIdx.z];
    int thread = threadIdx.y * TILE_WIDTH + threadIdx.x;
    for (int c = 0; c < CHANNELS; ++c) tables[c][thread] = __ldg(plan.tables + c * LEVELS + thread);
    __syncthreads();
    int x = (blockIdx.x * TILE_WIDTH + threadIdx.x) * PIXELS, y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    if (x >= image.layout.width || y >= image.layout.height) return;
    int region_x = x - image.left, region_y = y - image.top;
    int width = region_y >= 0 && region_y < image.rows.size ? image.columns.size : 0;  // width of the region in this row
    int levels[CHANNELS][PIXELS] = {};
    if (width > 0 && region_x > -PIXELS && region_x < width) {
        if (image.vertical_first) finish_across(image, plan, region_x, region_y, levels);
        else finish_down(image, plan, region_x, region_y, levels);
    }
    if (region_x < 0 || region_x + PIXELS > width)
        for (int i = 0; i < PIXELS; ++i)
            for (int c = 0; c < CHANNELS; ++c)
                if (region_x + i < 0 || region_x + i >= width) levels[c][i] = plan.fill[c];
    const struct Layout layout = images[blockIdx.z].layout;  // not kept in registers above, which would spill
    bool is_near = layout.strides[2] == (INTERLEAVED ? PLANES : 1) && layout.strides[1] % PIXELS == 0 &&
                   (INTERLEAVED || layout.strides[0] % PIXELS == 0);
    bool is_whole = is_near && (PATCH_WIDTH ? PATCH_WIDTH : layout.width) % PIXELS == 0 && (size_t)image.tensor % sizeof(struct Values) == 0;
    Index indices[PIXELS];
    for (int i = 0; i < PIXELS; ++i)
        indices[i] = i && PATCH_WIDTH % PIXELS == 0 ? indices[0] + i * layout.strides[2] : pixel_index(layout, x + i, y);
    for (int part = 0; part < PLANES; ++part) {  // each iteration writes one vector of values, if it is contiguous
        struct Values values;
        int channels[PIXELS], pixels[PIXELS];
        for (int i = 0; i < PIXELS; ++i) {
            channels[i] = INTERLEAVED ? (part * PIXELS + i) % PLANES : part;
            pixels[i] = INTERLEAVED ? (part * PIXELS + i) / PLANES : i;
            values.of[i] = tables[channels[i]][clip8(levels[channels[i]][pixels[i]])];
            if (FILL_VALUE && (region_x + pixels[i] < 0 || region_x + pixels[i] >= width)) values.of[i] = (VALUE)plan.fill_value[channels[i]];
        }
        if (is_whole) put_value(image.tensor, layout, channels[0], indices[pixels[0]], values);
        else
            for (int i = 0; i < PIXELS; ++i)
                if (x + pixels[i] < layout.width) put_value(image.tensor, layout, channels[i], indices[pixels[i]], values.of[i]);
    }
    for (int i = 0; i < PIXELS; ++i)
        if (x + i < layout.width) put_fourth(plan, layout, image.tensor, indices[i]);
}
