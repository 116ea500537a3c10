// Reads the structure of JPEGs (see engine/decoders/structure.py), from byte FF to byte FF with memchr.
#include <string.h>

#include "arguments.h"

enum { RESTART_0 = 0xD0, END_OF_IMAGE = 0xD9, START_OF_SCAN = 0xDA, TABLE = 0xDB, RESTART_INTERVAL = 0xDD, COMMENT = 0xFE };

static int is_frame(int marker) { return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC; }

static int is_kept(int marker) {
    return is_frame(marker) || marker == 0xE0 || marker == 0xE1 || marker == 0xEE || marker == START_OF_SCAN;
}

static int is_plain(int marker) {
    return (marker >= 0xC0 && marker <= 0xC2) || marker == 0xC4 || marker == START_OF_SCAN || marker == TABLE ||
           marker == RESTART_INTERVAL || (marker >= 0xE0 && marker <= 0xEF) || marker == COMMENT;
}

static int two_bytes(const uint8_t *at) { return at[0] << 8 | at[1]; }

// The first marker after the data of a scan, or the file's size. Restart markers in the right order belong to the data.
static int64_t end_of_scan(const struct jpeg *jpeg, int64_t at, int64_t interval, int64_t *restarts) {
    for (int turn = 0; at < jpeg->size;) {
        const uint8_t *found = memchr(jpeg->data + at, 0xFF, jpeg->size - at);
        if (!found) break;
        at = found - jpeg->data;
        if (at + 1 == jpeg->size) break;
        int marker = found[1];
        if (marker == 0xFF) {
            at += 1;
        } else if (marker == 0) {
            at += 2;
        } else if (interval && marker == RESTART_0 + turn) {
            at += 2;
            turn = (turn + 1) % 8;
            ++*restarts;
        } else {
            return at;
        }
    }
    return jpeg->size;
}

static void walk(struct jpeg *jpeg) {
    const uint8_t *data = jpeg->data;
    int64_t interval = 0, frames = 0, total = 0, later = 0, at = 2;
    jpeg->is_complete = jpeg->segment_count = jpeg->scans = jpeg->restart_interval = jpeg->restart_markers = 0;
    for (;;) {
        while (at + 1 < jpeg->size && data[at] == 0xFF && data[at + 1] == 0xFF) ++at;
        if (at + 2 > jpeg->size || data[at] != 0xFF) return;
        int marker = data[at + 1];
        if (marker == END_OF_IMAGE) break;
        if (!is_plain(marker) || at + 4 > jpeg->size) return;
        int64_t begin = at + 2, length = two_bytes(data + begin);
        if (length < 2 || begin + length > jpeg->size || ++total > MAX_SEGMENTS) return;
        if (is_kept(marker) && !jpeg->scans) {
            if (jpeg->segment_count == MAX_KEPT) return;
            jpeg->segments[jpeg->segment_count++] = marker | begin << 8;
        }
        frames += is_frame(marker);
        if (marker == RESTART_INTERVAL) {
            if (length != 4) return;
            interval = two_bytes(data + begin + 2);
        }
        at = begin + length;
        if (marker != START_OF_SCAN) continue;
        if (++jpeg->scans == 1) jpeg->restart_interval = interval;
        at = end_of_scan(jpeg, at, interval, jpeg->scans == 1 ? &jpeg->restart_markers : &later);
    }
    jpeg->is_complete = jpeg->scans && frames == 1;
}

KERNEL void walk_jpegs(struct jpeg *images, int64_t count) {
    for (int64_t i = 0; i < count; ++i) walk(images + i);
}
