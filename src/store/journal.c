#include "store/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"
#include "base/parse.h"
#include "store/journal_chain.h"
#include "store/journal_key.h"
#include "store/journal_prepare.h"

enum { SEGMENT_BYTES = 4 << 20, HEAD_EVERY = 1024, RETIRED_MAX = 16, GROUP_MAX = 1 << 20 };

struct journal {
    struct journal_options options;
    struct journal_key *key;
    int dir;
    char id[ID_SIZE];
    uint64_t first; /* first segment (file) when the journal was opened */
    uint64_t segment;
    uint64_t size; /* bytes of whole records in the current segment */
    enum journal_kind last;
    uint64_t unsigned_records;
    bool broken; /* a failed write left a part of a record in the segment */
    int error;   /* result of the last write: 0 or -errno */
    struct buf out;

    /* One sync runs at a time, on a descriptor reserved for it. Otherwise a lack of descriptors
     * would look like a failing disk. */
    pthread_mutex_t syncing;
    int sync_fd;

    /*
     * The data that journal_sync() must write to the disk. The threads share it; `lock` protects
     * it.
     */
    pthread_mutex_t lock;
    struct journal_head at;
    struct journal_head synced;
    int fd;
    int retired[RETIRED_MAX]; /* descriptors of ended segments that may not be durable yet */
    size_t retired_count;
    bool dir_changed;
    /* the sync of an ended segment failed: the contents of the disk are unknown */
    bool sync_failed;
};

void journal_head_text(const struct journal_head *head, char ret[JOURNAL_HEAD_TEXT]) {
    char hex[JOURNAL_HEX_SIZE];
    hex_put(head->hash, sizeof(head->hash), hex);
    snprintf(ret, JOURNAL_HEAD_TEXT, "%llu:%s", (unsigned long long)head->seq, hex);
}

int journal_head_parse(const char *text, struct journal_head *ret, struct err *err) {
    struct journal_head head = {0};
    char digits[24];
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n > 0 && n < sizeof(digits) && strlen(colon + 1) == 2 * SHA256_BYTES &&
        hex_read(colon + 1, SHA256_BYTES, head.hash)) {
        memcpy(digits, text, n);
        digits[n] = '\0';
        if (parse_u64(digits, 1, 1ull << 60, &head.seq, NULL) == 0) {
            *ret = head;
            return 0;
        }
    }
    err_set(err, ERR_INVALID, "'%.80s' is not a journal head (number and hash of a record)", text);
    return err_remedy(err, "copy the head from the system log: NUMBER:64 hex digits");
}

/* ---- Writing ---- */

/* Writes all of j->out or nothing. The hash chain advances to `to` only if the write succeeds. */
static int write_out(struct journal *j, const struct journal_head *to, struct err *err) {
    int status = j->error = write_all(j->fd, j->out.data, j->out.len);
    if (status == 0) {
        j->size += j->out.len;
        pthread_mutex_lock(&j->lock);
        j->at = *to;
        pthread_mutex_unlock(&j->lock);
        return 0;
    }
    if (ftruncate(j->fd, (off_t)j->size) < 0) {
        j->broken = true;
        j->error = -EIO; /* not ENOSPC: a part of a record stays in the segment */
    }
    return err_num(err, status, "cannot append a record to the journal");
}

static int encode(struct journal *j, const struct journal_record *r, struct journal_head *at,
                  struct err *err) {
    struct journal_record record = *r;
    record.seq = at->seq + 1;
    if (record.time_ms == 0)
        record.time_ms = wall_ms();
    if (journal_record_encode(&record, at->hash, &j->out, err) < 0)
        return -1;
    at->seq++;
    return 0;
}

static void start_group(struct journal *j) {
    if (j->out.data)
        j->out.data[0] = '\0';
    j->out.len = 0;
}

static int usable(struct journal *j, struct err *err) {
    if (!j->broken)
        return 0;
    j->error = -EIO;
    err_set(err, ERR_INTERNAL, "the journal cannot be written because an earlier write failed");
    return err_remedy(err, "free space on the disk of CARREL_HOME and restart the daemon");
}

