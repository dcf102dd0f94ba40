#include "io/system_log.h"

#include <syslog.h>

void system_log_line(const char *text) {
    openlog("carrel", LOG_PID, LOG_DAEMON); /* repeated calls are harmless */
    syslog(LOG_NOTICE, "%s", text);
}
