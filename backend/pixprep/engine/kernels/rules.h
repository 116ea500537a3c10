// Windows of libraries that do not sample a filter kernel: see rules.c. windows.c calls these functions.
#pragma once
#include "arguments.h"

#define IDENTITY_BITS 22  // fractional bits of the weight 1 on an axis that keeps its length

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int is_rule(const struct formula *formula) { return formula->curve >= OPENCV_LINEAR; }

int find_ties(const struct ties *ties);

// The maximum number of taps of a window.
int64_t max_taps_by_rule(const struct formula *formula, const struct axis *axis);

// Computes the windows of an axis. Weights are int32 for OpenCV's integer arithmetic, else float32.
void fill_windows_by_rule(const struct formula *formula, const struct axis *axis, struct windows *windows);
