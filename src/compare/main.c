/*
 * carrel-compare: compares states of a machine's files, packs changes, or measures layers.
 *
 * Standard input is a socket. One order arrives over it, with its descriptors. Records
 * (base/wire/changes.h) or messages (enum compare_say) go back, and the last one says that they are
 * complete.
 */
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "compare/compare.h"

enum { SOCKET = 0, OUT_ROOM = 1 << 12 };

/*
 * If rootless, files on disk have subordinate ids. Enters the nest, the parent of the machine's
 * user namespace, which may read files of all these ids. The owner of "m" on the disk is
 * the id of the machine's root.
 */
static int become_reader(const struct fd_message *in, size_t count, struct compare_order *order) {
    struct stat st;
    if (in->nfds == count)
        return 0;
    int spawners DEFER_CLOSE = ioctl(in->fds[count], NS_GET_PARENT);
    if (spawners < 0 || setns(spawners, CLONE_NEWUSER) < 0 ||
        fstatat(in->fds[count - 1], "m", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    order->root_id = st.st_uid;
    return 0;
}

int main(void) {
    static struct compare_order order;
    struct fd_message in = {0};
    struct buf out = BUF(COMPARE_OUT_MAX + OUT_ROOM);
    if (recv_fds(SOCKET, &order, sizeof(order), &in) < 0 || in.len != sizeof(order) ||
        !compare_order_ok(&order))
        return 1;
    size_t count = order.task == COMPARE_TREES  ? FD_DISKS + order.disk_count
                   : order.task == COMPARE_PACK ? PACK_FDS
                                                : 1;
    if ((in.nfds != count && in.nfds != count + 1) || become_reader(&in, count, &order) < 0 ||
        compare_confine(in.fds[0]) < 0)
        return 1;
    if (order.task == COMPARE_PACK) {
        compare_pack(in.fds[PACK_UPPER], in.nfds > count, SOCKET);
        return 0;
    }
    if (order.task == COMPARE_TREES)
        compare_trees(&order, in.fds, &out);
    else
        compare_sizes(&order, in.fds[0], &out);
    return out.len == 0 || write_all(SOCKET, out.data, out.len) < 0;
}
