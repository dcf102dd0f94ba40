#include "base/log.h"

#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fdio.h"

static enum log_level threshold = LOG_NOTE;

void log_set_level(enum log_level level) {
    threshold = level;
}

void log_line(enum log_level level, const char *module, const char *fmt, ...) {
    static const char *const names[] = {"error", "warn", "note", "debug"};
    if (level > threshold)
        return;

    char line[1024];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %s %s ", now.tv_nsec / 1000000,
                          names[level], module);

    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : (size_t)m;
    if (n > sizeof(line) - 2)
        n = sizeof(line) - 2;
    /* Text from outside must not start a new line, because each line is one event. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            line[i] = '?';
    line[n++] = '\n';
    (void)write_all(STDERR_FILENO, line, n);
}
