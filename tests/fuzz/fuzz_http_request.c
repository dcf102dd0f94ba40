/*
 * Any bytes as a stream of requests: however they are cut the result is the same, and a head that
 * was understood, written again, is understood the same way.
 */
#include "http_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return http_stream_check(HTTP_REQUEST, data, size);
}