/* Writes a record about the journal itself: the header of a segment, or a signed head. */
static int write_own(struct journal *j, const struct journal_record *r, struct err *err) {
    struct journal_head at = j->at;
    start_group(j);
    if (usable(j, err) < 0 || encode(j, r, &at, err) < 0 || write_out(j, &at, err) < 0)
        return -1;
    j->last = r->kind;
    return 0;
}

int journal_sign(struct journal *j, struct err *err) {
    struct journal_head head = j->at;
    char prev[JOURNAL_HEX_SIZE], sig[2 * JOURNAL_SIG_BYTES + 1];
    if (j->last == JOURNAL_HEAD)
        return 0;
    if (journal_head_sign(j->key, &head, err) < 0)
        return -1;
    hex_put(head.hash, sizeof(head.hash), prev);
    hex_put(head.sig, sizeof(head.sig), sig);
    if (write_own(j, &(struct journal_record){.kind = JOURNAL_HEAD, .prev = prev, .sig = sig},
                  err) < 0)
        return -1;
    j->unsigned_records = 0;
    if (j->options.on_head)
        j->options.on_head(j->options.on_head_arg, &head);
    return 1;
}

static int write_header(struct journal *j, struct err *err) {
    char prev[JOURNAL_HEX_SIZE];
    hex_put(j->at.hash, sizeof(j->at.hash), prev);
    return write_own(
        j,
        &(struct journal_record){
            .kind = JOURNAL_SEGMENT, .segment = j->segment, .journal = j->id, .prev = prev},
        err);
}

/* The next journal_sync() syncs the ended segment. If too many wait, it is synced here. */
static void retire(struct journal *j, int fd) {
    pthread_mutex_lock(&j->lock);
    bool kept = j->retired_count < RETIRED_MAX;
    if (kept)
        j->retired[j->retired_count++] = fd;
    pthread_mutex_unlock(&j->lock);
    if (kept)
        return;
    bool failed = fdatasync(fd) < 0;
    close(fd);
    if (!failed)
        return;
    pthread_mutex_lock(&j->lock);
    j->sync_failed = true; /* journal_sync() reports the failure */
    pthread_mutex_unlock(&j->lock);
}

static void use_segment(struct journal *j, int fd) {
    pthread_mutex_lock(&j->lock);
    j->fd = fd;
    j->dir_changed = true;
    pthread_mutex_unlock(&j->lock);
}

/* Starts a new segment (file). If that fails, the journal stays in the old one for now. */
static int rotate(struct journal *j, struct err *err) {
    if (j->segment >= SEGMENT_MAX)
        return err_set(err, ERR_LIMIT, "the journal has reached its limit of %d segments (files)",
                       SEGMENT_MAX);
    if (journal_sign(j, err) < 0)
        return -1;
    int old = j->fd,
        fd = segment_open(j->dir, j->segment + 1, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, err);
    if (fd < 0)
        return -1;
    uint64_t old_size = j->size;
    j->segment++;
    j->size = 0;
    use_segment(j, fd);
    if (write_header(j, err) == 0) {
        retire(j, old);
        return 0;
    }
    char name[SEGMENT_NAME_SIZE];
    segment_name(j->segment, name);
    unlinkat(j->dir, name, 0);
    use_segment(j, old);
    close(fd);
    j->segment--;
    j->size = old_size;
    j->broken = false; /* the partial record was in the file that is deleted now */
    return -1;
}

static int encode_all(struct journal *j, const struct journal_record *records, size_t count,
                      struct journal_head *at, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        struct prepared *p DEFER(journal_prepared_freep) = journal_prepare(&records[i]);
        if (!p)
            return err_set(err, ERR_LIMIT, "cannot write the journal: out of memory");
        if (encode(j, &p->record, at, err) < 0)
            return -1;
    }
    return 0;
}

