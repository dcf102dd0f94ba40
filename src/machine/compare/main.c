/*
 * carrel-compare: compares states of a machine's files, or measures its layers.
 *
 * Standard input is a socket. One order comes over it with the descriptors it is about; records
 * (base/changes.h) go back, and the last of them says that they are whole.
 */
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "machine/compare/compare.h"

enum { SOCKET = 0, OUT_ROOM = 1 << 12 };

int main(void) {
    static struct compare_order order;
    struct fd_message in = {0};
    struct buf out = BUF(COMPARE_OUT_MAX + OUT_ROOM);
    if (recv_fds(SOCKET, &order, sizeof(order), &in) < 0 || in.len != sizeof(order) ||
        !compare_order_ok(&order) || in.nfds != (order.task == COMPARE_TREES ? COMPARE_FDS : 1) ||
        compare_confine(in.fds[0]) < 0)
        return 1;
    if (order.task == COMPARE_TREES)
        compare_trees(&order, in.fds, &out);
    else
        compare_sizes(&order, in.fds[0], &out);
    return out.len == 0 || write_all(SOCKET, out.data, out.len) < 0;
}
