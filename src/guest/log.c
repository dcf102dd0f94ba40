#include "guest/log.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>

#include "guest/scratch.h"
#include "guest/sys.h"

#define SEALS (F_SEAL_GROW | F_SEAL_SHRINK)

/* The spill of all streams that are not copied: nobody reads it. */
static uint8_t nowhere[SPILL_SIZE];
static uint8_t spills[CMD_MAX][2][SPILL_SIZE] SPARSE; /* of copied streams */

/* Touches a spill, so that it has memory when the log has none. */
static void spill_prepare(uint8_t *spill) {
    volatile uint8_t *page = spill;
    page[0] = page[SPILL_SIZE - 1] = 0;
}

uint8_t *log_spill(size_t command, int stream) {
    spill_prepare(spills[command][stream]);
    return spills[command][stream];
}

void log_drop_spills(void) {
    madvise(spills, sizeof(spills), MADV_DONTNEED);
}

static int map_log(struct log *l, bool continues) {
    struct stat st;
    int seals = fcntl(l->fd, F_GET_SEALS);
    errno = EINVAL;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(l->fd, &st) < 0)
        return -1;
    l->bytes = (uint64_t)st.st_size;
    void *map = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
    if (map == MAP_FAILED)
        return -1;
    if ((continues ? outlog_continue : outlog_write)(&l->w, map, l->bytes) == 0)
        return 0;
    munmap(map, l->bytes);
    errno = EINVAL;
    return -1;
}

int log_open(struct log *l, int fd, bool continues) {
    *l = (struct log){.fd = fd};
    spill_prepare(nowhere);
    if (map_log(l, continues) == 0)
        return 0;
    close_fd(&l->fd);
    return -1;
}

/* A 128th of the memory for the end of each stream, and a quarter of that for its start. */
static uint64_t area_bytes(void) {
    enum { LEAST = 256 << 10, MOST = 16 << 20 };
    struct sysinfo info;
    uint64_t bytes = sysinfo(&info) < 0 ? 0 : (uint64_t)info.totalram * info.mem_unit / 128;
    bytes = bytes < LEAST ? LEAST : bytes > MOST ? MOST : bytes;
    return bytes & ~(uint64_t)(OUTLOG_TAIL_MIN - 1);
}

int log_make(const uint8_t stdio[3]) {
    uint64_t tail = area_bytes(), head = tail / 4;
    bool is_one = stdio[1] == MSG_STDIO_PTY || stdio[2] == MSG_STDIO_SAME;
    struct outlog_caps caps = is_one ? (struct outlog_caps){{head, 0}, {tail, OUTLOG_TAIL_MIN}}
                                     : (struct outlog_caps){{head, head}, {tail, tail}};
    uint64_t bytes = outlog_bytes(&caps);
    int fd DEFER_CLOSE = (int)syscall(SYS_memfd_create, "output", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || bytes == 0 || ftruncate(fd, (off_t)bytes) < 0)
        return -1;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -1;
    outlog_format(map, &caps);
    munmap(map, bytes);
    return fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0 ? -1 : TAKE_FD(fd);
}

int log_fetch(const struct log *l, int stream, uint64_t offset, uint8_t *to, uint32_t max,
              struct msg_log_data *ret) {
    struct outlog log;
    errno = EIO;
    if (outlog_open(&log, NULL, l->fd, l->bytes) < 0)
        return -1;
    struct outlog_extent extent = outlog_extent(&log, stream);
    struct outlog_piece piece = {.offset = offset};
    if (offset < extent.produced)
        piece = outlog_read(&log, stream, offset, to, max);
    *ret = (struct msg_log_data){.offset = piece.offset,
                                 .produced = extent.produced,
                                 .lost = extent.lost,
                                 .ended = extent.ended,
                                 .data = {to, (uint32_t)piece.n}};
    return 0;
}

static void unmap_log(struct log *l) {
    if (l->w.log.map)
        munmap(l->w.log.map, l->bytes);
    l->w.log.map = NULL;
}

void log_close(struct log *l) {
    if (l->fd < 0)
        return;
    unmap_log(l);
    close_fd(&l->fd);
}

/*
 * Reads output of the command directly into the log. The kernel writes the pages in readv(), so if
 * memory runs out, readv() fails instead of a SIGBUS here.
 */
ssize_t log_fill(struct log *l, int stream, int fd, size_t max, uint8_t *spill) {
    struct iovec v[2];
    int pieces = outlog_claim(&l->w, stream, max, v);
    ssize_t n = readv(fd, v, pieces);
    outlog_commit(&l->w, stream, n > 0 ? (size_t)n : 0);
    if (n >= 0 || errno != EFAULT)
        return n;
    n = read(fd, spill ? spill : nowhere, SPILL_SIZE);
    if (n > 0)
        outlog_lose(&l->w, stream, (size_t)n);
    return n;
}

/* The host may keep a whole log for a while: the guest does not map it any longer. */
void log_end(struct log *l, int stream) {
    if (l->fd < 0 || l->w.ended[stream])
        return;
    outlog_end(&l->w, stream);
    if (l->w.ended[0] && l->w.ended[1])
        unmap_log(l);
}

struct msg_log log_state(const struct log *l) {
    struct msg_log state = {.produced = {l->w.produced[0], l->w.produced[1]}};
    state.ended = (uint8_t)(l->w.ended[0] | l->w.ended[1] << 1);
    return state;
}

bool log_has_news(const struct log *l) {
    if (l->fd < 0 || l->wait_tag == 0)
        return false;
    struct msg_log now = log_state(l);
    return now.ended == 3 || now.ended != l->seen.ended || now.produced[0] != l->seen.produced[0] ||
           now.produced[1] != l->seen.produced[1];
}
