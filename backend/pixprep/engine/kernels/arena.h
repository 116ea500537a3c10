// An arena (bump allocator) for intermediate results.
#pragma once
#include <stdint.h>

// A function runs its allocations twice. The first run has no memory and measures the size; the second run returns addresses at
// the same offsets. Each allocation is rounded up to a multiple of 64 bytes.
struct arena {
    uint8_t *memory;
    int64_t used;
};

static inline void *arena_alloc(struct arena *arena, int64_t n_bytes) {
    int64_t offset = arena->used;
    arena->used += (n_bytes + 63) & -64;
    return arena->memory ? arena->memory + offset : 0;
}
