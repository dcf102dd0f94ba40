/* The audit journal: searching and verifying it. */
#include <stdio.h>
#include <stdlib.h>

#include "api/call.h"
#include "api/inner.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/host.h"

enum { AUDIT_TURN = 64 << 10, AUDIT_TEXT_MAX = 8 << 10 };

/* A search of the journal. It blocks, so it runs in the thread pool, a turn at a time. */
struct reading {
    struct call *call;
    struct journal_filter filter;
    struct journal_reader *reader;
    char machine[ID_SIZE], dir[1100]; /* the filter points to `machine` and `text` */
    struct buf text;
    struct buf out;
    int more; /* of the last turn: 1: there may be more records, 0: no more, -1: failed with `err`
               */
    bool busy, begun;
    atomic_bool stop; /* nobody waits for the search any more */
    struct err err;
};

static void reading_free(struct reading *r) {
    journal_reader_close(r->reader);
    buf_done(&r->out);
    buf_done(&r->text);
    free(r);
}

/* The text as JSON writes it, without the quotation marks: so it is in the journal. */
static int audit_words(struct reading *r, const char *text, struct err *err) {
    struct jot j = JOT(&r->text);
    jot_string(&j, NULL, text);
    if (j.failed || !buf_add(&r->text, "", 1))
        return err_set(err, ERR_INVALID, "the text to search for is too long");
    r->text.data[r->text.len - 2] = '\0';
    r->filter.text = r->text.data + 1;
    return 0;
}

static void audit_turn(void *arg) {
    struct reading *r = arg;
    const struct journal_record *record;
    const char *line;
    size_t n;
    r->out = BUF(AUDIT_TURN + JOURNAL_LINE_MAX + 1);
    r->more =
        r->reader || journal_reader_open(r->dir, &r->filter, &r->reader, &r->err) == 0 ? 1 : -1;
    while (r->more > 0 && r->out.len < AUDIT_TURN &&
           (r->more = journal_reader_next(r->reader, &record, &line, &n, &r->err)) > 0)
        if (!buf_add(&r->out, line, n) || (n && line[n - 1] != '\n' && !buf_add(&r->out, "\n", 1)))
            r->more = err_set(&r->err, ERR_LIMIT, "out of memory");
}

static void audit_turned(void *arg);

static void audit_go_on(struct reading *r) {
    r->busy = true;
    loop_work(api_loop(r->call->api), audit_turn, audit_turned, r);
}

static void audit_turned(void *arg) {
    struct reading *r = arg;
    struct call *c = r->call;
    bool gone = call_is_gone(c), failed = r->more < 0, begun = r->begun;
    struct err err = r->err;
    r->busy = false;
    if (!gone && !begun && !failed)
        call_begin(c, 200, "application/x-ndjson", NULL);
    r->begun = begun || !failed;
    bool room = gone || !r->out.len || call_write(c, r->out.data, r->out.len);
    buf_done(&r->out);
    if (!gone && r->more > 0) {
        if (room)
            audit_go_on(r);
        return;
    }
    reading_free(r);
    if (gone && !begun)
        call_abandon(c);
    else if (failed && !gone)
        call_error(c, &err);
    else
        call_end(c);
}

static void audit_drained(struct call *c) {
    struct reading *r = c->user;
    if (!r->busy)
        audit_go_on(r);
}

static void audit_gone(struct call *c) {
    struct reading *r = c->user;
    if (r->busy) {
        atomic_store_explicit(&r->stop, true, memory_order_relaxed); /* audit_turned() ends it */
        return;
    }
    reading_free(r);
    call_end(c);
}

