// Huffman decoding of JPEGs: see huffman.h. One table look-up yields up to two symbols with their values. The
// inner loop never tests for markers, because the data up to the next marker are first copied without the stuffed zeros
// (FF 00 becomes FF). Names are those of libjpeg and of ITU-T T.81.
#include "huffman.h"

#include <stdlib.h>
#include <string.h>

enum { HUFF_LOOKAHEAD = 10 };        // bits per table look-up; larger tables do not fit into the L1 cache
enum { LONG = 1 << 7 };              // flag of entries without a value, whose symbol `read_symbol` reads
enum { MAX_LENGTH = 18 };            // maximum number of bits per entry of `two_symbols`; one refill suffices for three
enum { LAST = 128 };                 // run length that marks the end of a block (EOB)
enum { EMPTY, WITHOUT_PAIRS, COMPLETE };  // states of a derived_tbl
enum { PADDING = 512 };              // zero bytes after the data; a block consumes at most 480 bytes

// A Huffman table with its look-ups, as d_derived_tbl in libjpeg.
struct derived_tbl {
    struct huff_tbl source;  // the table from which the look-ups were built
    int filled;  // EMPTY, WITHOUT_PAIRS or COMPLETE
    int32_t maxcode[17];    // per code length: the last code, plus 1
    int32_t valoffset[17];  // per code length: offset from a code to the index of its symbol in huffval
    // One symbol, indexed by the next bits. Bits 0 to 6 contain the number of bits that it consumes. Bits 8 to 15 contain the
    // number of coefficients to advance (AC) or the shift for `complete` (DC). Bits 16 to 31 contain the value. With LONG set,
    // bits 8 to 15 contain the length of the code, or 0 if the code is longer than the index, and bits 16 to 31 the symbol.
    uint32_t one_symbol[1 << HUFF_LOOKAHEAD];
    // Two symbols, or one whose value extends beyond the index. Bits 0 to 6 contain the number of bits that both consume.
    // Bits 8 to 15 contain the number of coefficients to advance for both. Bits 16 to 31 contain the value of the first. The
    // high half contains 8 bits each for the run of zeros before the first, the number of bits that the first consumes, the
    // value of the second, and the shift for `complete`.
    uint64_t two_symbols[1 << HUFF_LOOKAHEAD];
};

// The tables of the previous image of this thread. Building the look-ups of four tables takes 20 us. Most images of a
// data set have the same tables, because encoders use those of T.81, annex K.
static _Thread_local struct { struct derived_tbl dc[4], ac[4]; } tables_of_thread;

struct bit_reader {
    uint64_t word;      // the next bits, from the top
    int64_t bits;       // number of bits in `word` that precede the byte at `at`
    const uint8_t *at;
};

struct scan {
    struct derived_tbl *dc_tables, *ac_tables;  // tables of this thread, indexed by table number
    struct bit_reader reader;
    const uint8_t *end;
    int32_t last_dc_val[4];  // DC predictors, one per component of the scan
    int64_t mcus_decoded, next_restart_num, end_of_band_run;  // EOBRUN: number of next blocks without symbols
    void (*library_start_pass)(struct jpeg_decompress_struct *);
    uint8_t data[];
};

// Index in the block of the k-th coefficient in zigzag order. A k beyond the block is the last coefficient.
static const uint8_t jpeg_natural_order[256] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    [BLOCK ... 255] = BLOCK - 1,
};

// EXTEND of T.81: the signed value of `size` additional bits.
static inline int extend(int bits, int size) { return size && !(bits >> (size - 1)) ? bits - (1 << size) + 1 : bits; }
// The value field of an entry whose index contains only the first `known` of `size` additional bits. The others count as 0
// until `complete` adds them. The first bit determines the sign, so this is also correct for negative values.
static inline uint32_t begin_of_value(int bits, int known, int size) {
    return (uint32_t)extend(bits << (size - known), size) << 16;
}
// The shift for `complete` of a value with `count` additional bits after the index.
static inline uint64_t shift_of(int count) { return 63 - count; }
static inline int complete(uint64_t word, uint64_t entry, int shift) {
    return (int16_t)(entry >> 16) + (int)(word << HUFF_LOOKAHEAD >> 1 >> shift);
}
// Run of zeros before the coefficient of an AC symbol; LAST for EOB.
static inline int run_of(int symbol) { return symbol & 15 || symbol == 0xF0 ? symbol >> 4 : LAST; }

