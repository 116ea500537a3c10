// Windows, and what makes them: windows.c; fill.c and resize.c make some, too.
#pragma once
#include "rules.h"

// A position and its mirror image, without the edge itself, again and again.
static inline int64_t mirrored(int64_t position, int64_t length) {
    if (length == 1) return 0;
    while (position < 0 || position >= length) position = position < 0 ? -position : 2 * (length - 1) - position;
    return position;
}

// The most positions of a window.
int64_t most_taps(const struct formula *formula, const struct axis *axis);

// The windows of an axis, of which something is wanted. `weights`: room for `most_taps` float64, and at least 4.
void fill_windows(const struct formula *formula, const struct axis *axis, struct windows *windows, double *weights);
