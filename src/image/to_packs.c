#include "image/to_packs.h"

#include <archive.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/jot.h"
#include "base/map.h"
#include "image/known.h"
#include "image/squeeze.h"
#include "packs/manifest.h"

enum { WINDOW = 2 * CUT_MAX, DOCUMENT_MAX = 1 << 20 };

/* A number that a text leads to: of a chunk by its hash, of a file with several names by a path. */
struct numbered {
    uint32_t number;
    char key[];
};

/* One layer on its way into packs. */
struct to_packs {
    struct pack *pack;
    struct archive *to;
    struct jot *document; /* image.json; NULL: of a backup */
    struct map *written;  /* names of files that the archive has; layers may share them */
    struct squeeze *squeeze;
    struct cut cut;
    struct map chunks, files;
    uint32_t chunk_count, entry_count;
    struct packfile_frame frame;
    struct packfile_maker maker;
    struct manifest_maker manifest;
    struct buf numbers, attributes; /* of the current file */
    uint32_t attribute_count;
    uint8_t *window; /* contents that are not cut yet */
    /* of a backup, else NULL; the rest of this struct is only for a backup */
    struct known *known;
    uint64_t read;  /* bytes of files that were read */
    uint32_t zeros; /* number of the chunk of CUT_MAX zeros, plus 1; 0: none yet */
};

static void numbered_free(struct map *m) {
    struct numbered *n;
    for (size_t at = 0; (n = map_next(m, &at));)
        free(n);
    map_done(m);
}

static void numbered_put(struct map *m, const char *key, uint32_t number) {
    size_t size = strlen(key) + 1;
    struct numbered *n = xmalloc(sizeof(*n) + size);
    n->number = number;
    memcpy(n->key, key, size);
    map_put(m, n->key, n);
}

static void to_packs_done(struct to_packs *t) {
    squeeze_free(&t->squeeze);
    numbered_free(&t->chunks);
    numbered_free(&t->files);
    packfile_frame_done(&t->frame);
    packfile_done(&t->maker);
    manifest_done(&t->manifest);
    buf_done(&t->numbers);
    buf_done(&t->attributes);
    free(t->window);
}

/* ---- output ---- */

/* Writes a file that its hash names, once. */
static int put_hashed(struct to_packs *t, const char *folder, const struct buf *bytes,
                      uint8_t ret[SHA256_BYTES], struct err *err) {
    struct sha256 sum;
    char name[32 + SHA256_HEX], hex[SHA256_HEX];
    sha256_init(&sum);
    sha256_add(&sum, bytes->data, bytes->len);
    sha256_end(&sum, ret);
    hex_put(ret, SHA256_BYTES, hex);
    snprintf(name, sizeof(name), "%s/%s", folder, hex);
    if (map_get(t->written, name))
        return 0;
    numbered_put(t->written, name, 0);
    return pack_put_text(t->to, name, bytes, err);
}

static int end_pack(struct to_packs *t, struct err *err) {
    struct buf bytes DEFER(buf_done) = BUF(PACKFILE_MAX + 1);
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    uint32_t chunks = t->maker.chunk_count;
    if (packfile_end(&t->maker, &bytes, err) < 0 || put_hashed(t, "packs", &bytes, hash, err) < 0)
        return -1;
    hex_put(hash, SHA256_BYTES, hex);
    if (t->document)
        jot_string(t->document, NULL, hex);
    return manifest_add_pack(&t->manifest, hash, chunks, err);
}

/* A squeeze_fn. */
static int take_frame(void *arg, const struct packfile_frame *f, struct err *err) {
    struct to_packs *t = arg;
    if (packfile_is_full(&t->maker, f) && end_pack(t, err) < 0)
        return -1;
    return packfile_add(&t->maker, f, err);
}

/* ---- contents ---- */

static int put_chunk(struct to_packs *t, const uint8_t *bytes, size_t n, struct err *err) {
    struct sha256 sum;
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_init(&sum);
    sha256_add(&sum, bytes, n);
    sha256_end(&sum, hash);
    hex_put(hash, SHA256_BYTES, hex);
    const struct numbered *known = map_get(&t->chunks, hex);
    uint32_t number = known ? known->number : t->chunk_count;
    if (!bytes_put_number(&t->numbers, number, 4))
        return err_set(err, ERR_LIMIT, "out of memory");
    if (known)
        return 0;
    numbered_put(&t->chunks, hex, t->chunk_count++);
    if (t->known && known_add_chunk(t->known, hash, n, err) < 0)
        return -1;
    if (!packfile_frame_has_room(&t->frame, n) && squeeze_put(t->squeeze, &t->frame, err) < 0)
        return -1;
    return packfile_frame_add(&t->frame, bytes, n, hash, err);
}

