#include "base/tar.h"

#include <string.h>

/* The header as POSIX lays it out: offset and width of each field. */
struct field {
    uint16_t at, width;
};

static const struct field f_name = {0, 100}, f_mode = {100, 8}, f_uid = {108, 8}, f_gid = {116, 8},
                          f_size = {124, 12}, f_mtime = {136, 12}, f_sum = {148, 8},
                          f_type = {156, 1}, f_link = {157, 100}, f_magic = {257, 8},
                          f_prefix = {345, 155};

#define OCTAL_MAX(width) ((1ull << (3 * ((width)-1))) - 1)

uint32_t tar_padding(uint64_t size) {
    return (uint32_t)(-size % TAR_BLOCK);
}

/* ---- writing ---- */

static void put_octal(uint8_t *block, struct field f, uint64_t v) {
    uint8_t *at = block + f.at + f.width - 1;
    *at = '\0';
    while (at-- > block + f.at) {
        *at = (uint8_t)('0' + (v & 7));
        v >>= 3;
    }
}

static void tar_put_text(uint8_t *block, struct field f, const char *s, size_t n) {
    memcpy(block + f.at, s, n < f.width ? n : f.width);
}

static uint32_t sum_of(const uint8_t *block) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= f_sum.at && i < f_sum.at + f_sum.width ? ' ' : block[i];
    return sum;
}

/* Returns where a long path can be split into prefix and name; 0: nowhere. */
static size_t split_at(const char *path, size_t n) {
    for (size_t i = n; i-- > 1;)
        if (path[i] == '/' && i <= f_prefix.width && n - i - 1 <= f_name.width && i + 1 < n)
            return i;
    return 0;
}

static void put_header(uint8_t *block, char type, const char *path, const struct tar_entry *e) {
    size_t n = strlen(path);
    size_t cut = n > f_name.width ? split_at(path, n) : 0;
    memset(block, 0, TAR_BLOCK);
    tar_put_text(block, f_prefix, path, cut);
    tar_put_text(block, f_name, path + (cut ? cut + 1 : 0), n - (cut ? cut + 1 : 0));
    put_octal(block, f_mode, e->mode & 07777);
    put_octal(block, f_uid, e->uid & OCTAL_MAX(8));
    put_octal(block, f_gid, e->gid & OCTAL_MAX(8));
    put_octal(block, f_size, e->size <= OCTAL_MAX(12) ? e->size : 0);
    put_octal(block, f_mtime, e->mtime > 0 ? (uint64_t)e->mtime & OCTAL_MAX(12) : 0);
    block[f_type.at] = (uint8_t)type;
    tar_put_text(block, f_link, e->target, strlen(e->target));
    memcpy(block + f_magic.at,
           "ustar\0"
           "00",
           8);
    put_octal(block, (struct field){f_sum.at, 7}, sum_of(block));
    block[f_sum.at + 7] = ' ';
}

