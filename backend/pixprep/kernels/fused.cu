// From decoded pixels to finished tensors, for a batch of images of any sizes, in two launches: the fast kernels, for
// resizes that round to whole levels after each pass and whose windows lie inside the image. profiles.cu has the others.
//
// The first launch resamples each image along one axis, and keeps uint8 as Pillow does; the second resamples along the
// other axis, looks each level up in the table of its channel, and writes the value in its place on the canvas, in the
// tensor's type and layout. Only what the canvas shows is computed. Arithmetic, as in profiles/taps.py, `fixed`:
//
//     level = clip8((2^(bits - 1) + sum(level_k * weight_k)) >> bits)
//
// An axis that keeps its length, or is resampled to the nearest pixel, has windows of one position with weight 2^22,
// which give the level itself. A table holds the bits of its values, so that the kernel needs no float type at all.
// Comes after canvas.cu. Compiled with -DBITS=22 where they always are, which spares `first_pass` 8 registers on an H100
// and with them a fifth block at a time; else with -DBITS=axis.bits.

#define STAGE_BYTES 8192  // of one source row, kept in shared memory; a longer stretch is read from global memory
#define WORD 16           // bytes that one thread reads at once

// One window: `pixel` points at its first position, `step` bytes apart. The levels of the channels, eight bits each, the
// first one lowest: an array would lie in local memory, since the channel order is known at run time only.
__device__ static inline unsigned resample(const unsigned char *pixel, long long step, struct Axis axis, int i) {
    int sums[CHANNELS];
    for (int c = 0; c < CHANNELS; ++c) sums[c] = 1 << (BITS - 1);
    int count = axis.count[i];
    const int *weight = axis.weights + i;
    for (int tap = 0; tap < count; ++tap, pixel += step, weight += axis.size)
        for (int c = 0; c < CHANNELS; ++c) sums[c] += pixel[c] * *weight;
    unsigned levels = 0;
    for (int c = 0; c < CHANNELS; ++c) levels |= (unsigned)clip8(sums[c] >> BITS) << 8 * c;
    return levels;
}

__device__ static inline void store(unsigned char *out, unsigned levels) {
    for (int c = 0; c < CHANNELS; ++c) out[c] = levels >> 8 * c;
}

// Copy bytes into a row of shared memory, by whole words where `from` allows; byte i lies at to[(from mod WORD) + i].
__device__ static inline void stage_row(unsigned char *to, const unsigned char *from, int bytes) {
    int shift = (int)((size_t)from % WORD);
    int head = shift ? min(WORD - shift, bytes) : 0;
    int words = (bytes - head) / WORD;
    to += shift;
    for (int i = threadIdx.x; i < words; i += TILE_WIDTH)
        *(uint4 *)(to + head + i * WORD) = *(const uint4 *)(from + head + i * WORD);
    int tail = head + words * WORD;
    int i = threadIdx.x;
    if (i < head) to[i] = from[i];
    if (tail + i < bytes) to[tail + i] = from[tail + i];
}

// Grid: (tiles over the widest middle, tiles over the highest middle, images). Block: (TILE_WIDTH, TILE_HEIGHT).
extern "C" __global__ void first_pass(const struct Image *images) {
    __shared__ __align__(WORD) unsigned char stage[TILE_HEIGHT][STAGE_BYTES + WORD];
    const struct Image image = images[blockIdx.z];
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    int tile_top = blockIdx.y * TILE_ROWS;
    if ((int)blockIdx.x * TILE_WIDTH >= image.middle_width || tile_top >= image.middle_height) return;  // the whole block
    if (image.vertical_first) {
        for (int y = tile_top + threadIdx.y; y < tile_top + TILE_ROWS && y < image.middle_height; y += TILE_HEIGHT) {
            if (x >= image.middle_width) continue;
            const unsigned char *pixel =
                image.source + image.rows.first[y] * image.pitch + (long long)(image.middle_top + x) * image.step;
            store(image.middle + ((long long)y * image.middle_width + x) * CHANNELS,
                  resample(pixel, image.pitch, image.rows, y));
        }
        return;
    }
    // Neighbouring windows overlap, and their pixels lie apart by the scale: read the stretch once, in order.
    int last = min((int)(blockIdx.x + 1) * TILE_WIDTH, image.middle_width) - 1;
    int begin = image.columns.first[blockIdx.x * TILE_WIDTH];
    int bytes = (image.columns.first[last] + image.columns.count[last] - begin) * CHANNELS;
    bool is_staged = bytes <= STAGE_BYTES && image.step == CHANNELS;
    for (int row = 0; row < TILE_ROWS; row += TILE_HEIGHT) {
        int y = tile_top + row + threadIdx.y;
        const unsigned char *line = image.source + (long long)(image.middle_top + y) * image.pitch;
        if (is_staged) {
            __syncthreads();  // the rows before have been used
            if (y < image.middle_height) stage_row(stage[threadIdx.y], line + begin * CHANNELS, bytes);
            __syncthreads();
        }
        if (x >= image.middle_width || y >= image.middle_height) continue;
        int first = image.columns.first[x];
        const unsigned char *pixel = line + (long long)first * image.step;
        if (is_staged) pixel = stage[threadIdx.y] + (size_t)(line + begin * CHANNELS) % WORD + (first - begin) * CHANNELS;
        store(image.middle + ((long long)y * image.middle_width + x) * CHANNELS,
              resample(pixel, image.step, image.columns, x));
    }
}

// Grid: (tiles over the canvas in x, in y, images). Block: (TILE_WIDTH, TILE_HEIGHT).
extern "C" __global__ void second_pass(const struct Image *images, const struct Plan plan) {
    __shared__ VALUE tables[CHANNELS * 256];
    for (int i = threadIdx.y * TILE_WIDTH + threadIdx.x; i < CHANNELS * 256; i += TILE_WIDTH * TILE_HEIGHT)
        tables[i] = plan.tables[i];
    __syncthreads();
    const struct Image image = images[blockIdx.z];
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    int y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    if (x >= plan.canvas_width || y >= plan.canvas_height) return;
    int region_x, region_y;
    bool is_inside = find(image, x, y, &region_x, &region_y);
    unsigned levels = 0;
    if (is_inside) {
        long long pitch = (long long)image.middle_width * CHANNELS;
        int from_y = image.vertical_first ? region_y : image.rows.first[region_y] - image.middle_top;
        int from_x = image.vertical_first ? image.columns.first[region_x] - image.middle_top : region_x;
        const unsigned char *pixel = image.middle + from_y * pitch + (long long)from_x * CHANNELS;
        levels = image.vertical_first ? resample(pixel, CHANNELS, image.columns, region_x)
                                      : resample(pixel, pitch, image.rows, region_y);
    }
    for (int c = 0; c < CHANNELS; ++c) {
        int level = is_inside ? levels >> 8 * plan.channel[c] & 255 : plan.fill[c];
        image.tensor[place(plan, c, x, y)] = tables[c * 256 + level];
    }
}
