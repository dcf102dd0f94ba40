/*
 * Confines the process before it reads a hostile database.
 *
 * Afterwards only memory and the output remain. If it fails, nothing may be read.
 */
#pragma once

/* -errno: not confined, so nothing may be read. */
int sqlite_confine(void);
