// Reads the structure of JPEGs: see engine/decoders/structure.py. memchr finds the next FF byte.
#include <string.h>

#include "arguments.h"

enum { RST0 = 0xD0, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD, COM = 0xFE };

static int is_sof(int marker) { return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC; }

static int is_returned(int marker) {
    return is_sof(marker) || marker == 0xE0 || marker == 0xE1 || marker == 0xEE || marker == SOS;
}

static int is_supported(int marker) {
    return (marker >= 0xC0 && marker <= 0xC2) || marker == 0xC4 || marker == SOS || marker == DQT || marker == DRI ||
           (marker >= 0xE0 && marker <= 0xEF) || marker == COM;
}

static int read_uint16(const uint8_t *at) { return at[0] << 8 | at[1]; }

// Return the offset of the first marker after the entropy-coded data of a scan, or the size of the file. Restart markers in the right
// order belong to the data.
static int64_t end_of_scan(const struct jpeg *jpeg, int64_t at, int64_t interval, int64_t *restarts) {
    for (int next_restart_num = 0; at < jpeg->size;) {
        const uint8_t *next = memchr(jpeg->data + at, 0xFF, jpeg->size - at);
        if (!next) break;
        at = next - jpeg->data;
        if (at + 1 == jpeg->size) break;
        int marker = next[1];
        if (marker == 0xFF) {
            at += 1;
        } else if (marker == 0) {
            at += 2;
        } else if (interval && marker == RST0 + next_restart_num) {
            at += 2;
            next_restart_num = (next_restart_num + 1) % 8;
            ++*restarts;
        } else {
            return at;
        }
    }
    return jpeg->size;
}

static void read_structure(struct jpeg *jpeg) {
    const uint8_t *data = jpeg->data;
    int64_t interval = 0, frame_count = 0, segment_total = 0, ignored = 0, at = 2;
    jpeg->is_complete = jpeg->segment_count = jpeg->scans = jpeg->restart_interval = jpeg->restart_markers = 0;
    for (;;) {
        while (at + 1 < jpeg->size && data[at] == 0xFF && data[at + 1] == 0xFF) ++at;
        if (at + 2 > jpeg->size || data[at] != 0xFF) return;
        int marker = data[at + 1];
        if (marker == EOI) break;
        if (!is_supported(marker) || at + 4 > jpeg->size) return;
        int64_t begin = at + 2, length = read_uint16(data + begin);
        if (length < 2 || begin + length > jpeg->size || ++segment_total > MAX_SEGMENTS) return;
        if (is_returned(marker) && !jpeg->scans) {
            if (jpeg->segment_count == MAX_KEPT) return;
            jpeg->segments[jpeg->segment_count++] = marker | begin << 8;
        }
        frame_count += is_sof(marker);
        if (marker == DRI) {
            if (length != 4) return;
            interval = read_uint16(data + begin + 2);
        }
        at = begin + length;
        if (marker != SOS) continue;
        if (++jpeg->scans == 1) jpeg->restart_interval = interval;
        at = end_of_scan(jpeg, at, interval, jpeg->scans == 1 ? &jpeg->restart_markers : &ignored);
    }
    jpeg->is_complete = jpeg->scans && frame_count == 1;
}

// Return whether a JPEG has more scans or segments than the limits. `at` is the offset of the length field of its first
// scan header. As in libjpeg, bytes between the segments are skipped. Restart markers and SOI do not begin a segment.
KERNEL int has_many_scans(const uint8_t *data, int64_t size, int64_t at, int64_t max_scans, int64_t max_segments) {
    int64_t scans = 1;
    for (int64_t segments = 0; segments < max_segments; ++segments) {
        at += at + 1 < size ? read_uint16(data + at) : 0;
        for (;; ++at) {
            const uint8_t *next = at < size ? memchr(data + at, 0xFF, size - at) : 0;
            if (!next || next + 1 == data + size || next[1] == EOI) return 0;
            at = next - data;
            if (next[1] > 1 && next[1] != 0xFF && (next[1] < RST0 || next[1] > SOI)) break;
        }
        at += 2;
        scans += data[at - 1] == SOS;
        if (scans > max_scans) return 1;
    }
    return 1;
}

KERNEL void walk_jpegs(struct jpeg *images, int64_t count) {
    for (int64_t i = 0; i < count; ++i) read_structure(images + i);
}
