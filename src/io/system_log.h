/*
 * Writes a line to the system log.
 *
 * The daemon cannot delete lines there. So the signed heads of the journal (hash and number of its
 * newest record) are also written to it. With such a head, `carrel audit verify --head` finds that
 * the journal was cut later.
 */
#pragma once

void system_log_line(const char *text);
