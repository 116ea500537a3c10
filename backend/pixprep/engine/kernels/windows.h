// Windows, and what makes them: windows.c; fill.c and resize.c make some, too.
#pragma once
#include "rules.h"

// The maximum number of taps of a window.
int64_t max_taps(const struct formula *formula, const struct axis *axis);

// The windows of an axis, of which something is wanted. `weights`: room for `max_taps` float64, and at least 4.
void fill_windows(const struct formula *formula, const struct axis *axis, struct windows *windows, double *weights);
