#include "machine/vm/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/sha256.h"
#include "machine/vm/cpio.h"
#include "machine/vm/tsc.h"

#define INITRD_PREFIX "initrd-"
#define INITRD_NEW "new"
#ifdef __aarch64__
#define CONSOLE "ttyAMA0"
#define RESTART ""
#else
#define CONSOLE "ttyS0"
/* A vm has no keyboard controller, which the kernel would ask for a restart. */
#define RESTART " reboot=t"
#endif

enum { PART_MAX = 16 << 20, INITRD_MAX = 64 << 20 };

/* The initramfs. */

/* Adds the modules by number, and their list. */
static int boot_pack_modules(struct buf *to, const struct kernel *k, const struct modules *m,
                             struct err *err) {
    struct buf list DEFER(buf_done) = BUF(MODULES_MAX * 32);
    bool fits = buf_add(&list, "", 0) && cpio_add_dir(to, "modules");
    for (unsigned i = 0; fits && i < m->count; i++) {
        struct buf module DEFER(buf_done) = BUF(PART_MAX);
        if (kernel_read_module(k, m->path[i], &module, err) < 0)
            return -1;
        char name[64];
        /* The suffix says whether the module is compressed. */
        snprintf(name, sizeof(name), "modules/%u%.16s", i, strstr(strrchr(m->path[i], '/'), ".ko"));
        fits = buf_addf(&list, "%s\n", strchr(name, '/') + 1) &&
               cpio_add_file(to, name, 0600, module.data, module.len);
    }
    if (!fits || !cpio_add_file(to, "modules/list", 0600, list.data, list.len))
        return err_set(err, ERR_LIMIT, "the kernel's modules are too big");
    return 0;
}

static int boot_pack(struct buf *to, const struct kernel *k, const struct modules *m,
                     const char *guest, struct err *err) {
    struct buf program DEFER(buf_done) = BUF(PART_MAX);
    if (kernel_read(guest, &program, err) < 0 || boot_pack_modules(to, k, m, err) < 0)
        return -1;
    if (!cpio_add_file(to, "init", 0755, program.data, program.len) || !cpio_end(to))
        return err_set(err, ERR_LIMIT, "the initramfs is too big");
    return 0;
}

/* Writes a file under its final name only when its bytes are on the disk. */
static int boot_write(int dir, const char *name, const struct buf *bytes) {
    int fd DEFER_CLOSE = openat(dir, INITRD_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int r = fd < 0 ? -errno : write_all(fd, bytes->data, bytes->len);
    if (r >= 0 && (fsync(fd) < 0 || renameat(dir, INITRD_NEW, dir, name) < 0 || fsync(dir) < 0))
        r = -errno;
    return r;
}

/* Deletes what other versions of the kernel or the guest left. */
static void boot_prune(int dir, const char *keep) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, INITRD_PREFIX, strlen(INITRD_PREFIX)) == 0 &&
            strcmp(e->d_name, keep) != 0)
            unlinkat(dir, e->d_name, 0);
}

/* The name of an initramfs is the hash of its bytes. */
static int boot_store(const char *state_dir, const struct buf *bytes, char ret[KERNEL_PATH_SIZE],
                      struct err *err) {
    char dir[KERNEL_PATH_SIZE - 128], hash[SHA256_HEX], name[sizeof(INITRD_PREFIX) + SHA256_HEX];
    if (snprintf(dir, sizeof(dir), "%s/vm", state_dir) >= (int)sizeof(dir))
        return err_set(err, ERR_INVALID, "the path '%.100s...' is too long", state_dir);
    sha256_hex(bytes->data, bytes->len, hash);
    snprintf(name, sizeof(name), INITRD_PREFIX "%s", hash);
    int r = folder_make(dir), fd DEFER_CLOSE = -1;
    if (r == 0)
        r = fd = dir_open(AT_FDCWD, dir);
    /* Another thread may be here too. */
    if (r >= 0 && flock(fd, LOCK_EX) < 0)
        r = -errno;
    if (r >= 0 && faccessat(fd, name, R_OK, 0) < 0)
        r = boot_write(fd, name, bytes);
    if (r < 0)
        return err_num(err, r, "cannot write '%.150s/%.20s...'", dir, name);
    boot_prune(fd, name);
    snprintf(ret, KERNEL_PATH_SIZE, "%s/%s", dir, name);
    return 0;
}

/*
 * `panic=-1`: QEMU cannot see a panic, but it sees the restart. The rest saves time while QEMU
 * translates: the self tests of the ciphers take most of a second.
 */
static void boot_write_line(char ret[VM_BASE_LINE_SIZE]) {
    int n = snprintf(ret, VM_BASE_LINE_SIZE,
                     "console=" CONSOLE " quiet panic=-1" RESTART
                     " random.trust_cpu=1 cryptomgr.notests nokaslr");
    uint32_t khz = tsc_khz();
    if (khz > 0)
        snprintf(ret + n, VM_BASE_LINE_SIZE - (size_t)n, " tsc_early_khz=%u", khz);
}

int vm_boot_prepare(const struct vm_boot_options *o, struct vm_boot *ret, struct err *err) {
    struct vm_boot boot;
    struct modules modules;
    struct buf initrd DEFER(buf_done) = BUF(INITRD_MAX);
    if (kernel_find(o->kernel, &boot.kernel, &modules, err) < 0 ||
        boot_pack(&initrd, &boot.kernel, &modules, o->guest, err) < 0 ||
        boot_store(o->state_dir, &initrd, boot.initrd, err) < 0)
        return -1;
    boot_write_line(boot.line);
    *ret = boot;
    return 0;
}
