/*
 * Reads segments (the files of a journal) and checks that each record follows from the one before.
 * Used to open, verify and read a journal.
 */
#pragma once

#include "store/journal.h"

/* The file name of a segment, such as "00000001.log". */
enum { SEGMENT_NAME_SIZE = 16, SEGMENT_MAX = 99999999 };
void segment_name(uint64_t number, char ret[SEGMENT_NAME_SIZE]);

/*
 * Finds the first and the last segment; 0: none. ERR_INVALID names a missing segment between them.
 */
int segment_range(int dir, uint64_t *ret_first, uint64_t *ret_last, struct err *err);
/* Reads the hash in the last whole line of a segment, without checking it. */
int segment_last_hash(int dir, uint64_t number, uint8_t ret[SHA256_BYTES], struct err *err);
/* Opens a segment. Returns a descriptor or -1. */
int segment_open(int dir, uint64_t number, int flags, struct err *err);

/* True if the record announces that the journal begins with segment *ret_first from now on. */
bool journal_is_prune(const struct journal_record *r, uint64_t *ret_first);
int journal_prune(struct journal *j, int dir, uint64_t last, const struct journal_keep *keep,
                  uint64_t *ret_first, struct err *err);
int journal_drop(int dir, uint64_t first, struct err *err);

/* Reads a file line by line, with constant memory. */
struct lines {
    int fd;
    char *buf;
    size_t start;
    size_t end;
    uint64_t offset; /* offset of the line that was returned last */
    uint64_t next;   /* where the next line starts */
    uint64_t number; /* number of the line that was returned last, from 1 */
};

enum lines_result {
    LINES_END,     /* the end of the file, after a newline or in an empty file */
    LINES_LINE,    /* a whole line; *ret includes its newline */
    LINES_PARTIAL, /* bytes without a newline at the end; nothing was consumed: try again later */
    LINES_LONG,    /* a line that is longer than any record */
    LINES_FAILED,  /* the read failed; errno says why */
};

bool lines_init(struct lines *l, int fd, uint64_t offset); /* takes ownership of fd */
void lines_done(struct lines *l);
enum lines_result lines_next(struct lines *l, const char **ret, size_t *ret_len);

/* The state of a check of the journal's hash chain. */
struct chain {
    uint8_t pubkey[JOURNAL_PUBKEY_BYTES];
    struct journal_head at; /* number and hash of the last valid record */
    char journal[ID_SIZE];  /* id of the journal, from the first segment header that was read */
    uint64_t segment;       /* number of the segment that is read */
    uint64_t signed_seq;    /* last record that a valid signature covers */
    enum journal_kind last; /* kind of the last valid record */
    uint8_t start[SHA256_BYTES]; /* the hash before the first record that was read */
    bool begun;                  /* a segment header was seen */
};

/*
 * Checks the next line of segment c->segment and advances the chain. `first`: the line is the first
 * of its file. A chain that has not begun starts with the number and hash in this line, the segment
 * header.
 */
int chain_step(struct chain *c, const char *line, size_t len, bool first, struct journal_slot *slot,
               struct err *err);
