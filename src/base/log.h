/*
 * Writes one line per event: time, level, module, message with key=value.
 *
 * Libraries return errors. Code that does not pass an error on logs it.
 * The logger is the only global of the project.
 */
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTE, LOG_DEBUG };

/* Drops lines above this level. Lines go to stderr. */
void log_set_level(enum log_level level);

void log_line(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