int journal_append(struct journal *j, const struct journal_record *records, size_t count,
                   uint64_t *ret_seq, struct err *err) {
    struct journal_head at = j->at;
    uint64_t first = at.seq + 1;
    j->error = 0;
    if (count == 0 || usable(j, err) < 0)
        return count == 0 ? 0 : -1;
    start_group(j);
    if (encode_all(j, records, count, &at, err) < 0 || write_out(j, &at, err) < 0)
        return -1;
    j->last = records[count - 1].kind;
    j->unsigned_records += count;
    /* The records are written. If signing or rotation fails, the next append tries again. */
    if (j->unsigned_records >= j->options.head_every)
        (void)journal_sign(j, NULL);
    if (j->size >= j->options.segment_bytes)
        (void)rotate(j, NULL);
    if (ret_seq)
        *ret_seq = first;
    return 0;
}

int journal_error(const struct journal *j) {
    return j->error;
}

void journal_at(const struct journal *j, struct journal_head *ret) {
    *ret = j->at;
    memset(ret->sig, 0, sizeof(ret->sig));
}

int journal_announce(struct journal *j, const struct journal_keep *keep, uint64_t *ret_first,
                     struct err *err) {
    return journal_prune(j, j->dir, j->segment, keep, ret_first, err);
}

int journal_forget(struct journal *j, uint64_t first, struct err *err) {
    return journal_drop(j->dir, first, err);
}

/* ---- Syncing to the disk ---- */

struct sync_job {
    int retired[RETIRED_MAX];
    size_t count;
    bool dir;
    struct journal_head at;
};

