#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>

char *xformat(const char *fmt, ...) {
    char *text;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        abort();
    return text;
}
