// Differential fuzzer of engine/kernels/huffman.c for libFuzzer; run it with `make fuzz-huffman`.
// If pixprep's Huffman decoder decodes an input, libjpeg-turbo's must decode it to the same pixels.
// The first byte of an input selects the region and the arithmetic; the remaining bytes are the JPEG.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "libjpeg.h"

int decode_jpeg_part(const struct jpeg_region *part);

enum { MAX_SIDE = 400 };

static struct libjpeg library;

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count, (void)arguments;
    static const char *const NAMES[] = {
        "jpeg_std_error",        "jpeg_CreateDecompress", "jpeg_mem_src",        "jpeg_read_header",      "jpeg_start_decompress",
        "jpeg_crop_scanline",    "jpeg_skip_scanlines",   "jpeg_read_scanlines", "jpeg_finish_decompress", "jpeg_destroy_decompress",
    };
    const char *path = getenv("PIXPREP_LIBJPEG");
    void *handle = path ? dlopen(path, RTLD_NOW) : NULL;
    for (int i = 0; i < 10; ++i) {
        void *found = handle ? dlsym(handle, NAMES[i]) : NULL;
        if (!found) {
            fprintf(stderr, "PIXPREP_LIBJPEG must name a libjpeg-turbo that exports %s\n", NAMES[i]);
            exit(2);
        }
        memcpy((char *)&library + i * sizeof found, &found, sizeof found);
    }
    return 0;
}

// Read the frame header like pixprep's parser. Return 0 if pixprep would not pass the image to the partial decoder.
static int read_frame(const uint8_t *data, size_t size, uint32_t *height, uint32_t *width, int *components) {
    for (size_t i = 2; i + 10 < size && data[i] == 255;) {
        const int marker = data[i + 1];
        if (marker == 255) {
            ++i;
            continue;
        }
        if (marker >= 0xC0 && marker <= 0xC2) {
            *height = data[i + 5] << 8 | data[i + 6];
            *width = data[i + 7] << 8 | data[i + 8];
            *components = data[i + 9];
            return *height && *width && *height <= MAX_SIDE && *width <= MAX_SIDE && (*components == 1 || *components == 3);
        }
        i += 2 + (data[i + 2] << 8 | data[i + 3]);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t height, width;
    int components;
    if (size < 4 || !read_frame(data + 1, size - 1, &height, &width, &components)) return -1;
    const uint8_t choice = *data;
    const int channels = components == 1 ? 1 : 4, is_fast_chroma = choice & 1;
    const size_t row_stride = (size_t)width * channels;
    uint32_t top = 0, left = 0, bottom = height, right = width;
    if (!is_fast_chroma && choice & 2) {
        top = height * (choice >> 2 & 3) / 4, bottom = top + (height - top + 1) / 2;
        left = width * (choice >> 4 & 3) / 4, right = left + (width - left + 1) / 2;
    }
    uint8_t *jpeg = malloc(size - 1), *own = malloc(height * row_stride), *reference = malloc(height * row_stride);
    memcpy(jpeg, data + 1, size - 1);  // a block of its own, so that the sanitizer sees a read beyond its end
    struct jpeg_region part = {
        .library = &library, .abi = 62, .data = jpeg, .size = size - 1, .out = own, .row_stride = row_stride, .channels = channels,
        .height = height, .width = width, .top = top, .left = left, .bottom = bottom, .right = right,
        .is_fast_idct = choice >> 6 & 1, .is_fast_chroma = is_fast_chroma, .has_own_huffman = 1,
    };
    if (decode_jpeg_part(&part) == DONE) {
        part.out = reference, part.has_own_huffman = 0;
        if (decode_jpeg_part(&part) != DONE) {
            fprintf(stderr, "pixprep's Huffman loop decodes what libjpeg-turbo's rejects\n");
            abort();
        }
        for (uint32_t y = top; y < bottom; ++y)
            for (uint32_t x = left; x < right; ++x)
                if (memcmp(own + y * row_stride + (size_t)x * channels, reference + y * row_stride + (size_t)x * channels, channels == 1 ? 1 : 3)) {
                    fprintf(stderr, "the pixels differ at row %u, column %u\n", y, x);
                    abort();
                }
    }
    free(jpeg), free(own), free(reference);
    return 0;
}
