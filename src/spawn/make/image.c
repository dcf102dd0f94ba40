#include "spawn/make/image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/disk/tree.h"
#include "spawn/make/packages.h"
#include "spawn/make/userns.h"

enum { BUILDS_MAX = 3 };
enum { IMAGE_RECIPE = 3 }; /* part of the image's key: increase it when a table below changes */
#define IMAGE_MAX_BYTES (512ull << 20)

/* Directories of the skeleton, parents first. */
static const struct {
    const char *path;
    mode_t mode;
    uid_t owner;
} dirs[] = {
    {"dev", 0755, 0},
    {"etc", 0755, 0},
    {"home", 0755, 0},
    {"home/user", 0755, 1000},
    {"media", 0755, 0},
    {"mnt", 0755, 0},
    {"opt", 0755, 0},
    {"proc", 0555, 0},
    {"root", 0700, 0},
    {"run", 0755, 0},
    {"run/carrel", 0755, 0},
    {"run/lock", 01777, 0},
    {"srv", 0755, 0},
    {"sys", 0555, 0},
    {"tmp", 01777, 0},
    {"usr", 0755, 0},
    {"var", 0755, 0},
    {"etc/apt", 0755, 0},
    {"etc/apt/apt.conf.d", 0755, 0},
    {"etc/default", 0755, 0},
    {"etc/ssl", 0755, 0},
    {"etc/sudoers.d", 0755, 0},
    {"var/backups", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/cache/apt", 0755, 0},
    {"var/cache/apt/archives", 0755, 0},
    {"var/cache/apt/archives/partial", 0700, 0},
    {"var/lib", 0755, 0},
    {"var/lib/apt", 0755, 0},
    {"var/lib/apt/lists", 0755, 0},
    {"var/lib/apt/lists/partial", 0700, 0},
    {"var/lib/misc", 0755, 0},
    {"var/lib/pam", 0755, 0},
    {"var/local", 0755, 0},
    {"var/log", 0755, 0},
    {"var/log/apt", 0755, 0},
    {"var/mail", 0755, 0},
    {"var/opt", 0755, 0},
    {"var/spool", 0755, 0},
    {"var/tmp", 01777, 0},
};

static const char *const links[][2] = {
    {"var/run", "/run"},
    {"var/lock", "/run/lock"},
    {"etc/mtab", "../proc/self/mounts"},
};

/* Top-level links of a merged /usr, copied from the host. */
static const char *const usr_links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32"};

/*
 * The only files copied from the host, and only those that every user may read: administrators
 * make files with passwords unreadable. See also `never`.
 */
static const char *const copied[] = {
    "etc/adduser.conf",
    "etc/alternatives",
    "etc/apt/apt.conf.d",
    "etc/apt/keyrings",
    "etc/apt/preferences.d",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/bash.bashrc",
    "etc/bash_completion.d",
    "etc/bindresvport.blacklist",
    "etc/ca-certificates",
    "etc/ca-certificates.conf",
    "etc/debconf.conf",
    "etc/debian_version",
    "etc/default/locale",
    "etc/default/useradd",
    "etc/deluser.conf",
    "etc/dpkg",
    "etc/emacs",
    "etc/ethertypes",
    "etc/fonts",
    "etc/gai.conf",
    "etc/host.conf",
    "etc/inputrc",
    "etc/issue",
    "etc/issue.net",
    "etc/java-11-openjdk",
    "etc/java-17-openjdk",
    "etc/java-21-openjdk",
    "etc/java-25-openjdk",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/libaudit.conf",
    "etc/locale.alias",
    "etc/locale.conf",
    "etc/locale.gen",
    "etc/localtime",
    "etc/login.defs",
    "etc/logrotate.d",
    "etc/lsb-release",
    "etc/magic",
    "etc/magic.mime",
    "etc/mailcap",
    "etc/mailcap.order",
    "etc/manpath.config",
    "etc/mime.types",
    "etc/mke2fs.conf",
    "etc/nanorc",
    "etc/netconfig",
    "etc/networks",
    "etc/nsswitch.conf",
    "etc/os-release",
    "etc/pam.conf",
    "etc/pam.d",
    "etc/perl",
    "etc/profile",
    "etc/profile.d",
    "etc/protocols",
    "etc/python3",
    "etc/python3.9",
    "etc/python3.10",
    "etc/python3.11",
    "etc/python3.12",
    "etc/python3.13",
    "etc/rmt",
    "etc/rpc",
    "etc/screenrc",
    "etc/security",
    "etc/services",
    "etc/shells",
    "etc/skel",
    "etc/ssl/certs",
    "etc/ssl/openssl.cnf",
    "etc/terminfo",
    "etc/timezone",
    "etc/ucf.conf",
    "etc/vim",
    "etc/wgetrc",
    "etc/xattr.conf",
    "etc/xdg",
    "var/lib/dpkg",
    "var/lib/apt/extended_states",
    "var/lib/apt/lists",
    "var/lib/pam",
};

/* Names that are never copied, in any directory. */
static const char *const never[] = {
    "auth.conf",     "auth.conf.d", "private", "lock", "lock-frontend",
    "triggers.lock", "opasswd",     "partial", NULL,
};

static const struct {
    const char *path, *text;
    mode_t mode;
} files[] = {
    {"etc/hostname", "carrel\n", 0644},
    {"etc/hosts",
     "127.0.0.1 localhost\n127.0.1.1 carrel\n::1 localhost ip6-localhost ip6-loopback\n", 0644},
    /* No DNS server listens on 127.0.0.1, so a lookup fails at once instead of timing out. */
    {"etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 0644},
    {"etc/machine-id", "", 0444},
    {"etc/environment", "", 0644},
    {"etc/fstab", "", 0644},
    {"etc/motd", "", 0644},
    {"home/user/.profile", "[ -f ~/.bashrc ] && . ~/.bashrc\n", 0644},
    {"root/.profile", "[ -f ~/.bashrc ] && . ~/.bashrc\n", 0644},
    /* The installation scripts of packages must not try to start services in a box. */
    {"etc/apt/apt.conf.d/90carrel",
     "APT::Sandbox::User \"root\";\nAPT::Install-Recommends \"false\";\n", 0644},
    {"etc/sudoers.d/carrel", "user ALL=(ALL:ALL) NOPASSWD: ALL\n", 0440},
};

/*
 * Written only if the host has sudo, whose own file nobody else may read. Otherwise installing the
 * package later would ask which of two files to keep.
 */
static const char sudoers[] =
    "Defaults env_reset\n"
    "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
    "root ALL=(ALL:ALL) ALL\n"
    "%sudo ALL=(ALL:ALL) ALL\n"
    "@includedir /etc/sudoers.d\n";

/*
 * Returns a user id as stored on disk. In images of a rootless spawner all ids are shifted, and
 * `user` is the user of the spawner.
 */
static uid_t disk_id(uid_t base, uid_t id) {
    return base ? id_shared(id, base) : id;
}

static uint64_t mix(uint64_t h, uint64_t v) {
    for (int i = 0; i < 8; i++)
        h = (h ^ (v >> (8 * i) & 255)) * 0x100000001b3ull;
    return h;
}

/*
 * Writes the image's key, which identifies the state of the host's packages: a hash over size and
 * time of dpkg's status file and of common configuration files.
 */
static void current_key(int host, char key[24]) {
    static const char *const watched[] = {"var/lib/dpkg/status", "usr", "etc/ld.so.cache",
                                          "etc/alternatives", "etc/apt/sources.list"};
    uint64_t h = mix(0xcbf29ce484222325ull, IMAGE_RECIPE);
    for (size_t i = 0; i < sizeof(watched) / sizeof(*watched); i++) {
        struct stat st = {0};
        if (fstatat(host, watched[i], &st, 0) < 0)
            continue;
        h = mix(h, (uint64_t)st.st_ino);
        h = mix(h, (uint64_t)st.st_size);
        h = mix(h, (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
    }
    snprintf(key, 24, "%016" PRIx64, h);
}

bool image_stale(const struct image *image, int host) {
    char key[24];
    current_key(host, key);
    return strcmp(key, image->key) != 0;
}

/*
 * Copies the system accounts of the host into the image, but not its users; then adds the accounts
 * `root` and `user`.
 */
static int accounts(int host, int root, uid_t base, const char *from, const char *own_root,
                    const char *own_user, unsigned id_field, struct err *err) {
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    char *raw DEFER_FREE = malloc(1 << 20);
    bool ok = raw && buf_addf(&out, "%s\n", own_root);
    if (!ok || read_file_at(host, from, raw, 1 << 20) < 0)
        return err_sys(err, "cannot read file '/%s' for the host's image", from);
    for (char *line = raw; *line && ok;) {
        size_t len = strcspn(line, "\n");
        char *next = line + len + (line[len] == '\n');
        line[len] = '\0';
        char *field = line;
        for (unsigned i = 0; i < id_field && field; i++)
            field = (field = strchr(field, ':')) ? field + 1 : NULL;
        unsigned long id = field ? strtoul(field, NULL, 10) : 0;
        if (id > 0 && (id < 1000 || id == 65534) && strlen(line) < 500)
            ok = buf_addf(&out, "%s\n", line);
        line = next;
    }
    if (!ok || !buf_addf(&out, "%s\n", own_user))
        return err_set(err, ERR_LIMIT, "file '/%s' of the host is too large for the host's image",
                       from);
    int r = tree_file(root, from, out.data, 0644, base, base);
    if (r < 0) {
        return err_num(err, r, "cannot write file '/%s' of the host's image", from);
    }
    return 0;
}

/* Writes a shadow file in which every account is locked, because passwords have no use in a box. */
static int shadow(int root, uid_t base, const char *from, const char *to, const char *tail,
                  struct err *err) {
    char *raw DEFER_FREE = malloc(1 << 20);
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    if (!raw || read_file_at(root, from, raw, 1 << 20) < 0)
        return err_sys(err, "cannot read file '/%s' for the host's image", from);
    for (char *line = raw; *line;) {
        size_t len = strcspn(line, "\n"), name = strcspn(line, ":\n");
        if (!buf_addf(&out, "%.*s:*%s\n", (int)name, line, tail))
            return err_set(err, ERR_LIMIT, "file '/%s' of the host's image would be too large", to);
        line += len + (line[len] == '\n');
    }
    int r = tree_file(root, to, out.data, 0640, base, base);
    return r < 0 ? err_set(err, ERR_INTERNAL, "cannot write file '/%s' of the host's image: %s", to,
                           strerror(-r))
                 : 0;
}

static int build_accounts(int host, int root, uid_t base, struct err *err) {
    if (accounts(host, root, base, "etc/passwd", "root:x:0:0:root:/root:/bin/bash",
                 "user:x:1000:1000:user:/home/user:/bin/bash", 2, err) < 0 ||
        accounts(host, root, base, "etc/group", "root:x:0:", "user:x:1000:", 2, err) < 0 ||
        shadow(root, base, "etc/passwd", "etc/shadow", ":19000:0:99999:7:::", err) < 0 ||
        shadow(root, base, "etc/group", "etc/gshadow", "::", err) < 0)
        return -1;
    return 0;
}

static int build_places(int host, int root, uid_t base, struct err *err) {
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
        uid_t owner = disk_id(base, dirs[i].owner);
        int r = tree_dir(root, dirs[i].path, dirs[i].mode, owner, owner);
        if (r < 0)
            return err_set(err, ERR_INTERNAL,
                           "cannot create directory '/%s' of the host's image: %s", dirs[i].path,
                           strerror(-r));
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (symlinkat(links[i][1], root, links[i][0]) < 0)
            return err_sys(err, "cannot create link '/%s' in the host's image", links[i][0]);
    for (size_t i = 0; i < sizeof(usr_links) / sizeof(*usr_links); i++) {
        char target[256];
        ssize_t n = readlinkat(host, usr_links[i], target, sizeof(target) - 1);
        if (n < 0 && errno == EINVAL) {
            err_set(err, ERR_UNSUPPORTED, "this host's /%s is not a link into /usr", usr_links[i]);
            return err_remedy(err, "install the package 'usrmerge'");
        }
        if (n < 0)
            continue;
        target[n] = '\0';
        if (symlinkat(target, root, usr_links[i]) < 0)
            return err_sys(err, "cannot create link '/%s' in the host's image", usr_links[i]);
    }
    return 0;
}

static int build_sudoers(int host, int root, uid_t base, struct err *err) {
    if (faccessat(host, "usr/bin/sudo", F_OK, 0) < 0)
        return 0;
    uid_t owner = disk_id(base, 0);
    int r = tree_file(root, "etc/sudoers", sudoers, 0440, owner, owner);
    return r < 0 ? err_num(err, r, "cannot write file '/etc/sudoers' of the host's image") : 0;
}

static int build(int host, int root, uid_t base, struct err *err) {
    struct tree_copy how = {.owner_base = base,
                            .skip = never,
                            .readable_only = base != 0,
                            .public_only = true,
                            .max_bytes = IMAGE_MAX_BYTES};
    if (build_places(host, root, base, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(copied) / sizeof(*copied); i++)
        if (tree_is_reachable(host, copied[i]) &&
            tree_copy(host, copied[i], root, copied[i], &how, err) < 0)
            return -1;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        uid_t owner = disk_id(base, strncmp(files[i].path, "home/", 5) == 0 ? 1000 : 0);
        int r = tree_file(root, files[i].path, files[i].text, files[i].mode, owner, owner);
        if (r < 0)
            return err_set(err, ERR_INTERNAL, "cannot write file '/%s' of the host's image: %s",
                           files[i].path, strerror(-r));
    }
    if (build_sudoers(host, root, base, err) < 0)
        return -1;
    if (build_accounts(host, root, base, err) < 0)
        return -1;
    return packages_complete(host, root, &how, err);
}

/*
 * In boxes of a rootless spawner the host's programs have no owner, so their set-id bits have no
 * effect. A sudo that is installed in the box works.
 */
static const char sudo_advice[] =
    "#!/bin/sh\n"
    "[ \"$(stat -c %u /usr/bin/sudo 2>/dev/null)\" != 0 ] || exec /usr/bin/sudo \"$@\"\n"
    "echo 'sudo: cannot become root: the set-id programs of the host have no effect in a machine "
    "of an ordinary user; run the command as root from outside: carrel exec -u root MACHINE "
    "COMMAND' >&2\n"
    "exit 1\n";

/*
 * For a rootless spawner: copies the directories of /usr, without files. Without id maps, the
 * host's directories have no owner in a box, and nobody could create files there. The copies,
 * mounted above them, belong to the box.
 */
static int build_usr_dirs(int host, int root, uid_t base, struct err *err) {
    struct tree_copy how = {.owner_base = base, .readable_only = true, .dirs_only = true};
    if (tree_copy(host, "usr", root, "usr", &how, err) < 0)
        return -1;
    uid_t owner = disk_id(base, 0);
    int r = tree_file(root, "usr/local/bin/sudo", sudo_advice, 0755, owner, owner);
    return r < 0 && r != -ENOENT
               ? err_num(err, r, "cannot write file '/usr/local/bin/sudo' of the host's image")
               : 0;
}

/*
 * Builds the image's directory under a temporary name and renames it, so that no incomplete image
 * is used.
 */
static int build_in(int store, const char *name, int host, uid_t base,
                    int (*fill)(int host, int root, uid_t base, struct err *err), struct err *err) {
    char aside[64];
    snprintf(aside, sizeof(aside), "%s.new", name);
    tree_remove(store, aside);
    if (mkdirat(store, aside, 0755) < 0)
        return err_sys(err, "cannot create directory '%s' for the host's image", aside);
    int root DEFER_CLOSE = openat(store, aside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fchown(root, base, base) < 0 || fchmod(root, 0755) < 0)
        return err_sys(err, "cannot open directory '%s' of the host's image", aside);
    int r = fill(host, root, base, err);
    if (r == 0 && renameat(store, aside, store, name) < 0)
        r = err_sys(err, "cannot rename the finished directory '%s' of the host's image", aside);
    if (r < 0)
        tree_remove(store, aside);
    return r;
}

int image_open_key(int store, int host, const char *key, uid_t base, struct image *ret,
                   struct err *err) {
    struct image image = IMAGE_NONE;
    char name[IMAGE_ID_SIZE + 8], dirs_name[IMAGE_ID_SIZE + 16];
    image.base = base;
    snprintf(image.key, sizeof(image.key), "%s", key);
    snprintf(name, sizeof(name), "host-%s", key);
    snprintf(dirs_name, sizeof(dirs_name), "usr-%s/usr", key);
    if (base)
        image.usr_dirs = openat(store, dirs_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    image.skeleton = openat(store, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    image.usr = openat(host, "usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (image.skeleton < 0 || image.usr < 0 || (base && image.usr_dirs < 0)) {
        err_sys(err, "cannot open the directory of the host's image");
        image_close(&image);
        return -1;
    }
    *ret = image;
    return 0;
}

struct image_names {
    char skeleton[IMAGE_ID_SIZE + 8], usr_dirs[IMAGE_ID_SIZE + 8];
};

static struct image_names image_names_of(const char *key) {
    struct image_names n;
    snprintf(n.skeleton, sizeof(n.skeleton), "host-%s", key);
    snprintf(n.usr_dirs, sizeof(n.usr_dirs), "usr-%s", key);
    return n;
}

static void image_drop(int store, const char *key) {
    const struct image_names n = image_names_of(key);
    tree_remove(store, n.skeleton);
    tree_remove(store, n.usr_dirs);
}

/* Builds the parts of the image that do not exist. 1: the skeleton was built; 0: it existed. */
static int image_make(int store, int host, const char *key, uid_t base, struct err *err) {
    const struct image_names n = image_names_of(key);
    if (base && faccessat(store, n.usr_dirs, F_OK, 0) < 0 &&
        build_in(store, n.usr_dirs, host, base, build_usr_dirs, err) < 0)
        return -1;
    if (faccessat(store, n.skeleton, F_OK, 0) == 0)
        return 0;
    return build_in(store, n.skeleton, host, base, build, err) < 0 ? -1 : 1;
}

int image_open(int store, int host, uid_t base, struct image *ret, struct err *err) {
    char key[24], after[24];
    /* If the packages of the host change meanwhile, the copy is of two states: try again. */
    for (int i = 0; i < BUILDS_MAX; i++) {
        current_key(host, key);
        int made = image_make(store, host, key, base, err);
        if (made < 0)
            return err_wrap(err, "cannot build the host's image");
        current_key(host, after);
        if (!made || strcmp(key, after) == 0)
            break;
        if (i + 1 < BUILDS_MAX)
            image_drop(store, key);
    }
    return image_open_key(store, host, key, base, ret, err);
}

void image_close(struct image *image) {
    if (image->skeleton >= 0)
        close(image->skeleton);
    if (image->usr >= 0)
        close(image->usr);
    if (image->usr_dirs >= 0)
        close(image->usr_dirs);
    if (image->usr_over >= 0)
        close(image->usr_over);
    while (image->over_count)
        close(image->over[--image->over_count]);
    image->skeleton = image->usr = image->usr_dirs = image->usr_over = -1;
}
