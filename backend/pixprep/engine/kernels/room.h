// An arena (bump allocator) for intermediate results.
#pragma once
#include <stdint.h>

// A first run without memory measures the size; a second run returns the same offsets. Sizes are multiples of 64 bytes.
struct room {
    uint8_t *memory;
    int64_t used;
};

static inline void *take(struct room *room, int64_t n_bytes) {
    int64_t at = room->used;
    room->used += (n_bytes + 63) & -64;
    return room->memory ? room->memory + at : 0;
}