static uint8_t *tar_put_number(uint8_t *to, uint64_t v) {
    uint8_t digits[20];
    size_t n = 0;
    do {
        digits[n++] = (uint8_t)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

static size_t digits_of(size_t v) {
    size_t n = 1;
    for (; v >= 10; v /= 10)
        n++;
    return n;
}

/* Writes "LENGTH KEY=VALUE\n"; LENGTH includes its own digits. */
static uint8_t *put_record(uint8_t *to, const char *key, const void *value, size_t n) {
    size_t rest = strlen(key) + n + 3;
    size_t len = rest + digits_of(rest);
    len = rest + digits_of(len);
    to = tar_put_number(to, len);
    *to++ = ' ';
    memcpy(to, key, strlen(key));
    to += strlen(key);
    *to++ = '=';
    memcpy(to, value, n);
    to[n] = '\n';
    return to + n + 1;
}

/* Writes pax records for values that do not fit into the header; returns their end. */
static uint8_t *put_records(uint8_t *to, const struct tar_entry *e) {
    size_t n = strlen(e->path), target = strlen(e->target);
    if (n > f_name.width && !split_at(e->path, n))
        to = put_record(to, "path", e->path, n);
    if (target > f_link.width)
        to = put_record(to, "linkpath", e->target, target);
    if (e->size > OCTAL_MAX(12)) {
        uint8_t digits[20];
        to = put_record(to, "size", digits, (size_t)(tar_put_number(digits, e->size) - digits));
    }
    return to;
}

size_t tar_put(uint8_t to[TAR_HEAD_MAX], const struct tar_entry *e) {
    static const char types[] = {[TAR_FILE] = '0',
                                 [TAR_DIR] = '5',
                                 [TAR_SYMLINK] = '2',
                                 [TAR_HARDLINK] = '1',
                                 [TAR_OTHER] = '6'};
    uint8_t *data = to + TAR_BLOCK;
    size_t n = (size_t)(put_records(data, e) - data);
    size_t head = 0;
    if (n > 0) {
        put_header(to, 'x', "pax", &(struct tar_entry){.mode = 0644, .size = n});
        memset(data + n, 0, tar_padding(n));
        head = TAR_BLOCK + n + tar_padding(n);
    }
    put_header(to + head, types[e->kind], e->path, e);
    return head + TAR_BLOCK;
}

/* ---- reading ---- */

/* Reads octal digits between blanks or, if the top bit is set, big-endian bytes. */
static bool get_number(const uint8_t *block, struct field f, uint64_t *ret) {
    const uint8_t *at = block + f.at, *end = at + f.width;
    uint64_t v = 0;
    if (*at & 0x80) {
        v = *at++ & 0x7f;
        for (; at < end; v = v << 8 | *at++)
            if (v >> 55)
                return false;
        *ret = v;
        return true;
    }
    while (at < end && *at == ' ')
        at++;
    for (; at < end && *at >= '0' && *at <= '7'; at++) {
        if (v >> 60)
            return false;
        v = v << 3 | (uint64_t)(*at - '0');
    }
    *ret = v;
    return at == end || *at == ' ' || *at == '\0';
}

static bool is_zero(const uint8_t *block) {
    for (uint32_t i = 0; i < TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

/* Reads decimal digits up to another character. */
static bool get_decimal(const uint8_t **at, const uint8_t *end, uint64_t *ret) {
    const uint8_t *from = *at;
    uint64_t v = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        if (v > INT64_MAX / 10 - 1)
            return false;
        v = v * 10 + (uint64_t)(**at - '0');
    }
    *ret = v;
    return *at > from;
}

static bool tar_take_name(char to[TAR_NAME_MAX + 1], bool *ret_has, const uint8_t *s, size_t n) {
    if (n > TAR_NAME_MAX || memchr(s, '\0', n))
        return false;
    memcpy(to, s, n);
    to[n] = '\0';
    *ret_has = true;
    return true;
}

static bool key_is(const uint8_t *key, size_t n, const char *name) {
    return n == strlen(name) && memcmp(key, name, n) == 0;
}

static bool take_record(struct tar_reader *r, const uint8_t *key, size_t n, const uint8_t *value,
                        const uint8_t *end) {
    uint64_t v;
    if (key_is(key, n, "path"))
        return tar_take_name(r->path, &r->has_path, value, (size_t)(end - value));
    if (key_is(key, n, "linkpath"))
        return tar_take_name(r->target, &r->has_target, value, (size_t)(end - value));
    if (key_is(key, n, "size")) {
        r->has_size = get_decimal(&value, end, &r->size);
        return r->has_size && value == end;
    }
    if (key_is(key, n, "mtime") && get_decimal(&value, end, &v)) {
        r->has_mtime = true;
        r->mtime = (int64_t)v;
    }
    r->is_sparse = r->is_sparse || (n > 11 && memcmp(key, "GNU.sparse.", 11) == 0);
    return true;
}

static bool take_records(struct tar_reader *r) {
    const uint8_t *at = r->meta, *end = r->meta + r->meta_len;
    while (at < end) {
        const uint8_t *start = at;
        uint64_t len;
        if (!get_decimal(&at, end, &len) || at == end || *at != ' ' ||
            len > (uint64_t)(end - start) || len < (uint64_t)(at - start) + 3)
            return false;
        const uint8_t *key = at + 1, *last = start + len - 1;
        const uint8_t *equals = memchr(key, '=', (size_t)(last - key));
        if (!equals || *last != '\n' ||
            !take_record(r, key, (size_t)(equals - key), equals + 1, last))
            return false;
        at = last + 1;
    }
    return true;
}

/* Parses the contents of an extended header, which are complete. */
static bool take_meta(struct tar_reader *r) {
    size_t n = strnlen((const char *)r->meta, r->meta_len);
    switch (r->meta_type) {
    case 'x':
        return take_records(r);
    case 'L':
        return tar_take_name(r->path, &r->has_path, r->meta, n);
    case 'K':
        return tar_take_name(r->target, &r->has_target, r->meta, n);
    default:
        return true; /* a global pax header holds nothing that we use */
    }
}

static enum tar_step add_meta(struct tar_reader *r, const uint8_t *block) {
    uint32_t n = r->meta_left < TAR_BLOCK ? (uint32_t)r->meta_left : TAR_BLOCK;
    memcpy(r->meta + r->meta_len, block, n);
    r->meta_len += n;
    r->meta_left -= n;
    return r->meta_left > 0 || take_meta(r) ? TAR_MORE : TAR_BAD;
}

static void copy_name(char *to, const uint8_t *block, struct field prefix, struct field name) {
    size_t n = strnlen((const char *)block + prefix.at, prefix.width);
    memcpy(to, block + prefix.at, n);
    if (n > 0)
        to[n++] = '/';
    size_t len = strnlen((const char *)block + name.at, name.width);
    memcpy(to + n, block + name.at, len);
    to[n + len] = '\0';
}

/* Old archives mark a directory only by a slash at the end of its name. */
static enum tar_kind tar_kind_of(char type, const char *path) {
    size_t n = strlen(path);
    switch (type) {
    case '0':
    case '\0':
    case '7':
        return n > 0 && path[n - 1] == '/' ? TAR_DIR : TAR_FILE;
    case '1':
        return TAR_HARDLINK;
    case '2':
        return TAR_SYMLINK;
    case '5':
        return TAR_DIR;
    default:
        return TAR_OTHER;
    }
}

static void get_names(struct tar_reader *r, const uint8_t *block, struct tar_entry *ret) {
    /* Headers with the magic of GNU tar have other data in the place of the prefix. */
    bool has_prefix = memcmp(block + f_magic.at, "ustar\0", 6) == 0;
    struct field prefix = {f_prefix.at, has_prefix ? f_prefix.width : 0};
    copy_name(ret->path, block, prefix, f_name);
    copy_name(ret->target, block, (struct field){0, 0}, f_link);
    if (r->has_path)
        memcpy(ret->path, r->path, sizeof(ret->path));
    if (r->has_target)
        memcpy(ret->target, r->target, sizeof(ret->target));
}

static enum tar_step get_entry(struct tar_reader *r, const uint8_t *block, uint64_t size,
                               struct tar_entry *ret) {
    uint64_t mode, uid, gid, mtime;
    if (!get_number(block, f_mode, &mode) || !get_number(block, f_uid, &uid) ||
        !get_number(block, f_gid, &gid))
        return TAR_BAD;
    if (!get_number(block, f_mtime, &mtime) || mtime > INT64_MAX)
        mtime = 0;
    get_names(r, block, ret);
    ret->kind = r->is_sparse ? TAR_OTHER : tar_kind_of((char)block[f_type.at], ret->path);
    ret->mode = (uint32_t)(mode & 07777);
    ret->uid = (uint32_t)uid;
    ret->gid = (uint32_t)gid;
    ret->mtime = r->has_mtime ? r->mtime : (int64_t)mtime;
    ret->size = r->has_size ? r->size : size;
    if (ret->kind != TAR_FILE && ret->kind != TAR_OTHER)
        ret->size = 0;
    r->has_path = r->has_target = r->has_size = r->has_mtime = r->is_sparse = false;
    return block[f_type.at] == 'S' ? TAR_BAD : TAR_ENTRY;
}

enum tar_step tar_next(struct tar_reader *r, const uint8_t block[TAR_BLOCK],
                       struct tar_entry *ret) {
    uint64_t sum, size;
    if (r->meta_left > 0)
        return add_meta(r, block);
    if (is_zero(block))
        return TAR_END;
    if (!get_number(block, f_sum, &sum) || sum != sum_of(block) ||
        !get_number(block, f_size, &size) || size > INT64_MAX)
        return TAR_BAD;
    char type = (char)block[f_type.at];
    if (type == 0 || !strchr("xgLK", type))
        return get_entry(r, block, size, ret);
    if (size > TAR_META_MAX)
        return TAR_BAD;
    r->meta_type = type;
    r->meta_left = size;
    r->meta_len = 0;
    return TAR_MORE;
}
