// Huffman decoders that replace those of libjpeg-turbo, for sequential JPEGs with one scan and for progressive JPEGs.
#pragma once
#include "libjpeg.h"

// Replace the entropy decoder after jpeg_start_decompress has started the scan, if the JPEG is of this kind. client_data then
// points to memory that the caller frees. Corrupt or unusual data end in a call of error_exit, which does not return.
void start_huffman_pass(struct jpeg_decompress_struct *jpeg);

// The progress_monitor for progressive JPEGs. jpeg_start_decompress decodes all scans of such a JPEG. It calls the
// monitor for the first time after it has started the first scan. The monitor then replaces the entropy decoder, as
// start_huffman_pass does for sequential JPEGs.
void watch_scans(struct jpeg_decompress_struct *jpeg);
