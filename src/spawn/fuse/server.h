/*
 * Serves a tree of files to the kernel of a vm (FUSE). One process, which ends when the vm does.
 *
 * It runs inside the jail of the vm (spawn/vm/launch.h), and holds no file but those of the tree.
 * Requests are answered one after another. It keeps a descriptor for each file that the kernel
 * knows, so a file that was deleted can be used as long as it is open.
 */
#pragma once

/*
 * Runs `carrel-spawn --serve-files TREE FD`: makes TREE its root and answers the requests that FD,
 * a stream socket, brings. Returns the exit status of the program.
 */
int fuse_server_main(int argc, char **argv);
