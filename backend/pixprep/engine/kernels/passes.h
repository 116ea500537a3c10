// Passes of a resize, as plan/profiles/windows.py writes them: each product and sum in its order.
#pragma once
#include "arguments.h"

// The windows of the columns; `first`: the number of each one's first position among those that are read; `away`: of `ties`.
struct horizontal_pass {
    const struct coefficients *coefficients;
    const int32_t *first;
    int64_t is_mirrored;
    const uint8_t *away;
};

// One window after the other of a block of levels, or of a block's lines, to the lines of the result. A block is some rows
// side by side: 16 values of a column, 4 rows of 4 channels or 16 of gray, and then those of the next column.
typedef void across(const struct horizontal_pass *w, const char *block, char *const *to);
typedef void beside(const struct horizontal_pass *w, const char *const *lines, const int32_t *places, char *const *to);

// Applies one window to lines. Each line has `length` values, at least 16. `factor` is used by area, `away` by DALI.
typedef void down(const struct coefficients *w, int64_t window, const char *const *lines, int64_t length, char *to, float factor,
                  const uint8_t *away);

// Both passes of an arithmetic, first of gray, then of 4 channels; and where it has the other order, those.
struct both {
    across *across[2];
    down *down;
    int64_t size;      // bytes of a value between the passes
    down *down_first;
    beside *beside[2];
};

struct both passes_of(enum passes passes, int64_t row_bits, int64_t column_bits);
