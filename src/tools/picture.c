#include "tools/picture.h"

#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/base64.h"

bool picture_is_png(const char *base64, size_t max) {
    static const char magic[] = "\x89PNG\r\n\x1a\n";
    size_t n = strlen(base64), len = 0;
    if (!n || n > BASE64_SIZE(max))
        return false;
    char *bytes DEFER_FREE = xmalloc(n / 4 * 3 + 1);
    return base64_decode(base64, n, bytes, &len) && len > 8 && memcmp(bytes, magic, 8) == 0;
}
