/* Parts of `carrel forward`: who may connect to its ports. */
#pragma once

#include <stdbool.h>

/*
 * Whether the process at the other end of this TCP connection on our own host belongs to our user.
 * The kernel's table of connections says so. A process that has closed its end already counts as
 * somebody else's.
 */
bool forward_peer_is_ours(int sock);
