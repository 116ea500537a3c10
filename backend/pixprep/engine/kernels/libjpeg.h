// The interface of libjpeg 6b (ABI 62) as far as jpeg_part.c needs it, as libjpeg-turbo has it: declared here, by its
// documentation, so that no header has to be installed. jpeg_CreateDecompress compares the size of the struct.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { GRAY_SPACE = 1, RGBX_SPACE = 7 };    // J_COLOR_SPACE
enum { ACCURATE_IDCT = 0, FAST_IDCT = 1 };  // J_DCT_METHOD
enum { BLOCK = 64 };                        // coefficients

struct jpeg_decompress_struct;

struct jpeg_error_mgr {
    void (*error_exit)(struct jpeg_decompress_struct *);
    void (*emit_message)(struct jpeg_decompress_struct *, int level);  // -1: a warning
    void (*others[3])(void);
    int msg_code;
    char msg_parm[80];
    int trace_level;
    long num_warnings;
    const void *message_tables[4];
    char spare[256];  // if a library has more fields
};

struct jpeg_source { const uint8_t *next; size_t left; };
struct jpeg_codes { uint8_t counts[17], symbols[256]; };  // how many there are of each length, and what they mean
struct jpeg_component { int names[2], samplings[2], quant_tbl_no, mean_codes, other_codes; };

// From jpegint.h, and the same since libjpeg 6.
struct jpeg_entropy_decoder {
    void (*start_pass)(struct jpeg_decompress_struct *);
    int (*decode_unit)(struct jpeg_decompress_struct *, int16_t (**blocks)[BLOCK]);
};

struct jpeg_decompress_struct {
    struct jpeg_error_mgr *err;
    void *mem, *progress, *client_data;
    int is_decompressor, global_state;
    struct jpeg_source *src;
    unsigned image_width, image_height;
    int num_components, jpeg_color_space;
    int out_color_space;
    unsigned scale_num, scale_denom;
    double output_gamma;
    int buffered_image, raw_data_out;
    int dct_method, do_fancy_upsampling, do_block_smoothing;
    int quantize_colors, dither_mode, two_pass_quantize, desired_number_of_colors, enable_quants[3];
    unsigned output_width, output_height;
    int out_color_components, output_components, rec_outbuf_height;
    int actual_number_of_colors;
    void *colormap;
    unsigned output_scanline;
    int input_scan_number;
    unsigned input_iMCU_row;
    int output_scan_number;
    unsigned output_iMCU_row;
    int (*coef_bits)[BLOCK];  // of a progressive JPEG: what is not known of each coefficient; -1: nothing is
    void *quant_tbl_ptrs[4];
    struct jpeg_codes *mean_codes[4], *other_codes[4];
    int data_precision;
    void *comp_info;
    int progressive_mode, arith_code;
    uint8_t arith[3][16];
    unsigned restart_interval;
    int saw_JFIF_marker;
    uint8_t JFIF_version[2], density_unit;
    uint16_t density[2];
    int saw_Adobe_marker;
    uint8_t Adobe_transform;
    int CCIR601_sampling;
    void *marker_list;
    int max_samp_factors[2], min_DCT_scaled_size;
    unsigned total_iMCU_rows;
    void *sample_range_limit;
    int comps_in_scan;
    struct jpeg_component *scan_components[4];
    unsigned MCUs_per_row, MCU_rows_in_scan;
    int blocks_in_MCU, MCU_membership[10];
    int scan[4];
    int unread_marker;
    void *modules[6];
    struct jpeg_entropy_decoder *entropy;
    void *more_modules[4];
};

// In the order of FUNCTIONS in engine/decoders/turbo.py.
struct libjpeg {
    struct jpeg_error_mgr *(*std_error)(struct jpeg_error_mgr *);
    void (*create)(struct jpeg_decompress_struct *, int version, size_t size);
    void (*mem_src)(struct jpeg_decompress_struct *, const uint8_t *data, unsigned long size);
    int (*read_header)(struct jpeg_decompress_struct *, int is_required);
    int (*start)(struct jpeg_decompress_struct *);
    void (*crop)(struct jpeg_decompress_struct *, unsigned *left, unsigned *width);
    unsigned (*skip)(struct jpeg_decompress_struct *, unsigned rows);
    unsigned (*read)(struct jpeg_decompress_struct *, uint8_t **rows, unsigned count);
    int (*finish)(struct jpeg_decompress_struct *);
    void (*destroy)(struct jpeg_decompress_struct *);
};
