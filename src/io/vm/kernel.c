#include "io/vm/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"

#define KERNEL_DIR "/boot"
#define KERNEL_PREFIX "vmlinuz-"
#ifdef __aarch64__
#define KERNEL_PACKAGE "linux-image-cloud-arm64"
#else
#define KERNEL_PACKAGE "linux-image-cloud-amd64"
#endif

enum { KERNELS_MAX = 64, DEP_MAX = 4 << 20, CHUNK = 64 << 10 };

/* What a vm cannot run without: its devices, its root. */
static const char *const needed_modules[] = {"virtio_mmio", "virtio_console", "fuse", "virtio_net"};

int kernel_named(const char *path, struct kernel *ret, struct err *err) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    struct kernel k;
    if (path[0] != '/' || strncmp(base, KERNEL_PREFIX, strlen(KERNEL_PREFIX)) != 0)
        return err_set(err, ERR_INVALID, "'%.200s' is not an absolute path to a file '%sVERSION'",
                       path, KERNEL_PREFIX);
    const char *version = base + strlen(KERNEL_PREFIX);
    int n = snprintf(k.modules, sizeof(k.modules), "%.*s/../lib/modules/%s", (int)(slash - path),
                     path, version);
    if (!*version || strlen(version) >= sizeof(k.version) || n >= (int)sizeof(k.modules))
        return err_set(err, ERR_INVALID, "the path of the kernel '%.200s' is too long", path);
    snprintf(k.path, sizeof(k.path), "%s", path);
    snprintf(k.version, sizeof(k.version), "%s", version);
    *ret = k;
    return 0;
}

static bool is_cloud(const char *name) {
    return strstr(name, "-cloud-") != NULL;
}

/* Sorts the better kernel to the front. */
static int kernel_compare(const void *a, const void *b) {
    const char *left = *(const char *const *)a, *right = *(const char *const *)b;
    if (is_cloud(left) != is_cloud(right))
        return is_cloud(left) ? -1 : 1;
    return strverscmp(right, left);
}

int kernel_pick(const char *dir, unsigned tries, struct kernel *ret, struct err *err) {
    char names[KERNELS_MAX][KERNEL_VERSION_SIZE + sizeof(KERNEL_PREFIX)];
    const char *order[KERNELS_MAX];
    unsigned count = 0;
    DIR *d DEFER(dir_close) = dir_list(AT_FDCWD, dir);
    for (struct dirent *e; d && count < KERNELS_MAX && (e = readdir(d));) {
        if (strncmp(e->d_name, KERNEL_PREFIX, strlen(KERNEL_PREFIX)) != 0 ||
            strlen(e->d_name) >= sizeof(names[0]))
            continue;
        order[count] = names[count];
        snprintf(names[count++], sizeof(names[0]), "%s", e->d_name);
    }
    if (tries >= count)
        return err_set(err, ERR_NOT_FOUND, "there is no kernel in '%s'", dir);
    qsort(order, count, sizeof(*order), kernel_compare);
    char path[KERNEL_PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", dir, order[tries]);
    return kernel_named(path, ret, err);
}

int kernel_read(const char *path, struct buf *to, struct err *err) {
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    char *part DEFER_FREE = malloc(CHUNK);
    ssize_t n = fd < 0 || !part ? -1 : 1;
    while (n > 0) {
        n = read(fd, part, CHUNK);
        if (n > 0 && !buf_add(to, part, (size_t)n))
            return err_set(err, ERR_LIMIT, "'%.200s' is too big", path);
    }
    return n < 0 ? err_sys(err, "cannot read '%.200s'", path) : 0;
}

int kernel_read_module(const struct kernel *k, const char *name, struct buf *to, struct err *err) {
    char path[KERNEL_PATH_SIZE + MODULE_PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", k->modules, name);
    return kernel_read(path, to, err);
}

/* Lists the modules that a vm needs. Fails if the kernel lacks one. */
static int kernel_list_modules(const struct kernel *k, struct modules *ret, struct err *err) {
    struct buf dep DEFER(buf_done) = BUF(DEP_MAX), builtin DEFER(buf_done) = BUF(DEP_MAX);
    *ret = (struct modules){0};
    if (access(k->path, R_OK) < 0)
        return err_sys(err, "cannot read the kernel '%.200s'", k->path);
    if (!buf_add(&dep, "", 0) || !buf_add(&builtin, "", 0) ||
        kernel_read_module(k, "modules.dep", &dep, err) < 0 ||
        kernel_read_module(k, "modules.builtin", &builtin, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(needed_modules) / sizeof(*needed_modules); i++)
        if (modules_add(ret, dep.data, builtin.data, needed_modules[i], err) < 0)
            return err_wrap(err, "kernel '%.100s'", k->path);
    return 0;
}

int kernel_find(const char *path, struct kernel *ret, struct modules *ret_modules,
                struct err *err) {
    if (path && *path)
        return kernel_named(path, ret, err) < 0 ? -1 : kernel_list_modules(ret, ret_modules, err);
    struct err reason = {0};
    for (unsigned i = 0; kernel_pick(KERNEL_DIR, i, ret, i == 0 ? &reason : NULL) == 0; i++)
        if (kernel_list_modules(ret, ret_modules, &reason) == 0)
            return 0;
    err_set(err, ERR_UNSUPPORTED, "this host has no kernel for a vm: %.200s", reason.text);
    return err_remedy(err, "install the package " KERNEL_PACKAGE
                           ", or set `kernel` in the section [vm] of carrel.conf");
}
