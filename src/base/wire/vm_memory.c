#include "base/wire/vm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/siphash.h"

enum { SUM_PART = 1 << 20 };

static const char magic[16] = "carrel memory 1";

void vm_memory_begin(struct vm_memory_head *head) {
    memcpy(head->magic, magic, sizeof(magic));
}

bool vm_memory_fits(const struct vm_memory_head *head, uint64_t file_bytes) {
    return memcmp(head->magic, magic, sizeof(magic)) == 0 && head->mem_bytes < UINT64_MAX / 2 &&
           head->stream_bytes > 0 &&
           head->stream_bytes <= head->mem_bytes + VM_MEMORY_DEVICES_MAX && head->table_bytes > 0 &&
           head->table_bytes <= VM_MEMORY_TABLE_MAX &&
           VM_MEMORY_STREAM + head->stream_bytes + head->table_bytes == file_bytes;
}

/* Not by mmap(): an error of the disk would end the program. Each part continues the one before. */
int vm_memory_sum(struct vm_memory_head *head, int fd) {
    struct siphash_key key = {{0, 1}};
    uint64_t at = VM_MEMORY_STREAM, end = at + head->stream_bytes + head->table_bytes;
    uint8_t *part DEFER_FREE = xmalloc(SUM_PART);
    while (at < end) {
        ssize_t n = pread(fd, part, end - at < SUM_PART ? end - at : SUM_PART, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        if (n < SUM_PART && at + (uint64_t)n < end)
            return -EIO; /* a short read of a file: the sum goes by whole parts */
        key.k[0] = siphash(&key, part, (size_t)n);
        at += (uint64_t)n;
    }
    head->sum = key.k[0];
    head->head_sum = 0;
    head->head_sum = siphash(&key, head, sizeof(*head));
    return 0;
}

static int memory_check(int fd, struct vm_memory_head *head) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH) ||
        pread(fd, head, sizeof(*head), 0) != sizeof(*head) ||
        !vm_memory_fits(head, (uint64_t)st.st_size))
        return -EBADMSG;
    const struct vm_memory_head said = *head;
    int r = vm_memory_sum(head, fd);
    return r == 0 && (said.sum != head->sum || said.head_sum != head->head_sum) ? -EBADMSG : r;
}

int vm_memory_open(const char *path, int *ret, struct vm_memory_head *head, struct err *err) {
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int r = fd < 0 ? -errno : memory_check(fd, head);
    if (r == -EBADMSG)
        return err_set(err, ERR_INTERNAL, "the saved memory '%s' of a vm is damaged", path);
    if (r < 0)
        return err_num(err, r, "cannot open the saved memory '%s' of a vm", path);
    *ret = TAKE_FD(fd);
    return 0;
}
