#include "registry/push.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/tar.h"
#include "registry/document.h"
#include "registry/url.h"

enum { PUSH_PART = 8 << 20 };

struct push {
    struct registry *registry;
    int fd;
    char *part; /* PUSH_PART bytes */
    char manifest[REFERENCE_DIGEST_SIZE];
    struct buf manifest_text;
};

/* ---- the archive ---- */

static int read_exactly(int fd, void *to, size_t n, struct err *err) {
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(err, ERR_UNKNOWN, "the archive of the image is incomplete");
        done += (size_t)got;
    }
    return 0;
}

static int read_away(struct push *p, uint64_t n, struct err *err) {
    for (uint64_t left = n; left > 0;) {
        size_t some = left < PUSH_PART ? (size_t)left : PUSH_PART;
        if (read_exactly(p->fd, p->part, some, err) < 0)
            return -1;
        left -= some;
    }
    return 0;
}

static int read_document(struct push *p, uint64_t size, struct buf *to, struct err *err) {
    if (size > DOCUMENT_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the manifest of the image is too large");
    if (read_exactly(p->fd, p->part, (size_t)size, err) < 0)
        return -1;
    return buf_add(to, p->part, (size_t)size) ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static int read_index(struct push *p, uint64_t size, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(DOCUMENT_BYTES_MAX);
    if (read_document(p, size, &text, err) < 0)
        return -1;
    json_t *root DEFER(json_decrefp) = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    const json_t *list = json_object_get(root, "manifests");
    const char *digest = json_string_value(json_object_get(json_array_get(list, 0), "digest"));
    if (json_array_size(list) != 1 || !digest || !reference_digest_ok(digest))
        return err_set(err, ERR_INTERNAL, "the archive of the image has no valid index");
    snprintf(p->manifest, sizeof(p->manifest), "%s", digest);
    return 0;
}

/* ---- blobs ---- */

struct upload {
    char url[REGISTRY_URL_SIZE];
    uint64_t done;
};

/* True if the registry has the blob. */
static int blob_is_there(struct push *p, const char *digest, struct err *err) {
    char url[REGISTRY_URL_SIZE];
    struct registry_answer a DEFER(registry_answer_done) = {0};
    const struct registry_request q = {.method = "HEAD", .url = url};
    if (registry_url(p->registry, url, err, "blobs/%s", digest) < 0)
        return -1;
    for (unsigned attempt = 1; registry_call(p->registry, &q, &a, err) < 0; attempt++)
        if (!a.is_cut || !registry_wait(attempt))
            return -1;
    if (a.status == 200 || a.status == 404)
        return a.status == 200;
    return registry_refused(&a, "cannot push the image", err);
}

static int upload_begin(struct push *p, struct upload *u, struct err *err) {
    static const char *const fields[] = {"Content-Length: 0", NULL};
    char url[REGISTRY_URL_SIZE];
    struct registry_answer a DEFER(registry_answer_done) = {0};
    const struct registry_request q = {.method = "POST", .url = url, .fields = fields};
    if (registry_url(p->registry, url, err, "blobs/uploads/") < 0 ||
        registry_call(p->registry, &q, &a, err) < 0)
        return -1;
    if (a.status != 202 || !a.location[0])
        return registry_refused(&a, "cannot push the image", err);
    snprintf(u->url, sizeof(u->url), "%s", a.location);
    u->done = 0;
    return 0;
}

/*
 * True if the registry no longer accepts this upload, because a connection broke. It may have
 * stored other bytes than it told, and libcurl may have sent the part again by itself. The upload
 * must then begin again, which is possible while its first part is still here.
 */
static bool upload_is_lost(const struct registry_answer *a) {
    return a->status == 404 || a->status == 416;
}

/* Asks how much of the blob the registry has, after a part whose connection broke. */
static int upload_resume(struct push *p, struct upload *u, uint64_t start, size_t n,
                         struct err *err) {
    struct registry_answer a DEFER(registry_answer_done) = {0};
    const struct registry_request q = {.method = "GET", .url = u->url};
    if (registry_call(p->registry, &q, &a, err) < 0)
        return a.is_cut ? 0 : -1;
    const char *dash = strchr(a.range, '-');
    if (upload_is_lost(&a) && start == 0)
        return upload_begin(p, u, err);
    if (a.status != 204 || !dash) {
        registry_refused(&a, "cannot push the image", err);
        return err_remedy(err, "push it again: blobs that the registry has are not sent again");
    }
    unsigned long long last = strtoull(dash + 1, NULL, 10);
    uint64_t has = last == 0 && start == 0 ? 0 : last + 1;
    if (has < start || has > start + n)
        return err_set(err, ERR_UNKNOWN, "the registry has lost a part of the upload");
    u->done = has;
    if (a.location[0])
        snprintf(u->url, sizeof(u->url), "%s", a.location);
    return 0;
}

static int upload_part(struct push *p, struct upload *u, size_t n, struct err *err) {
    uint64_t start = u->done;
    for (unsigned attempt = 1; u->done < start + n; attempt++) {
        char range[80];
        size_t skip = (size_t)(u->done - start);
        const char *fields[] = {"Content-Type: application/octet-stream", range, NULL};
        struct registry_answer a DEFER(registry_answer_done) = {0};
        const struct registry_request q = {.method = "PATCH",
                                           .url = u->url,
                                           .fields = fields,
                                           .body = p->part + skip,
                                           .n = n - skip};
        snprintf(range, sizeof(range), "Content-Range: %llu-%llu", (unsigned long long)u->done,
                 (unsigned long long)(start + n - 1));
        if (registry_call(p->registry, &q, &a, err) < 0) {
            if (!a.is_cut || !registry_wait(attempt) || upload_resume(p, u, start, n, err) < 0)
                return -1;
            continue;
        }
        if (upload_is_lost(&a) && start == 0 && registry_wait(attempt)) {
            if (upload_begin(p, u, err) < 0)
                return -1;
            continue;
        }
        if (a.status != 202 || !a.location[0])
            return registry_refused(&a, "cannot push the image", err);
        snprintf(u->url, sizeof(u->url), "%s", a.location);
        u->done = start + n;
    }
    return 0;
}

/* Completes the upload. One of a single part, which is still here, may begin again. */
static int upload_end(struct push *p, struct upload *u, const char *digest, uint64_t size,
                      struct err *err) {
    static const char *const fields[] = {"Content-Type: application/octet-stream", NULL};
    for (unsigned attempt = 1;; attempt++) {
        struct registry_answer a DEFER(registry_answer_done) = {0};
        const struct registry_request q = {.method = "PUT", .url = u->url, .fields = fields};
        if (url_query(u->url, sizeof(u->url), "digest", digest, err) < 0 ||
            registry_call(p->registry, &q, &a, err) < 0)
            return -1;
        if (a.status == 201)
            return 0;
        if (!upload_is_lost(&a) || size > PUSH_PART || !registry_wait(attempt))
            return registry_refused(&a, "cannot push the image", err);
        if (upload_begin(p, u, err) < 0 || upload_part(p, u, (size_t)size, err) < 0)
            return -1;
    }
}

static int push_blob(struct push *p, const char *digest, uint64_t size, struct err *err) {
    struct upload *u DEFER_FREE = xnew(struct upload);
    int there = blob_is_there(p, digest, err);
    if (there)
        return there < 0 ? -1 : read_away(p, size, err);
    if (upload_begin(p, u, err) < 0)
        return -1;
    for (uint64_t left = size; left > 0;) {
        size_t n = left < PUSH_PART ? (size_t)left : PUSH_PART;
        if (read_exactly(p->fd, p->part, n, err) < 0 || upload_part(p, u, n, err) < 0)
            return -1;
        left -= n;
    }
    return upload_end(p, u, digest, size, err);
}

static int push_manifest(struct push *p, const struct reference *ref, struct err *err) {
    static const char *const fields[] = {"Content-Type: application/vnd.oci.image.manifest.v1+json",
                                         NULL};
    char url[REGISTRY_URL_SIZE];
    struct registry_answer a DEFER(registry_answer_done) = {0};
    const struct registry_request q = {.method = "PUT",
                                       .url = url,
                                       .fields = fields,
                                       .body = p->manifest_text.data,
                                       .n = p->manifest_text.len};
    if (!p->manifest_text.len)
        return err_set(err, ERR_INTERNAL, "the archive of the image has no manifest");
    if (registry_url(p->registry, url, err, "manifests/%s", ref->tag) < 0 ||
        registry_call(p->registry, &q, &a, err) < 0)
        return -1;
    if (a.status != 201)
        return registry_refused(&a, "cannot push the image", err);
    return a.digest[0] && strcmp(a.digest, p->manifest) != 0
               ? err_set(err, ERR_UNKNOWN, "the registry stored another manifest: '%s'", a.digest)
               : 0;
}

/* ---- the image ---- */

static int push_entry(struct push *p, const struct tar_entry *e, struct err *err) {
    static const char blobs[] = "blobs/sha256/";
    char digest[REFERENCE_DIGEST_SIZE];
    bool is_blob = strncmp(e->path, blobs, strlen(blobs)) == 0 && e->kind == TAR_FILE &&
                   hex_is(e->path + strlen(blobs), 64);
    int r;
    snprintf(digest, sizeof(digest), "sha256:%.64s", is_blob ? e->path + strlen(blobs) : "");
    if (strcmp(e->path, "index.json") == 0)
        r = read_index(p, e->size, err);
    else if (is_blob && !p->manifest[0])
        r = err_set(err, ERR_INTERNAL, "the archive of the image has a blob before its index");
    else if (is_blob && strcmp(digest, p->manifest) == 0)
        r = read_document(p, e->size, &p->manifest_text, err);
    else
        r = is_blob ? push_blob(p, digest, e->size, err) : read_away(p, e->size, err);
    return r < 0 ? -1 : read_away(p, tar_padding(e->size), err);
}

static int push_archive(struct push *p, struct err *err) {
    struct tar_reader *reader DEFER_FREE = xnew(struct tar_reader);
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t block[TAR_BLOCK];
    for (;;) {
        if (read_exactly(p->fd, block, sizeof(block), err) < 0)
            return -1;
        enum tar_step step = tar_next(reader, block, e);
        if (step == TAR_BAD)
            return err_set(err, ERR_INTERNAL, "the archive of the image is not valid");
        if (step == TAR_END)
            return 0;
        if (step == TAR_ENTRY && push_entry(p, e, err) < 0)
            return -1;
    }
}

int registry_push(struct registry *r, const struct reference *ref, int fd,
                  char ret[REFERENCE_DIGEST_SIZE], struct err *err) {
    char *part DEFER_FREE = xmalloc(PUSH_PART);
    struct push p = {.registry = r, .fd = fd, .part = part};
    p.manifest_text = BUF(DOCUMENT_BYTES_MAX);
    int result = push_archive(&p, err) < 0 ? -1 : push_manifest(&p, ref, err);
    buf_done(&p.manifest_text);
    snprintf(ret, REFERENCE_DIGEST_SIZE, "%s", p.manifest);
    return result;
}
