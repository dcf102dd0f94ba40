/*
 * A network namespace with nothing but loopback, up.
 *
 * It is owned by the spawner's user namespace, never by a box's: nobody inside can change it.
 */
#pragma once

/* home is the caller's own namespace, where it stays. Descriptor or -errno. */
int netns_new(int home);
