/*
 * Shares files between an image and the image it was made from: a file equal in name, owner, mode,
 * time and content becomes a hard link. The contents of both images stay the same. Files that
 * cannot be shared stay copies.
 */
#pragma once

#include <stdint.h>

/*
 * Takes the open directories of both trees; nobody uses the child yet. Returns the bytes that were
 * freed.
 */
uint64_t image_share(int parent, int child);
