/* State and helpers that the files of WASI share. A handler returns an enum wasi_errno. */
#pragma once

#include "cell/wasi/wasi.h"

enum wasi_kind {
    KIND_FREE,
    KIND_STDIN,
    KIND_STDOUT,
    KIND_STDERR,
    KIND_FILE,
    KIND_DIR,
    KIND_LISTENER,
    KIND_STREAM, /* an accepted connection */
    KIND_STALE,  /* could not be opened again after a resume */
};

/* An open descriptor of the program. */
struct wasi_fd {
    enum wasi_kind kind;
    int host; /* owned, unless is_lent */
    bool is_lent;
    bool is_preopen;
    bool is_read_only;
    int root;   /* files and directories: index of the preopen */
    char *path; /* files and directories: path beneath the preopen, owned; NULL: not known */
    uint64_t base, inheriting; /* rights */
    uint16_t flags;            /* FDFLAG_… */
    uint64_t offset;
};

struct wasi {
    struct wasi_config config;
    struct wasi_fd *fds;
    uint32_t n_fds;
    uint64_t slept_ns;                    /* virtual time that the program spent in poll_oneoff */
    uint64_t random_next;                 /* number of the next block of seeded bytes */
    uint64_t monotonic_ns, monotonic_add; /* last value of the real clock; added since a resume */
    bool is_resumed;
    const char **texts[2]; /* arguments and environment of a saved state, owned */
    size_t n_texts;
};

/* The pending call with its program: what handlers get. */
struct wasi_at {
    struct wasi *w;
    struct wasi_call *c;
};

static inline uint32_t wasi_u32(const struct wasi_at *a, int i) {
    return (uint32_t)a->c->args[i].i32;
}
static inline uint64_t wasi_u64(const struct wasi_at *a, int i) {
    return (uint64_t)a->c->args[i].i64;
}

/* --- memory of the program (memory.c) --- */

/* Returns [at, at + len), or NULL if it is not in memory. For len 0 it returns a dummy. */
uint8_t *wasi_bytes(const struct wasi_call *c, uint32_t at, uint64_t len);
/* Copies bytes to memory and notes them for the log; WASI_FAULT if they do not fit. */
int wasi_put(const struct wasi_at *a, uint32_t at, const void *bytes, size_t len);
int wasi_put_number(const struct wasi_at *a, uint32_t at, uint64_t value, unsigned bytes);
/* Notes bytes for the log that were written to memory directly. */
void wasi_note(const struct wasi_at *a, uint32_t at, size_t len);
uint64_t wasi_number(const uint8_t *p, unsigned bytes);
void wasi_set_number(uint8_t *p, uint64_t value, unsigned bytes);

enum { WASI_IOVS_MAX = 1024 };
/* One buffer of a vector; len is cut so that all of them have at most WASI_TRANSFER_MAX bytes. */
struct wasi_iov {
    uint32_t at, len;
    uint8_t *bytes;
};
/* Returns buffer i of the vector; `left` is the room that remains. */
int wasi_iov_at(const struct wasi_call *c, uint32_t vector, uint32_t i, uint32_t *left,
                struct wasi_iov *ret);

/* --- descriptors (fds.c) --- */

#define WASI_DIR_RIGHTS                                                                         \
    (RIGHT_FD_DATASYNC | RIGHT_FD_SYNC | RIGHT_PATH_CREATE_DIRECTORY | RIGHT_PATH_CREATE_FILE | \
     RIGHT_PATH_LINK_SOURCE | RIGHT_PATH_LINK_TARGET | RIGHT_PATH_OPEN | RIGHT_FD_READDIR |     \
     RIGHT_PATH_READLINK | RIGHT_PATH_RENAME_SOURCE | RIGHT_PATH_RENAME_TARGET |                \
     RIGHT_PATH_FILESTAT_GET | RIGHT_PATH_FILESTAT_SET_SIZE | RIGHT_PATH_FILESTAT_SET_TIMES |   \
     RIGHT_FD_FILESTAT_GET | RIGHT_FD_FILESTAT_SET_TIMES | RIGHT_PATH_SYMLINK |                 \
     RIGHT_PATH_REMOVE_DIRECTORY | RIGHT_PATH_UNLINK_FILE)
