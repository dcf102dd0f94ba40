#include "image/from_packs.h"

#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "image/to_packs.h"
#include "packs/manifest.h"
#include "packs/packfile.h"

/* Chunks of older packs may be used again, so some packs and frames are kept open. */
enum { PACKS_OPEN = 64, FRAMES_OPEN = 16 };

/* What work counts for, as bytes that the import reads. Otherwise chunks of one byte, which cost an
 * attacker little, would take hours. */
enum { PACK_COST = 64 << 10, FRAME_COST = 4096, CHUNK_COST = 256 };

struct open_pack {
    void *bytes; /* mapped; NULL: none */
    size_t size;
    uint32_t number;
    struct packfile file;
    struct packfile_part *parts; /* its frames */
};

struct open_frame {
    uint8_t *raw; /* NULL: none */
    uint32_t pack;
    struct packfile_part part;
    uint32_t *offsets; /* of its chunks in `raw`, and of the end */
};

struct from_packs {
    const struct spool *spool;
    struct unpack *unpack;
    bool marks;
    struct buf text; /* of the manifest */
    struct manifest manifest;
    uint32_t *starts; /* number of the first chunk of each pack */
    bool *verified;   /* the pack has the hash that names it */
    char **paths;     /* of entries that hard links lead to; NULL for others */
    struct bytes left;
    uint32_t number; /* of the next entry */
    struct manifest_entry entry;
    uint32_t chunk; /* of the entry: the next one to write */
    uint64_t rest;  /* bytes of the entry that are not written yet */
    char path[IMAGE_PATH_SIZE];
    size_t lens[MANIFEST_DEPTH_MAX + 1]; /* length of the path at each depth */
    struct archive *tar;
    struct archive_entry *head;
    struct buf out; /* bytes of the tar that are not read yet */
    bool ended;
    struct open_pack packs[PACKS_OPEN];
    struct open_frame frames[FRAMES_OPEN];
    unsigned next_pack, next_frame; /* to be replaced next */
    struct err err;
    bool has_failed;
};

static void open_pack_done(struct open_pack *p) {
    if (p->bytes)
        munmap(p->bytes, p->size);
    free(p->parts);
    *p = (struct open_pack){.bytes = NULL};
}

void from_packs_close(struct from_packs **at) {
    struct from_packs *f = *at;
    if (!f)
        return;
    for (unsigned i = 0; i < PACKS_OPEN; i++)
        open_pack_done(&f->packs[i]);
    for (unsigned i = 0; i < FRAMES_OPEN; i++) {
        free(f->frames[i].raw);
        free(f->frames[i].offsets);
    }
    for (uint32_t i = 0; f->paths && i < f->manifest.entry_count; i++)
        free(f->paths[i]);
    if (f->tar)
        archive_write_free(f->tar);
    if (f->head)
        archive_entry_free(f->head);
    free(f->paths);
    free(f->starts);
    free(f->verified);
    buf_done(&f->text);
    buf_done(&f->out);
    free(f);
    *at = NULL;
}

/* ---- image.json ---- */

void packs_image_done(struct packs_image *i) {
    json_decref(i->json);
}

static int read_image_config(const json_t *json, struct image_config *ret, struct err *err) {
    char *text DEFER_FREE = json_dumps(json, JSON_COMPACT);
    return text ? image_config_read(text, strlen(text), ret, err)
                : err_set(err, ERR_INVALID, "file '%s' of the image archive has no configuration",
                          PACKS_IMAGE);
}