// Build the look-ups, unless the previous image had the same table. Only the AC tables of sequential JPEGs have the
// look-up of two symbols. Returns 0 if the table is invalid.
static int make_derived_tbl(struct derived_tbl *table, const struct huff_tbl *from, int is_dc, int has_pairs) {
    int code = 0, count = 0;
    if (table->filled > has_pairs && !memcmp(&table->source, from, sizeof *from)) return 1;
    table->source = *from;
    table->filled = EMPTY;
    for (int i = 0; i < 1 << HUFF_LOOKAHEAD; ++i) table->one_symbol[i] = LONG;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        table->valoffset[length] = count - code;
        for (int i = 0; i < from->bits[length]; ++i, ++code, ++count) {
            if (count > 255 || code >> length) return 0;
            const int symbol = from->huffval[count], size = is_dc ? symbol : symbol & 15, free = HUFF_LOOKAHEAD - length;
            if (size > 15) return 0;
            const uint32_t entry = (length + size) | (is_dc ? shift_of(0) : (uint64_t)run_of(symbol) + 1) << 8;
            const uint32_t is_long = LONG | length << 8 | symbol << 16;
            const int is_run = !is_dc && !size && symbol && symbol != 0xF0;  // EOB1 to EOB14, which have additional bits
            for (int rest = 0; free >= 0 && rest < 1 << free; ++rest)
                table->one_symbol[code << free | rest] =
                    is_dc && free && size > free
                        ? (length + size) | shift_of(size - free) << 8 | begin_of_value(rest, free, size)
                    : size > free || is_run ? is_long
                                            : entry | (uint32_t)extend(rest >> (free - size), size) << 16;
        }
        table->maxcode[length] = code;
    }
    for (int i = 0; i < 1 << HUFF_LOOKAHEAD && has_pairs; ++i) {
        const uint32_t first = table->one_symbol[i];
        uint64_t *to = &table->two_symbols[i];
        if (first & LONG) {
            const int length = first >> 8 & 63, symbol = first >> 16, size = symbol & 15, known = HUFF_LOOKAHEAD - length;
            const uint64_t total = length + size, run = symbol >> 4;
            *to = first;
            if (length && known && size > known && total <= MAX_LENGTH)
                *to = total | (run + 1) << 8 | begin_of_value(i & ((1 << known) - 1), known, size) | run << 32 | total << 40 |
                      shift_of(size - known) << 56;
            continue;
        }
        const uint32_t second = table->one_symbol[i << (first & 63) & ((1 << HUFF_LOOKAHEAD) - 1)];
        const uint64_t length = first & 63, run = (first >> 8 & 255) - 1;
        const int value = (int16_t)(second >> 16);
        *to = first | length << 40 | (run == LAST ? 0 : run << 32) | shift_of(0) << 56;
        if (run != LAST && !(second & LONG) && length + (second & 63) <= HUFF_LOOKAHEAD && value == (int8_t)value)
            *to += (second & 0xffff) | (uint64_t)(uint8_t)value << 48;
    }
    table->filled = has_pairs ? COMPLETE : WITHOUT_PAIRS;
    return 1;
}

// Copy the bytes up to the next marker without stuffed zeros, and reset the DC predictors. Returns 0 if no marker follows.
static int unstuff_bytes(struct jpeg_source_mgr *src, struct scan *scan) {
    const uint8_t *from = src->next_input_byte, *end = from + src->bytes_in_buffer, *mark;
    uint8_t *to = scan->data;
    for (;; from = mark + 2) {
        mark = memchr(from, 255, end - from);
        if (!mark || mark + 1 == end) return 0;
        memcpy(to, from, mark - from);
        to += mark - from;
        if (mark[1]) break;
        *to++ = 255;
    }
    memset(to, 0, PADDING);
    *src = (struct jpeg_source_mgr){mark, end - mark};
    scan->reader = (struct bit_reader){.at = scan->data};
    scan->end = to;
    memset(scan->last_dc_val, 0, sizeof scan->last_dc_val);
    return 1;
}