/* Fills the window from the file. Returns the number of bytes in it, or -1. */
static ssize_t fill_window(struct to_packs *t, const struct walk_entry *e, size_t has,
                           uint64_t *left, struct err *err) {
    while (*left && has < WINDOW) {
        size_t room = WINDOW - has;
        ssize_t n = read(e->fd, t->window + has, *left < room ? (size_t)*left : room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read file '/%.120s'", e->path)
                         : err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read",
                                   e->path);
        has += (size_t)n;
        *left -= (uint64_t)n;
    }
    return (ssize_t)has;
}

/* Cuts the next `left` bytes of a file. */
static int put_chunks(struct to_packs *t, const struct walk_entry *e, uint64_t left,
                      struct err *err) {
    size_t has = 0;
    do {
        ssize_t n = fill_window(t, e, has, &left, err);
        size_t at = 0, len;
        if (n < 0)
            return -1;
        /* cut_next() needs the end of the file, or as much as the largest chunk. */
        for (has = (size_t)n; has > at && (!left || has - at >= CUT_MAX); at += len) {
            len = cut_next(&t->cut, t->window + at, has - at);
            if (put_chunk(t, t->window + at, len, err) < 0)
                return -1;
            t->pack->bytes += len;
        }
        memmove(t->window, t->window + at, has - at);
        has -= at;
        report_progress(t->pack->report, t->pack->entries, t->pack->bytes);
    } while (left || has);
    return 0;
}

/* ---- contents of a backup ---- */

/* A hole is not read. A chunk of zeros is stored once. */
static int put_hole(struct to_packs *t, uint64_t left, struct err *err) {
    for (size_t n; left; left -= n) {
        n = left < CUT_MAX ? (size_t)left : CUT_MAX;
        t->pack->bytes += n;
        if (n == CUT_MAX && t->zeros) {
            if (!bytes_put_number(&t->numbers, t->zeros - 1, 4))
                return err_set(err, ERR_LIMIT, "out of memory");
            continue;
        }
        memset(t->window, 0, n);
        if (put_chunk(t, t->window, n, err) < 0)
            return -1;
        if (n == CUT_MAX)
            t->zeros = 1 + (uint32_t)bytes_number(
                               (const uint8_t *)t->numbers.data + t->numbers.len - 4, 4);
    }
    return 0;
}

