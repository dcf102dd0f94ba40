#include "registry/pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/sha256.h"
#include "base/tar.h"

#define ACCEPT                                                    \
    "Accept: application/vnd.oci.image.index.v1+json, "           \
    "application/vnd.docker.distribution.manifest.list.v2+json, " \
    "application/vnd.oci.image.manifest.v1+json, "                \
    "application/vnd.docker.distribution.manifest.v2+json"

/* ---- the archive ---- */

static int put_bytes(int fd, const void *bytes, size_t n, struct err *err) {
    int r = write_all(fd, bytes, n);
    return r < 0 ? err_num(err, r, "cannot write the archive of the image") : 0;
}

static int put_head(int fd, const char *path, uint64_t size, struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = size};
    snprintf(e->path, sizeof(e->path), "%s", path);
    return put_bytes(fd, head, tar_put(head, e), err);
}

static int put_padding(int fd, uint64_t size, struct err *err) {
    static const uint8_t zeros[TAR_BLOCK];
    return put_bytes(fd, zeros, tar_padding(size), err);
}

static int put_text(int fd, const char *path, const char *text, size_t n, struct err *err) {
    return put_head(fd, path, n, err) < 0 || put_bytes(fd, text, n, err) < 0
               ? -1
               : put_padding(fd, n, err);
}

static void blob_path(const char *digest, char ret[96]) {
    snprintf(ret, 96, "blobs/sha256/%s", digest + strlen("sha256:"));
}

/* ---- manifests ---- */

static int digest_check(const char *bytes, size_t n, const char *digest, const char *what,
                        struct err *err) {
    char hex[SHA256_HEX];
    sha256_hex(bytes, n, hex);
    return strcmp(hex, digest + strlen("sha256:")) == 0
               ? 0
               : err_set(err, ERR_INVALID, "%s does not have the digest '%s'", what, digest);
}

/* Reads a manifest or index by tag or digest. */
static int manifest_fetch(struct registry *r, const char *name, const char *digest, uint64_t size,
                          struct registry_answer *a, struct err *err) {
    static const char *const fields[] = {ACCEPT, NULL};
    char url[REGISTRY_URL_SIZE];
    const struct registry_request q = {
        .method = "GET", .url = url, .fields = fields, .max_bytes = DOCUMENT_BYTES_MAX};
    if (registry_url(r, url, err, "manifests/%s", name) < 0)
        return -1;
    for (unsigned attempt = 1; registry_call(r, &q, a, err) < 0; attempt++)
        if (!a->is_cut || !registry_wait(attempt))
            return err_wrap(err, "cannot read the manifest");
    if (a->status != 200)
        return registry_refused(a, "cannot read the manifest", err);
    if (!a->body.len)
        return err_set(err, ERR_INVALID, "the manifest is empty");
    if (size && size != a->body.len)
        return err_set(err, ERR_INVALID, "the manifest has %zu bytes; the index says %llu",
                       a->body.len, (unsigned long long)size);
    if (*digest && digest_check(a->body.data, a->body.len, digest, "the manifest", err) < 0)
        return -1;
    return reference_digest_ok(a->digest)
               ? digest_check(a->body.data, a->body.len, a->digest, "the manifest", err)
               : 0;
}

/* ---- blobs ---- */

struct blob_pull {
    const struct descriptor *d;
    int fd;
    struct sha256 hash;
    uint64_t done;   /* bytes that were written */
    uint64_t skip;   /* bytes of this answer that were written before */
    bool is_failed;  /* *err says why */
    bool is_started; /* this answer has begun */
    uint64_t from;   /* where the requested range starts */
    struct err *err;
};

static bool blob_fail(struct blob_pull *b) {
    b->is_failed = true;
    return false;
}

static bool blob_take(void *arg, long status, const char *bytes, size_t n) {
    struct blob_pull *b = arg;
    if (!b->is_started) {
        b->is_started = true;
        b->skip = status == 206 ? 0 : b->from; /* a server without ranges sends all again */
    }
    size_t skipped = n < b->skip ? n : (size_t)b->skip;
    b->skip -= skipped;
    bytes += skipped;
    n -= skipped;
    if (n > b->d->size - b->done) {
        err_set(b->err, ERR_INVALID, "blob '%s' is larger than the manifest says", b->d->digest);
        return blob_fail(b);
    }
    sha256_add(&b->hash, bytes, n);
    if (put_bytes(b->fd, bytes, n, b->err) < 0)
        return blob_fail(b);
    b->done += n;
    return true;
}

