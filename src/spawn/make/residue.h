/*
 * What the programs of a box left in its network namespace.
 *
 * A box has no rights over its network namespace, but its programs may leave state there: packets
 * that were counted, connections in time-wait, flow labels, keys, sockets that a descriptor in
 * flight keeps open. residue_read() writes all of it as text. A namespace whose text is that of a
 * new one has no residue.
 */
#pragma once

#include "base/buf.h"

enum { RESIDUE_MAX_BYTES = 1 << 16 };

/*
 * Reads the current network namespace. proc, settings: descriptors of /proc and of a procfs for
 * network settings. Returns 0 or -errno; -EBUSY: it has sockets.
 */
int residue_read(int proc, int settings, struct buf *ret);
