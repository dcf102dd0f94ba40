/* `cell warm`, and the start of a run from a warm image (cell/warm.h). */
#include <inttypes.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/sha256.h"
#include "cell/verb.h"
#include "cell/warm.h"

void send_image_head(struct session *s, struct slice state) {
    char head[WARM_HEAD_SIZE];
    uint8_t digest[SHA256_BYTES] = {0};
    warm_head(warm_program(s->job->options->files[0]), s->job->options->seed, head);
    warm_digest(state.data, state.len, digest);
    link_state(s->link, head, sizeof(head));
    link_state(s->link, digest, sizeof(digest));
}

/* The state of the store has a checksum of its own. This one is of the part in front of it. */
bool warm_is_whole(struct slice *image) {
    uint8_t digest[SHA256_BYTES];
    if (image->len < sizeof(digest))
        return false;
    const uint8_t *was = image->data;
    image->data += sizeof(digest);
    image->len -= sizeof(digest);
    return warm_digest(image->data, image->len, digest) && memcmp(was, digest, sizeof(digest)) == 0;
}

static int tell_warm(struct session *s) {
    const struct cell_options *o = s->job->options;
    struct buf b DEFER(buf_done) = BUF(1 << 16);
    uint64_t fuel = wasm_fuel_used(s->store);
    bool ok = o->json ? buf_addf(&b, "{\"fuel\":%" PRIu64 ",\"seed\":%" PRIu64 "}\n", fuel, o->seed)
                      : buf_addf(&b, "saved '%s' after %" PRIu64 " fuel\n", o->out, fuel);
    if (ok)
        link_text(s->link, b.data, b.len);
    return CELL_OK;
}

int verb_warm(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    struct ending e = {0};
    struct err err;
    session_init(&s, l, job);
    s.stop_at = warm_program(job->options->files[0])->driver ? STOP_AT_INPUT : STOP_AT_CALL;
    int code = session_load(&s, job->bytes, job->options->spec, job->options->memory);
    if (code == CELL_OK)
        code = session_check_grants(&s, NULL, 0);
    if (code == CELL_OK)
        code = run_new(&s, &e);
    if (code != CELL_OK)
        return code;
    if (!e.suspended) {
        err_set(&err, ERR_INVALID, "cannot save '%s': it ended before it %s", job->file,
                s.stop_at == STOP_AT_INPUT ? "read its standard input" : "called WASI");
        return session_fail(&s, CELL_TRAP, &err);
    }
    code = send_state(&s, true);
    return code == CELL_OK ? tell_warm(&s) : code;
}

/* An image that does not fit, for example of another version, is not an error: it saves time. */
int run_warm(struct session *s, struct ending *ret) {
    struct slice image = s->job->warm;
    struct err err;
    if (!s->job->dump && (!warm_is_whole(&image) || resume_store(s, image, &err) < 0))
        return run_new(s, ret);
    s->is_warm = true;
    s->request = s->job->request;
    s->fuel_before = wasm_fuel_used(s->store);
    wasm_fuel_limit(s->store, s->job->options->fuel);
    return session_drive(s, ret);
}