#define WASI_FILE_RIGHTS                                                                    \
    (RIGHT_FD_DATASYNC | RIGHT_FD_READ | RIGHT_FD_SEEK | RIGHT_FD_FDSTAT_SET_FLAGS |        \
     RIGHT_FD_SYNC | RIGHT_FD_TELL | RIGHT_FD_WRITE | RIGHT_FD_ADVISE | RIGHT_FD_ALLOCATE | \
     RIGHT_FD_FILESTAT_GET | RIGHT_FD_FILESTAT_SET_SIZE | RIGHT_FD_FILESTAT_SET_TIMES |     \
     RIGHT_POLL_FD_READWRITE)
#define WASI_WRITE_RIGHTS (RIGHT_FD_WRITE | RIGHT_FD_ALLOCATE | RIGHT_FD_FILESTAT_SET_SIZE)

/* Returns the entry of a descriptor; NULL: it is not open. */
struct wasi_fd *wasi_fd_at(const struct wasi *w, uint32_t fd);
/* As wasi_fd_at(), with the error: it is not open, is stale or lacks one of the rights. */
int wasi_fd_with(const struct wasi *w, uint32_t fd, uint64_t rights, struct wasi_fd **ret);
/* Takes the lowest free number and the ownership of *f, also after a failure. */
int wasi_fd_add(struct wasi *w, const struct wasi_fd *f, uint32_t *ret);
/* Puts *f at this number, which is free. */
bool wasi_fd_put(struct wasi *w, uint32_t fd, const struct wasi_fd *f);
void wasi_fd_drop(struct wasi_fd *f);
bool wasi_fds_open(struct wasi *w);

/* Translates -errno. The second is for paths: what leads out of the directory is WASI_PERM. */
int wasi_error(int negative);
int wasi_path_error(int negative);

/* --- paths (paths.c) --- */

/* How a file is opened beneath a directory; also after a resume. */
int wasi_open_beneath(int dir, const char *path, const struct wasi_fd *like, bool follow,
                      unsigned oflags);
/* Returns the kind of an open file, KIND_FREE if it is neither a file nor a directory. */
enum wasi_kind wasi_kind_of(int host);

/* Returns the number of nanoseconds of a clock. */
uint64_t wasi_clock_now(const struct wasi_at *a, uint32_t clock);
struct stat;
int wasi_put_filestat(const struct wasi_at *a, uint32_t at, const struct stat *st,
                      enum wasi_filetype type);
int wasi_times(const struct wasi_at *a, int first, struct timespec ret[2]);

/* The 46 functions, in the order of table.c, and the answer to those that are not supported. */
typedef int wasi_handler(const struct wasi_at *a);
wasi_handler wasi_args_get, wasi_args_sizes_get, wasi_environ_get, wasi_environ_sizes_get,
    wasi_clock_res_get, wasi_clock_time_get, wasi_fd_advise, wasi_fd_allocate, wasi_fd_close,
    wasi_fd_datasync, wasi_fd_fdstat_get, wasi_fd_fdstat_set_flags, wasi_fd_fdstat_set_rights,
    wasi_fd_filestat_get, wasi_fd_filestat_set_size, wasi_fd_filestat_set_times, wasi_fd_pread,
    wasi_fd_prestat_get, wasi_fd_prestat_dir_name, wasi_fd_pwrite, wasi_fd_read, wasi_fd_readdir,
    wasi_fd_renumber, wasi_fd_seek, wasi_fd_sync, wasi_fd_tell, wasi_fd_write,
    wasi_path_create_directory, wasi_path_filestat_get, wasi_path_filestat_set_times,
    wasi_path_link, wasi_path_open, wasi_path_readlink, wasi_path_remove_directory,
    wasi_path_rename, wasi_path_symlink, wasi_path_unlink_file, wasi_poll_oneoff, wasi_proc_exit,
    wasi_proc_raise, wasi_sched_yield, wasi_random_get, wasi_sock_accept, wasi_sock_recv,
    wasi_sock_send, wasi_sock_shutdown, wasi_refused;
