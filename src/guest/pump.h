/*
 * The root of a vm: carries what the kernel asks about files (FUSE) to the host, and the answers
 * back, over a virtio port.
 *
 * The pump itself uses no file of that root. Its two threads have neither an errno nor memory of
 * their own, and make only system calls that cannot disturb those of the guest.
 */
#pragma once

#include <stdbool.h>

/*
 * Serves the FUSE device over the port from now on; both descriptors belong to the pump. Threads of
 * the calling process, so that no signal can end them; or a process of its own if the caller is to
 * become another program. False: errno says why not.
 */
bool pump_start(int fuse, int port, bool is_process);
