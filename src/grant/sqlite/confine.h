/* Confines the process before it reads a hostile database: only memory and output remain. */
#pragma once

/* -errno: not confined, so nothing may be read. */
int sqlite_confine(void);
