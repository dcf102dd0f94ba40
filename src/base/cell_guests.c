#include "base/cell_guests.h"

#include <stdio.h>
#include <stdlib.h>

int cell_guests_folder(char *ret, size_t size, struct err *err) {
    const char *named = getenv("CARREL_CELL_GUESTS"), *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    int n;
    if (named && named[0])
        n = snprintf(ret, size, "%s", named);
    else if (data && data[0] == '/')
        n = snprintf(ret, size, "%s/carrel/cell-guests", data);
    else
        n = snprintf(ret, size, "%s/.local/share/carrel/cell-guests", home ? home : "");
    return (size_t)n < size ? 0 : err_set(err, ERR_INVALID, "CARREL_CELL_GUESTS is too long");
}
