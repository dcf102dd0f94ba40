#include "cell/kv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "base/wire/little.h"
#include "cell/host_inner.h"
#include "cell/json.h"

static const uint8_t kv_magic[4] = {'C', 'K', 'V', '1'};
enum {
    KV_HEAD = 20,              /* magic, length of key and of value, digest */
    KV_NAME_SIZE = SHA256_HEX, /* name of a file */
    KV_FILE_MAX = KV_HEAD + KV_KEY_MAX + KV_VALUE_MAX,
    KV_PART_AGE_S = 600, /* a part that is older was left by a command that was killed */
};

bool kv_key_ok(struct slice key) {
    return key.len > 0 && key.len <= KV_KEY_MAX && utf8_valid(key.data, key.len);
}

static int kv_fail(enum host_code code, const char *text, const char **why) {
    *why = text;
    return code;
}

static void kv_name(struct slice key, char ret[KV_NAME_SIZE]) {
    sha256_hex(key.data, key.len, ret);
}

/* --- files --- */

struct kv_file {
    struct slice key, value;
};

/* Reads at most `max` bytes of a regular file. Returns the size of the file, or -1. */
static int64_t kv_read(int dir, const char *name, size_t max, struct buf *ret) {
    int fd DEFER_CLOSE = beneath_open_plain(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char chunk[65536];
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return fd == -ENOENT ? -ENOENT : -EIO;
    ret->len = 0;
    for (size_t at = 0; at < max;) {
        size_t left = max - at;
        ssize_t n = pread(fd, chunk, left < sizeof(chunk) ? left : sizeof(chunk), (off_t)at);
        if (n < 0 || (n > 0 && !buf_add(ret, chunk, (size_t)n)))
            return -EIO;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    return st.st_size;
}

/* Checks the head of a file of which at least the key was read; `size` is that of the file. */
static bool kv_head(const struct buf *b, uint64_t size, uint64_t *ret_digest, struct kv_file *ret) {
    const uint8_t *p = (const uint8_t *)b->data;
    if (b->len < KV_HEAD || memcmp(p, kv_magic, sizeof(kv_magic)) != 0)
        return false;
    uint64_t key = little_get(p + 4, 4), value = little_get(p + 8, 4);
    if (key > KV_KEY_MAX || value > KV_VALUE_MAX || key > b->len - KV_HEAD ||
        size != KV_HEAD + key + value)
        return false;
    *ret_digest = little_get(p + 12, 8);
    *ret = (struct kv_file){.key = {p + KV_HEAD, key}, .value = {p + KV_HEAD + key, value}};
    return kv_key_ok(ret->key);
}

int kv_get(int dir, struct slice key, struct buf *ret, const char **why) {
    struct buf file DEFER(buf_done) = BUF(KV_FILE_MAX + 1);
    char name[KV_NAME_SIZE];
    struct kv_file f;
    uint64_t digest;
    kv_name(key, name);
    int64_t size = kv_read(dir, name, KV_FILE_MAX + 1, &file);
    if (size == -ENOENT)
        return kv_fail(HOST_NOT_FOUND, "the key does not exist", why);
    if (size < 0)
        return kv_fail(HOST_FAILED, "cannot read the file of the key", why);
    if (!kv_head(&file, file.len, &digest, &f) || f.key.len != key.len ||
        memcmp(f.key.data, key.data, key.len) != 0 ||
        digest != cell_digest(f.key.data, f.key.len + f.value.len))
        return kv_fail(HOST_FAILED, "the file of the key is damaged", why);
    return f.value.len && !buf_add(ret, f.value.data, f.value.len)
               ? kv_fail(HOST_LIMIT, "cannot read the value: out of memory", why)
               : 0;
}

int kv_delete(int dir, struct slice key, const char **why) {
    char name[KV_NAME_SIZE];
    kv_name(key, name);
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    return errno == ENOENT ? kv_fail(HOST_NOT_FOUND, "the key does not exist", why)
                           : kv_fail(HOST_FAILED, "cannot delete the file of the key", why);
}

/* --- the directory --- */

/* Calls `each` for every name; stops if it returns false. False: the directory cannot be read. */
static bool kv_each(int dir, bool (*each)(void *ctx, int dir, const char *name), void *ctx) {
    char entries[32768] __attribute__((aligned(8)));
    if (lseek(dir, 0, SEEK_SET) < 0)
        return false;
    for (;;) {
        long n = syscall(SYS_getdents64, dir, entries, sizeof(entries));
        if (n <= 0)
            return n == 0;
        for (long at = 0; at < n;) {
            uint16_t size;
            memcpy(&size, entries + at + 16, sizeof(size));
            const char *name = entries + at + 19; /* after number, position, size and type */
            if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !each(ctx, dir, name))
                return true;
            at += size;
        }
    }
}

struct kv_count {
    const char *replaced; /* name of the file that is about to be replaced */
    uint64_t bytes, files, now_s;
};

static bool kv_is_part(const char *name) {
    return name[0] == 'p';
}

static bool kv_add_file(void *ctx, int dir, const char *name) {
    struct kv_count *c = ctx;
    struct stat st;
    if (strcmp(name, c->replaced) == 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    if (kv_is_part(name) && (uint64_t)st.st_mtime + KV_PART_AGE_S < c->now_s &&
        unlinkat(dir, name, 0) == 0)
        return true;
    c->files++;
    c->bytes += (uint64_t)st.st_size;
    return c->files <= KV_KEYS_MAX && c->bytes <= KV_BYTES_MAX;
}

static int kv_check_quota(struct link *l, int dir, const char *name, size_t size,
                          const char **why) {
    struct kv_count c = {.replaced = name, .now_s = link_clock_ns(l) / 1000000000};
    if (!kv_each(dir, kv_add_file, &c))
        return kv_fail(HOST_FAILED, "cannot read the directory of the keys", why);
    if (c.files >= KV_KEYS_MAX)
        return kv_fail(HOST_LIMIT, "there are 1024 keys already", why);
    if (c.bytes + size > KV_BYTES_MAX)
        return kv_fail(HOST_LIMIT, "all keys and values may have 16 MiB together", why);
    return 0;
}

static bool kv_write(int fd, const struct buf *file) {
    for (size_t at = 0; at < file->len;) {
        ssize_t n = pwrite(fd, file->data + at, file->len - at, (off_t)at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Writes the file under another name, and then gives it its own. */
static int kv_replace(struct link *l, int dir, const char *name, const struct buf *file,
                      const char **why) {
    uint8_t random[8];
    char part[2 * sizeof(random) + 2] = "p";
    link_random(l, random, sizeof(random));
    hex_put(random, sizeof(random), part + 1);
    int fd DEFER_CLOSE =
        beneath_create(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return kv_fail(HOST_FAILED, "cannot make the file of the key", why);
    /* By its number, because renameat2() of the C library may make another system call. */
    if (kv_write(fd, file) && syscall(SYS_renameat2, dir, part, dir, name, 0) == 0)
        return 0;
    unlinkat(dir, part, 0);
    return kv_fail(HOST_LIMIT, "cannot write the file of the key: the disk may be full", why);
}

int kv_put(struct link *l, int dir, struct slice key, struct slice value, const char **why) {
    struct buf file DEFER(buf_done) = BUF(KV_FILE_MAX);
    uint8_t head[KV_HEAD];
    char name[KV_NAME_SIZE];
    kv_name(key, name);
    memcpy(head, kv_magic, sizeof(kv_magic));
    little_put(head + 4, key.len, 4);
    little_put(head + 8, value.len, 4);
    if (value.len > KV_VALUE_MAX || !buf_add(&file, head, sizeof(head)) ||
        !buf_add(&file, key.data, key.len) || (value.len && !buf_add(&file, value.data, value.len)))
        return kv_fail(HOST_LIMIT, "a value has at most 1 MiB", why);
    little_put((uint8_t *)file.data + 12, cell_digest(file.data + KV_HEAD, key.len + value.len), 8);
    int code = kv_check_quota(l, dir, name, file.len, why);
    return code ? code : kv_replace(l, dir, name, &file, why);
}

/* --- the list of keys --- */

struct kv_key {
    uint8_t bytes[KV_KEY_MAX];
    size_t len;
};

struct kv_keys {
    struct slice prefix;
    struct kv_key *list;
    uint32_t count, files;
    struct buf file;
};

/* Files that are not of a key are left out. */
static bool kv_add_key(void *ctx, int dir, const char *name) {
    struct kv_keys *k = ctx;
    struct kv_file f;
    uint64_t digest;
    char own[KV_NAME_SIZE];
    if (++k->files > 2 * KV_KEYS_MAX || k->count == KV_KEYS_MAX)
        return false;
    int64_t size = kv_read(dir, name, KV_HEAD + KV_KEY_MAX, &k->file);
    if (size < 0 || !kv_head(&k->file, (uint64_t)size, &digest, &f))
        return true;
    kv_name(f.key, own);
    if (strcmp(own, name) != 0 || f.key.len < k->prefix.len ||
        memcmp(f.key.data, k->prefix.data, k->prefix.len) != 0)
        return true;
    memcpy(k->list[k->count].bytes, f.key.data, f.key.len);
    k->list[k->count++].len = f.key.len;
    return true;
}

static int kv_compare(const void *a, const void *b) {
    const struct kv_key *x = a, *y = b;
    int r = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

int kv_list(int dir, struct slice prefix, struct buf *ret, uint32_t *ret_files, const char **why) {
    struct kv_keys k = {.prefix = prefix, .file = BUF(KV_HEAD + KV_KEY_MAX)};
    k.list = calloc(KV_KEYS_MAX, sizeof(*k.list));
    bool ok = k.list && kv_each(dir, kv_add_key, &k);
    if (ok)
        heap_sort(k.list, k.count, sizeof(*k.list), kv_compare);
    ok = ok && buf_addf(ret, "[");
    for (uint32_t i = 0; ok && i < k.count; i++)
        ok = buf_addf(ret, "%s", i ? "," : "") &&
             json_string(ret, (const char *)k.list[i].bytes, k.list[i].len);
    ok = ok && buf_addf(ret, "]");
    *ret_files = k.files;
    free(k.list);
    buf_done(&k.file);
    return ok ? 0 : kv_fail(HOST_LIMIT, "the list of keys is larger than 1 MiB", why);
}
