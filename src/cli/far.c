/*
 * Standard streams of a command if the daemon is reached over TCP, which carries no descriptors.
 * Output arrives as events from the daemon's log. Input is sent in separate requests, one at a
 * time, so that a command that does not read its input blocks nothing else.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/text/base64.h"
#include "cli/remote.h"
#include "cli/session.h"

static void put_output(struct session *s, int stream, const char *bytes, size_t n) {
    struct buf *capture = s->captured[stream - 1];
    if (capture) {
        size_t room = capture->max - capture->len, fits = n < room ? n : room;
        s->cut[stream - 1] |= fits < n || (fits && !buf_add(capture, bytes, fits));
        return;
    }
    if (s->remote->unread[stream - 1])
        return;
    int r = write_all(stream, bytes, n);
    s->remote->unread[stream - 1] = r < 0;
    if (r == -EPIPE) /* the command gets SIGPIPE, as from a closed pipe */
        remote_signal(s, SIGPIPE);
    else if (r < 0)
        s->lost = -r;
}

int far_output(struct session *s, const json_t *event, int stream, struct err *err) {
    const json_t *text = json_object_get(event, "data");
    uint64_t *seen = &s->remote->seen[stream - 1];
    *seen = (uint64_t)client_number(event, "offset");
    if (text) {
        *seen += json_string_length(text);
        put_output(s, stream, json_string_value(text), json_string_length(text));
        return 0;
    }
    const char *encoded = client_text(event, "data_base64");
    size_t n = strlen(encoded);
    char *bytes DEFER_FREE = malloc(n + 1);
    if (!bytes || !base64_decode(encoded, n, bytes, &n))
        return err_set(err, ERR_INTERNAL, "the daemon sent damaged output of the command");
    *seen += n;
    put_output(s, stream, bytes, n);
    return 0;
}

/* Sends r->input, which ends at offset r->fed. If no daemon runs, the input is sent again
 * later. */
static int send_input(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    char target[CLIENT_TARGET_SIZE], offset[24];
    const struct client_request request = {.method = "POST", .target = target, .body = &r->input};
    snprintf(offset, sizeof(offset), "%" PRIu64, r->fed - r->input.len);
    if (client_target(target, err, "/v1/machines/%s/execs/%s/stdin?offset=%s&eof=%s", r->id,
                      r->exec, offset, r->input.len ? "0" : "1") < 0)
        return -1;
    r->feeding = true;
    if (!r->feed)
        r->feed = client_again(r->client, err);
    if (r->feed && client_send(r->client, r->feed, &request, err) == 0)
        return 0;
    return remote_lost(s, err);
}

int far_feed(struct session *s, const char *bytes, size_t n, struct err *err) {
    struct remote *r = s->remote;
    buf_done(&r->input);
    r->input = BUF(FAR_FEED_MAX);
    if (!buf_add(&r->input, bytes, n))
        return err_set(err, ERR_LIMIT, "out of memory");
    r->fed += n;
    return send_input(s, err);
}

int far_feed_again(struct session *s, struct err *err) {
    http_client_freep(&s->remote->feed);
    s->remote->feed = NULL;
    return s->remote->feeding ? send_input(s, err) : 0;
}

int far_fed(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    struct buf answer DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const struct http_head *head = NULL;
    if (client_answer(r->feed, &head, err) < 0) {
        if (!head)
            return remote_lost(s, err);
        r->feeding = false;
        /* The command ended or closed its input: stop sending. The events tell which. */
        return err->code == ERR_GONE || err->code == ERR_BUSY || err->code == ERR_INVALID ? 1 : -1;
    }
    r->feeding = false;
    return http_client_collect(r->feed, &answer, err);
}
