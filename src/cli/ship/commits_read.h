/* Asks the owner's git what commits change, in a repository that was checked. */
#pragma once

#include "review/commits.h"

/* The changes from one commit to the other. more: flags that all files get. */
int commits_read(const char *repo, const char *from, const char *to, unsigned more,
                 struct commits *ret, struct err *err);
