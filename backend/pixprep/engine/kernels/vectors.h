// Vectors of 16 values for the C kernels.
#pragma once
#include <stdint.h>
#include <string.h>

#define LANES 16
#include "formulas.h"

#define UNROLL _Pragma("GCC unroll 4")

typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef int16_t shorts __attribute__((vector_size(2 * LANES)));

// Conversions between 8 and 32 bits have an intermediate step of 16 bits, because GCC 12 converts in a single step lane by lane.
INLINE shorts to_shorts(bytes values) { return __builtin_convertvector(values, shorts); }
INLINE bytes to_bytes(vint values) {
#ifdef __clang__
    return __builtin_convertvector(values, bytes);
#else
    return __builtin_convertvector(__builtin_convertvector(values, shorts), bytes);
#endif
}

INLINE vint load_uint8(const void *from) {
    bytes values;
    memcpy(&values, from, sizeof values);
#ifdef __clang__
    return __builtin_convertvector(values, vint);
#else
    return __builtin_convertvector(to_shorts(values), vint);
#endif
}

// Clip integers to 0 to 255. A comparison sets all bits of a lane, or none.
INLINE vint clip_uint8(vint total) {
    total &= total >= 0;
    return (total & (total < 255)) | (255 & (total >= 255));
}

// Return clip8((half + total) >> bits), where `half` is half of the divisor.
INLINE bytes shift_to_uint8(vint total, int bits) { return to_bytes(clip_uint8((total + (1 << (bits - 1))) >> bits)); }
