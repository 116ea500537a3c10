// Decodes a region of a JPEG with a libjpeg-turbo that the process has already loaded. The pixels are those of a complete
// decode. All entropy-coded data are read, so damage outside of the region is found too.
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "huffman.h"

enum { MAX_ROWS = 16 };  // rows per call of jpeg_read_scanlines
// Extra columns on each side of the region. Five columns contain three columns of chroma; with fewer than three,
// libjpeg-turbo does not interpolate chroma.
enum { EXTRA_COLUMNS = 4 };

// Number of images after which a decompressor is destroyed. Until then, it keeps the memory of the quantization and Huffman
// tables of all images, at most 3 KB per image.
enum { MAX_IMAGES = 32 };

struct decoder {
    struct jpeg_decompress_struct jpeg;  // the first field, so that its address is also that of `decoder`
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf error_handler;
    struct libjpeg calls;  // functions of the library that creates `jpeg`
    int64_t abi;
    int images_left;  // number of images until `jpeg` is destroyed; 0: `jpeg` does not exist
};

// The decompressor of a thread. A new one per image would take 11 us longer on a virtual machine, because libjpeg-turbo 3.2
// then executes the instruction cpuid three times.
static _Thread_local struct decoder decoder_of_thread;
static pthread_key_t key;  // its destructor runs when a thread ends
static int has_key;

static void destroy(void *memory) {
    struct decoder *decoder = memory;
    decoder->images_left = 0;
    decoder->calls.destroy(&decoder->jpeg);
}

static __attribute__((constructor)) void create_key(void) { has_key = !pthread_key_create(&key, destroy); }

static void abort_decode(struct jpeg_decompress_struct *jpeg) { longjmp(((struct decoder *)jpeg)->error_handler, 1); }

static void abort_if_warned(struct jpeg_decompress_struct *jpeg, int msg_level) {
    if (msg_level < 0) abort_decode(jpeg);
}

// Whether the file contains all bits of every coefficient. Otherwise the library smooths each block with its neighbors up
// to two blocks away, which a region may lack.
static int has_all_bits(const struct jpeg_decompress_struct *jpeg) {
    if (!jpeg->progressive_mode) return 1;
    if (!jpeg->coef_bits) return 0;
    for (int component = 0; component < jpeg->num_components; ++component)
        for (int k = 0; k < BLOCK; ++k)
            if (jpeg->coef_bits[component][k]) return 0;
    return 1;
}

static int read_rows(struct decoder *decoder, const struct jpeg_region *region, int64_t left, int64_t count) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    uint8_t *rows[MAX_ROWS];
    while (count) {
        int64_t max_rows = count < MAX_ROWS ? count : MAX_ROWS;
        for (int64_t row = 0; row < max_rows; ++row)
            rows[row] = region->out + (jpeg->output_scanline + row) * region->row_stride + left * region->channels;
        unsigned rows_read = decoder->calls.read(jpeg, rows, max_rows);
        if (!rows_read) return 0;
        count -= rows_read;
    }
    return 1;
}

// Prepare the decompressor for an image. The pointers to the previous image's tables are cleared, so that a file without
// tables is not decoded with them.
static void prepare(struct decoder *decoder, const struct jpeg_region *region) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    if (decoder->images_left) {
        memset(jpeg->quant_tbl_ptrs, 0, sizeof jpeg->quant_tbl_ptrs);
        memset(jpeg->dc_huff_tbl_ptrs, 0, sizeof jpeg->dc_huff_tbl_ptrs);
        memset(jpeg->ac_huff_tbl_ptrs, 0, sizeof jpeg->ac_huff_tbl_ptrs);
    } else {
        decoder->calls.create(jpeg, decoder->abi, sizeof *jpeg);
        decoder->images_left = MAX_IMAGES;
    }
    jpeg->progress = region->has_own_huffman ? &decoder->progress : 0;
}

static int decode(struct decoder *decoder, const struct jpeg_region *region) {
    const struct libjpeg *calls = &decoder->calls;
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    if (setjmp(decoder->error_handler)) return NOT_DECODED;
    prepare(decoder, region);
    calls->mem_src(jpeg, region->data, region->size);
    calls->read_header(jpeg, 1);
    if (jpeg->image_width != region->width || jpeg->image_height != region->height) return NOT_DECODED;
    jpeg->out_color_space = region->channels == 1 ? GRAY_SPACE : RGBX_SPACE;
    jpeg->dct_method = region->is_fast_idct ? FAST_IDCT : ACCURATE_IDCT;
    jpeg->do_fancy_upsampling = !region->is_fast_chroma;
    if (!calls->start(jpeg) || !has_all_bits(jpeg)) return NOT_DECODED;
    if (region->has_own_huffman) start_huffman_pass(jpeg);
    // Chroma interpolation reads neighboring columns, and the library does not interpolate very narrow regions.
    unsigned left = region->left > EXTRA_COLUMNS ? region->left - EXTRA_COLUMNS : 0;
    unsigned right = region->right + EXTRA_COLUMNS < region->width ? region->right + EXTRA_COLUMNS : region->width;
    unsigned width = right - left;
    if (width < region->width) calls->crop(jpeg, &left, &width);
    if (left + width > region->width || jpeg->output_width != width || jpeg->output_components != region->channels)
        return NOT_DECODED;
    if (region->top && calls->skip(jpeg, region->top) != region->top) return NOT_DECODED;
    if (!read_rows(decoder, region, left, region->bottom - region->top)) return NOT_DECODED;
    // Read the last row instead of skipping it: a skip to the end would leave the remaining data unread.
    unsigned rows_below = region->height - region->bottom;
    if (rows_below > 1 && calls->skip(jpeg, rows_below - 1) != rows_below - 1) return NOT_DECODED;
    if (rows_below && !read_rows(decoder, region, left, 1)) return NOT_DECODED;
    return calls->finish(jpeg) ? DONE : NOT_DECODED;
}

KERNEL int decode_jpeg_part(const struct jpeg_region *region) {
    struct decoder *decoder = &decoder_of_thread;
    if (decoder->abi != region->abi || memcmp(&decoder->calls, region->library, sizeof decoder->calls)) {
        if (decoder->images_left) destroy(decoder);
        decoder->abi = region->abi;
        decoder->calls = *(const struct libjpeg *)region->library;
        decoder->jpeg.err = decoder->calls.std_error(&decoder->errors);
        decoder->errors.error_exit = abort_decode;
        decoder->errors.emit_message = abort_if_warned;
        decoder->progress.progress_monitor = watch_scans;
    }
    const int status = decode(decoder, region);
    free(decoder->jpeg.client_data);
    decoder->jpeg.client_data = 0;
    if (status != DONE || !has_key || !--decoder->images_left) destroy(decoder);
    if (has_key) pthread_setspecific(key, decoder->images_left ? decoder : 0);
    return status;
}