// Whether the entropy-coded segment is consumed, except for padding in its last byte. With more bytes left, libjpeg-turbo
// may warn.
static int is_consumed(const struct scan *scan) {
    const int64_t left = 8 * (scan->end - scan->reader.at) + scan->reader.bits;
    return left >= 0 && left < 8;
}

// Refill the word to at least 56 bits.
static inline void fill_bit_buffer(struct bit_reader *r) {
    uint64_t next;
    memcpy(&next, r->at, sizeof next);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) next = __builtin_bswap64(next);
    r->word |= next >> r->bits;
    r->at += (63 - r->bits) >> 3;
    r->bits |= 56;
}

static inline uint64_t peek_bits(const struct bit_reader *r, int count) { return r->word >> (64 - count); }
static inline void drop_bits(struct bit_reader *r, int count) { r->word <<= count, r->bits -= count; }

static inline int read_value(struct bit_reader *r, int size) {
    const int value = size ? extend(peek_bits(r, size), size) : 0;
    drop_bits(r, size);
    return value;
}

// Read the symbol of a LONG entry. Returns -1 if the bits are not a code of the table.
static inline int read_symbol(struct bit_reader *r, const struct derived_tbl *table, uint64_t entry) {
    int length = entry >> 8 & 63, symbol = entry >> 16;
    if (!length) {
        for (length = HUFF_LOOKAHEAD + 1; length <= 16 && (int)peek_bits(r, length) >= table->maxcode[length];) ++length;
        if (length > 16) return -1;
        symbol = table->source.huffval[peek_bits(r, length) + table->valoffset[length]];
    }
    drop_bits(r, length);
    return symbol;
}

// Decode a block, which the library has set to 0. Returns 0 if the data are corrupt.
static inline int decode_block(struct bit_reader *r, const struct derived_tbl *dc_table, const struct derived_tbl *ac_table,
                               int32_t *last_dc_val, int16_t *block) {
    fill_bit_buffer(r);
    uint64_t entry = dc_table->one_symbol[peek_bits(r, HUFF_LOOKAHEAD)];
    int symbol = 0, value = complete(r->word, entry, entry >> 8 & 63);
    if (entry & LONG) {
        if ((symbol = read_symbol(r, dc_table, entry)) < 0) return 0;
        value = read_value(r, symbol);
    } else drop_bits(r, entry & 63);
    block[0] = *last_dc_val += value;
    if (block[0] != *last_dc_val) return 0;
    int64_t k = 1, first;  // index in zigzag order of the next coefficient, and of the first one of a look-up
    while (k < BLOCK) {
        fill_bit_buffer(r);
        _Pragma("GCC unroll 3") for (int looked = 0; looked < 3 && k < BLOCK; ++looked) {
            entry = ac_table->two_symbols[peek_bits(r, HUFF_LOOKAHEAD)];
            if (__builtin_expect(entry & LONG, 0)) {
                fill_bit_buffer(r);
                if ((symbol = read_symbol(r, ac_table, entry)) < 0) return 0;
                k += run_of(symbol);
                block[jpeg_natural_order[k++]] = read_value(r, symbol & 15);
                break;
            }
            first = k + (entry >> 32 & 255);
            k += entry >> 8 & 255;
            // If the entry has only one symbol, this writes 0 to the coefficient that the next line sets.
            block[jpeg_natural_order[k - 1]] = (int8_t)(entry >> 48);
            block[jpeg_natural_order[first]] = complete(r->word, entry, entry >> 56);
            if (__builtin_expect(first >= BLOCK - 1, 0)) {  // the second symbol belongs to the next block
                drop_bits(r, entry >> 40 & 63);
                return first == BLOCK - 1;
            }
            drop_bits(r, entry & 63);
        }
    }
    return k == BLOCK || k > LAST;
}

// Begin the next restart interval, if one begins with this MCU. Returns 0 if its marker is wrong.
static int restart(struct jpeg_decompress_struct *jpeg, struct scan *scan) {
    if (!scan->mcus_decoded || !jpeg->restart_interval || scan->mcus_decoded % jpeg->restart_interval) return 1;
    const int is_valid = is_consumed(scan) && jpeg->src->next_input_byte[1] == 0xD0 + scan->next_restart_num++ % 8;
    jpeg->src->next_input_byte += 2;
    jpeg->src->bytes_in_buffer -= 2;
    scan->end_of_band_run = 0;
    return is_valid && unstuff_bytes(jpeg->src, scan);
}

