/* carrel doctor: checks what this host supports, how Carrel uses it, and how to fix the rest. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/fs_room.h"
#include "base/jot.h"
#include "base/wire/vm_programs.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/table.h"
#include "io/criu.h"
#include "io/place.h"
#include "io/spawn_link.h"
#include "io/vm/kernel.h"
#include "io/vm/kvm_known.h"

enum { PROBE_MS = 30000 };

enum verdict { GOOD, LESS, BAD }; /* supported; missing but optional; missing and required */

struct finding {
    enum verdict verdict;
    char found[400];
    char used[120]; /* what Carrel does with or without the feature */
    char fix[120];
};

struct host {
    struct place place;
    char status[PLAN_TEXT_SIZE]; /* status of the spawner; empty if it does not start */
    struct err refusal;
    bool spawner;
};

static void doctor_say(struct finding *f, enum verdict v, const char *found, const char *used,
                       const char *fix) {
    f->verdict = v;
    snprintf(f->found, sizeof(f->found), "%s", found);
    snprintf(f->used, sizeof(f->used), "%s", used);
    snprintf(f->fix, sizeof(f->fix), "%s", fix);
}

static bool lists(const char *file, const char *word) {
    char text[8192] = "";
    read_file_at(AT_FDCWD, file, text, sizeof(text));
    size_t len = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += len) {
        bool starts = at == text || strchr(" \t\n", at[-1]);
        if (starts && (at[len] == '\0' || strchr(" \t\n", at[len])))
            return true;
    }
    return false;
}

static bool spawner_says(const struct host *h, const char *fact) {
    return strstr(h->status, fact) != NULL;
}

/* Returns a text member of the spawner's status, up to its first escaped character. */
static const char *status_text(const struct host *h, const char *name, char ret[160]) {
    char start[32];
    snprintf(start, sizeof(start), "\"%s\":\"", name);
    const char *at = strstr(h->status, start);
    at = at ? at + strlen(start) : "";
    snprintf(ret, 160, "%.*s", (int)strcspn(at, "\"\\"), at);
    return ret;
}

