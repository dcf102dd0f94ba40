/* What stands between a hostile database and the host: after this, only memory and the answer. */
#pragma once

/* -errno: it could not be, and nothing may be read. */
int sqlite_confine(void);
