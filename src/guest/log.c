#include "guest/log.h"

#include <sys/mman.h>
#include <sys/stat.h>
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
