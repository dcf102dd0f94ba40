#include "service/images/layered.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/tar.h"
#include "service/images/groups.h"
#include "service/images/jobs_inner.h"

enum { DOCUMENT_MAX = 4 << 20 };
#define LAYERED_BYTES_MAX (64ull << 30) /* of all layers, unpacked; as for one tree */

enum layered_state {
    TAKES_HEAD,  /* headers of the archive */
    TAKES_TEXT,  /* a document */
    SKIPS_FILE,  /* a file that is not needed */
    TAKES_LAYER, /* bytes of a layer */
    WAITS,       /* for the worker of a layer */
    ENDED,       /* the end of the archive was read */
};

struct image_layered {
    struct image_job *job;
    enum layered_state state;
    struct tar_reader tar;
    struct tar_entry entry;
    uint8_t block[TAR_BLOCK];
    size_t held;      /* bytes in `block` */
    uint64_t left;    /* bytes of the current file */
    uint32_t padding; /* bytes after it */
    struct buf text;  /* the document at hand */
    struct layer_blob manifest, config, layers[IMPORT_LAYERS_MAX];
    size_t count;         /* layers; 0: the manifest has not been read */
    size_t at;            /* layers that have been received */
    size_t group_end;     /* layer after the group at hand */
    size_t groups, group; /* groups of layers, and those that are complete */
    char *config_text;
    size_t config_size;
    struct sha256 sum;         /* of the layer so far */
    char found[IMAGE_ID_SIZE]; /* the group at hand, if the owner has it; empty: it is unpacked */
    struct buf out;            /* bytes for the worker, before anything else */
    bool closes;               /* `out` are the last bytes for the worker */
};

struct image_layered *image_layered_new(struct image_job *job) {
    struct image_layered *l = xnew(struct image_layered);
    l->job = job;
    l->text = BUF(DOCUMENT_MAX);
    l->out = BUF(DOCUMENT_MAX + 4 * TAR_HEAD_MAX);
    return l;
}

void image_layered_free(struct image_layered *l) {
    if (!l)
        return;
    buf_done(&l->text);
    buf_done(&l->out);
    free(l->config_text);
    free(l);
}

bool image_layered_goes_on(const struct image_layered *l) {
    return l->group + 1 < l->groups;
}

static int layered_invalid(struct err *err, const char *why) {
    return err_set(err, ERR_INVALID, "the layered image archive %s", why);
}

/* ---- documents ---- */

static int blob_of(const json_t *json, uint64_t max, struct layer_blob *ret, struct err *err) {
    const char *digest = json_string_value(json_object_get(json, "digest"));
    json_int_t size = json_integer_value(json_object_get(json, "size"));
    if (!digest || !layer_digest_ok(digest) || size < 0 || (uint64_t)size > max)
        return layered_invalid(err, "has a part without a valid digest and size");
    snprintf(ret->digest, sizeof(ret->digest), "%s", digest);
    ret->size = (uint64_t)size;
    return 0;
}

static int read_index(struct image_layered *l, const json_t *json, struct err *err) {
    const json_t *list = json_object_get(json, "manifests");
    return json_array_size(list) != 1
               ? layered_invalid(err, "does not have one manifest in its index")
               : blob_of(json_array_get(list, 0), DOCUMENT_MAX, &l->manifest, err);
}

