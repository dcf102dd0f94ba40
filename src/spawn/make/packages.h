/*
 * The package database of the image `host` (dpkg), which must agree with the files of the image.
 * Otherwise dpkg takes a missing configuration file for one that its administrator deleted, and
 * never installs it again.
 *
 * Files of packages outside /usr are copied from the host if they are as the package ships them:
 * a changed file may hold data of this host. Other files are removed from the database.
 */
#pragma once

#include "base/err.h"
#include "spawn/disk/tree.h"

/*
 * Completes the image in the directory `root`, which holds a copy of the host's database. host:
 * descriptor of the host's "/". how: as the other files of the image are copied.
 */
int packages_complete(int host, int root, struct tree_copy *how, struct err *err);