// Finish an MCU. Calls error_exit if the MCU is invalid, or if data remain after the last MCU of the scan.
static int finish_mcu(struct jpeg_decompress_struct *jpeg, struct scan *scan, int is_valid) {
    const int64_t mcus = (int64_t)jpeg->MCUs_per_row * jpeg->MCU_rows_in_scan;
    if (!is_valid || (++scan->mcus_decoded == mcus && !is_consumed(scan))) jpeg->err->error_exit(jpeg);
    return 1;
}

// Decode one MCU of the scan. Without MCU_data its coefficients are discarded.
static int decode_mcu(struct jpeg_decompress_struct *jpeg, int16_t (**MCU_data)[BLOCK]) {
    struct scan *scan = jpeg->client_data;
    int16_t discarded[BLOCK];
    int is_valid = restart(jpeg, scan);
    struct bit_reader reader = scan->reader;
    for (int i = 0; i < jpeg->blocks_in_MCU && is_valid; ++i) {
        const int ci = jpeg->MCU_membership[i];
        const struct jpeg_component_info *component = jpeg->cur_comp_info[ci];
        is_valid = decode_block(&reader, &scan->dc_tables[component->dc_tbl_no], &scan->ac_tables[component->ac_tbl_no],
                                &scan->last_dc_val[ci], MCU_data ? *MCU_data[i] : discarded) &&
                   reader.at <= scan->end + sizeof reader.word;
    }
    scan->reader = reader;
    return finish_mcu(jpeg, scan, is_valid);
}

void start_huffman_pass(struct jpeg_decompress_struct *jpeg) {
    if (jpeg->progressive_mode || jpeg->arith_code || jpeg->comps_in_scan != jpeg->num_components) return;
    struct scan *scan = jpeg->client_data = malloc(sizeof *scan + jpeg->src->bytes_in_buffer + PADDING);
    int is_valid = scan && unstuff_bytes(jpeg->src, scan);
    if (is_valid) scan->dc_tables = tables_of_thread.dc, scan->ac_tables = tables_of_thread.ac;
    for (int i = 0; i < jpeg->comps_in_scan && is_valid; ++i) {
        const int dc = jpeg->cur_comp_info[i]->dc_tbl_no, ac = jpeg->cur_comp_info[i]->ac_tbl_no;
        is_valid = make_derived_tbl(&scan->dc_tables[dc], jpeg->dc_huff_tbl_ptrs[dc], 1, 0) &&
                   make_derived_tbl(&scan->ac_tables[ac], jpeg->ac_huff_tbl_ptrs[ac], 0, 1);
    }
    if (!is_valid) jpeg->err->error_exit(jpeg);
    scan->mcus_decoded = scan->next_restart_num = 0;
    jpeg->entropy->decode_mcu = decode_mcu;
}

// Progressive JPEGs: T.81, annex G. Ss and Se are the indices of the first and the last coefficient of a scan in zigzag
// order. Al is the position of the lowest bit of the coefficients that the scan contains. Ah is Al of the previous scan
// of these coefficients, or 0 for their first scan.

// Decode the DC coefficient of a block in its first scan. Returns 0 if the data are corrupt.
static inline int decode_dc_first(struct bit_reader *r, const struct derived_tbl *table, int32_t *last_dc_val, int Al, int16_t *block) {
    fill_bit_buffer(r);
    const uint64_t entry = table->one_symbol[peek_bits(r, HUFF_LOOKAHEAD)];
    int value = complete(r->word, entry, entry >> 8 & 63);
    if (entry & LONG) {
        const int symbol = read_symbol(r, table, entry);
        if (symbol < 0) return 0;
        value = read_value(r, symbol);
    } else drop_bits(r, entry & 63);
    *last_dc_val += value;
    block[0] = *last_dc_val * (1 << Al);
    return block[0] == *last_dc_val * (1 << Al);
}

