/*
 * Writes a line to the system log.
 *
 * The daemon cannot delete lines there. So the signed heads of the journal (hash and number of its
 * newest record) are also written to it, and a journal that was cut later is noticed.
 */
#pragma once

void system_log_line(const char *text);
