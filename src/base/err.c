#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char *const code_names[] = {
    [ERR_INTERNAL] = "internal", [ERR_INVALID] = "invalid",         [ERR_NOT_FOUND] = "not_found",
    [ERR_EXISTS] = "exists",     [ERR_DENIED] = "denied",           [ERR_LIMIT] = "limit",
    [ERR_BUSY] = "busy",         [ERR_UNSUPPORTED] = "unsupported", [ERR_GONE] = "gone",
    [ERR_UNKNOWN] = "unknown",   [ERR_TIMEOUT] = "timeout",
};

static const struct {
    int number;
    enum err_code code;
} from_errno[] = {
    {ENOENT, ERR_NOT_FOUND},     {EEXIST, ERR_EXISTS},      {EPERM, ERR_DENIED},
    {EACCES, ERR_DENIED},        {EROFS, ERR_DENIED},       {EINVAL, ERR_INVALID},
    {ENAMETOOLONG, ERR_INVALID}, {ENOTDIR, ERR_INVALID},    {EISDIR, ERR_INVALID},
    {ELOOP, ERR_INVALID},        {ENOSPC, ERR_LIMIT},       {EDQUOT, ERR_LIMIT},
    {EMFILE, ERR_BUSY},          {ENFILE, ERR_BUSY}, /* temporary, so not ERR_LIMIT */
    {ENOMEM, ERR_LIMIT},         {EFBIG, ERR_LIMIT},        {EAGAIN, ERR_BUSY},
    {EBUSY, ERR_BUSY},           {ENOSYS, ERR_UNSUPPORTED}, {EOPNOTSUPP, ERR_UNSUPPORTED},
    {EPIPE, ERR_GONE},           {ECONNRESET, ERR_GONE},    {ESRCH, ERR_GONE},
    {ETIMEDOUT, ERR_TIMEOUT},
};

static enum err_code code_from_errno(int number) {
    for (size_t i = 0; i < sizeof(from_errno) / sizeof(*from_errno); i++)
        if (from_errno[i].number == number)
            return from_errno[i].code;
    return ERR_INTERNAL;
}

const char *err_code_name(enum err_code code) {
    if ((size_t)code >= sizeof(code_names) / sizeof(*code_names) || !code_names[code])
        return "internal";
    return code_names[code];
}

enum err_code err_code_named(const char *name) {
    for (size_t i = 1; i < sizeof(code_names) / sizeof(*code_names); i++)
        if (strcmp(code_names[i], name) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...) {
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    err->code = code;
    err->remedy[0] = '\0';
    return -1;
}

/* Sets a remedy that names the limit of open files which was reached. */
static void name_limit(struct err *err, int number) {
    struct rlimit files;
    if (number == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        err_remedy(err,
                   "this process may open %llu files: raise the limit of open files (ulimit -Hn), "
                   "or delete some machines",
                   (unsigned long long)files.rlim_cur);
    else if (number == ENFILE)
        err_remedy(err, "the host's limit of open files is reached: see sysctl fs.file-max");
}

__attribute__((format(printf, 3, 0))) static int from_number(struct err *err, int number,
                                                             const char *fmt, va_list ap) {
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    if (n >= 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", strerror(number));
    err->code = code_from_errno(number);
    err->remedy[0] = '\0';
    name_limit(err, number);
    return -1;
}

int err_sys(struct err *err, const char *fmt, ...) {
    int saved = errno;
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    from_number(err, saved, fmt, ap);
    va_end(ap);
    return -1;
}

int err_num(struct err *err, int negative, const char *fmt, ...) {
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    from_number(err, -negative, fmt, ap);
    va_end(ap);
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...) {
    if (!err)
        return -1;

    char cause[sizeof(err->text)];
    memcpy(cause, err->text, sizeof(cause));

    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %.*s", (int)sizeof(cause) - 1,
                 cause);
    return -1;
}

int err_remedy(struct err *err, const char *fmt, ...) {
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->remedy, sizeof(err->remedy), fmt, ap);
    va_end(ap);
    /* A command that was cut must not look as if it could be typed. */
    static const char cut[] = "...";
    size_t at = sizeof(err->remedy) - sizeof(cut);
    if (n < 0 || (size_t)n < sizeof(err->remedy))
        return -1;
    while (at && ((unsigned char)err->remedy[at] & 0xc0) == 0x80)
        at--; /* not inside a character */
    memcpy(err->remedy + at, cut, sizeof(cut));
    return -1;
}
