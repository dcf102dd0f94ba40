#include "cell/json.h"

#include <stdint.h>

#include "base/banned.h"
#include "wasm/text/wat_lex.h"

static bool put_control(struct buf *out, uint32_t c) {
    return buf_addf(out, "\\u%04x", c);
}

bool json_string(struct buf *out, const char *s, size_t n) {
    bool ok = buf_add(out, "\"", 1);
    for (size_t i = 0, used; ok && i < n; i += used) {
        uint32_t c = 0;
        used = wat_utf8(s + i, n - i, &c);
        if (used == 0) {
            used = 1;
            ok = buf_add(out, "\xef\xbf\xbd", 3);
        } else if (c == '"' || c == '\\') {
            ok = buf_addf(out, "\\%c", (char)c);
        } else if (c < 0x20 || c == 0x7f) {
            ok = put_control(out, c);
        } else {
            ok = buf_add(out, s + i, used);
        }
    }
    return ok && buf_add(out, "\"", 1);
}