static bool in_path(const char *program) {
    static const char *const dirs[] = {"/usr/local/bin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", dirs[i], program);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void look_kernel(const struct host *h, struct finding *f) {
    struct utsname u;
    (void)h;
    uname(&u);
    char text[300];
    snprintf(text, sizeof(text), "%s %s", u.release, u.machine);
    int major = 0, minor = 0;
    sscanf(u.release, "%d.%d", &major, &minor);
    bool enough = major > 6 || (major == 6 && minor >= 1);
    doctor_say(f, enough ? GOOD : LESS, text, enough ? "supported" : "older than 6.1: not tested",
               enough ? "" : "upgrade to Debian 12 or newer");
}

static void look_boxes(const struct host *h, struct finding *f) {
    if (h->spawner)
        doctor_say(f, GOOD, "the spawner runs", "boxes start", "");
    else
        doctor_say(f, BAD, h->refusal.text, "no box can start", h->refusal.remedy);
}

static void look_privilege(const struct host *h, struct finding *f) {
    if (geteuid() == 0)
        doctor_say(f, GOOD, "root", "each box has its own range of uids", "");
    else if (h->spawner)
        doctor_say(f, LESS, "ordinary user",
                   "boxes share your subordinate ids; no limit for disks in the store",
                   "run as root");
    else
        doctor_say(
            f, BAD, "ordinary user", "newuidmap and 65536 subordinate ids are needed",
            in_path("newuidmap")
                ? "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER"
                : "sudo apt-get install uidmap");
}

static void look_cgroups(const struct host *h, struct finding *f) {
    struct statfs fs;
    bool v2 = statfs("/sys/fs/cgroup", &fs) == 0 && (unsigned long)fs.f_type == 0x63677270ul;
    bool v1 =
        access("/sys/fs/cgroup/memory", F_OK) == 0 || access("/sys/fs/cgroup/freezer", F_OK) == 0;
    const char *found = v2 ? "cgroup v2" : v1 ? "cgroup v1 or hybrid" : "none";
    if (spawner_says(h, "\"unenforced\":[]") || spawner_says(h, "\"unenforced\":[\"disk\"]"))
        doctor_say(f, GOOD, found, "memory, cpu and process limits are enforced", "");
    else
        doctor_say(f, LESS, found,
                   "some limits cannot be enforced: options that set them are refused",
                   geteuid() == 0 ? "mount the memory, cpu and pids controllers"
                                  : "have systemd delegate them: Delegate=yes, or run as root");
}

static void look_dynmods(const struct host *h, struct finding *f) {
    (void)h;
    bool on = lists("/proc/mounts", "cgroup2") || lists("/proc/mounts", "cgroup");
    char text[16384] = "";
    read_file_at(AT_FDCWD, "/proc/mounts", text, sizeof(text));
    on = strstr(text, "favordynmods") != NULL;
    doctor_say(f, on ? GOOD : LESS, on ? "favordynmods is on" : "favordynmods is off",
               on ? "commands start without waiting for the scheduler"
                  : "each command starts a few ms later",
               on ? "" : "run the spawner as root on kernel 6.0 or newer");
}

static void look_userns(const struct host *h, struct finding *f) {
    char text[32] = "0";
    (void)h;
    read_file_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", text, sizeof(text));
    bool some = strtoul(text, NULL, 10) > 0;
    doctor_say(f, some ? GOOD : BAD, some ? "user namespaces" : "no user namespaces",
               some ? "every box has its own" : "no box can start",
               some ? "" : "sysctl -w user.max_user_namespaces=96000");
}

static void look_overlay(const struct host *h, struct finding *f) {
    bool there = lists("/proc/filesystems", "overlay");
    doctor_say(f, there ? GOOD : BAD, there ? "overlayfs" : "no overlayfs",
               !there ? "no box can start"
               : spawner_says(h, "\"layers\":\"by descriptor\"")
                   ? "layers are passed by descriptor"
                   : "layers are attached by name (kernel before 6.15)",
               there ? "" : "modprobe overlay");
}

static void look_idmap(const struct host *h, struct finding *f) {
    if (geteuid() != 0)
        doctor_say(f, LESS, "needs root",
                   "files of the image belong to nobody in a box: replace them, do not edit them",
                   "");
    else if (spawner_says(h, "\"tmpfs_idmap\":true"))
        doctor_say(f, GOOD, "idmapped mounts, tmpfs too", "ids on disk are 0-65535 in every box",
                   "");
    else
        doctor_say(f, LESS, "idmapped mounts, not of tmpfs",
                   "changes go to disk (kernel before 6.3)", "");
}

static void look_seccomp(const struct host *h, struct finding *f) {
    (void)h;
    bool there = lists("/proc/sys/kernel/seccomp/actions_avail", "errno");
    doctor_say(f, there ? GOOD : BAD, there ? "seccomp filters" : "no seccomp filters",
               there ? "system calls outside an allow-list fail with ENOSYS" : "no box can start",
               there ? "" : "boot a kernel with CONFIG_SECCOMP_FILTER");
}

static void look_disk(const struct host *h, struct finding *f) {
    if (spawner_says(h, "\"disk\":\"quota\"")) {
        doctor_say(f, GOOD, "project quota on the store's filesystem",
                   spawner_says(h, "\"tmpfs_idmap\":true")
                       ? "--disk: tmpfs up to half of --mem, project quota beyond"
                       : "--disk: project quota",
                   "");
        return;
    }
    if (spawner_says(h, "\"disk\":\"btrfs\"")) {
        doctor_say(f, GOOD, "loop devices, btrfs",
                   "--disk: a btrfs image; below 256M a tmpfs or ext4", "");
        return;
    }
    if (spawner_says(h, "\"disk\":\"none\"")) {
        doctor_say(f, LESS, "tmpfs without user attributes (kernel before 6.6)",
                   "no disk limit: changes go to a directory of the store", "run as root");
        return;
    }
    bool loop = geteuid() == 0 && access("/dev/loop-control", W_OK) == 0, mkfs = in_path("mke2fs");
    if (loop && mkfs)
        doctor_say(f, GOOD, "loop devices, mke2fs",
                   "--disk: tmpfs up to half of --mem, an ext4 image beyond", "");
    else
        doctor_say(f, LESS, loop ? "no mke2fs" : "no loop devices", "--disk: a sized tmpfs only",
                   loop             ? "apt-get install e2fsprogs"
                   : geteuid() == 0 ? "modprobe loop"
                                    : "run as root");
}

static void look_network(const struct host *h, struct finding *f) {
    char note[160], found[200];
    if (spawner_says(h, "\"network\":\"steered\"")) {
        doctor_say(f, GOOD, "nf_tables with tproxy",
                   "every connection of a box goes through its network gate", "");
    } else if (spawner_says(h, "\"network\":\"proxy\"")) {
        snprintf(found, sizeof(found), "no nf_tables tproxy: %s",
                 status_text(h, "network_note", note));
        doctor_say(f, LESS, found,
                   "only programs that use the proxy at 127.0.0.1:3128 have network",
                   "modprobe nft_tproxy");
    } else {
        doctor_say(f, BAD, "unknown", "the spawner did not report it", "");
    }
}

/* The kernel that carrel.conf of the running daemon names; empty: none is named, or none runs. */
static void doctor_vm_kernel(char ret[KERNEL_PATH_SIZE]) {
    struct client c DEFER(client_close) = {0};
    json_t *status DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = "/v1/status"};
    struct err err;
    ret[0] = '\0';
    if (client_open(&c, CLIENT_NEVER, NULL, &err) == 0 && client_call(&c, &r, &status, &err) == 0)
        snprintf(ret, KERNEL_PATH_SIZE, "%s", client_text(status, "vm_kernel"));
}