static int put_sparse(struct to_packs *t, const struct walk_entry *e, struct err *err) {
    for (uint64_t at = 0, end; at < e->size; at = end) {
        off_t data = lseek(e->fd, (off_t)at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return err_sys(err, "cannot read file '/%.120s'", e->path);
        uint64_t from = data < 0 || (uint64_t)data > e->size ? e->size : (uint64_t)data;
        if (put_hole(t, from - at, err) < 0)
            return -1;
        end = from;
        if (from == e->size)
            continue;
        off_t hole = lseek(e->fd, (off_t)from, SEEK_HOLE);
        if (hole < 0 || lseek(e->fd, (off_t)from, SEEK_SET) < 0)
            return err_sys(err, "cannot read file '/%.120s'", e->path);
        end = (uint64_t)hole > e->size || hole == (off_t)from ? e->size : (uint64_t)hole;
        t->read += end - from;
        if (put_chunks(t, e, end - from, err) < 0)
            return -1;
    }
    return 0;
}

static int64_t stamp_ns(const struct statx_timestamp *t) {
    return (int64_t)((uint64_t)t->tv_sec * 1000000000u + t->tv_nsec);
}

/* Uses the chunks of the backup before, if the file is the same as it was then. */
static int put_known(struct to_packs *t, const struct walk_entry *e, struct err *err) {
    struct statx st;
    if (statx(e->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
        return err_sys(err, "cannot read the metadata of '/%.120s'", e->path);
    const struct known_stamp stamp = {.inode = st.stx_ino,
                                      .born_ns = stamp_ns(&st.stx_btime),
                                      .modified_ns = stamp_ns(&st.stx_mtime),
                                      .changed_ns = stamp_ns(&st.stx_ctime)};
    const struct known_file *same = known_find(t->known, &stamp, e->size);
    if (known_add_file(t->known, &stamp, err) < 0)
        return -1;
    if (!same)
        return put_sparse(t, e, err);
    t->pack->bytes += e->size;
    report_progress(t->pack->report, t->pack->entries, t->pack->bytes);
    return !same->chunk_count || buf_add(&t->numbers, same->chunks, 4 * (size_t)same->chunk_count)
               ? 0
               : err_set(err, ERR_LIMIT, "out of memory");
}

/* ---- entries ---- */

static int take_attribute(void *arg, const char *name, const void *value, size_t size,
                          struct err *err) {
    struct to_packs *t = arg;
    const struct manifest_attribute a = {name, strlen(name), value, size};
    t->attribute_count++;
    return manifest_put_attribute(&t->attributes, &a, err);
}

static unsigned depth_of(const char *path) {
    unsigned depth = *path != '\0';
    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

static enum manifest_type type_of(const struct walk_entry *e) {
    return S_ISDIR(e->mode)   ? MANIFEST_DIR
           : e->twin          ? MANIFEST_HARDLINK
           : S_ISREG(e->mode) ? MANIFEST_FILE
           : S_ISLNK(e->mode) ? MANIFEST_SYMLINK
           : S_ISCHR(e->mode) ? MANIFEST_WHITEOUT
                              : MANIFEST_PIPE;
}

static int describe_file(struct to_packs *t, const struct walk_entry *e, struct manifest_entry *ret,
                         struct err *err) {
    buf_drop(&t->numbers, t->numbers.len);
    buf_drop(&t->attributes, t->attributes.len);
    t->attribute_count = 0;
    if (image_attributes(e, take_attribute, t, err) < 0 ||
        (t->known ? put_known(t, e, err) : put_chunks(t, e, e->size, err)) < 0)
        return -1;
    ret->size = e->size;
    ret->chunks = (const uint8_t *)t->numbers.data;
    ret->chunk_count = (uint32_t)(t->numbers.len / 4);
    ret->attribute_count = t->attribute_count;
    ret->attributes =
        (struct bytes){.at = (const uint8_t *)t->attributes.data, .left = t->attributes.len};
    if (e->linked)
        numbered_put(&t->files, e->path, t->entry_count);
    return 0;
}

/* A walk_fn. */
static int put_manifest_entry(void *arg, const struct walk_entry *e, struct err *err) {
    struct to_packs *t = arg;
    const char *name = image_path_last(e->path);
    struct manifest_entry to = {.type = type_of(e),
                                .depth = depth_of(e->path),
                                .name = name,
                                .name_len = strlen(name),
                                .mode = e->mode & 07777,
                                .uid = e->uid,
                                .gid = e->gid,
                                .mtime = e->mtime,
                                .target = e->target,
                                .target_len = e->target ? strlen(e->target) : 0};
    if (to.type == MANIFEST_FILE && describe_file(t, e, &to, err) < 0)
        return -1;
    const struct numbered *twin = e->twin ? map_get(&t->files, e->twin) : NULL;
    if (e->twin && !twin)
        return err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read", e->path);
    to.twin = twin ? twin->number : 0;
    t->pack->entries++;
    t->entry_count++;
    return manifest_add(&t->manifest, &to, err);
}

/* ---- layers ---- */

static int end_packs(struct to_packs *t, struct err *err) {
    return (t->frame.count && squeeze_put(t->squeeze, &t->frame, err) < 0) ||
                   squeeze_end(t->squeeze, err) < 0 ||
                   (t->maker.frame_count && end_pack(t, err) < 0)
               ? -1
               : 0;
}

static int end_layer(struct to_packs *t, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    if (end_packs(t, err) < 0)
        return -1;
    jot_end(t->document, ']');
    if (manifest_end(&t->manifest, &text, err) < 0 ||
        put_hashed(t, "manifests", &text, hash, err) < 0)
        return -1;
    hex_put(hash, SHA256_BYTES, hex);
    jot_string(t->document, "manifest", hex);
    return 0;
}

static struct to_packs to_packs_begin(struct pack *p, struct archive *to, struct map *written) {
    return (struct to_packs){.pack = p,
                             .to = to,
                             .written = written,
                             .frame = packfile_frame_begin(),
                             .maker = packfile_begin(),
                             .manifest = manifest_begin(),
                             .numbers = BUF(MANIFEST_MAX),
                             .attributes = BUF(MANIFEST_MAX)};
}

static int to_packs_start(struct to_packs *t, struct err *err) {
    cut_init(&t->cut);
    t->window = malloc(WINDOW);
    if (!t->window)
        return err_set(err, ERR_LIMIT, "out of memory");
    t->squeeze = squeeze_new(t->pack->threads ? t->pack->threads : 1, take_frame, t, err);
    return t->squeeze ? 0 : -1;
}

static int put_layer(struct pack *p, size_t i, struct archive *to, struct jot *document,
                     struct map *written, struct err *err) {
    struct to_packs t DEFER(to_packs_done) = to_packs_begin(p, to, written);
    t.document = document;
    const struct walk w = {.root = p->layer_count ? p->layers[i] : p->root,
                           .usr = -1,
                           .ids = p->ids,
                           .fn = put_manifest_entry,
                           .arg = &t,
                           .whiteouts = i > 0};
    if (to_packs_start(&t, err) < 0)
        return -1;
    jot_object(document, NULL);
    jot_array(document, "packs");
    if (image_walk(&w, err) < 0 || end_layer(&t, err) < 0)
        return -1;
    jot_end(document, '}');
    return 0;
}

static int put_mark(struct archive *to, struct err *err) {
    struct buf mark DEFER(buf_done) = BUF(16);
    if (!buf_addf(&mark, "%s", PACKS_VERSION))
        return err_set(err, ERR_LIMIT, "out of memory");
    return pack_put_text(to, PACKS_MARK, &mark, err);
}

int image_to_packs(struct pack *p, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_open(p, err);
    struct buf text DEFER(buf_done) = BUF(DOCUMENT_MAX),
                    own DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    struct map written DEFER(numbered_free) = {0};
    struct jot j = JOT(&text);
    if (!a || put_mark(a, err) < 0 || image_config_print(p->config, &own, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_array(&j, "layers");
    for (size_t i = 0; i < (p->layer_count ? p->layer_count : 1); i++)
        if (put_layer(p, i, a, &j, &written, err) < 0)
            return -1;
    jot_end(&j, ']');
    jot_raw(&j, "image", own.data);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the image has too many packs");
    return pack_put_text(a, PACKS_IMAGE, &text, err) < 0 ? -1 : pack_writer_close(a, err);
}

/* ---- backups ---- */

/* Chunks that the backup before has are not stored again. */
static int take_known(struct to_packs *t, const void *bytes, size_t n, struct err *err) {
    struct known *k = t->known;
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX];
    if (!n)
        return 0;
    if (known_read(k, bytes, n, err) < 0) { /* then all files are read again */
        known_done(k);
        *k = known_begin();
        return 0;
    }
    for (uint32_t i = 0; i < known_count(k); i++) {
        if (!known_chunk(k, i, hash))
            continue;
        hex_put(hash, SHA256_BYTES, hex);
        if (!map_get(&t->chunks, hex))
            numbered_put(&t->chunks, hex, i);
    }
    t->chunk_count = known_count(k);
    return 0;
}

static int end_backup(struct to_packs *t, struct backup *ret, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1),
                    record DEFER(buf_done) = BUF(KNOWN_MAX);
    uint8_t hash[SHA256_BYTES];
    if (end_packs(t, err) < 0 || known_end(t->known, &t->manifest, &text, &record, err) < 0 ||
        put_hashed(t, BACKUP_MANIFESTS, &text, hash, err) < 0 ||
        pack_put_text(t->to, BACKUP_RECORD, &record, err) < 0)
        return -1;
    hex_put(hash, SHA256_BYTES, ret->manifest);
    ret->read = t->read;
    return 0;
}

struct mapped {
    void *bytes;
    size_t size;
};

static void mapped_done(struct mapped *m) {
    if (m->size)
        munmap(m->bytes, m->size);
}

static int map_record(int fd, struct mapped *ret, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the record of the backup before");
    if (!S_ISREG(st.st_mode) || !st.st_size)
        return 0;
    if (st.st_size > KNOWN_MAX)
        return err_set(err, ERR_LIMIT, "the record of the backup before is too large");
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return err_sys(err, "cannot read the record of the backup before");
    *ret = (struct mapped){bytes, (size_t)st.st_size};
    return 0;
}

int image_backup(struct pack *p, int before, struct backup *ret, struct err *err) {
    struct archive *a DEFER(pack_writer_free) = pack_writer_open(p, err);
    struct map written DEFER(numbered_free) = {0};
    struct known known DEFER(known_done) = known_begin();
    struct mapped record DEFER(mapped_done) = {.size = 0};
    struct to_packs t DEFER(to_packs_done) = to_packs_begin(p, a, &written);
    const struct walk w = {.root = p->root,
                           .usr = p->usr,
                           .usr_over = p->over,
                           .ids = p->ids,
                           .fn = put_manifest_entry,
                           .arg = &t};
    t.known = &known;
    return !a || map_record(before, &record, err) < 0 ||
                   take_known(&t, record.bytes, record.size, err) < 0 ||
                   to_packs_start(&t, err) < 0 || image_walk(&w, err) < 0 ||
                   end_backup(&t, ret, err) < 0
               ? -1
               : pack_writer_close(a, err);
}
