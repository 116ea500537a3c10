// Filter coefficients with the arithmetic of a specific library (OpenCV, PyTorch, DALI, TensorFlow). coefficients.c calls
// these functions.
#pragma once
#include "arguments.h"

#define IDENTITY_BITS 22  // fractional bits of the weight 1.0, the only tap of an axis that is not resized

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int is_library_filter(const struct resize_filter *filter) { return filter->type >= FILTER_OPENCV_LINEAR; }

int find_ties(const struct ties *ties);

// Return the maximum number of taps of an output position.
int64_t max_library_taps(const struct resize_filter *filter, const struct axis *axis);

// Compute the coefficients of an axis. The weights are int32 for OpenCV's integer arithmetic, and float32 in all other cases.
void compute_library_coefficients(const struct resize_filter *filter, const struct axis *axis,
                                  struct coefficients *coefficients);
