/* Writes to the system log, from which we cannot delete: heads of the journal go there. */
#pragma once

void system_log_line(const char *text);
