/*
 * The root directory of a cell worker with files: a mode of this program that makes one and ends.
 *
 * The worker gets a user namespace with ids of its own and a mount namespace with nothing but an
 * empty directory and, in it, the granted directories. Whoever starts the worker is trusted as much
 * as this program: both run as the same user.
 */
#pragma once

/*
 * argv: the number of a socket, then MODE:PATH for each directory, where MODE is rw or ro. Sends
 * "k" and the two namespaces over the socket, or "e", the error and its remedy. As root it stays
 * until the socket is closed, because the ids belong to the worker until then. Returns the exit
 * status.
 */
int cell_root_main(int argc, char **argv, unsigned uid_base);
