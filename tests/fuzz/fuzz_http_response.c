/* Any bytes as a stream of responses; the same properties as for requests. */
#include "http_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return http_stream_check(HTTP_RESPONSE, data, size);
}
