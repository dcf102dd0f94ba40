/* Who is at the other end of a TCP connection on our own host. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * Finds the user whose process holds the other end, in the kernel's table of connections. False if
 * it is on another host or in another network namespace, or if the process has closed it.
 */
bool tcp_peer_user(int sock, uid_t *ret);
