#include "base/program_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

int program_id(const char *path, char ret[PROGRAM_ID_SIZE]) {
    struct stat st;
    ret[0] = '\0';
    if (stat(path, &st) < 0)
        return -1;
    snprintf(ret, PROGRAM_ID_SIZE, "%jx:%ju:%jd:%jd.%09ld", (uintmax_t)st.st_dev,
             (uintmax_t)st.st_ino, (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    return 0;
}
