/*
 * Presets: the hosts that a package tool needs, read on the host from the tool's configuration in
 * the image. So a mirror works, and no registry is built in.
 *
 * If a tool is not configured, its built-in default is read from the tool's own files, where
 * possible. Only world-readable files count, as the machine itself sees no more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "gate/policy.h"

enum { PRESET_TARGETS_MAX = 32, PRESET_FILE_MAX = 256 << 10 };

struct preset_targets {
    char list[PRESET_TARGETS_MAX][POLICY_TARGET_SIZE]; /* as policy_target_read() wants them */
    size_t count;
};

bool preset_exists(const char *name);

/*
 * root: the directory that is "/" of the image. `not_found`: no file there names a host; the remedy
 * says what to do instead.
 */
int preset_read(const char *name, int root, struct preset_targets *ret, struct err *err);

/*
 * Copies the files that presets are read from into an empty directory, where they are the same for
 * preset_read(). Some thousand at most: a tool has few. 0 or -errno.
 */
int preset_keep(int root, int to);

/* Pure: every address in a text, as targets. marker: only in lines that hold it; NULL: in all. */
void preset_scan(const char *text, size_t n, const char *marker, bool bare,
                 struct preset_targets *ret);
