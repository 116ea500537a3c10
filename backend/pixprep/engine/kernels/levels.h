// Converts pixel values to tensor values: see levels.c. resize.c also uses it, as its last step.
#pragma once
#include "arguments.h"

void look_up(const struct values *values);
void look_up_bytes(const struct values *values);  // bytes.c
