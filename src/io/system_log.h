/*
 * Writes a line to the system log.
 *
 * The daemon cannot delete there, so signed heads of the journal go to it: a journal that was cut
 * later is noticed.
 */
#pragma once

void system_log_line(const char *text);
