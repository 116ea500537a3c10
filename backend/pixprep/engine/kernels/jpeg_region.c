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

struct decoding {
    struct jpeg_decompress_struct jpeg;  // the first field, so that its address is also that of `decoding`
    struct jpeg_error_mgr errors;
    jmp_buf back;
};

static void leave(struct jpeg_decompress_struct *jpeg) { longjmp(((struct decoding *)jpeg)->back, 1); }

static void leave_if_warned(struct jpeg_decompress_struct *jpeg, int msg_level) {
    if (msg_level < 0) leave(jpeg);
}

// Whether the file contains all bits of every coefficient. Otherwise the library smooths each block with its neighbors up
// to two blocks away, which a region may lack.
static int is_refined(const struct jpeg_decompress_struct *jpeg) {
    if (!jpeg->progressive_mode) return 1;
    if (!jpeg->coef_bits) return 0;
    for (int component = 0; component < jpeg->num_components; ++component)
        for (int k = 0; k < BLOCK; ++k)
            if (jpeg->coef_bits[component][k]) return 0;
    return 1;
}

static int read_rows(struct jpeg_decompress_struct *jpeg, const struct jpeg_region *part, int64_t left, int64_t count) {
    const struct libjpeg *call = part->library;
    uint8_t *rows[MAX_ROWS];
    while (count) {
        int64_t max_rows = count < MAX_ROWS ? count : MAX_ROWS;
        for (int64_t row = 0; row < max_rows; ++row)
            rows[row] = part->out + (jpeg->output_scanline + row) * part->row_stride + left * part->channels;
        unsigned done = call->read(jpeg, rows, max_rows);
        if (!done) return 0;
        count -= done;
    }
    return 1;
}

// `decoding` belongs to the caller, because the value of a local variable is indeterminate after longjmp.
static int decode(struct decoding *decoding, const struct jpeg_region *part) {
    const struct libjpeg *call = part->library;
    struct jpeg_decompress_struct *jpeg = &decoding->jpeg;
    jpeg->err = call->std_error(&decoding->errors);
    decoding->errors.error_exit = leave;
    decoding->errors.emit_message = leave_if_warned;
    if (setjmp(decoding->back)) return NOT_DECODED;
    call->create(jpeg, part->abi, sizeof *jpeg);
    call->mem_src(jpeg, part->data, part->size);
    call->read_header(jpeg, 1);
    if (jpeg->image_width != part->width || jpeg->image_height != part->height) return NOT_DECODED;
    jpeg->out_color_space = part->channels == 1 ? GRAY_SPACE : RGBX_SPACE;
    jpeg->dct_method = part->is_fast_idct ? FAST_IDCT : ACCURATE_IDCT;
    jpeg->do_fancy_upsampling = !part->is_fast_chroma;
    if (!call->start(jpeg) || !is_refined(jpeg)) return NOT_DECODED;
    if (part->has_own_huffman) start_huffman_pass(jpeg);
    // Chroma interpolation reads neighboring columns, and the library does not interpolate very narrow regions.
    unsigned left = part->left > EXTRA_COLUMNS ? part->left - EXTRA_COLUMNS : 0;
    unsigned right = part->right + EXTRA_COLUMNS < part->width ? part->right + EXTRA_COLUMNS : part->width;
    unsigned width = right - left;
    if (width < part->width) call->crop(jpeg, &left, &width);
    if (left + width > part->width || jpeg->output_width != width || jpeg->output_components != part->channels)
        return NOT_DECODED;
    if (part->top && call->skip(jpeg, part->top) != part->top) return NOT_DECODED;
    if (!read_rows(jpeg, part, left, part->bottom - part->top)) return NOT_DECODED;
    // Read the last row instead of skipping it: a skip to the end would leave the remaining data unread.
    unsigned between = part->height - part->bottom;
    if (between > 1 && call->skip(jpeg, between - 1) != between - 1) return NOT_DECODED;
    if (between && !read_rows(jpeg, part, left, 1)) return NOT_DECODED;
    return call->finish(jpeg) ? DONE : NOT_DECODED;
}

KERNEL int decode_jpeg_part(const struct jpeg_region *part) {
    const struct libjpeg *call = part->library;
    struct decoding decoding;
    memset(&decoding, 0, sizeof decoding);
    int result = decode(&decoding, part);
    call->destroy(&decoding.jpeg);
    free(decoding.jpeg.client_data);
    return result;
}