int packs_image_read(const struct spool *s, struct packs_image *ret, struct image_config *config,
                     struct err *err) {
    struct buf text DEFER(buf_done) = BUF(OCI_JSON_MAX), mark DEFER(buf_done) = BUF(64);
    if (spool_read(s, PACKS_MARK, 32, &mark, err) < 0 ||
        spool_read(s, PACKS_IMAGE, OCI_JSON_MAX, &text, err) < 0)
        return -1;
    if (mark.len != strlen(PACKS_VERSION) || memcmp(mark.data, PACKS_VERSION, mark.len) != 0)
        return err_set(err, ERR_UNSUPPORTED, "the image archive has an unknown version of packs");
    ret->json = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, NULL);
    ret->layers = json_array_size(json_object_get(ret->json, "layers"));
    if (!ret->layers || ret->layers > FROM_PACKS_LAYERS_MAX)
        return err_set(err, ERR_INVALID,
                       "file '%s' of the image archive does not list 1 to %d layers", PACKS_IMAGE,
                       FROM_PACKS_LAYERS_MAX);
    return read_image_config(json_object_get(ret->json, "image"), config, err);
}

/* ---- files that their hash names ---- */

static int check_hash(const void *bytes, size_t n, const char *hex, struct err *err) {
    char found[SHA256_HEX];
    sha256_hex(bytes, n, found);
    return strcmp(found, hex) == 0
               ? 0
               : err_set(err, ERR_INVALID,
                         "file '%.64s' of the image archive does not match its hash", hex);
}

static int load_manifest(struct from_packs *f, const json_t *layer, struct err *err) {
    const char *hex = json_string_value(json_object_get(layer, "manifest"));
    char name[32 + SHA256_HEX];
    if (!hex || !hex_is(hex, SHA256_HEX - 1))
        return err_set(err, ERR_INVALID,
                       "a layer in file '%s' of the image archive has no manifest", PACKS_IMAGE);
    snprintf(name, sizeof(name), "manifests/%s", hex);
    if (spool_read(f->spool, name, MANIFEST_MAX, &f->text, err) < 0 ||
        check_hash(f->text.data, f->text.len, hex, err) < 0)
        return -1;
    return manifest_read(f->text.data ? f->text.data : "", f->text.len, &f->manifest, err);
}

/* Notes where the frames of a pack are. */
static int list_parts(struct from_packs *f, struct open_pack *p, struct err *err) {
    struct packfile_part part = {.count = 0};
    if (unpack_count_read(f->unpack, PACK_COST + (uint64_t)p->file.chunk_count * CHUNK_COST, err) <
        0)
        return -1;
    p->parts = calloc(p->file.frame_count, sizeof(*p->parts));
    if (!p->parts)
        return err_set(err, ERR_LIMIT, "out of memory");
    while (packfile_next(&p->file, &part))
        p->parts[part.number - 1] = part;
    return 0;
}

/* Opens a pack over the one that was opened first. Nobody else writes to the spooled file. */
static int map_pack(struct from_packs *f, uint32_t number, struct open_pack *to, struct err *err) {
    uint8_t hash[SHA256_BYTES];
    char name[32 + SHA256_HEX], *hex = name + strlen("packs/");
    struct stat st;
    uint32_t chunks = manifest_pack(&f->manifest, number, hash);
    snprintf(name, sizeof(name), "packs/");
    hex_put(hash, SHA256_BYTES, hex);
    open_pack_done(to);
    int fd DEFER_CLOSE = spool_open(f->spool, name, err);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read a pack of the image archive");
    if (st.st_size <= 0 || st.st_size > PACKFILE_MAX)
        return err_set(err, ERR_INVALID, "pack '%s' of the image archive has an impossible size",
                       hex);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return err_sys(err, "cannot read a pack of the image archive");
    *to = (struct open_pack){.bytes = bytes, .size = (size_t)st.st_size, .number = number};
    if ((!f->verified[number] && check_hash(bytes, to->size, hex, err) < 0) ||
        packfile_read(bytes, to->size, &to->file, err) < 0 || list_parts(f, to, err) < 0)
        return -1;
    f->verified[number] = true;
    return to->file.chunk_count == chunks
               ? 0
               : err_set(err, ERR_INVALID,
                         "pack '%s' of the image archive has another number of chunks than its "
                         "manifest says",
                         hex);
}

