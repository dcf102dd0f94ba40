/*
 * Property: a reference that is read has only characters that can stand in a URL as they are, and
 * is read the same when it is written in full; a manifest that is read keeps the caps; the values
 * of a challenge have no control characters.
 */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "registry/challenge.h"
#include "registry/document.h"
#include "registry/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_reference(const char *text) {
    struct reference r, again;
    char full[1024];
    if (reference_read(text, &r, NULL) < 0)
        return;
    assert(r.host[0] && r.repository[0] && (r.tag[0] || r.digest[0]));
    assert(!strpbrk(r.repository, " ?#%:@\\\r\n") && !strstr(r.repository, ".."));
    assert(!strpbrk(r.host, " /?#%@\\\r\n") && !strpbrk(r.tag, "/ ?#%@\r\n"));
    snprintf(full, sizeof(full), "%s/%s%s%s%s%s", r.host, r.repository, r.tag[0] ? ":" : "", r.tag,
             r.digest[0] ? "@" : "", r.digest);
    assert(reference_read(full, &again, NULL) == 0);
    assert(strcmp(r.host, again.host) == 0 && strcmp(r.repository, again.repository) == 0);
    assert(strcmp(r.tag, again.tag) == 0 && strcmp(r.digest, again.digest) == 0);
}

static void check_challenge(const char *text) {
    struct challenge c = challenge_read(text);
    assert((c.kind == CHALLENGE_BEARER) == (c.realm[0] != '\0'));
    assert(!strpbrk(c.realm, "\r\n") && !strpbrk(c.service, "\r\n") && !strpbrk(c.scope, "\r\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text DEFER_FREE = xstrndup((const char *)data, size);
    struct document *d DEFER_FREE = xnew(struct document);
    check_reference(text);
    check_challenge(text);
    if (document_read((const char *)data, size, "arm64", d, NULL) < 0)
        return 0;
    assert(d->count <= DOCUMENT_LAYERS_MAX && d->bytes <= DOCUMENT_IMAGE_MAX + d->config.size);
    assert(reference_digest_ok(d->is_index ? d->child.digest : d->config.digest));
    return 0;
}
