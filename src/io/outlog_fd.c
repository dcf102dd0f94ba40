#include "io/outlog_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/defer.h"

#define SEALS (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define CHUNK (64u << 10)

static int map_log(struct outlog_fd *l, struct err *err) {
    void *map = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
    if (map == MAP_FAILED)
        return err_sys(err, "cannot map the output log of a command");
    l->log.map = map;
    return 0;
}

int outlog_fd_make(struct outlog_fd *ret, const struct outlog_caps *caps, struct err *err) {
    struct outlog_fd l DEFER(outlog_fd_close) = {.bytes = outlog_bytes(caps)};
    l.fd = memfd_create("outlog", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (l.bytes == 0)
        return err_set(err, ERR_INVALID, "the size of the output log of a command is out of range");
    if (l.fd < 0 || ftruncate(l.fd, (off_t)l.bytes) < 0 || fcntl(l.fd, F_ADD_SEALS, SEALS) < 0)
        return err_sys(err, "cannot create the output log of a command");
    if (map_log(&l, err) < 0)
        return -1;
    outlog_format(l.log.map, caps);
    if (outlog_open(&l.log, l.log.map, -1, l.bytes) < 0)
        return err_set(err, ERR_INTERNAL, "the new output log of a command is malformed");
    *ret = l;
    l = OUTLOG_FD_NONE;
    return 0;
}

int outlog_fd_adopt(struct outlog_fd *ret, int fd, struct err *err) {
    struct outlog_fd l DEFER(outlog_fd_close) = {.fd = fd};
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return err_set(err, ERR_DENIED,
                       "the output log of a command is not sealed against a change of its size");
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the size of the output log of a command");
    l.bytes = (uint64_t)st.st_size;
    if (map_log(&l, err) < 0)
        return -1;
    if (outlog_open(&l.log, l.log.map, -1, l.bytes) < 0)
        return err_set(err, ERR_INVALID, "the file from the guest is not an output log");
    *ret = l;
    l = OUTLOG_FD_NONE;
    return 0;
}

void outlog_fd_close(struct outlog_fd *l) {
    if (l->log.map)
        munmap(l->log.map, l->bytes);
    close_fd(&l->fd);
    l->log.map = NULL;
}

/* Saving a log in a file. */

static int outlog_fd_put(int file, const void *bytes, size_t n, uint64_t at, struct err *err) {
    while (n > 0) {
        ssize_t done = pwrite(file, bytes, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_sys(err, "cannot save the output of a command");
        bytes = (const char *)bytes + done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Gives the file the size of the log; a file that already has it keeps its content. */
static int shape(const struct outlog *l, int file, struct err *err) {
    struct stat st;
    uint64_t bytes = outlog_bytes(&l->caps);
    if (fstat(file, &st) < 0)
        return err_sys(err, "cannot save the output of a command");
    if ((uint64_t)st.st_size == bytes)
        return 0;
    struct outlog_page page;
    outlog_format(&page, &l->caps);
    if (outlog_fd_put(file, &page, sizeof(page), 0, err) < 0)
        return -1;
    return ftruncate(file, (off_t)bytes) < 0 ? err_sys(err, "cannot save the output of a command")
                                             : 0;
}

static int keep_stream(const struct outlog *l, int stream, int file, struct outlog_kept *k,
                       uint64_t end, struct err *err) {
    char bytes[CHUNK];
    uint64_t *at = &k->produced[stream];
    while (*at < end) {
        size_t max = end - *at < CHUNK ? (size_t)(end - *at) : CHUNK;
        struct outlog_piece p = outlog_read(l, stream, *at, bytes, max);
        uint64_t claimed = p.offset + l->caps.tail[stream];
        if (p.left_out > 0 && p.offset > l->caps.head[stream] && claimed > k->claimed[stream])
            k->claimed[stream] = claimed;
        if (p.n == 0 && p.left_out == 0)
            break;
        if (outlog_fd_put(file, bytes, p.n, outlog_position(&l->caps, stream, p.offset), err) < 0)
            return -1;
        *at = p.offset + p.n;
    }
    if (k->claimed[stream] < *at)
        k->claimed[stream] = *at;
    return 0;
}

/* Copies the turns (the order of the two streams): the used part of the ring. */
static int keep_turns(const struct outlog *l, int file, uint64_t turns, struct err *err) {
    char bytes[8 * OUTLOG_TURNS];
    size_t n = 8 * (size_t)(turns < OUTLOG_TURNS ? turns : OUTLOG_TURNS);
    if (n == 0)
        return 0;
    memcpy(bytes, l->map + OUTLOG_PAGE, n);
    return outlog_fd_put(file, bytes, n, OUTLOG_PAGE, err);
}

static int put_page(int file, struct outlog_page page, const struct outlog_kept *produced,
                    const struct outlog_kept *claimed, struct err *err) {
    for (int i = 0; i < 2; i++) {
        page.stream[i].produced = produced->produced[i];
        page.stream[i].claimed = claimed->claimed[i];
    }
    return outlog_fd_put(file, &page, sizeof(page), 0, err);
}

static int sync_file(int file, struct err *err) {
    return fdatasync(file) < 0 ? err_sys(err, "cannot sync the saved output of a command") : 0;
}

/* True if the new bytes will overwrite bytes in the ring that the file still reports as kept. */
static bool is_overwritten(const struct outlog_caps *caps, const struct outlog_page *page,
                           const struct outlog_kept *done) {
    for (int i = 0; i < 2; i++)
        if (page->stream[i].produced > done->produced[i] &&
            page->stream[i].produced > caps->head[i] + caps->tail[i])
            return true;
    return false;
}

bool outlog_is_whole(int file) {
    struct outlog kept;
    return outlog_open_kept(&kept, file, NULL) == 0 && outlog_extent(&kept, 0).ended &&
           outlog_extent(&kept, 1).ended;
}

int outlog_keep(const struct outlog *l, int file, struct outlog_kept *done, struct err *err) {
    struct outlog_page page = outlog_page_of(l);
    struct outlog_kept next = *done;
    if (outlog_is_whole(file))
        return 0;
    if (shape(l, file, err) < 0)
        return -1;
    /* Bytes that will be overwritten are first reported as left out, in the file as in memory. */
    struct outlog_kept claim = *done;
    bool is_new = false;
    for (int i = 0; i < 2; i++) {
        is_new = is_new || page.stream[i].produced > done->produced[i] || page.stream[i].ended;
        if (claim.claimed[i] < page.stream[i].produced)
            claim.claimed[i] = page.stream[i].produced;
    }
    if (!is_new)
        return 0;
    struct outlog_page before = page;
    before.stream[0].ended = before.stream[1].ended = 0;
    if (put_page(file, before, done, &claim, err) < 0 ||
        (is_overwritten(&l->caps, &page, done) && sync_file(file, err) < 0) ||
        keep_turns(l, file, page.turns, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        if (keep_stream(l, i, file, &next, page.stream[i].produced, err) < 0)
            return -1;
    /* Data is synced before numbers: after a power cut they never report bytes not on disk. */
    if (sync_file(file, err) < 0 || put_page(file, page, &next, &next, err) < 0 ||
        sync_file(file, err) < 0)
        return -1;
    *done = next;
    return 0;
}

int outlog_open_kept(struct outlog *ret, int file, struct err *err) {
    struct stat st;
    if (fstat(file, &st) < 0)
        return err_sys(err, "cannot open the saved output of a command");
    if (outlog_open(ret, NULL, file, (uint64_t)st.st_size) < 0)
        return err_set(err, ERR_INVALID, "the file does not hold saved output of a command");
    return 0;
}

static int restore_part(const struct outlog_fd *l, int file, uint64_t at, uint64_t n,
                        struct err *err) {
    while (n > 0) {
        ssize_t got = pread(file, l->log.map + at, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_sys(err, "cannot read the saved output of a command");
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/* Numbers that no reader of the file would believe are not taken over. */
int outlog_fd_restore(struct outlog_fd *ret, int file, struct outlog_kept *ret_kept,
                      struct err *err) {
    struct outlog kept;
    struct outlog_fd l DEFER(outlog_fd_close) = OUTLOG_FD_NONE;
    if (outlog_open_kept(&kept, file, err) < 0 || outlog_fd_make(&l, &kept.caps, err) < 0)
        return -1;
    struct outlog_page page = outlog_page_of(&kept);
    uint64_t turns = page.turns < OUTLOG_TURNS ? page.turns : OUTLOG_TURNS;
    if (restore_part(&l, file, OUTLOG_PAGE, 8 * turns, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        uint64_t head = kept.caps.head[i], tail = kept.caps.tail[i];
        uint64_t n = page.stream[i].produced;
        page.stream[i].ended = 0;
        page.stream[i].claimed = n;
        if (restore_part(&l, file, outlog_position(&kept.caps, i, 0), n < head ? n : head, err) < 0)
            return -1;
        n = n > head ? n - head : 0;
        if (restore_part(&l, file, outlog_position(&kept.caps, i, head), n < tail ? n : tail, err) <
            0)
            return -1;
    }
    memcpy(l.log.map, &page, sizeof(page));
    *ret_kept = outlog_kept_of(&kept);
    *ret = l;
    l = OUTLOG_FD_NONE;
    return 0;
}

struct outlog_kept outlog_kept_of(const struct outlog *kept) {
    struct outlog_page page = outlog_page_of(kept);
    struct outlog_kept k;
    for (int i = 0; i < 2; i++) {
        k.produced[i] = page.stream[i].produced;
        k.claimed[i] = page.stream[i].claimed;
    }
    return k;
}

void outlog_fd_release(struct outlog_fd *l, const struct outlog_kept *done) {
    for (int i = 0; i < 2; i++) {
        uint64_t head = l->log.caps.head[i];
        uint64_t n = done->produced[i] < head ? done->produced[i] : head;
        if (n > 0)
            (void)!fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             (off_t)outlog_position(&l->log.caps, i, 0), (off_t)n);
    }
}