static struct open_pack *find_pack(struct from_packs *f, uint32_t number, struct err *err) {
    for (unsigned i = 0; i < PACKS_OPEN; i++)
        if (f->packs[i].bytes && f->packs[i].number == number)
            return &f->packs[i];
    struct open_pack *p = &f->packs[f->next_pack++ % PACKS_OPEN];
    if (map_pack(f, number, p, err) == 0)
        return p;
    open_pack_done(p);
    return NULL;
}

/* ---- chunks ---- */

static uint32_t pack_of(const struct from_packs *f, uint32_t chunk) {
    uint32_t low = 0, high = f->manifest.pack_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (f->starts[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool frame_has(const struct open_frame *o, uint32_t pack, uint32_t chunk) {
    return o->raw && o->pack == pack && chunk >= o->part.first &&
           chunk - o->part.first < o->part.count;
}

static const struct packfile_part *part_of(const struct open_pack *p, uint32_t chunk) {
    uint32_t low = 0, high = p->file.frame_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (p->parts[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return &p->parts[low];
}

/* Notes where the chunks of a frame are, so that finding one takes the same time for each. */
static int list_offsets(const struct packfile *p, const struct packfile_part *part,
                        struct open_frame *to, struct err *err) {
    free(to->offsets);
    to->offsets = calloc((size_t)part->count + 1, sizeof(*to->offsets));
    if (!to->offsets)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (uint32_t i = 0; i < part->count; i++) {
        struct packfile_chunk c;
        packfile_chunk_at(p, part->first + i, &c);
        to->offsets[i + 1] = to->offsets[i] + c.size;
    }
    return 0;
}

/* Decompresses the frame of a chunk, which counts as bytes that the import reads. */
static int load_frame(struct from_packs *f, uint32_t pack, uint32_t chunk, struct open_frame *to,
                      struct err *err) {
    const struct open_pack *p = find_pack(f, pack, err);
    if (!p)
        return -1;
    const struct packfile_part *part = part_of(p, chunk);
    uint64_t cost = FRAME_COST + part->raw_size + (uint64_t)part->count * CHUNK_COST;
    to->part.count = 0;
    if (unpack_count_read(f->unpack, cost, err) < 0 || list_offsets(&p->file, part, to, err) < 0)
        return -1;
    to->raw = to->raw ? to->raw : malloc(PACKFILE_FRAME_MAX);
    if (!to->raw)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (packfile_open(&p->file, part, to->raw, err) < 0)
        return -1;
    to->pack = pack;
    to->part = *part;
    return 0;
}

/* Counts as bytes that the import reads. *ret is valid until the next call. */
static int find_chunk(struct from_packs *f, uint32_t chunk, const uint8_t **ret, size_t *ret_size,
                      struct err *err) {
    uint32_t pack = pack_of(f, chunk), at = chunk - f->starts[pack];
    struct open_frame *frame = NULL;
    if (unpack_count_read(f->unpack, CHUNK_COST, err) < 0)
        return -1;
    for (unsigned i = 0; i < FRAMES_OPEN && !frame; i++)
        frame = frame_has(&f->frames[i], pack, at) ? &f->frames[i] : NULL;
    if (!frame) {
        frame = &f->frames[f->next_frame++ % FRAMES_OPEN];
        if (load_frame(f, pack, at, frame, err) < 0)
            return -1;
    }
    const uint32_t *offset = &frame->offsets[at - frame->part.first];
    *ret = frame->raw + offset[0];
    *ret_size = offset[1] - offset[0];
    return 0;
}

/* ---- the tar ---- */

static la_ssize_t keep_tar(struct archive *a, void *arg, const void *bytes, size_t n) {
    struct from_packs *f = arg;
    if (buf_add(&f->out, bytes, n))
        return (la_ssize_t)n;
    archive_set_error(a, ENOMEM, "out of memory");
    return -1;
}

static int tar_failed(struct from_packs *f, struct err *err) {
    const char *why = archive_error_string(f->tar);
    return err_set(err, ERR_INTERNAL, "cannot read a layer from its packs: %.160s",
                   why ? why : "unknown error");
}

static void set_path(struct from_packs *f, const struct manifest_entry *e) {
    size_t at = e->depth ? f->lens[e->depth - 1] : 0;
    int n = snprintf(f->path + at, sizeof(f->path) - at, "%s%.*s", at ? "/" : "", (int)e->name_len,
                     e->name);
    f->lens[e->depth] = at + (size_t)n;
}

static void put_type(struct from_packs *f, const struct manifest_entry *e) {
    static const unsigned types[] = {
        [MANIFEST_DIR] = AE_IFDIR,      [MANIFEST_FILE] = AE_IFREG, [MANIFEST_SYMLINK] = AE_IFLNK,
        [MANIFEST_HARDLINK] = AE_IFREG, [MANIFEST_PIPE] = AE_IFIFO, [MANIFEST_WHITEOUT] = AE_IFREG};
    char name[IMAGE_PATH_SIZE + 8];
    size_t dir = strlen(f->path) - e->name_len;
    bool hides = e->type == MANIFEST_WHITEOUT;
    snprintf(name, sizeof(name), "%.*s%s%s", (int)dir, f->path, hides ? IMAGE_WHITEOUT : "",
             f->path + dir);
    archive_entry_copy_pathname(f->head, *name ? name : "./");
    archive_entry_set_mode(f->head, (__LA_MODE_T)(types[e->type] | e->mode));
    archive_entry_set_uid(f->head, e->uid);
    archive_entry_set_gid(f->head, e->gid);
    archive_entry_set_mtime(f->head, e->mtime, 0);
    if (e->type == MANIFEST_FILE || hides)
        archive_entry_set_size(f->head, (la_int64_t)e->size);
    if (e->type == MANIFEST_HARDLINK)
        archive_entry_copy_hardlink(f->head, f->paths[e->twin]);
}

static int put_target(struct from_packs *f, const struct manifest_entry *e, struct err *err) {
    char *target DEFER_FREE = strndup(e->target, e->target_len);
    if (!target)
        return err_set(err, ERR_LIMIT, "out of memory");
    archive_entry_copy_symlink(f->head, target);
    return 0;
}

static void put_extended(struct from_packs *f, const struct manifest_entry *e) {
    struct bytes left = e->attributes;
    struct manifest_attribute a;
    while (manifest_attribute_next(&left, &a)) {
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)a.name_len, a.name);
        archive_entry_xattr_add_entry(f->head, name, a.value, a.size);
    }
}

/* Keeps the path, if a hard link leads to the entry. */
static int keep_path(struct from_packs *f, struct err *err) {
    if (!f->paths[f->number])
        return 0;
    free(f->paths[f->number]);
    f->paths[f->number] = strdup(f->path);
    return f->paths[f->number] ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static int write_head(struct from_packs *f, struct err *err) {
    const struct manifest_entry *e = &f->entry;
    set_path(f, e);
    if (keep_path(f, err) < 0)
        return -1;
    f->number++;
    f->chunk = 0;
    f->rest = f->marks ? 0 : e->size;
    if (f->marks && e->type != MANIFEST_WHITEOUT) {
        f->entry.chunk_count = 0;
        return 0;
    }
    archive_entry_clear(f->head);
    put_type(f, e);
    put_extended(f, e);
    if (e->type == MANIFEST_SYMLINK && put_target(f, e, err) < 0)
        return -1;
    int r = archive_write_header(f->tar, f->head);
    return r == ARCHIVE_OK || r == ARCHIVE_WARN ? 0 : tar_failed(f, err);
}

static int write_chunk(struct from_packs *f, struct err *err) {
    const uint8_t *bytes;
    size_t n;
    if (find_chunk(f, manifest_chunk(&f->entry, f->chunk++), &bytes, &n, err) < 0)
        return -1;
    bool last = f->chunk == f->entry.chunk_count;
    if (n > f->rest || (last && n != f->rest))
        return err_set(err, ERR_INVALID, "file '/%.120s' does not have the size of its chunks",
                       f->path);
    f->rest -= n;
    return archive_write_data(f->tar, bytes, n) == (la_ssize_t)n ? 0 : tar_failed(f, err);
}

/* Writes the next part of the tar to f->out: a header, a chunk, or the end. */
static int write_next(struct from_packs *f, struct err *err) {
    if (f->chunk < f->entry.chunk_count)
        return write_chunk(f, err);
    if (manifest_next(&f->left, &f->entry))
        return write_head(f, err);
    f->ended = true;
    return archive_write_close(f->tar) == ARCHIVE_OK ? 0 : tar_failed(f, err);
}

la_ssize_t from_packs_read(struct archive *a, void *arg, const void **ret) {
    struct from_packs *f = arg;
    buf_drop(&f->out, f->out.len);
    while (!f->out.len && !f->ended && !f->has_failed)
        f->has_failed = write_next(f, &f->err) < 0;
    *ret = f->out.data;
    if (!f->has_failed)
        return (la_ssize_t)f->out.len;
    archive_set_error(a, EIO, "%s", f->err.text);
    return -1;
}

bool from_packs_failed(const struct from_packs *f, struct err *err) {
    if (f->has_failed)
        *err = f->err;
    return f->has_failed;
}

/* ---- opening ---- */

/* Notes where packs start, and which entries hard links lead to. */
static int prepare_layer(struct from_packs *f, struct err *err) {
    struct manifest_entry e;
    uint32_t chunks = 0;
    f->starts = calloc(f->manifest.pack_count + 1, sizeof(*f->starts));
    f->verified = calloc(f->manifest.pack_count + 1, sizeof(*f->verified));
    f->paths = calloc(f->manifest.entry_count, sizeof(*f->paths));
    if (!f->starts || !f->verified || !f->paths)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (uint32_t i = 0; i < f->manifest.pack_count; i++) {
        uint8_t hash[SHA256_BYTES];
        f->starts[i] = chunks;
        chunks += manifest_pack(&f->manifest, i, hash);
    }
    for (struct bytes left = f->manifest.entries; manifest_next(&left, &e);)
        if (e.type == MANIFEST_HARDLINK && !f->paths[e.twin] && !(f->paths[e.twin] = strdup("")))
            return err_set(err, ERR_LIMIT, "out of memory");
    f->left = f->manifest.entries;
    return 0;
}

static int open_tar(struct from_packs *f, struct err *err) {
    f->tar = archive_write_new();
    f->head = archive_entry_new();
    if (!f->tar || !f->head)
        return err_set(err, ERR_LIMIT, "out of memory");
    archive_write_set_format_pax_restricted(f->tar);
    archive_write_set_bytes_per_block(f->tar, 0);
    return archive_write_open(f->tar, f, NULL, keep_tar, NULL) == ARCHIVE_OK ? 0
                                                                             : tar_failed(f, err);
}

struct from_packs *from_packs_open(const struct spool *s, struct unpack *u,
                                   const struct packs_image *image, size_t i, bool marks,
                                   struct err *err) {
    struct from_packs *f DEFER(from_packs_close) = xnew(struct from_packs);
    const json_t *layer = json_array_get(json_object_get(image->json, "layers"), i);
    *f = (struct from_packs){.spool = s,
                             .unpack = u,
                             .marks = marks,
                             .text = BUF(MANIFEST_MAX + 1),
                             .out = BUF(4 * CUT_MAX)};
    if (load_manifest(f, layer, err) < 0 || prepare_layer(f, err) < 0 || open_tar(f, err) < 0)
        return NULL;
    return TAKE(f);
}