static int take_job(struct journal *j, struct sync_job *job) {
    pthread_mutex_lock(&j->lock);
    int r = j->sync_failed ? -EIO : dup3(j->fd, j->sync_fd, O_CLOEXEC) < 0 ? -errno : 0;
    if (r == 0) {
        memcpy(job->retired, j->retired, sizeof(job->retired));
        job->count = j->retired_count;
        job->dir = j->dir_changed;
        job->at = j->at;
        j->retired_count = 0;
        j->dir_changed = false;
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

static int sync_all(struct journal *j, struct sync_job *job) {
    int r = take_job(j, job);
    if (r < 0)
        return r;
    if (fdatasync(j->sync_fd) < 0)
        r = -errno;
    for (size_t i = 0; i < job->count; i++) {
        if (fdatasync(job->retired[i]) < 0)
            r = -errno;
        close(job->retired[i]);
    }
    return job->dir && fsync(j->dir) < 0 ? -errno : r;
}

int journal_sync(struct journal *j, struct err *err) {
    struct sync_job job = {0};
    pthread_mutex_lock(&j->syncing);
    int r = sync_all(j, &job);
    pthread_mutex_unlock(&j->syncing);
    if (r < 0)
        return err_num(err, r, "cannot sync the journal");
    pthread_mutex_lock(&j->lock);
    if (job.at.seq > j->synced.seq)
        j->synced = job.at;
    pthread_mutex_unlock(&j->lock);
    return 0;
}

void journal_synced(struct journal *j, struct journal_head *ret) {
    pthread_mutex_lock(&j->lock);
    *ret = j->synced;
    pthread_mutex_unlock(&j->lock);
}

/* ---- Opening ---- */

void journal_close(struct journal *j) {
    if (!j)
        return;
    if (j->fd >= 0) {
        (void)journal_sync(j, NULL);
        close(j->fd);
    }
    close_fd(&j->sync_fd);
    close_fd(&j->dir);
    journal_key_free(j->key);
    buf_done(&j->out);
    pthread_mutex_destroy(&j->lock);
    pthread_mutex_destroy(&j->syncing);
    free(j);
}

static void journal_closep(struct journal **j) {
    journal_close(*j);
}

static int open_dir(const char *dir, struct err *err) {
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create the journal directory '%s'", dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open the journal directory '%s'", dir) : fd;
}

static int journal_refuse(const struct lines *l, uint64_t segment, struct err *err) {
    char name[SEGMENT_NAME_SIZE];
    segment_name(segment, name);
    err_wrap(err, "journal file %s, line %llu is broken", name, (unsigned long long)l->number);
    err->code = ERR_INVALID;
    return err_remedy(err,
                      "run 'carrel audit verify'; to start a new journal, move its directory away");
}

/* Fails if the record has the number of the expected head, but another hash. */
static int check_expected(const struct journal *j, const struct chain *c, struct err *err) {
    const struct journal_head *e = j->options.expected;
    if (!e || e->seq != c->at.seq || memcmp(e->hash, c->at.hash, sizeof(e->hash)) == 0)
        return 0;
    return err_set(
        err, ERR_GONE,
        "journal record %llu differs from the one that was written: the journal was rolled back",
        (unsigned long long)e->seq);
}

/* Checks the records of a segment. 0: all valid; 1: the last line is incomplete; -1: failed. */
static int walk(struct journal *j, struct chain *c, struct lines *l, struct journal_slot *slot,
                struct err *err) {
    const char *line;
    size_t len;
    for (;;) {
        switch (lines_next(l, &line, &len)) {
        case LINES_END:
            return 0;
        case LINES_PARTIAL:
            return 1;
        case LINES_LONG:
            l->number++;
            err_set(err, ERR_INVALID, "the line is longer than any journal record");
            return journal_refuse(l, c->segment, err);
        case LINES_FAILED:
            return err_sys(err, "cannot read the journal");
        case LINES_LINE:
            break;
        }
        if (chain_step(c, line, len, l->number == 1, slot, err) < 0)
            return journal_refuse(l, c->segment, err);
        if (check_expected(j, c, err) < 0)
            return -1;
    }
}

static void slot_freep(struct journal_slot **slot) {
    free(*slot);
}

/*
 * Checks one segment from its header on. *ret_size: bytes of whole lines; *ret_torn: bytes after
 * the last whole line.
 */
static int journal_follow(struct journal *j, uint64_t segment, struct chain *c, uint64_t *ret_size,
                          uint64_t *ret_torn, struct err *err) {
    int fd = segment_open(j->dir, segment, O_RDONLY, err);
    struct journal_slot *slot DEFER(slot_freep) = malloc(sizeof(*slot));
    struct lines l DEFER(lines_done) = {.fd = fd};
    struct stat st;
    if (fd < 0)
        return -1;
    if (!slot || !lines_init(&l, fd, 0))
        return err_set(err, ERR_LIMIT, "cannot read the journal: out of memory");
    c->segment = segment;
    int status = walk(j, c, &l, slot, err);
    if (status < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the journal");
    *ret_size = l.next;
    *ret_torn = (uint64_t)st.st_size - l.next;
    return 0;
}

static int check_not_cut(const struct journal *j, struct err *err) {
    const struct journal_head *e = j->options.expected;
    if (!e || e->seq <= j->at.seq)
        return 0;
    err_set(err, ERR_GONE, "the journal ends at record %llu, but record %llu was written",
            (unsigned long long)j->at.seq, (unsigned long long)e->seq);
    return err_remedy(err, "restore the journal; to start a new one, move its directory away");
}

static int journal_note(struct journal *j, const char *verb, const char *reason, uint64_t bytes,
                        struct err *err) {
    struct journal_record r = {
        .kind = JOURNAL_NOTE, .verb = verb, .reason = reason, .bytes = bytes};
    return journal_append(j, &r, 1, NULL, err);
}

static int begin_new(struct journal *j, struct err *err) {
    struct id id = id_new('j');
    memcpy(j->id, id.text, sizeof(j->id));
    j->segment = 1;
    int fd = segment_open(j->dir, 1, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, err);
    if (fd < 0)
        return -1;
    use_segment(j, fd);
    if (write_header(j, err) < 0)
        return -1;
    if (!j->options.expected)
        return 0;
    char text[JOURNAL_HEAD_TEXT + 32], head[JOURNAL_HEAD_TEXT];
    journal_head_text(j->options.expected, head);
    snprintf(text, sizeof(text), "absent up to %s", head);
    return journal_note(j, JOURNAL_LOST, text, 0, err);
}

/* The header of the last segment was not written: the chain continues from the segment before. */
static int reopen_empty(struct journal *j, struct chain *c, uint64_t torn, struct err *err) {
    uint64_t size, torn_before;
    if (j->segment == j->first)
        return err_set(err, ERR_INVALID,
                       "journal segment (file) %llu is empty, and it is the oldest one",
                       (unsigned long long)j->segment);
    *c = (struct chain){0};
    journal_key_public(j->key, c->pubkey);
    if (journal_follow(j, j->segment - 1, c, &size, &torn_before, err) < 0)
        return -1;
    if (torn_before || c->last != JOURNAL_HEAD)
        return err_set(err, ERR_INVALID,
                       "journal segment (file) %llu does not end with a signed head (hash): its "
                       "end is missing "
                       "or was changed",
                       (unsigned long long)j->segment - 1);
    memcpy(j->id, c->journal, sizeof(j->id));
    j->at = c->at;
    j->last = c->last;
    if (check_not_cut(j, err) < 0 || write_header(j, err) < 0)
        return -1;
    return torn ? journal_note(j, "journal.torn", "a line was cut off by a crash", torn, err) : 0;
}

/* The previous segment must end with the hash that the header of this one names. */
static int check_link(const struct journal *j, const struct chain *c, struct err *err) {
    uint8_t hash[SHA256_BYTES];
    if (j->segment == j->first)
        return 0;
    if (segment_last_hash(j->dir, j->segment - 1, hash, err) < 0)
        return -1;
    if (memcmp(hash, c->start, sizeof(hash)) == 0)
        return 0;
    return err_set(err, ERR_INVALID,
                   "the hashes of journal segments (files) %llu and %llu do not match",
                   (unsigned long long)j->segment - 1, (unsigned long long)j->segment);
}

static int reopen(struct journal *j, struct err *err) {
    struct chain c = {0};
    uint64_t torn;
    journal_key_public(j->key, c.pubkey);
    if (journal_follow(j, j->segment, &c, &j->size, &torn, err) < 0)
        return -1;
    if (j->size == 0 && j->segment == 1)
        return begin_new(j, err);
    int fd = segment_open(j->dir, j->segment, O_WRONLY | O_APPEND, err);
    if (fd < 0)
        return -1;
    use_segment(j, fd);
    if (torn && ftruncate(fd, (off_t)j->size) < 0)
        return err_sys(err, "cannot remove the incomplete last line of the journal");
    if (j->size == 0)
        return reopen_empty(j, &c, torn, err);
    memcpy(j->id, c.journal, sizeof(j->id));
    j->at = c.at;
    j->last = c.last;
    if (check_link(j, &c, err) < 0 || check_not_cut(j, err) < 0)
        return -1;
    return torn ? journal_note(j, "journal.torn", "a line was cut off by a crash", torn, err) : 0;
}

int journal_open(const char *dir, const struct journal_options *options, struct journal **ret,
                 struct err *err) {
    struct journal *j DEFER(journal_closep) = calloc(1, sizeof(*j));
    if (!j)
        return err_set(err, ERR_LIMIT, "cannot open the journal: out of memory");
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_init(&j->syncing, NULL);
    j->fd = j->dir = j->sync_fd = -1;
    j->out = BUF(GROUP_MAX);
    j->options = *options;
    if (j->options.segment_bytes == 0)
        j->options.segment_bytes = SEGMENT_BYTES;
    if (j->options.head_every == 0)
        j->options.head_every = HEAD_EVERY;
    j->dir = open_dir(dir, err);
    if (j->dir < 0)
        return -1;
    j->sync_fd = fcntl(j->dir, F_DUPFD_CLOEXEC, 0);
    if (j->sync_fd < 0)
        return err_sys(err, "cannot open the journal directory '%s'", dir);
    if (journal_key_open(j->dir, &j->key, err) < 0 ||
        segment_range(j->dir, &j->first, &j->segment, err) < 0)
        return -1;
    if ((j->segment ? reopen(j, err) : begin_new(j, err)) < 0 || journal_sync(j, err) < 0)
        return -1;
    j->options.expected = NULL;
    *ret = TAKE(j);
    return 0;
}
