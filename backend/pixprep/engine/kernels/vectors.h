// Vectors of 16 values, which the passes of resizes work on.
#pragma once
#include <stdint.h>
#include <string.h>

#define LANES 16
#include "formulas.h"

#define UNROLL _Pragma("GCC unroll 4")

typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef int16_t shorts __attribute__((vector_size(2 * LANES)));

// Narrower and wider by one step at a time: of a conversion in one, GCC 12 makes 16.
INLINE shorts to_shorts(bytes levels) { return __builtin_convertvector(levels, shorts); }
INLINE bytes to_bytes(vint levels) {
#ifdef __clang__
    return __builtin_convertvector(levels, bytes);
#else
    return __builtin_convertvector(__builtin_convertvector(levels, shorts), bytes);
#endif
}

INLINE vint load_uint8(const void *from) {
    bytes levels;
    memcpy(&levels, from, sizeof levels);
#ifdef __clang__
    return __builtin_convertvector(levels, vint);
#else
    return __builtin_convertvector(to_shorts(levels), vint);
#endif
}

// clip8 of integers; a comparison gives all bits, or none
INLINE vint clip_uint8(vint total) {
    total &= total >= 0;
    return (total & (total < 255)) | (255 & (total >= 255));
}

// clip8((half + total) >> bits)
INLINE bytes round_shift(vint total, int bits) { return to_bytes(clip_uint8((total + (1 << (bits - 1))) >> bits)); }
