/* Errors of the host as numbers of WASI. */
#include <errno.h>

#include "cell/wasi/wasi_inner.h"

static const struct {
    int host;
    enum wasi_errno error;
} errors[] = {
    {E2BIG, WASI_2BIG},
    {EACCES, WASI_ACCES},
    {EADDRINUSE, WASI_ADDRINUSE},
    {EADDRNOTAVAIL, WASI_ADDRNOTAVAIL},
    {EAGAIN, WASI_AGAIN},
    {EBADF, WASI_BADF},
    {EBUSY, WASI_BUSY},
    {ECONNABORTED, WASI_CONNABORTED},
    {ECONNREFUSED, WASI_CONNREFUSED},
    {ECONNRESET, WASI_CONNRESET},
    {EDQUOT, WASI_DQUOT},
    {EEXIST, WASI_EXIST},
    {EFAULT, WASI_FAULT},
    {EFBIG, WASI_FBIG},
    {EILSEQ, WASI_ILSEQ},
    {EINTR, WASI_INTR},
    {EINVAL, WASI_INVAL},
    {EISDIR, WASI_ISDIR},
    {ELOOP, WASI_LOOP},
    {EMFILE, WASI_MFILE},
    {EMLINK, WASI_MLINK},
    {ENAMETOOLONG, WASI_NAMETOOLONG},
    {ENFILE, WASI_NFILE},
    {ENOBUFS, WASI_NOBUFS},
    {ENODEV, WASI_NODEV},
    {ENOENT, WASI_NOENT},
    {ENOMEM, WASI_NOMEM},
    {ENOSPC, WASI_NOSPC},
    {ENOSYS, WASI_NOSYS},
    {ENOTCONN, WASI_NOTCONN},
    {ENOTDIR, WASI_NOTDIR},
    {ENOTEMPTY, WASI_NOTEMPTY},
    {ENOTSOCK, WASI_NOTSOCK},
    {ENOTSUP, WASI_NOTSUP},
    {ENXIO, WASI_NXIO},
    {EOVERFLOW, WASI_OVERFLOW},
    {EPERM, WASI_PERM},
    {EPIPE, WASI_PIPE},
    {EROFS, WASI_ROFS},
    {ESPIPE, WASI_SPIPE},
    {ESTALE, WASI_STALE},
    {ETIMEDOUT, WASI_TIMEDOUT},
    {ETXTBSY, WASI_TXTBSY},
    {EXDEV, WASI_XDEV},
};

int wasi_error(int negative) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].host == -negative)
            return errors[i].error;
    return negative >= 0 ? WASI_OK : WASI_IO;
}

int wasi_path_error(int negative) {
    return negative == -EXDEV ? WASI_PERM : wasi_error(negative);
}
