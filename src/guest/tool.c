#include "guest/tool.h"

#include <string.h>
#include <sys/vfs.h>

#include "guest/sys.h"

#define PROC_SUPER_MAGIC 0x9fa0
#define COMPLAINTS_MAX 100

static const struct {
    const char *name;
    tool_fn *run;
} tools[] = {
    {"tar", tool_tar},       {"untar", tool_untar}, {"untar-masked", tool_untar_masked},
    {"sha256", tool_sha256}, {"put", tool_put},     {"connect", tool_connect},
};

tool_fn *guest_tool_find(const char *name) {
    for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++)
        if (strcmp(tools[i].name, name) == 0)
            return tools[i].run;
    return NULL;
}

static uint8_t out[64 << 10];
static size_t out_len;

static size_t tool_add(char *line, size_t at, size_t cap, const char *text) {
    size_t n = strlen(text);
    n = n < cap - at ? n : cap - at;
    memcpy(line + at, text, n);
    return at + n;
}

void tool_complain(int number, const char *what, const char *path) {
    static int count;
    static char line[4096 + 256];
    if (++count > COMPLAINTS_MAX)
        return;
    size_t cap = sizeof(line) - 1, n = 0;
    if (number >= 100)
        line[n++] = (char)('0' + number / 100 % 10);
    if (number >= 10)
        line[n++] = (char)('0' + number / 10 % 10);
    line[n++] = (char)('0' + number % 10);
    line[n++] = ' ';
    n = tool_add(line, n, cap, what);
    line[n++] = ' ';
    n = tool_add(line, n, cap, path);
    line[n++] = '\n';
    (void)!write(2, line, n);
}

void tool_fail(int number, const char *what, const char *path) {
    tool_complain(number, what, path);
    _exit(MSG_TOOL_FAILED);
}

void tool_write_all(int fd, const void *bytes, size_t n, const char *path) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            tool_fail(done < 0 ? errno : EIO, "cannot write", path);
        bytes = (const uint8_t *)bytes + done;
        n -= (size_t)done;
    }
}

void tool_flush(void) {
    tool_write_all(1, out, out_len, "stdout");
    out_len = 0;
}

void guest_tool_write(const void *bytes, size_t n) {
    while (n > 0) {
        size_t room = sizeof(out) - out_len;
        size_t part = n < room ? n : room;
        memcpy(out + out_len, bytes, part);
        out_len += part;
        bytes = (const uint8_t *)bytes + part;
        n -= part;
        if (out_len == sizeof(out))
            tool_flush();
    }
}

ssize_t tool_write_from(int fd, size_t max) {
    size_t room = sizeof(out) - out_len;
    ssize_t n;
    while ((n = read(fd, out + out_len, max < room ? max : room)) < 0 && errno == EINTR)
        ;
    if (n > 0)
        out_len += (size_t)n;
    if (out_len == sizeof(out))
        tool_flush();
    return n;
}

size_t guest_tool_read(void *to, size_t max) {
    ssize_t n;
    while ((n = read(0, to, max)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        tool_fail(errno, "cannot read", "stdin");
    return (size_t)n;
}

bool tool_is_proc(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC;
}
