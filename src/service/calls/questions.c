#include "service/calls/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "service/calls/inner.h"
#include "service/vm/move.h"

enum {
    ASKS_MOST = 4,
    ASKS_EACH_MS = 15000,
    ASK_WAIT_MS = 600000,
    ASK_WAIT_MAX_MS = 86400000,
    OWNER_QUESTIONS_MAX = 64,
};

bool question_is(const char *id) {
    return id_valid(id, strlen(id), 'q');
}

static void question_free(struct question *q) {
    free(q->text);
    free(q);
}

/* Takes a question out of the list of its machine. */
static void question_remove(struct live_calls *c, struct question *q) {
    struct question **at = &c->questions;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
}

static void question_end(struct live_calls *c, struct question *q, uint8_t status,
                         const char *text) {
    const struct calling to = {.live = c->live, .id = q->call};
    calling_answer(&to, status, text);
    question_remove(c, q);
    question_free(q);
}

void questions_drop(struct live_calls *c, uint32_t call) {
    for (struct question *q = c->questions; q; q = q->next)
        if (q->call == call) {
            question_remove(c, q);
            question_free(q);
            return;
        }
}

void questions_drop_all(struct live_calls *c) {
    while (c->questions)
        questions_drop(c, c->questions->call);
}

void questions_tick(struct live_calls *c, uint64_t now_ms) {
    for (struct question *q = c->questions, *next; q; q = next) {
        next = q->next;
        if (q->until_ms <= now_ms)
            question_end(c, q, 1,
                         "carrel: nobody answered in time: decide yourself, or say what is "
                         "missing\n");
    }
}

/* ---- carrel ask ---- */

static size_t questions_count(const struct live *l) {
    size_t n = 0;
    for (const struct question *q = l->calls ? l->calls->questions : NULL; q; q = q->next)
        n++;
    return n;
}

static size_t questions_of_owner(struct service *s, const char *owner) {
    size_t n = 0;
    const struct live *l;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (strcmp(l->row.owner, owner) == 0)
            n += questions_count(l);
    return n;
}

/* Returns why the question is refused; NULL: it is not. */
static const char *ask_refuse(const struct calling *c, const char *text) {
    struct live *l = c->live;
    size_t n = strlen(text);
    if (!n || n > QUESTION_BYTES_MAX || !utf8_valid(text, n))
        return "carrel: a question is text in UTF-8 of at most 2000 bytes\n";
    if (questions_count(l) >= QUESTIONS_MAX ||
        questions_of_owner(l->service, l->row.owner) >= OWNER_QUESTIONS_MAX)
        return "carrel: too many questions wait for an answer\n";
    if (!call_rate_take(&calls_of(l)->asks, loop_now_ms(l->service->loop), ASKS_MOST, ASKS_EACH_MS))
        return "carrel: too many questions: ask again in a minute\n";
    return NULL;
}

static void question_tell(const struct live *l, const struct question *q) {
    struct buf text DEFER(buf_done) = BUF(16 << 10);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "id", q->id);
    jot_string(&j, "question", q->text);
    if (q->moves)
        jot_bool(&j, "moves", true);
    jot_end(&j, '}');
    event_tell(l->service, l->row.owner, l->row.id, "machine.ask", j.failed ? NULL : text.data);
}

static void question_begin(const struct calling *c, bool moves) {
    const char *const *w = c->words;
    struct live_calls *calls = calls_of(c->live);
    uint64_t wait_ms = ASK_WAIT_MS;
    bool limited = w[1] && w[2] && strcmp(w[2], "--timeout") == 0 && w[3] && !w[4];
    if (!w[1] || (w[2] && !limited) ||
        (limited && (parse_duration(w[3], &wait_ms, NULL) < 0 || wait_ms > ASK_WAIT_MAX_MS))) {
        calling_answer(c, 2,
                       moves ? "usage: carrel move REASON [--timeout TIME]\n"
                             : "usage: carrel ask QUESTION [--timeout TIME]\n");
        return;
    }
    const char *why = ask_refuse(c, w[1]);
    if (why) {
        calling_answer(c, 1, why);
        return;
    }
    struct question *q = xnew(struct question);
    *q = (struct question){.next = calls->questions,
                           .call = c->id,
                           .since_ms = wall_ms(),
                           .until_ms = loop_now_ms(c->live->service->loop) + wait_ms,
                           .moves = moves,
                           .text = xstrdup(w[1])};
    snprintf(q->id, sizeof(q->id), "%s", id_new('q').text);
    calls->questions = q;
    calls_start_timer(calls);
    question_tell(c->live, q);
}

void calling_ask(const struct calling *c) {
    question_begin(c, false);
}

