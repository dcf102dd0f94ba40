/*
 * Presets: the hosts that a package tool needs, read on the host from the tool's configuration in
 * the image. So a mirror of a registry works, and no registry is built in.
 *
 * If a tool is not configured, its built-in default is read from the tool's own files, where
 * possible. Only world-readable files are used, so that a preset reveals nothing that the machine
 * could not read itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/sha256.h"
#include "gate/policy.h"

enum { PRESET_TARGETS_MAX = 32, PRESET_FILE_MAX = 256 << 10 };

struct preset_targets {
    /* targets of rules, in the syntax of policy_target_read() */
    char list[PRESET_TARGETS_MAX][POLICY_TARGET_SIZE];
    size_t count;
};

bool preset_exists(const char *name);
/* Refuses a target that is a single word: it is a preset that does not exist, or a host name that
 * needs a scheme to be told apart from one. */
int preset_check_word(const char *target, struct err *err);

/*
 * Reads the targets of a preset. root: the root directory of the image. ERR_NOT_FOUND: no file
 * there names a host; the remedy says what to do instead.
 */
int preset_read(const char *name, int root, struct preset_targets *ret, struct err *err);

/*
 * Copies the files that presets are read from into an empty directory, which preset_read() accepts
 * as a root. Copies some thousand files at most. 0 or -errno.
 */
int preset_keep(int root, int to);

/*
 * The same for a layer above `below`, where whiteouts hide files. below: a directory that
 * preset_read() accepts.
 */
int preset_keep_layer(int below, int layer, int to);
/* True if the presets of the layer are not those of `below`. */
bool preset_layer_differs(int below, int layer);

/* Computes a hash of the files that presets are read from, with their paths. */
void preset_digest(int root, uint8_t ret[SHA256_BYTES]);

/* Finds every URL in a text and adds it as a target. marker: reads only lines that contain it;
 * NULL: all lines. Pure. */
void preset_scan(const char *text, size_t n, const char *marker, bool bare,
                 struct preset_targets *ret);
