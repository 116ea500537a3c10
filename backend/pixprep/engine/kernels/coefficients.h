// Computes the filter coefficients of an axis. resize.c and gpu/fill.c call these functions.
#pragma once
#include "library_filters.h"

// Return the maximum number of taps of an output position.
int64_t max_taps(const struct resize_filter *filter, const struct axis *axis);

// Compute the coefficients of an axis with a non-empty range. `weights` is scratch memory for `max_taps` float64 values, and
// for at least 4.
void compute_coefficients(const struct resize_filter *filter, const struct axis *axis, struct coefficients *coefficients,
                          double *weights);
