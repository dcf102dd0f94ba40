/*
 * The differences between two states of a machine's files: one record per path, as bytes between
 * the worker that compares (src/compare) and the code that shows, reviews or ships them.
 *
 * Paths and contents come from the box: any bytes except NUL in a path, any length. Malformed
 * records are refused; strings point into the bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum change_kind {
    CHANGE_ADDED = 1,
    CHANGE_MODIFIED, /* content, type, mode or owner */
    CHANGE_DELETED,
    CHANGE_KINDS
};

/* How the content of a changed regular file was compared. */
enum change_content {
    CONTENT_NONE = 0,   /* not a file, or the content is unchanged */
    CONTENT_TEXT,       /* `diff` holds the hunks */
    CONTENT_BINARY,     /* a NUL, or bytes that are not UTF-8 */
    CONTENT_LARGE,      /* too large to be compared line by line */
    CONTENT_CUT,        /* text, but the answer had no room for its difference */
    CONTENT_UNREADABLE, /* the file was deleted while it was read, or cannot be read */
    CONTENT_KINDS
};

struct change_side {
    uint32_t mode, uid, gid; /* mode with its type; 0: the path does not exist */
    uint64_t size;
};

struct bytes {
    const char *s;
    size_t n;
};

struct change {
    enum change_kind kind;
    enum change_content content;
    struct change_side before, after;
    bool own; /* the new content is what Carrel itself wrote for the network */
    uint64_t lines_added, lines_removed;
    struct bytes path;                        /* without a leading '/', never empty */
    struct bytes target_before, target_after; /* targets of a symbolic link */
    struct bytes diff;
};

/* Why changes are missing in the answer. */
enum changes_cut {
    CUT_NONE = 0,
    CUT_ENTRIES, /* more changed paths than the limit */
    CUT_LOOKED,  /* more directory entries to look at than the limit */
    CUT_TIME,
    CUT_DEPTH, /* directories nested too deep */
    CUT_KINDS
};

/* The last record of an answer: the totals. */
struct changes_end {
    uint64_t added, modified, deleted; /* all changes found, listed or not */
    uint64_t read_bytes;
    enum changes_cut cut;
    uint64_t looked; /* names that were looked at, in directories of layers and of both states */
};

/* The size of one layer. */
struct layer_size {
    uint32_t layer;
    uint64_t files; /* files, links, and marks of deleted files */
    uint64_t bytes; /* on disk */
};

enum changes_type { CHANGES_CHANGE = 1, CHANGES_END, CHANGES_SIZE };

struct changes_record {
    enum changes_type type;
    union {
        struct change change;
        struct changes_end end;
        struct layer_size size;
    };
};

enum { CHANGES_PATH_MAX = 8192, CHANGES_DIFF_MAX = 1 << 20 };

/* Appends a record. False: `out` is full, and unchanged. */
bool changes_write(struct buf *out, const struct changes_record *r);

/* Reads a record. 1: *at is after it; 0: no more bytes; -1: malformed. */
int changes_read(const char **at, const char *end, struct changes_record *ret);

const char *change_kind_name(enum change_kind kind);
const char *change_content_name(enum change_content content); /* NULL: none */
const char *changes_cut_name(enum changes_cut cut);           /* NULL: none */
/* "file", "directory", "symlink", ...; NULL: mode 0, the path does not exist */
const char *change_type_name(uint32_t mode);

/* All changes of an answer, in order. The list owns `bytes`, into which the changes point. */
struct change_list {
    char *bytes;
    struct change *v; /* sorted by path within each overlay of the machine */
    size_t count;
    struct changes_end end;
};

/*
 * Takes over the bytes of `records`. False: they are not changes and one CHANGES_END, or memory is
 * missing; then nothing is taken.
 */
bool change_list_take(struct buf *records, struct change_list *ret);
void change_list_done(struct change_list *list);
