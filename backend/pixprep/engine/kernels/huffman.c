// Huffman codes of a JPEG: see huffman.h. A look-up gives two symbols with their values. No byte is tested for being a
// marker, because the data are copied up to the next one, without the zeros behind bytes of 255.
#include "huffman.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKED_UP = 10 };             // bits: larger tables leave the first cache
enum { LONG = 1 << 7, LAST = 128 };  // code and value have more bits; places that the symbol skips which ends a block
enum { BEHIND = 512 };               // zeros behind the data: a block reads 480 bytes at most

// The codes of one kind.
struct codes {
    const uint8_t *symbols;
    int32_t end[17];    // of each length: the number behind its last code
    int32_t apart[17];  // from a code to the place of its symbol
    // By the next bits, from the lowest bit: length 8, places 8, value 16. If LONG: length of the code or 0, and symbol.
    uint32_t alone[1 << LOOKED_UP];
    // The same of two symbols, with the first one's value; then the places before it 8, its length 8, the other's value 16.
    uint64_t pairs[1 << LOOKED_UP];
};

struct reader {
    uint64_t word;      // the next bits, from the top
    int64_t bits;       // how many of them are before `at`
    const uint8_t *at;
};

struct scan {
    struct codes means[4], others[4];
    struct reader reader;
    const uint8_t *end;
    int32_t levels[4];      // of the means
    int64_t units, number;  // that were decoded; of restarts
    uint8_t data[];
};

// The library's order; a place behind the block is the last one.
static const uint8_t PLACES[256] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    [BLOCK ... 255] = BLOCK - 1,
};

static inline int value_of(int bits, int size) { return size && !(bits >> (size - 1)) ? bits - (1 << size) + 1 : bits; }
static inline int skipped(int symbol) { return symbol & 15 || symbol == 0xF0 ? symbol >> 4 : LAST; }

// Fill the look-ups; 0: there are no such codes.
static int fill(struct codes *codes, const struct jpeg_codes *from, int is_mean) {
    int code = 0, count = 0;
    codes->symbols = from->symbols;
    for (int i = 0; i < 1 << LOOKED_UP; ++i) codes->alone[i] = LONG;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        codes->apart[length] = count - code;
        for (int i = 0; i < from->counts[length]; ++i, ++code, ++count) {
            if (count > 255 || code >> length) return 0;
            const int symbol = from->symbols[count], size = is_mean ? symbol : symbol & 15, free = LOOKED_UP - length;
            if (size > 15) return 0;
            const uint32_t entry = (length + size) | (skipped(symbol) + 1) << 8, is_long = LONG | length << 8 | symbol << 16;
            for (int rest = 0; free >= 0 && rest < 1 << free; ++rest)
                codes->alone[code << free | rest] =
                    size > free ? is_long : entry | (uint32_t)value_of(rest >> (free - size), size) << 16;
        }
        codes->end[length] = code;
    }
    for (int i = 0; i < 1 << LOOKED_UP && !is_mean; ++i) {
        const uint32_t first = codes->alone[i], second = codes->alone[i << (first & 63) & ((1 << LOOKED_UP) - 1)];
        const uint64_t length = first & 63, skip = (first >> 8 & 255) - 1;
        codes->pairs[i] = first;
        if (first & LONG) continue;
        codes->pairs[i] |= length << 40 | (skip == LAST ? 0 : skip << 32);
        if (skip != LAST && !(second & LONG) && length + (second & 63) <= LOOKED_UP)
            codes->pairs[i] += (second & 0xffff) | (uint64_t)(second >> 16) << 48;
    }
    return 1;
}

// The bytes up to the next marker; 0: there is none.
static int copy_data(struct jpeg_source *source, struct scan *scan) {
    const uint8_t *from = source->next, *end = from + source->left, *mark;
    uint8_t *to = scan->data;
    for (;; from = mark + 2) {
        mark = memchr(from, 255, end - from);
        if (!mark || mark + 1 == end) return 0;
        memcpy(to, from, mark - from);
        to += mark - from;
        if (mark[1]) break;
        *to++ = 255;
    }
    memset(to, 0, BEHIND);
    *source = (struct jpeg_source){mark, end - mark};
    scan->reader = (struct reader){.at = scan->data};
    scan->end = to;
    memset(scan->levels, 0, sizeof scan->levels);
    return 1;
}

// True if no more than the rest of a byte is left: of more the library may warn.
static int is_read(const struct scan *scan) {
    const int64_t left = 8 * (scan->end - scan->reader.at) + scan->reader.bits;
    return left >= 0 && left < 8;
}

// Have at least 56 bits.
static inline void fill_up(struct reader *r) {
    uint64_t next;
    memcpy(&next, r->at, sizeof next);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) next = __builtin_bswap64(next);
    r->word |= next >> r->bits;
    r->at += (63 - r->bits) >> 3;
    r->bits |= 56;
}