/* Requests the rest of the blob. 1: more must be requested after a broken connection. */
static int blob_request(struct registry *r, struct blob_pull *b, const char *url, struct err *err) {
    char range[64];
    const char *fields[] = {NULL, NULL};
    struct registry_answer a DEFER(registry_answer_done) = {0};
    const struct registry_request q = {
        .method = "GET", .url = url, .fields = fields, .sink = blob_take, .arg = b};
    snprintf(range, sizeof(range), "Range: bytes=%llu-", (unsigned long long)b->done);
    if (b->done)
        fields[0] = range;
    b->from = b->done;
    b->is_started = false;
    int result = registry_call(r, &q, &a, err);
    if (b->is_failed)
        return -1;
    if (result < 0)
        return a.is_cut ? 1 : -1;
    if (a.status != 200 && a.status != 206)
        return registry_refused(&a, "cannot read a blob", err);
    if (a.status == 206 &&
        strtoull(a.content_range + strcspn(a.content_range, "0123456789"), NULL, 10) != b->from)
        return err_set(err, ERR_INVALID, "the registry sent another part of blob '%s'",
                       b->d->digest);
    if (b->done < b->d->size)
        return err_set(err, ERR_INVALID, "blob '%s' has %llu bytes; the manifest says %llu",
                       b->d->digest, (unsigned long long)b->done, (unsigned long long)b->d->size);
    return 0;
}

static int blob_fetch(struct registry *r, const struct descriptor *d, int fd, struct err *err) {
    char url[REGISTRY_URL_SIZE], path[96], hex[SHA256_HEX];
    struct blob_pull b = {.d = d, .fd = fd, .err = err};
    int more = 1;
    blob_path(d->digest, path);
    sha256_init(&b.hash);
    if (registry_url(r, url, err, "blobs/%s", d->digest) < 0 ||
        put_head(fd, path, d->size, err) < 0)
        return -1;
    for (unsigned attempt = 1; more > 0 && (d->size > 0); attempt++) {
        uint64_t before = b.done;
        more = blob_request(r, &b, url, err);
        if (b.done > before)
            attempt = 1;
        if (more < 0 || (more > 0 && !registry_wait(attempt)))
            return err_wrap(err, "cannot read a blob");
    }
    sha256_end_hex(&b.hash, hex);
    if (strcmp(hex, d->digest + strlen("sha256:")) != 0)
        return err_set(err, ERR_INVALID, "a blob does not have the digest '%s'", d->digest);
    return put_padding(fd, d->size, err);
}

/* ---- the image ---- */

static bool is_repeated(const struct document *doc, size_t i) {
    bool found = strcmp(doc->layers[i].digest, doc->config.digest) == 0;
    for (size_t k = 0; k < i; k++)
        found |= strcmp(doc->layers[k].digest, doc->layers[i].digest) == 0;
    return found;
}

/* 0 if one occurs twice. */
static size_t count_layers(const struct document *doc) {
    for (size_t i = 0; i < doc->count; i++)
        if (is_repeated(doc, i))
            return 0;
    return doc->count;
}

static int write_image(struct registry *r, const struct registry_answer *manifest,
                       const struct document *doc, size_t skip, int fd, struct err *err) {
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    static const uint8_t end[2 * TAR_BLOCK];
    char index[512], hex[SHA256_HEX], path[96];
    sha256_hex(manifest->body.data, manifest->body.len, hex);
    snprintf(path, sizeof(path), "blobs/sha256/%s", hex);
    int n = snprintf(index, sizeof(index),
                     "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":"
                     "\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:%s\","
                     "\"size\":%zu}]}",
                     hex, manifest->body.len);
    if (put_text(fd, "oci-layout", layout, strlen(layout), err) < 0 ||
        put_text(fd, "index.json", index, (size_t)n, err) < 0 ||
        put_text(fd, path, manifest->body.data, manifest->body.len, err) < 0 ||
        blob_fetch(r, &doc->config, fd, err) < 0)
        return -1;
    for (size_t i = skip; i < doc->count; i++)
        if (!is_repeated(doc, i) && blob_fetch(r, &doc->layers[i], fd, err) < 0)
            return -1;
    return put_bytes(fd, end, sizeof(end), err);
}

int registry_pull(struct registry *r, const struct reference *ref, int fd,
                  const struct pull_options *o, struct err *err) {
    struct registry_answer a DEFER(registry_answer_done) = {0};
    struct document *doc DEFER_FREE = xnew(struct document);
    const char *name = ref->digest[0] ? ref->digest : ref->tag;
    if (manifest_fetch(r, name, ref->digest, 0, &a, err) < 0 ||
        document_read(a.body.data, a.body.len, o->arch, doc, err) < 0)
        return -1;
    if (doc->is_index) {
        struct descriptor child = doc->child;
        if (manifest_fetch(r, child.digest, child.digest, child.size, &a, err) < 0 ||
            document_read(a.body.data, a.body.len, o->arch, doc, err) < 0)
            return -1;
    }
    if (doc->is_index)
        return err_set(err, ERR_INVALID, "the index in the registry leads to another index");
    size_t layers = count_layers(doc), skip = o->plan(o->arg, doc, layers);
    return write_image(r, &a, doc, skip < layers ? skip : layers, fd, err);
}
