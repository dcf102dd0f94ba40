/*
 * Property: output has the same effect however it is cut, and all that is written are modes of the
 * table: no byte of the output is repeated. A key has a length within the input.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "cli/text/modes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_written(const struct buf *b) {
    const char *title = strstr(b->data, MODES_TITLE);
    assert(b->len < MODES_WRITTEN_MAX);
    for (size_t i = 0; i < b->len; i++)
        if (!title || b->data + i < title || b->data + i >= title + strlen(MODES_TITLE))
            assert(strchr("\x1b\x18\x0f\\[]?<>=;()$}~\"0123456789hilmqrstuBHJRW", b->data[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct modes whole = {0}, cut = {0};
    struct buf away DEFER(buf_done) = BUF(MODES_WRITTEN_MAX),
                    back DEFER(buf_done) = BUF(MODES_WRITTEN_MAX),
                    first DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    modes_feed(&whole, (const char *)data, size);
    for (size_t i = 0; i < size; i++)
        modes_feed(&cut, (const char *)data + i, 1);
    assert(whole.state == cut.state && whole.changed == cut.changed &&
           whole.other_keys == cut.other_keys && whole.keypad == cut.keypad &&
           memcmp(whole.rows, cut.rows, sizeof(cut.rows)) == 0 &&
           memcmp(whole.columns, cut.columns, sizeof(cut.columns)) == 0);
    modes_put_away(&whole, &away);
    modes_put_back(&whole, &back);
    modes_put_first(&whole, &first);
    check_written(&first);
    check_written(&away);
    check_written(&back);
    for (size_t i = 0, len; i < size; i += len) {
        modes_key_read((const char *)data + i, size - i, ']', &len);
        assert(len > 0 && len <= size - i);
    }
    return 0;
}
