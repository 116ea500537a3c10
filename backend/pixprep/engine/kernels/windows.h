// Computes windows (filter coefficients): see windows.c. fill.c and resize.c call these functions.
#pragma once
#include "rules.h"

// The maximum number of taps of a window.
int64_t max_taps(const struct formula *formula, const struct axis *axis);

// Computes the windows of an axis with a non-empty range. `weights` has space for `max_taps` float64, and at least 4.
void fill_windows(const struct formula *formula, const struct axis *axis, struct windows *windows, double *weights);
