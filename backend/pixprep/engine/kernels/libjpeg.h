// The part of libjpeg-turbo's interface for ABI 62 (libjpeg 6b) that jpeg_region.c and huffman.c need. It is declared here,
// from the documentation, so that no header has to be installed. Field names are libjpeg's. The
// structs are complete, because jpeg_CreateDecompress fails if the size of jpeg_decompress_struct differs from its own.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { GRAY_SPACE = 1, RGBX_SPACE = 7 };    // J_COLOR_SPACE
enum { ACCURATE_IDCT = 0, FAST_IDCT = 1 };  // J_DCT_METHOD
enum { BLOCK = 64 };                        // coefficients per block: DCTSIZE2

struct jpeg_decompress_struct;

struct jpeg_error_mgr {
    void (*error_exit)(struct jpeg_decompress_struct *);
    void (*emit_message)(struct jpeg_decompress_struct *, int msg_level);  // -1: a warning
    void (*output_message)(void), (*format_message)(void), (*reset_error_mgr)(void);  // not called from here
    int msg_code;
    char msg_parm[80];
    int trace_level;
    long num_warnings;
    const void *message_tables[4];  // five fields, from jpeg_message_table to last_addon_message
    char spare[256];                // in case a version of the library has more fields
};

struct jpeg_source_mgr { const uint8_t *next_input_byte; size_t bytes_in_buffer; };
struct huff_tbl { uint8_t bits[17], huffval[256]; };  // JHUFF_TBL: number of codes of each length; symbols in code order
struct jpeg_component_info {
    int component_id, component_index, h_samp_factor, v_samp_factor, quant_tbl_no, dc_tbl_no, ac_tbl_no;
};

// From jpegint.h, unchanged since libjpeg 6.
struct jpeg_entropy_decoder {
    void (*start_pass)(struct jpeg_decompress_struct *);
    int (*decode_mcu)(struct jpeg_decompress_struct *, int16_t (**MCU_data)[BLOCK]);
};

struct jpeg_progress_mgr {
    void (*progress_monitor)(struct jpeg_decompress_struct *);
    long pass_counter, pass_limit;
    int completed_passes, total_passes;
};

struct jpeg_decompress_struct {
    struct jpeg_error_mgr *err;
    void *mem;
    struct jpeg_progress_mgr *progress;
    void *client_data;
    int is_decompressor, global_state;
    struct jpeg_source_mgr *src;
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
    int (*coef_bits)[BLOCK];  // progressive: number of low bits missing from each coefficient; -1: no bit is known
    void *quant_tbl_ptrs[4];
    struct huff_tbl *dc_huff_tbl_ptrs[4], *ac_huff_tbl_ptrs[4];
    int data_precision;
    void *comp_info;
    int progressive_mode, arith_code;
    uint8_t arith_dc_L[16], arith_dc_U[16], arith_ac_K[16];
    unsigned restart_interval;
    int saw_JFIF_marker;
    uint8_t JFIF_major_version, JFIF_minor_version, density_unit;
    uint16_t X_density, Y_density;
    int saw_Adobe_marker;
    uint8_t Adobe_transform;
    int CCIR601_sampling;
    void *marker_list;
    int max_h_samp_factor, max_v_samp_factor, min_DCT_scaled_size;
    unsigned total_iMCU_rows;
    void *sample_range_limit;
    int comps_in_scan;
    struct jpeg_component_info *cur_comp_info[4];
    unsigned MCUs_per_row, MCU_rows_in_scan;
    int blocks_in_MCU, MCU_membership[10];
    int Ss, Se, Ah, Al;
    int unread_marker;
    void *master, *main, *coef, *post, *inputctl, *marker;
    struct jpeg_entropy_decoder *entropy;
    void *idct, *upsample, *cconvert, *cquantize;
};

// The library's functions, in the order of FUNCTIONS in engine/decoders/turbo.py.
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