// Read the additional bits of an EOBn symbol. Returns the number of blocks, including this one, without further
// symbols.
static inline int64_t read_run(struct bit_reader *r, int n) {
    const int64_t run = (1 << n) + (n ? peek_bits(r, n) : 0);
    drop_bits(r, n);
    return run;
}

// Decode the AC coefficients of a block in their first scan. Returns 0 if the data are corrupt.
static inline int decode_ac_first(struct bit_reader *r, const struct derived_tbl *table, int k, int Se, int Al, int64_t *run, int16_t *block) {
    while (k <= Se) {
        fill_bit_buffer(r);
        _Pragma("GCC unroll 3") for (int looked = 0; looked < 3 && k <= Se; ++looked) {
            const uint64_t entry = table->one_symbol[peek_bits(r, HUFF_LOOKAHEAD)];
            int value = (int16_t)(entry >> 16), zeros = (int)(entry >> 8 & 255) - 1;
            if (__builtin_expect(entry & LONG, 0)) {
                const int symbol = read_symbol(r, table, entry);
                if (symbol < 0) return 0;
                if (!(symbol & 15) && symbol != 0xF0) {
                    *run = read_run(r, symbol >> 4) - 1;
                    return 1;
                }
                zeros = symbol >> 4, value = read_value(r, symbol & 15);
                looked = 2;  // `word` may not contain enough bits for another symbol
            } else drop_bits(r, entry & 63);
            if (zeros == LAST) return 1;
            k += zeros;
            if (k > Se) return 0;
            block[jpeg_natural_order[k++]] = value * (1 << Al);
        }
    }
    return 1;
}

// Return a bit mask of the coefficients that are not 0, in zigzag order.
static inline uint64_t nonzero_coefficients(const int16_t *block) {
    static const uint8_t zigzag[BLOCK] = {
        0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30, 41, 43, 9,  11, 18, 24, 31, 40, 44, 53,
        10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63,
    };
    uint64_t found = 0, four;
    for (int i = 0; i < BLOCK; i += 4) {
        memcpy(&four, block + i, sizeof four);
        if (!four) continue;
        for (int j = i; j < i + 4; ++j) found |= (uint64_t)(block[j] != 0) << zigzag[j];
    }
    return found;
}

// Read the correction bit of a coefficient that is not 0, and apply it to the coefficient.
static inline void correct(struct bit_reader *r, int bit, int16_t *coefficient) {
    if (r->bits < 1) fill_bit_buffer(r);
    if (peek_bits(r, 1) && !(*coefficient & bit)) *coefficient += *coefficient >= 0 ? bit : -bit;
    drop_bits(r, 1);
}

// Decode the AC coefficients of a block in a refinement scan. The scan contains one correction bit for each coefficient
// that is not 0, and new coefficients, whose values are 1 or -1 in units of 2^Al. Returns 0 if the data are corrupt.
static inline int decode_ac_refine(struct bit_reader *r, const struct derived_tbl *table, int k, int Se, int Al, int64_t *run,
                                   int16_t *block) {
    const uint64_t nonzero = nonzero_coefficients(block) & ~0ull >> (63 - Se);
    for (; !*run && k <= Se; ++k) {
        fill_bit_buffer(r);
        const uint64_t entry = table->one_symbol[peek_bits(r, HUFF_LOOKAHEAD)];
        int value = (int16_t)(entry >> 16), zeros = (int)(entry >> 8 & 255) - 1;
        if (entry & LONG) {
            const int symbol = read_symbol(r, table, entry);
            if (symbol < 0) return 0;
            if (!(symbol & 15) && symbol != 0xF0) {
                *run = read_run(r, symbol >> 4);
                break;
            }
            if ((symbol & 15) > 1) return 0;
            zeros = symbol >> 4, value = read_value(r, symbol & 15);
        } else drop_bits(r, entry & 63);
        if (zeros == LAST) {
            *run = 1;
            break;
        }
        if (value < -1 || value > 1) return 0;
        for (;; ++k) {  // skip `zeros` coefficients that are 0, and correct the others
            const uint64_t rest = nonzero >> k;
            const int next = rest ? __builtin_ctzll(rest) : BLOCK;
            if (next > zeros) break;
            zeros -= next, k += next;
            correct(r, 1 << Al, &block[jpeg_natural_order[k]]);
            if (k == Se) return 0;
        }
        k += zeros;
        if (k > Se) return 0;
        if (value) block[jpeg_natural_order[k]] = value * (1 << Al);
    }
    if (!*run) return 1;
    for (uint64_t rest = nonzero >> k << k; rest; rest &= rest - 1)
        correct(r, 1 << Al, &block[jpeg_natural_order[__builtin_ctzll(rest)]]);
    --*run;
    return 1;
}

