// Huffman decoding of a sequential JPEG with one scan, which replaces the library's own loop.
#pragma once
#include "libjpeg.h"

// Replace the entropy decoder after jpeg_start_decompress has started the scan, if the JPEG is of this kind. client_data then
// points to memory that the caller frees. Corrupt or unusual data end in a call of error_exit, which does not return.
void start_huffman_pass(struct jpeg_decompress_struct *jpeg);
