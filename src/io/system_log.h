/* The system log: a place that we can write to and not take back from. */
#pragma once

void system_log_line(const char *text);