static void look_vm(const struct host *h, struct finding *f) {
    (void)h;
    char named[KERNEL_PATH_SIZE];
    struct kernel kernel;
    struct modules modules;
    struct err err;
    char fix[sizeof(f->fix)] = "install the package " VM_QEMU_PACKAGE;
    const char *missing = access(VM_QEMU, X_OK) < 0 ? "no " VM_QEMU : NULL;
    doctor_vm_kernel(named);
    if (!missing && kernel_find(named, &kernel, &modules, &err) < 0) {
        missing = err.text;
        snprintf(fix, sizeof(fix), "%s", err.remedy);
    }
    doctor_say(f, missing ? LESS : GOOD, missing ? missing : kernel.path,
               missing ? "machines of kind vm do not start"
                       : "QEMU starts it in machines of kind vm",
               missing ? fix : "");
}

/* A vm that did not start with KVM knows more than another try would. */
static void look_kvm(const struct host *h, struct finding *f) {
    struct kvm_probe p;
    if (!kvm_recall(h->place.home, &p))
        kvm_probe("/dev/kvm", &p);
    doctor_say(f, p.is_usable ? GOOD : LESS, p.reason,
               p.is_usable ? "vms use it" : "QEMU translates the code of vms, which is slower",
               p.is_usable ? "" : "not needed");
}

static void look_criu(const struct host *h, struct finding *f) {
    (void)h;
    struct err err;
    bool runs = criu_check(&err) == 0;
    /* No fix: `carrel hibernate` does not use CRIU even where it works. */
    doctor_say(f, runs ? GOOD : LESS, runs ? "criu runs" : err.text,
               "not used: `carrel hibernate` saves only files (--files-only), pause keeps memory",
               "");
}

