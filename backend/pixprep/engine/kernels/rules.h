// Windows as libraries make them that are not cut from a curve: rules.c; windows.c asks for them.
#pragma once
#include "arguments.h"

#define IDENTITY_BITS 22  // of the weight 1 of an axis that keeps its length

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int is_rule(const struct formula *formula) { return formula->curve >= OPENCV_LINEAR; }

int find_ties(const struct ties *ties);

// The maximum number of taps of a window.
int64_t max_taps_by_rule(const struct formula *formula, const struct axis *axis);

// The windows of an axis: weights are int32 of OpenCV's in integers, else float32.
void fill_windows_by_rule(const struct formula *formula, const struct axis *axis, struct windows *windows);
