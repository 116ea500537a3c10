// Rows and columns of a JPEG, by a libjpeg-turbo that is in the process: the pixels that the whole decode would give.
// All data are read, so that damage anywhere is found.
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "huffman.h"

enum { MOST_ROWS = 16 };  // that are asked for at once
enum { BESIDE = 4 };      // columns: in five of them are three of colour, of fewer it has no interpolation

struct decoding {
    struct jpeg_decompress_struct jpeg;  // first: the library's functions are given its address
    struct jpeg_error_mgr errors;
    jmp_buf back;
};

static void leave(struct jpeg_decompress_struct *jpeg) { longjmp(((struct decoding *)jpeg)->back, 1); }

static void leave_if_warned(struct jpeg_decompress_struct *jpeg, int level) {
    if (level < 0) leave(jpeg);
}

// True if every coefficient has come in full. Else the library smooths blocks by those two beside them.
static int is_refined(const struct jpeg_decompress_struct *jpeg) {
    if (!jpeg->progressive_mode) return 1;
    if (!jpeg->coef_bits) return 0;
    for (int component = 0; component < jpeg->num_components; ++component)
        for (int place = 0; place < BLOCK; ++place)
            if (jpeg->coef_bits[component][place]) return 0;
    return 1;
}

static int read_rows(struct jpeg_decompress_struct *jpeg, const struct jpeg_part *part, int64_t left, int64_t count) {
    const struct libjpeg *call = part->library;
    uint8_t *rows[MOST_ROWS];
    while (count) {
        int64_t most = count < MOST_ROWS ? count : MOST_ROWS;
        for (int64_t row = 0; row < most; ++row)
            rows[row] = part->out + (jpeg->output_scanline + row) * part->pitch + left * part->channels;
        unsigned done = call->read(jpeg, rows, most);
        if (!done) return 0;
        count -= done;
    }
    return 1;
}

// The caller has what the library changes: a variable of this function would have no value after longjmp.
static int decode(struct decoding *decoding, const struct jpeg_part *part) {
    const struct libjpeg *call = part->library;
    struct jpeg_decompress_struct *jpeg = &decoding->jpeg;
    jpeg->err = call->std_error(&decoding->errors);
    decoding->errors.error_exit = leave;
    decoding->errors.emit_message = leave_if_warned;
    if (setjmp(decoding->back)) return NOT_HERE;
    call->create(jpeg, part->abi, sizeof *jpeg);
    call->mem_src(jpeg, part->data, part->size);
    call->read_header(jpeg, 1);
    if (jpeg->image_width != part->width || jpeg->image_height != part->height) return NOT_HERE;
    jpeg->out_color_space = part->channels == 1 ? GRAY_SPACE : RGBX_SPACE;
    jpeg->dct_method = part->is_fast_idct ? FAST_IDCT : ACCURATE_IDCT;
    jpeg->do_fancy_upsampling = !part->is_fast_chroma;
    if (!call->start(jpeg) || !is_refined(jpeg)) return NOT_HERE;
    if (part->has_own_huffman) take_scan(jpeg);
    // The interpolation of colours takes neighbours, and the library leaves it out of a few columns.
    unsigned left = part->left > BESIDE ? part->left - BESIDE : 0;
    unsigned right = part->right + BESIDE < part->width ? part->right + BESIDE : part->width;
    unsigned width = right - left;
    if (width < part->width) call->crop(jpeg, &left, &width);
    if (left + width > part->width || jpeg->output_width != width || jpeg->output_components != part->channels)
        return NOT_HERE;
    if (part->top && call->skip(jpeg, part->top) != part->top) return NOT_HERE;
    if (!read_rows(jpeg, part, left, part->bottom - part->top)) return NOT_HERE;
    // To skip the last row would be to read no data any more.
    unsigned between = part->height - part->bottom;
    if (between > 1 && call->skip(jpeg, between - 1) != between - 1) return NOT_HERE;
    if (between && !read_rows(jpeg, part, left, 1)) return NOT_HERE;
    return call->finish(jpeg) ? DONE : NOT_HERE;
}

KERNEL int decode_jpeg_part(const struct jpeg_part *part) {
    const struct libjpeg *call = part->library;
    struct decoding decoding;
    memset(&decoding, 0, sizeof decoding);
    int answer = decode(&decoding, part);
    call->destroy(&decoding.jpeg);
    free(decoding.jpeg.client_data);
    return answer;
}