static void look_btrfs(const struct host *h, struct finding *f) {
    struct statfs fs;
    bool store = statfs(h->place.home, &fs) == 0 && (unsigned long)fs.f_type == 0x9123683eul;
    bool known = lists("/proc/filesystems", "btrfs"), mkfs = access("/sbin/mkfs.btrfs", X_OK) == 0;
    bool used = spawner_says(h, "\"disk\":\"btrfs\"");
    doctor_say(f, used || !store ? GOOD : LESS,
               !known  ? "no btrfs in the kernel"
               : !mkfs ? "btrfs, no mkfs.btrfs"
               : store ? "btrfs; the store is on it"
                       : "btrfs, mkfs.btrfs",
               used ? "disks are btrfs: steps are instant, also while commands run"
                    : "not used: a step while commands run cannot be restored; snap copies files",
               !known           ? "modprobe btrfs"
               : !mkfs          ? "apt-get install btrfs-progs"
               : geteuid() != 0 ? "run as root"
                                : "carrel store init --btrfs SIZE");
}

static void look_images(const struct host *h, struct finding *f) {
    bool files = spawner_says(h, "\"images\":\"erofs\"");
    doctor_say(f, files ? GOOD : LESS,
               files ? "erofs, from a file of the store" : "no erofs from a file",
               files ? "an image with a name is one file" : "images are directories",
               files            ? ""
               : geteuid() == 0 ? "boot Linux 6.12 or newer with CONFIG_EROFS_FS_BACKED_BY_FILE"
                                : "run as root");
}

enum { ROOM_WARN_PERCENT = 90 };

static void look_room(const struct host *h, struct finding *f) {
    int home DEFER_CLOSE = open(h->place.home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct fs_space space = fs_space(home);
    unsigned used = fs_used_percent(&space);
    char found[200], free[16], total[16];
    table_bytes((long long)space.free_bytes, free);
    table_bytes((long long)space.total_bytes, total);
    snprintf(found, sizeof(found), "the store's disk is used by %u %%: %s of %s are free in %.100s",
             used, free, total, h->place.home);
    doctor_say(f, used < ROOM_WARN_PERCENT ? GOOD : LESS, home < 0 ? "no store yet" : found,
               "if it is full, only reads and requests that free space are served",
               "free space on the disk of CARREL_HOME, or use carrel rm, carrel image prune");
}

static void look_daemon(const struct host *h, struct finding *f) {
    const char *url = getenv("CARREL_URL"), *why;
    bool shared = place_is_shared(&h->place, &why);
    char found[sizeof(f->found)], used[sizeof(f->used)];
    if (url && *url) {
        snprintf(found, sizeof(found), "the daemon at %.200s", url);
        doctor_say(f, GOOD, found, "CARREL_URL is set", "");
        return;
    }
    if (shared)
        snprintf(found, sizeof(found), "the daemon for all users, in " PLACE_SHARED_RUN);
    else
        snprintf(found, sizeof(found), "your own: run directory %.120s (%s), store %.120s (%s)",
                 h->place.run, h->place.run_from, h->place.home, h->place.home_from);
    snprintf(used, sizeof(used), "because %s", why);
    doctor_say(f, GOOD, found, used, "");
}

/* Reports boxes (running machines) that the daemon leaves alone because its database has no row for
 * them. */
static void look_strays(const struct host *h, struct finding *f) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = "/v1/store/boxes"};
    struct err err;
    (void)h;
    if (client_open(&c, CLIENT_NEVER, NULL, &err) < 0 || client_call(&c, &r, &answer, &err) < 0) {
        doctor_say(f, GOOD, err.code == ERR_NOT_FOUND ? "no daemon runs" : err.text, "not checked",
                   "");
        return;
    }
    const json_t *boxes = json_object_get(answer, "boxes");
    size_t count = json_array_size(boxes), damaged = 0;
    for (size_t i = 0; i < count; i++)
        damaged += !json_is_true(json_object_get(json_array_get(boxes, i), "adoptable"));
    char found[120];
    snprintf(found, sizeof(found), "boxes of other stores or unknown: %zu; damaged rows: %zu",
             count - damaged, damaged);
    doctor_say(f, count ? LESS : GOOD, count ? found : "every box is known to its store",
               count ? "they are kept: nothing without a row in the database is deleted"
                     : "machines are taken over when the daemon starts",
               damaged ? "restore carrel.db from a backup; see: carrel store boxes"
                       : "carrel store boxes; carrel store adopt ID");
}

