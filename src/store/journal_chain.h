/*
 * Reading segments and checking that each record follows from the one before: what opening, proving
 * and reading a journal have in common.
 */
#pragma once

#include "store/journal.h"

/* "00000001.log" */
enum { SEGMENT_NAME_SIZE = 16, SEGMENT_MAX = 99999999 };
void segment_name(uint64_t number, char ret[SEGMENT_NAME_SIZE]);

/* The first and the last segment, 0 when there is none; `invalid` names one that is missing between
 * them. */
int segment_range(int dir, uint64_t *ret_first, uint64_t *ret_last, struct err *err);
/* What the hash member of its last whole line says; unproved. */
int segment_last_hash(int dir, uint64_t number, uint8_t ret[SHA256_BYTES], struct err *err);
int segment_open(int dir, uint64_t number, int flags, struct err *err); /* a descriptor or -1 */

/* A record that announces that the journal begins with that segment from now on. */
bool journal_is_prune(const struct journal_record *r, uint64_t *ret_first);
int journal_prune(struct journal *j, int dir, uint64_t last, const struct journal_keep *keep,
                  uint64_t *ret_first, struct err *err);
int journal_drop(int dir, uint64_t first, struct err *err);

/* Lines of one file, with constant memory. */
struct lines {
    int fd;
    char *buf;
    size_t start;
    size_t end;
    uint64_t offset; /* of the line that was returned last */
    uint64_t next;   /* one past it */
    uint64_t number; /* of that line, from 1 */
};

enum lines_result {
    LINES_END,     /* after a newline, or the file is empty */
    LINES_LINE,    /* *ret includes the newline */
    LINES_PARTIAL, /* bytes without a newline at the end; nothing was consumed: try again later */
    LINES_LONG,    /* longer than any record */
    LINES_FAILED,  /* errno says why */
};

bool lines_init(struct lines *l, int fd, uint64_t offset); /* the descriptor is the lines' now */
void lines_done(struct lines *l);
enum lines_result lines_next(struct lines *l, const char **ret, size_t *ret_len);

/* Where a walk over the chain stands. */
struct chain {
    uint8_t pubkey[JOURNAL_PUBKEY_BYTES];
    struct journal_head at;      /* the last good record */
    char journal[ID_SIZE];       /* of the first segment header seen */
    uint64_t segment;            /* that is being read */
    uint64_t signed_seq;         /* what the last good signature covers */
    enum journal_kind last;      /* kind of the last good record */
    uint8_t start[SHA256_BYTES]; /* the hash before its first record */
    bool begun;                  /* a segment header was seen */
};

/*
 * Takes the next line of segment c->segment; `first` when it is the first of its file. A chain that
 * has not begun takes its start from the header's own words.
 */
int chain_step(struct chain *c, const char *line, size_t len, bool first, struct journal_slot *slot,
               struct err *err);