// Decode one MCU of a scan of a progressive JPEG. A scan of AC coefficients has one component, whose MCU is a block.
static int decode_progressive_mcu(struct jpeg_decompress_struct *jpeg, int16_t (**MCU_data)[BLOCK]) {
    struct scan *scan = jpeg->client_data;
    const struct derived_tbl *ac_table = &scan->ac_tables[jpeg->cur_comp_info[0]->ac_tbl_no];
    const int Ss = jpeg->Ss, Se = jpeg->Se, Al = jpeg->Al;
    int is_valid = restart(jpeg, scan);
    struct bit_reader reader = scan->reader;
    if (!is_valid) {
    } else if (Ss && jpeg->Ah) {
        is_valid = decode_ac_refine(&reader, ac_table, Ss, Se, Al, &scan->end_of_band_run, *MCU_data[0]);
    } else if (Ss && scan->end_of_band_run) {
        --scan->end_of_band_run;
    } else if (Ss) {
        is_valid = decode_ac_first(&reader, ac_table, Ss, Se, Al, &scan->end_of_band_run, *MCU_data[0]);
    } else {
        for (int i = 0; i < jpeg->blocks_in_MCU && is_valid; ++i) {
            const int ci = jpeg->MCU_membership[i];
            int16_t *block = *MCU_data[i];
            if (!jpeg->Ah) {
                const struct derived_tbl *table = &scan->dc_tables[jpeg->cur_comp_info[ci]->dc_tbl_no];
                is_valid = decode_dc_first(&reader, table, &scan->last_dc_val[ci], Al, block);
            } else {
                fill_bit_buffer(&reader);
                if (peek_bits(&reader, 1)) block[0] |= 1 << Al;
                drop_bits(&reader, 1);
            }
        }
    }
    scan->reader = reader;
    return finish_mcu(jpeg, scan, is_valid && reader.at <= scan->end + sizeof reader.word);
}

// Replace the entropy decoder of a progressive scan that the library has started.
static void start_scan(struct jpeg_decompress_struct *jpeg) {
    struct scan *scan = jpeg->client_data;
    int is_valid = unstuff_bytes(jpeg->src, scan);
    for (int i = 0; i < jpeg->comps_in_scan && is_valid; ++i) {
        const int dc = jpeg->cur_comp_info[i]->dc_tbl_no, ac = jpeg->cur_comp_info[i]->ac_tbl_no;
        if (jpeg->Ss) is_valid = make_derived_tbl(&scan->ac_tables[ac], jpeg->ac_huff_tbl_ptrs[ac], 0, 0);
        else if (!jpeg->Ah) is_valid = make_derived_tbl(&scan->dc_tables[dc], jpeg->dc_huff_tbl_ptrs[dc], 1, 0);
    }
    if (!is_valid) jpeg->err->error_exit(jpeg);
    scan->mcus_decoded = scan->next_restart_num = scan->end_of_band_run = 0;
    jpeg->entropy->decode_mcu = decode_progressive_mcu;
}

static void start_next_scan(struct jpeg_decompress_struct *jpeg) {
    ((struct scan *)jpeg->client_data)->library_start_pass(jpeg);
    start_scan(jpeg);
}

void watch_scans(struct jpeg_decompress_struct *jpeg) {
    if (!jpeg->progressive_mode || jpeg->arith_code || jpeg->client_data) return;
    struct scan *scan = jpeg->client_data = malloc(sizeof *scan + jpeg->src->bytes_in_buffer + PADDING);
    if (!scan) jpeg->err->error_exit(jpeg);
    scan->dc_tables = tables_of_thread.dc, scan->ac_tables = tables_of_thread.ac;
    scan->library_start_pass = jpeg->entropy->start_pass;
    jpeg->entropy->start_pass = start_next_scan;
    start_scan(jpeg);
}
