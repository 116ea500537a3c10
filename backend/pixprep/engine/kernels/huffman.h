// Huffman codes of a sequential JPEG in one scan, decoded in place of the library's loop.
#pragma once
#include "libjpeg.h"

// Take over the scan that the library has started, if it is of this kind. client_data is then memory that the caller frees.
// At anything odd, as at damage, error_exit is called, which does not come back.
void take_scan(struct jpeg_decompress_struct *jpeg);