static const struct {
    const char *name;
    void (*look)(const struct host *, struct finding *);
} checks[] = {
    {"kernel", look_kernel},
    {"boxes", look_boxes},
    {"privilege", look_privilege},
    {"cgroups", look_cgroups},
    {"favordynmods", look_dynmods},
    {"userns", look_userns},
    {"overlay", look_overlay},
    {"idmapped", look_idmap},
    {"seccomp", look_seccomp},
    {"disk limit", look_disk},
    {"network", look_network},
    {"vm", look_vm},
    {"kvm", look_kvm},
    {"criu", look_criu},
    {"btrfs", look_btrfs},
    {"images", look_images},
    {"daemon", look_daemon},
    {"room", look_room},
    {"unknown boxes", look_strays},
};
enum { CHECKS = sizeof(checks) / sizeof(*checks) };

static const char *const verdicts[] = {"ok", "less", "missing"};

static void print_table(const struct finding *f) {
    for (size_t i = 0; i < CHECKS; i++) {
        printf("%-13s  %-7s  %s\n", checks[i].name, verdicts[f[i].verdict], f[i].found);
        printf("%-13s  %-7s  -> %s\n", "", "", f[i].used);
        if (f[i].fix[0] && f[i].verdict != GOOD)
            printf("%-13s  %-7s     fix: %s\n", "", "", f[i].fix);
    }
}

static void print_findings(const struct finding *f) {
    struct buf text DEFER(buf_done) = BUF(65536);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_array(&j, "checks");
    for (size_t i = 0; i < CHECKS; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "name", checks[i].name);
        jot_string(&j, "verdict", verdicts[f[i].verdict]);
        jot_string(&j, "found", f[i].found);
        jot_string(&j, "used", f[i].used);
        jot_string(&j, "fix", f[i].fix);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    safe_json_line(text.data);
}

/* Asks until the status is complete: the spawner has tried to make its first root filesystem. */
static bool ask_spawner(int link, struct host *h) {
    char why[160] = "", remedy[160];
    for (int i = 0; i < PROBE_MS / 10; i++) {
        if (spawn_status(link, h->status, sizeof(h->status), &h->refusal) < 0)
            return false;
        if (!spawner_says(h, "\"probed\":false"))
            return true;
        if (*status_text(h, "refusal", why))
            break;
        usleep(10000);
    }
    err_set(&h->refusal, ERR_UNSUPPORTED, "%s",
            *why ? why : "the spawner is still making its first root filesystem");
    err_remedy(&h->refusal, "%s", *status_text(h, "remedy", remedy) ? remedy : "see spawn.log");
    return false;
}

int cmd_doctor(int argc, char **argv) {
    static struct host host;
    struct finding found[CHECKS];
    struct err err;
    bool as_json = false;
    int status = 0;
    if (cli_words(argc, argv, 0, &as_json, &status) < 0)
        return status;
    if (place_find(&host.place, &err) < 0)
        return cli_fail(&err);
    int link DEFER_CLOSE = spawn_connect(&host.place, NULL, &host.refusal);
    host.spawner = link >= 0 && ask_spawner(link, &host);
    for (size_t i = 0; i < CHECKS; i++) {
        checks[i].look(&host, &found[i]);
        if (found[i].verdict == BAD)
            status = 1;
    }
    if (as_json)
        print_findings(found);
    else
        print_table(found);
    return status;
}