void api_audit(struct call *c) {
    struct err err;
    uint64_t since = 0, tail = 0;
    struct reading *r = xnew(struct reading);
    const char *machine = call_query(c, "machine"), *text = call_query(c, "text");
    r->call = c;
    r->text = BUF(AUDIT_TEXT_MAX);
    r->filter = (struct journal_filter){.owner = call_query(c, "owner"),
                                        .machine = machine ? r->machine : NULL,
                                        .verb = call_query(c, "verb"),
                                        .structural = call_flag(c, "heads"),
                                        .stop = &r->stop};
    if ((!text || audit_words(r, text, &err) == 0) &&
        (!machine || service_audit_machine(c->service, &c->who, machine, r->machine, &err) == 0) &&
        call_number(c, "since", 0, INT64_MAX, &since, &err) == 0 &&
        call_number(c, "tail", 1, 100000, &tail, &err) == 0) {
        r->filter.since_ms = (int64_t)since;
        r->filter.tail = tail;
        if (service_audit(c->service, &c->who, &r->filter, r->dir, sizeof(r->dir), &err) == 0) {
            c->user = r;
            c->on_gone = audit_gone;
            c->on_drain = audit_drained;
            audit_go_on(r);
            return;
        }
    }
    reading_free(r);
    call_error(c, &err);
}

/* A verification of the journal. It blocks, so it runs in the thread pool. */
struct proof {
    struct call *call;
    char dir[1100];
    struct journal_head head;   /* head (signed hash of a record) that the client kept elsewhere */
    struct journal_head newest; /* last record of this daemon when the request came */
    bool has_head, whole;
    struct journal_report report;
    struct err err;
};

static void prove(void *arg) {
    struct proof *p = arg;
    uint8_t key[JOURNAL_PUBKEY_BYTES];
    char path[1200];
    snprintf(path, sizeof(path), "%s/key.pub", p->dir);
    const struct journal_head *expected = p->has_head ? &p->head : &p->newest;
    p->whole = journal_pubkey_read(path, key, &p->err) == 0 &&
               journal_verify(p->dir, key, expected, &p->report, &p->err) == 0;
    if (p->whole && p->report.head.seq < p->newest.seq) {
        err_set(&p->err, ERR_GONE,
                "the journal ends at record %llu, but the daemon wrote record %llu",
                (unsigned long long)p->report.head.seq, (unsigned long long)p->newest.seq);
        p->whole = false;
    }
    /* A journal that was restarted after a loss has valid hashes. Accept it only if the client has
     * a head of a record after the loss. */
    if (p->whole && p->report.lost_seq && !(p->has_head && p->head.seq >= p->report.lost_seq)) {
        err_set(&p->err, ERR_GONE,
                "the journal before record %llu is missing: its files were removed",
                (unsigned long long)p->report.lost_seq);
        p->whole = false;
    }
}

static void proved(void *arg) {
    struct proof *p = arg;
    struct call *c = p->call;
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    char head[JOURNAL_HEAD_TEXT];
    journal_head_text(&p->report.head, head);
    jot_object(&j, NULL);
    jot_bool(&j, "whole", p->whole);
    jot_u64(&j, "records", p->report.records);
    jot_u64(&j, "segments", p->report.segments);
    jot_u64(&j, "first", p->report.first_seq);
    jot_string(&j, "head", head);
    jot_u64(&j, "signed", p->report.signed_seq);
    if (!p->whole) {
        jot_string(&j, "problem", p->err.text);
        jot_string(&j, "segment", p->report.segment);
        jot_u64(&j, "line", p->report.line);
        jot_u64(&j, "seq", p->report.seq);
    }
    jot_end(&j, '}');
    free(p);
    call_json(c, 200, &j, &text);
}

void api_audit_verify(struct call *c) {
    struct journal_filter filter = {0};
    const char *head = call_query(c, "head");
    struct err err;
    struct proof *p = xnew(struct proof);
    p->call = c;
    p->has_head = head;
    if ((head && journal_head_parse(head, &p->head, &err) < 0) ||
        service_audit(c->service, &c->who, &filter, p->dir, sizeof(p->dir), &err) < 0) {
        free(p);
        call_error(c, &err);
        return;
    }
    service_journal_head(c->service, &p->newest);
    loop_work(api_loop(c->api), prove, proved, p);
}
