/*
 * carrel.1.kv: keys and values (cell/kv.h) in the directory of --kv, or in a machine in /.kv.
 *
 * In a replay nothing is read or written: the log has the answers.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "cell/host_inner.h"
#include "cell/kv.h"

#define KV_MACHINE_DIR ".kv"
enum { KV_LIST_FUEL = 1000 }; /* for each file that kv.list looks at */

/* Returns a descriptor, or -errno. `makes`: a directory that does not exist is made. */
static int kv_open(const struct session *s, bool makes) {
    const struct cell_options *o = s->job->options;
    if (!o->in_machine)
        return beneath_open_plain(s->link->dirs[o->dir_count], ".", O_RDONLY | O_DIRECTORY);
    int root = s->link->dirs[0];
    int fd = beneath_open_plain(root, KV_MACHINE_DIR, O_RDONLY | O_DIRECTORY);
    if (fd != -ENOENT || !makes || mkdirat(root, KV_MACHINE_DIR, S_IRWXU) < 0)
        return fd;
    return beneath_open_plain(root, KV_MACHINE_DIR, O_RDONLY | O_DIRECTORY);
}

/* Takes the bytes at two arguments, and adds them to the digest for the log. */
static bool kv_take(struct session *s, struct pending *p, int at, struct slice *ret) {
    uint32_t len = host_arg(p, at + 1);
    const uint8_t *bytes = host_guest_bytes(s, p, host_arg(p, at), len);
    if (!bytes)
        return false;
    *ret = (struct slice){.data = bytes, .len = len};
    p->call.taken = (p->call.taken << 1) ^ cell_digest(bytes, len);
    return true;
}

/* Takes the key. False: the call is over, with a trap, a failure, or the answer of the log. */
static bool kv_begin(struct session *s, struct pending *p, struct slice *ret_key) {
    if (!kv_take(s, p, 0, ret_key) || s->replay)
        return false;
    if (kv_key_ok(*ret_key))
        return true;
    host_put_failure(p, host_fuel_of(s, ret_key->len), HOST_INVALID,
                     "a key has 1 to 256 bytes of UTF-8");
    return false;
}

/* What a missing or strange directory means. */
static void kv_no_directory(struct pending *p, int error) {
    if (error == -ENOENT)
        host_put_failure(p, 0, HOST_NOT_FOUND, "the key does not exist");
    else
        host_put_failure(p, 0, HOST_FAILED, "cannot open the directory of the keys");
}

void host_do_kv_get(struct session *s, struct pending *p) {
    struct buf value DEFER(buf_done) = BUF(KV_VALUE_MAX);
    const char *why = "";
    struct slice key;
    if (!kv_begin(s, p, &key))
        return;
    int dir DEFER_CLOSE = kv_open(s, false);
    if (dir < 0) {
        kv_no_directory(p, dir);
        return;
    }
    int code = kv_get(dir, key, &value, &why);
    if (code)
        host_put_failure(p, 0, (enum host_code)code, why);
    else
        host_put_answer(p, host_fuel_of(s, value.len), value.data, value.len);
}

void host_do_kv_put(struct session *s, struct pending *p) {
    const char *why = "";
    struct slice key, value;
    bool is_new = kv_begin(s, p, &key); /* the value is taken in any case, for the log */
    if (p->trap || !kv_take(s, p, 2, &value) || !is_new)
        return;
    int dir DEFER_CLOSE = kv_open(s, true);
    int code = dir < 0 ? 0 : kv_put(s->link, dir, key, value, &why);
    if (dir < 0)
        host_put_failure(p, 0, HOST_FAILED, "cannot open the directory of the keys");
    else if (code)
        host_put_failure(p, 0, (enum host_code)code, why);
    else
        host_put_answer(p, 0, "", 0);
}

void host_do_kv_delete(struct session *s, struct pending *p) {
    const char *why = "";
    struct slice key;
    if (!kv_begin(s, p, &key))
        return;
    int dir DEFER_CLOSE = kv_open(s, false);
    if (dir < 0) {
        kv_no_directory(p, dir);
        return;
    }
    int code = kv_delete(dir, key, &why);
    if (code)
        host_put_failure(p, 0, (enum host_code)code, why);
    else
        host_put_answer(p, 0, "", 0);
}

void host_do_kv_list(struct session *s, struct pending *p) {
    struct buf list DEFER(buf_done) = BUF(HOST_TRANSFER_MAX);
    const char *why = "";
    struct slice prefix;
    uint32_t files = 0;
    if (!kv_take(s, p, 0, &prefix) || s->replay)
        return;
    if (wasm_fuel_left(s->store) < 2 * (uint64_t)KV_KEYS_MAX * KV_LIST_FUEL) {
        host_put_failure(p, 0, HOST_LIMIT, "a list of keys needs up to 2,048,000 fuel");
        return;
    }
    int dir DEFER_CLOSE = kv_open(s, false);
    int code = dir < 0 ? 0 : kv_list(dir, prefix, &list, &files, &why);
    uint64_t fuel = (uint64_t)files * KV_LIST_FUEL;
    if (dir == -ENOENT)
        host_put_answer(p, 0, "[]", 2);
    else if (dir < 0)
        kv_no_directory(p, dir);
    else if (code)
        host_put_failure(p, fuel, (enum host_code)code, why);
    else
        host_put_answer(p, fuel, list.data, list.len);
}
