// Memory for what is made on the way, in one piece.
#pragma once
#include <stdint.h>

// First without memory, to be measured; then each part lies where it lay. Every part is a multiple of 64 bytes.
struct room {
    uint8_t *memory;
    int64_t used;
};

static inline void *take(struct room *room, int64_t n_bytes) {
    int64_t at = room->used;
    room->used += (n_bytes + 63) & -64;
    return room->memory ? room->memory + at : 0;
}
