/*
 * Writes PNG images. It blocks for as long as the compression takes: call it on a worker thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * pixels: width * height times red, green, blue and a byte without meaning; width and height are at
 * least 1. Returns the image, which the caller must free().
 */
uint8_t *png_write(const uint8_t *pixels, unsigned width, unsigned height, size_t *ret_size);
