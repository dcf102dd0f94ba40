#include "image/squeeze.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"

enum { SQUEEZE_THREADS_MAX = 8, SLOTS = 2 * SQUEEZE_THREADS_MAX };

enum slot_state { SLOT_EMPTY, SLOT_WAITING, SLOT_BUSY, SLOT_DONE };

struct slot {
    enum slot_state state;
    struct packfile_frame frame;
    int result;
    struct err err;
};

/* The lock protects `state` of all slots, `taken` and `stopping`. Who sets a slot to SLOT_BUSY owns
 * the rest of it until it is SLOT_DONE. */
struct squeeze {
    squeeze_fn *fn;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[SQUEEZE_THREADS_MAX];
    unsigned thread_count;
    bool stopping;
    struct slot slots[SLOTS];
    unsigned given, taken, returned; /* counts of frames; slot number = count modulo SLOTS */
};

static void *squeeze_work(void *arg) {
    struct squeeze *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct slot *slot = &s->slots[s->taken % SLOTS];
        if (s->stopping)
            break;
        if (slot->state != SLOT_WAITING) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        s->taken++;
        slot->state = SLOT_BUSY;
        pthread_mutex_unlock(&s->lock);
        slot->result = packfile_frame_compress(&slot->frame, &slot->err);
        pthread_mutex_lock(&s->lock);
        slot->state = SLOT_DONE;
        pthread_cond_signal(&s->done);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct squeeze *squeeze_new(unsigned threads, squeeze_fn *fn, void *arg, struct err *err) {
    struct squeeze *s DEFER(squeeze_free) = xnew(struct squeeze);
    *s = (struct squeeze){.fn = fn,
                          .arg = arg,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .work = PTHREAD_COND_INITIALIZER,
                          .done = PTHREAD_COND_INITIALIZER};
    for (; s->thread_count < threads && s->thread_count < SQUEEZE_THREADS_MAX; s->thread_count++) {
        int r = pthread_create(&s->threads[s->thread_count], NULL, squeeze_work, s);
        if (r != 0) {
            err_num(err, -r, "cannot start a thread that compresses");
            return NULL;
        }
    }
    return TAKE(s);
}

void squeeze_free(struct squeeze **at) {
    struct squeeze *s = *at;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    while (s->thread_count)
        pthread_join(s->threads[--s->thread_count], NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        packfile_frame_done(&s->slots[i].frame);
    free(s);
    *at = NULL;
}

/* Waits for the oldest frame and passes it on. */
static int squeeze_return(struct squeeze *s, struct err *err) {
    struct slot *slot = &s->slots[s->returned % SLOTS];
    pthread_mutex_lock(&s->lock);
    while (slot->state != SLOT_DONE)
        pthread_cond_wait(&s->done, &s->lock);
    pthread_mutex_unlock(&s->lock);
    int r = slot->result;
    if (r < 0)
        *err = slot->err;
    else
        r = s->fn(s->arg, &slot->frame, err);
    packfile_frame_done(&slot->frame);
    slot->frame = (struct packfile_frame){.count = 0};
    pthread_mutex_lock(&s->lock);
    slot->state = SLOT_EMPTY;
    pthread_mutex_unlock(&s->lock);
    s->returned++;
    return r;
}

int squeeze_put(struct squeeze *s, struct packfile_frame *frame, struct err *err) {
    if (s->given - s->returned == SLOTS && squeeze_return(s, err) < 0)
        return -1;
    struct slot *slot = &s->slots[s->given++ % SLOTS];
    slot->frame = *frame;
    *frame = packfile_frame_begin();
    pthread_mutex_lock(&s->lock);
    slot->state = SLOT_WAITING;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int squeeze_end(struct squeeze *s, struct err *err) {
    while (s->returned != s->given)
        if (squeeze_return(s, err) < 0)
            return -1;
    return 0;
}