static int read_manifest(struct image_layered *l, const json_t *json, struct err *err) {
    const json_t *list = json_object_get(json, "layers");
    size_t count = json_array_size(list);
    if (count == 0 || count > IMPORT_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has %zu layers; it must have 1 to %d", count,
                       IMPORT_LAYERS_MAX);
    if (blob_of(json_object_get(json, "config"), DOCUMENT_MAX, &l->config, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (blob_of(json_array_get(list, i), LAYERED_BYTES_MAX, &l->layers[i], err) < 0)
            return -1;
    l->count = count;
    l->groups = layer_groups(count);
    return 0;
}

static int keep_config(struct image_layered *l, struct err *err) {
    l->config_size = l->text.len;
    l->config_text = l->text.len ? malloc(l->text.len) : NULL;
    if (!l->config_text)
        return layered_invalid(err, "has no configuration");
    memcpy(l->config_text, l->text.data, l->text.len);
    return 0;
}

static int check_digest(const struct layer_blob *blob, const char *hex, struct err *err) {
    return strcmp(hex, blob->digest + strlen("sha256:")) == 0
               ? 0
               : err_set(err, ERR_INVALID,
                         "blob '%s' of the image archive does not match its digest", blob->digest);
}

static int read_document(struct image_layered *l, struct err *err) {
    const char *text = l->text.data ? l->text.data : "";
    bool is_index = !l->manifest.digest[0];
    const struct layer_blob *blob = l->count ? &l->config : &l->manifest;
    char hex[SHA256_HEX];
    sha256_hex(text, l->text.len, hex);
    if (!is_index && check_digest(blob, hex, err) < 0)
        return -1;
    if (l->count)
        return keep_config(l, err);
    json_t *json DEFER(json_decrefp) = json_loadb(text, l->text.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        return layered_invalid(err, "has an index or a manifest that is not JSON");
    return is_index ? read_index(l, json, err) : read_manifest(l, json, err);
}

const char *image_layered_found(const struct image_layered *l) {
    return l->found;
}

/* ---- the worker ---- */

static int out_file(struct image_layered *l, const char *name, uint64_t size, struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = size};
    snprintf(e->path, sizeof(e->path), "%s", name);
    return buf_add(&l->out, head, tar_put(head, e)) ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static int out_zeros(struct image_layered *l, size_t n, struct err *err) {
    static const uint8_t zeros[3 * TAR_BLOCK];
    return buf_add(&l->out, zeros, n) ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static int out_bytes(struct image_layered *l, const void *bytes, size_t n, struct err *err) {
    return buf_add(&l->out, bytes, n) ? out_zeros(l, tar_padding(n), err)
                                      : err_set(err, ERR_LIMIT, "out of memory");
}

static int out_end(struct image_layered *l, uint64_t size, struct err *err) {
    l->closes = true;
    return out_zeros(l, tar_padding(size) + 2 * (size_t)TAR_BLOCK, err);
}

/*
 * Starts the worker for one group of layers. Only the topmost one has the configuration of the
 * image, so that images with different configurations share the layers below it.
 */
static int begin_worker(struct image_layered *l, struct err *err) {
    struct image_job *j = l->job;
    bool last = !image_layered_goes_on(l);
    const char *config = last ? l->config_text : "{}";
    size_t size = last ? l->config_size : 2;
    snprintf(j->staging, sizeof(j->staging), "%s", id_new('n').text);
    j->unverified = true;
    l->closes = false;
    return image_job_start_worker(j, err) < 0 || out_file(l, "carrel-layer", size, err) < 0
               ? -1
               : out_bytes(l, config, size, err);
}

/* Looks for the next group in the store. */
static void find_group(struct image_layered *l) {
    struct image_job *j = l->job;
    l->group_end = layer_group_end(l->at, l->count);
    layer_group_key(l->layers, l->at, l->group_end, j->layer);
    l->found[0] = '\0';
    layer_group_find(j->service, j->who.owner, &j->below, j->layer, l->found);
}

/* The first layer of a group has arrived: the group is in the store, or a worker unpacks it. */
static int begin_group(struct image_layered *l, struct err *err) {
    find_group(l);
    return l->found[0] ? 0 : begin_worker(l, err);
}

static int begin_layer(struct image_layered *l, struct err *err) {
    sha256_init(&l->sum);
    l->state = TAKES_LAYER;
    if (l->at == l->group_end && begin_group(l, err) < 0)
        return -1;
    return l->found[0] ? 0 : out_file(l, "layer", l->layers[l->at].size, err);
}

/* Writes to the worker. 0: the pipe is full. The worker's report says why it stopped to read. */
static size_t worker_put(struct image_layered *l, const void *bytes, size_t n) {
    struct image_job *j = l->job;
    if (j->archive < 0)
        return n;
    ssize_t put;
    while ((put = write(j->archive, bytes, n)) < 0 && errno == EINTR)
        ;
    if (put >= 0)
        return (size_t)put;
    if (errno == EAGAIN) {
        loop_watch_set(j->archive_watch, LOOP_WRITE);
        return 0;
    }
    image_job_close_archive(j);
    return n;
}

/* False: the pipe is full. */
static bool flush_out(struct image_layered *l) {
    while (l->out.len) {
        size_t n = worker_put(l, l->out.data, l->out.len);
        if (!n)
            return false;
        buf_drop(&l->out, n);
    }
    if (l->closes) {
        l->closes = false;
        image_job_close_archive(l->job);
    }
    return true;
}

/* ---- the end of a layer ---- */

/* The group is in the store. Only the topmost one needs a worker, for its configuration. */
static int take_found(struct image_layered *l, struct err *err) {
    image_below_push(&l->job->below, l->found);
    if (image_layered_goes_on(l)) {
        l->group++;
        return 0;
    }
    l->job->layer[0] = '\0';
    return begin_worker(l, err) < 0 ? -1 : out_end(l, 0, err);
}

static int end_group(struct image_layered *l, uint64_t size, struct err *err) {
    if (l->found[0])
        return take_found(l, err);
    if (out_end(l, size, err) < 0)
        return -1;
    if (image_layered_goes_on(l)) {
        l->state = WAITS;
        l->job->unverified = false;
        loop_defer(l->job->service->loop, &l->job->later);
    }
    return 0;
}

static int end_layer(struct image_layered *l, struct err *err) {
    const struct layer_blob *blob = &l->layers[l->at];
    char hex[SHA256_HEX];
    sha256_end_hex(&l->sum, hex);
    l->state = TAKES_HEAD;
    if (check_digest(blob, hex, err) < 0)
        return -1;
    if (++l->at == l->group_end)
        return end_group(l, blob->size, err);
    return l->found[0] ? 0 : out_zeros(l, tar_padding(blob->size), err);
}

void image_layered_next(struct image_layered *l) {
    struct image_job *j = l->job;
    struct err err;
    image_below_push(&j->below, j->row.id);
    image_job_reset(j);
    l->group++;
    l->state = TAKES_HEAD;
    if (j->row.bytes > LAYERED_BYTES_MAX) {
        err_set(&err, ERR_LIMIT, "the image is larger than %llu MiB unpacked",
                LAYERED_BYTES_MAX >> 20);
        image_job_fail(j, &err);
        return;
    }
    j->events.room(j->events.arg);
}

/* ---- the archive ---- */

static bool is_blob(const struct tar_entry *e, const struct layer_blob *blob) {
    static const char blobs[] = "blobs/sha256/";
    return blob->digest[0] && strncmp(e->path, blobs, strlen(blobs)) == 0 &&
           strcmp(e->path + strlen(blobs), blob->digest + strlen("sha256:")) == 0;
}

/* The archive does not have the layers up to `to`: they must be stored. */
static int take_stored(struct image_layered *l, size_t to, struct err *err) {
    while (l->at < to) {
        find_group(l);
        if (!l->found[0] || l->group_end > to) {
            err_set(err, ERR_GONE, "layer '%s' is neither in the image archive nor stored",
                    l->layers[l->at].digest);
            return err_remedy(err, "import the image again, with all of its layers");
        }
        l->at = l->group_end;
        if (take_found(l, err) < 0)
            return -1;
    }
    return 0;
}

static int layered_disorder(const struct image_layered *l, struct err *err) {
    return err_set(err, ERR_INVALID, "the layered image archive has '%.80s' out of order",
                   l->entry.path);
}

/* Finds the layer that the entry at hand is. Those before it may be left out, in whole groups. */
static const struct layer_blob *layer_next(struct image_layered *l, struct err *err) {
    size_t to = l->at;
    while (to < l->count && !is_blob(&l->entry, &l->layers[to]))
        to++;
    if (to == l->count || (to > l->at && l->at != l->group_end)) {
        layered_disorder(l, err);
        return NULL;
    }
    return take_stored(l, to, err) < 0 ? NULL : &l->layers[to];
}

/* Finds the blob that the entry at hand is; NULL with *err if it must not come now. */
static const struct layer_blob *blob_next(struct image_layered *l, struct err *err) {
    const struct layer_blob *next = l->count ? &l->config : &l->manifest;
    if (l->config_text)
        return layer_next(l, err);
    if (is_blob(&l->entry, next))
        return next;
    layered_disorder(l, err);
    return NULL;
}

/* Documents and layers have to come in order. Nothing else has contents. */
static int begin_file(struct image_layered *l, struct err *err) {
    const struct tar_entry *e = &l->entry;
    l->left = e->size;
    l->padding = tar_padding(e->size);
    l->state = SKIPS_FILE;
    if (e->size == 0 || strcmp(e->path, "oci-layout") == 0)
        return e->size <= DOCUMENT_MAX ? 0 : layered_invalid(err, "has an invalid oci-layout");
    bool is_index = !l->manifest.digest[0] && strcmp(e->path, "index.json") == 0;
    if (e->kind != TAR_FILE)
        return layered_disorder(l, err);
    const struct layer_blob *blob = is_index ? NULL : blob_next(l, err);
    if (!is_index && !blob)
        return -1;
    if (is_index ? e->size > DOCUMENT_MAX : e->size != blob->size)
        return err_set(err, ERR_INVALID, "'%.80s' of the image archive does not have its size",
                       e->path);
    if (l->config_text)
        return begin_layer(l, err);
    l->state = TAKES_TEXT;
    buf_drop(&l->text, l->text.len);
    return 0;
}

static int take_head(struct image_layered *l, struct err *err) {
    if (l->held < TAR_BLOCK)
        return 0;
    l->held = 0;
    switch (tar_next(&l->tar, l->block, &l->entry)) {
    case TAR_MORE:
        return 0;
    case TAR_ENTRY:
        return begin_file(l, err);
    case TAR_END:
        l->state = ENDED;
        return l->config_text && l->at == l->group_end ? take_stored(l, l->count, err) : 0;
    default:
        return layered_invalid(err, "is not a tar");
    }
}

static int end_file(struct image_layered *l, struct err *err) {
    if (l->state == TAKES_LAYER)
        return end_layer(l, err);
    bool is_text = l->state == TAKES_TEXT;
    l->state = TAKES_HEAD;
    return is_text ? read_document(l, err) : 0;
}

/* Takes bytes of the current file. 0: the pipe to the worker is full. */
static size_t take_file(struct image_layered *l, const char *bytes, size_t n) {
    n = n < l->left ? n : (size_t)l->left;
    if (l->state == TAKES_LAYER) {
        if (!l->found[0])
            n = worker_put(l, bytes, n);
        sha256_add(&l->sum, bytes, n);
    } else if (l->state == TAKES_TEXT) {
        (void)!buf_add(&l->text, bytes, n); /* begin_file() has checked the size */
    }
    l->left -= n;
    return n;
}

/* Takes some of the bytes, at most up to a change of state. *ret 0: nothing can be taken now. */
static int layered_take(struct image_layered *l, const char *bytes, size_t count, size_t *ret,
                        struct err *err) {
    *ret = count;
    if (l->state == ENDED)
        return 0;
    if (l->state != TAKES_HEAD) {
        *ret = take_file(l, bytes, count);
        return l->left ? 0 : end_file(l, err);
    }
    if (l->padding) {
        *ret = count < l->padding ? count : l->padding;
        l->padding -= (uint32_t)*ret;
        return 0;
    }
    *ret = count < TAR_BLOCK - l->held ? count : TAR_BLOCK - l->held;
    memcpy(l->block + l->held, bytes, *ret);
    l->held += *ret;
    if (take_head(l, err) < 0)
        return -1;
    bool is_empty = (l->state == SKIPS_FILE || l->state == TAKES_LAYER) && !l->left;
    return is_empty ? end_file(l, err) : 0;
}

/* The topmost layer becomes an image only after the whole archive has come. */
static void layered_end(struct image_layered *l) {
    struct image_job *j = l->job;
    struct err err;
    if (l->state != ENDED || !l->count || l->at < l->count || !j->staging[0]) {
        layered_invalid(&err, "ends early");
        image_job_fail(j, &err);
        return;
    }
    j->unverified = false;
    loop_defer(j->service->loop, &j->later);
}

size_t image_layered_feed(struct image_layered *l, const char *bytes, size_t count, bool last) {
    struct err err;
    size_t done = 0;
    bool flushed = false;
    while (!l->job->has_failed && (flushed = flush_out(l)) && l->state != WAITS && done < count) {
        size_t n = 0;
        if (layered_take(l, bytes + done, count - done, &n, &err) < 0)
            image_job_fail(l->job, &err);
        else if (!n)
            break;
        done += n;
    }
    if (l->job->has_failed)
        return count;
    flushed = flush_out(l);
    if (last && flushed && done == count && l->state != WAITS)
        layered_end(l);
    else if (last && l->state == WAITS && count == 0)
        layered_end(l);
    return done;
}

void image_layered_room(struct image_layered *l) {
    flush_out(l);
}
