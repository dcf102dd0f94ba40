/*
 * Confines the process before it interprets a hostile database.
 *
 * Afterwards the process can only use memory and write to descriptors that are open.
 */
#pragma once

/* Returns -errno if the process is not confined; then it must not interpret a database. */
int sqlite_confine(void);