void calling_move(const struct calling *c) {
    if (strcmp(c->live->row.kind, "box") == 0)
        question_begin(c, true);
    else
        calling_answer(c, 1, "carrel: only a box can become a vm\n");
}

/* ---- the owner ---- */

void calls_put_questions(const struct live *l, struct jot *j) {
    uint64_t now = loop_now_ms(l->service->loop);
    for (const struct question *q = l->calls ? l->calls->questions : NULL; q; q = q->next) {
        jot_object(j, NULL);
        jot_string(j, "id", q->id);
        jot_string(j, "machine", l->row.id);
        jot_string(j, "protocol", "question");
        jot_string(j, "question", q->text);
        if (q->moves)
            jot_bool(j, "moves", true);
        jot_i64(j, "since_ms", q->since_ms);
        jot_u64(j, "left_ms", q->until_ms > now ? q->until_ms - now : 0);
        jot_bool(j, "approved", false);
        jot_end(j, '}');
    }
}

static struct question *question_find(struct service *s, const struct caller *who, const char *id,
                                      struct live **ret, struct err *err) {
    struct live *l;
    if (authorise(who, RIGHT_APPROVE_REQUEST, err) < 0)
        return NULL;
    for (size_t at = 0; (l = map_next(&s->machines, &at));) {
        struct question *q = may_see(who, l->row.owner) && l->calls ? l->calls->questions : NULL;
        while (q && strcmp(q->id, id) != 0)
            q = q->next;
        *ret = l;
        if (q)
            return q;
    }
    err_set(err, ERR_NOT_FOUND, "no question with the id '%.40s' waits for an answer", id);
    err_remedy(err, "list the questions: carrel pending");
    return NULL;
}

static int answer_check(const char *text, struct err *err) {
    size_t n = text ? strlen(text) : 1;
    if (n && n <= ANSWER_BYTES_MAX)
        return 0;
    return err_set(err, ERR_INVALID, "an answer must have 1 to %d bytes", ANSWER_BYTES_MAX);
}

void service_question_answer(struct service *s, const struct caller *who, const char *id,
                             const char *text, service_net_fn *done, void *arg) {
    struct live *l = NULL;
    struct err err;
    uint64_t intent;
    char detail[64];
    struct question *q = question_find(s, who, id, &l, &err);
    snprintf(detail, sizeof(detail), "{\"question\":\"%.20s\"}", q ? q->id : "");
    const struct journal_record what = {.verb = text ? "machine.answer" : "machine.refuse",
                                        .machine = l ? l->row.id : NULL,
                                        .detail = detail};
    if (!q || answer_check(text, &err) < 0 || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct buf line DEFER(buf_done) = BUF(ANSWER_BYTES_MAX + 2);
    bool fits = buf_addf(&line, "%s\n", text ? text : "");
    if (text && fits)
        question_end(l->calls, q, 0, line.data);
    else
        question_end(l->calls, q, 1, "carrel: the owner does not answer this question\n");
    note_result(s, who, &what, intent, NULL);
    event_tell(s, l->row.owner, l->row.id, text ? "machine.answered" : "machine.refused", detail);
    done(arg, "{}", NULL);
}

/* ---- approving a move ---- */

struct question_move {
    struct service *service;
    struct caller who;
    char id[ID_SIZE];
    service_net_fn *done;
    void *arg;
};

/* A machine that moved has no program left, so nobody waits for an answer there. */
static void question_moved(void *arg, const struct machine_view *view, const struct err *err) {
    struct question_move *m DEFER_FREE = arg;
    struct buf line DEFER(buf_done) = BUF(1024);
    struct live *l = NULL;
    struct err none;
    struct question *q = err ? question_find(m->service, &m->who, m->id, &l, &none) : NULL;
    (void)view;
    if (q && buf_addf(&line, "carrel: the machine stays a box: %s\n", err->text))
        question_end(l->calls, q, 1, line.data);
    m->done(m->arg, err ? NULL : "{}", err);
}

void service_question_approve(struct service *s, const struct caller *who, const char *id,
                              service_net_fn *done, void *arg) {
    static const struct kind_request vm = {.kind = "vm"};
    struct live *l = NULL;
    struct err err;
    const struct question *q = question_find(s, who, id, &l, &err);
    if (q && !q->moves) {
        err_set(&err, ERR_INVALID, "a question is answered with decision 'answer' and a text");
        err_remedy(&err, "carrel answer ID TEXT, or carrel deny ID");
        q = NULL;
    }
    if (!q) {
        done(arg, NULL, &err);
        return;
    }
    struct question_move *m = xnew(struct question_move);
    *m = (struct question_move){.service = s, .who = *who, .done = done, .arg = arg};
    snprintf(m->id, sizeof(m->id), "%s", id);
    service_move(s, who, l->row.id, &vm, question_moved, m);
}
