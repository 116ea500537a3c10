// Decodes a region of a JPEG with a libjpeg-turbo that the process has already loaded. The pixels are those of a complete
// decode. All entropy-coded data are read, so damage outside of the region is found too.
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "huffman.h"

enum { MAX_ROWS = 16 };  // rows per call of jpeg_read_scanlines
// Extra columns on each side of the region. Five columns contain three columns of chroma; with fewer than three,
// libjpeg-turbo does not interpolate chroma.
enum { EXTRA_COLUMNS = 4 };

struct decoder {
    struct jpeg_decompress_struct jpeg;  // the first field, so that its address is also that of `decoder`
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf error_handler;
};

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

static int read_rows(struct jpeg_decompress_struct *jpeg, const struct jpeg_region *region, int64_t left, int64_t count) {
    const struct libjpeg *calls = region->library;
    uint8_t *rows[MAX_ROWS];
    while (count) {
        int64_t max_rows = count < MAX_ROWS ? count : MAX_ROWS;
        for (int64_t row = 0; row < max_rows; ++row)
            rows[row] = region->out + (jpeg->output_scanline + row) * region->row_stride + left * region->channels;
        unsigned rows_read = calls->read(jpeg, rows, max_rows);
        if (!rows_read) return 0;
        count -= rows_read;
    }
    return 1;
}

// `decoder` belongs to the caller, because the value of a local variable is indeterminate after longjmp.
static int decode(struct decoder *decoder, const struct jpeg_region *region) {
    const struct libjpeg *calls = region->library;
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    jpeg->err = calls->std_error(&decoder->errors);
    decoder->errors.error_exit = abort_decode;
    decoder->errors.emit_message = abort_if_warned;
    if (setjmp(decoder->error_handler)) return NOT_DECODED;
    calls->create(jpeg, region->abi, sizeof *jpeg);
    calls->mem_src(jpeg, region->data, region->size);
    calls->read_header(jpeg, 1);
    if (jpeg->image_width != region->width || jpeg->image_height != region->height) return NOT_DECODED;
    jpeg->out_color_space = region->channels == 1 ? GRAY_SPACE : RGBX_SPACE;
    jpeg->dct_method = region->is_fast_idct ? FAST_IDCT : ACCURATE_IDCT;
    jpeg->do_fancy_upsampling = !region->is_fast_chroma;
    decoder->progress.progress_monitor = watch_scans;
    if (region->has_own_huffman) jpeg->progress = &decoder->progress;
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
    if (!read_rows(jpeg, region, left, region->bottom - region->top)) return NOT_DECODED;
    // Read the last row instead of skipping it: a skip to the end would leave the remaining data unread.
    unsigned rows_below = region->height - region->bottom;
    if (rows_below > 1 && calls->skip(jpeg, rows_below - 1) != rows_below - 1) return NOT_DECODED;
    if (rows_below && !read_rows(jpeg, region, left, 1)) return NOT_DECODED;
    return calls->finish(jpeg) ? DONE : NOT_DECODED;
}

KERNEL int decode_jpeg_part(const struct jpeg_region *region) {
    const struct libjpeg *calls = region->library;
    struct decoder decoder;
    memset(&decoder, 0, sizeof decoder);
    int status = decode(&decoder, region);
    calls->destroy(&decoder.jpeg);
    free(decoder.jpeg.client_data);
    return status;
}