static inline uint64_t next(const struct reader *r, int count) { return r->word >> (64 - count); }
static inline void drop(struct reader *r, int count) { r->word <<= count, r->bits -= count; }

static inline int read_value(struct reader *r, int size) {
    const int value = size ? value_of(next(r, size), size) : 0;
    drop(r, size);
    return value;
}

// The symbol of a LONG entry; -1: there is no such code.
static inline int read_symbol(struct reader *r, const struct codes *codes, uint64_t entry) {
    int length = entry >> 8 & 63, symbol = entry >> 16;
    if (!length) {
        for (length = LOOKED_UP + 1; length <= 16 && (int)next(r, length) >= codes->end[length];) ++length;
        if (length > 16) return -1;
        symbol = codes->symbols[next(r, length) + codes->apart[length]];
    }
    drop(r, length);
    return symbol;
}

// A block, which the library has set to 0. Returns whether it is one.
static inline int decode_block(struct reader *r, const struct codes *means, const struct codes *codes, int32_t *level,
                               int16_t *block) {
    fill_up(r);
    uint64_t entry = means->alone[next(r, LOOKED_UP)];
    int symbol = 0, value = (int16_t)(entry >> 16);
    if (entry & LONG) {
        if ((symbol = read_symbol(r, means, entry)) < 0) return 0;
        value = read_value(r, symbol);
    } else drop(r, entry & 63);
    block[0] = *level += value;
    if (block[0] != *level) return 0;
    int64_t place = 1, first;
    while (place < BLOCK) {
        fill_up(r);
        _Pragma("GCC unroll 3") for (int looked = 0; looked < 3 && place < BLOCK; ++looked) {
            entry = codes->pairs[next(r, LOOKED_UP)];
            if (__builtin_expect(entry & LONG, 0)) {
                if ((symbol = read_symbol(r, codes, entry)) < 0) return 0;
                place += skipped(symbol);
                block[PLACES[place++]] = read_value(r, symbol & 15);
                break;
            }
            first = place + (entry >> 32 & 255);
            place += entry >> 8 & 255;
            block[PLACES[place - 1]] = entry >> 48;  // of one symbol 0, at the place that is then the first's
            block[PLACES[first]] = entry >> 16;
            if (__builtin_expect(first >= BLOCK - 1, 0)) {  // the other one is the next block's
                drop(r, entry >> 40 & 63);
                return first == BLOCK - 1;
            }
            drop(r, entry & 63);
        }
    }
    return place == BLOCK || place > LAST;
}

// A unit of the scan; without blocks it is skipped.
static int decode_unit(struct jpeg_decompress_struct *jpeg, int16_t (**blocks)[BLOCK]) {
    struct scan *scan = jpeg->client_data;
    int16_t no_block[BLOCK];
    int is_right = 1;
    if (scan->units && jpeg->restart_interval && scan->units % jpeg->restart_interval == 0) {
        is_right = is_read(scan) && jpeg->src->next[1] == 0xD0 + scan->number++ % 8;
        jpeg->src->next += 2;
        jpeg->src->left -= 2;
        is_right = is_right && copy_data(jpeg->src, scan);
    }
    struct reader reader = scan->reader;
    for (int i = 0; i < jpeg->blocks_in_MCU && is_right; ++i) {
        const int at = jpeg->MCU_membership[i];
        const struct jpeg_component *component = jpeg->scan_components[at];
        is_right = decode_block(&reader, &scan->means[component->mean_codes], &scan->others[component->other_codes],
                                &scan->levels[at], blocks ? *blocks[i] : no_block) &&
                   reader.at <= scan->end + sizeof reader.word;
    }
    scan->reader = reader;
    const int64_t all = (int64_t)jpeg->MCUs_per_row * jpeg->MCU_rows_in_scan;
    if (!is_right || (++scan->units == all && !is_read(scan))) jpeg->err->error_exit(jpeg);
    return 1;
}

void take_scan(struct jpeg_decompress_struct *jpeg) {
    if (jpeg->progressive_mode || jpeg->arith_code || jpeg->comps_in_scan != jpeg->num_components) return;
    struct scan *scan = jpeg->client_data = malloc(sizeof *scan + jpeg->src->left + BEHIND);
    int is_right = scan && copy_data(jpeg->src, scan);
    for (int i = 0; i < jpeg->comps_in_scan && is_right; ++i) {
        const int mean = jpeg->scan_components[i]->mean_codes, other = jpeg->scan_components[i]->other_codes;
        is_right = fill(&scan->means[mean], jpeg->mean_codes[mean], 1) && fill(&scan->others[other], jpeg->other_codes[other], 0);
    }
    if (!is_right) jpeg->err->error_exit(jpeg);
    scan->units = scan->number = 0;
    jpeg->entropy->decode_unit = decode_unit;
}
