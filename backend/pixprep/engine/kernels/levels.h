// Values of levels: levels.c; resize.c ends with them, too.
#pragma once
#include "arguments.h"

void look_up(const struct values *values);
void look_up_bytes(const struct values *values);  // bytes.c
