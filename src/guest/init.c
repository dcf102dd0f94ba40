#include "guest/init.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>

#include "base/wire/vm_address.h"
#include "base/wire/vm_line.h"
#include "guest/pump.h"
#include "guest/serial.h"
#include "guest/sys.h"

#define MODULES "/modules"
#define LIST_SIZE 4096
#define ROOT "/root"
#define MODULE_INIT_COMPRESSED_FILE 4 /* from linux/module.h, which older headers lack */
/* A device may appear after the module that drives it has been loaded. */
#define DEVICE_TRIES 100
#define DEVICE_WAIT_NS 50000000

extern char **environ;
static bool is_vm;

/* Messages. */

static void init_say(const char *what, const char *subject) {
    static const char head[] = "carrel-guest: ";
    char line[256];
    size_t n = sizeof(head) - 1;
    memcpy(line, head, n);
    for (const char *s = what; *s && n < sizeof(line) - 2; s++)
        line[n++] = *s;
    for (const char *s = subject; *s && n < sizeof(line) - 2; s++)
        line[n++] = *s;
    line[n++] = '\n';
    int fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, n) < 0)
        n = 0; /* there is no console: nothing else could be done */
    close_fd(&fd);
}

static void __attribute__((noreturn)) init_fail(const char *what, const char *subject) {
    init_say(what, subject);
    init_say("error: ", strerror(errno));
    reboot(RB_POWER_OFF);
    _exit(1);
}

/* Files. */

/* Reads a whole small file and adds a NUL. Returns its size, or -1. */
static ssize_t init_read(const char *path, char *ret, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && have < size - 1) {
        n = read(fd, ret + have, size - 1 - have);
        have += n > 0 ? (size_t)n : 0;
    }
    close_fd(&fd);
    ret[have] = '\0';
    return n < 0 ? -1 : (ssize_t)have;
}

/* A directory in the way is what is wanted; a failure shows when something is mounted on it. */
static void init_dir(const char *path, mode_t mode) {
    if (mkdir(path, mode) == 0)
        chmod(path, mode);
}

static void init_mount(const char *type, const char *at, unsigned long flags, const char *options) {
    init_dir(at, 0755);
    if (mount(type, at, type, flags, options) < 0)
        init_fail("cannot mount ", at);
}

/* Modules. */

static bool init_is_compressed(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".ko") != 0;
}

static void load_module(const char *name) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    int flags = init_is_compressed(name) ? MODULE_INIT_COMPRESSED_FILE : 0;
    if (fd < 0 || (syscall(SYS_finit_module, fd, "", flags) < 0 && errno != EEXIST))
        init_fail("cannot load the kernel module ", name);
    close_fd(&fd);
    unlink(name); /* gives the memory back: the file is in the initramfs */
}

/* The file `list` has the names of the modules, a line each, in the order to load them. */
static void load_modules(void) {
    char list[LIST_SIZE];
    if (chdir(MODULES) < 0 || init_read("list", list, sizeof(list)) < 0)
        init_fail("cannot read the list of modules", "");
    for (char *at = list, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        load_module(at);
    }
    if (chdir("/") < 0)
        init_fail("cannot enter /", "");
}

/* What the vm is. */

static void init_pause(void) {
    struct timespec t = {0, DEVICE_WAIT_NS};
    nanosleep(&t, NULL);
}

static int open_port(const char *name) {
    int fd;
    for (int i = 0; (fd = serial_find(name)) < 0; i++) {
        if (i == DEVICE_TRIES)
            init_fail("there is no port ", name);
        init_pause();
    }
    fcntl(fd, F_SETFL, O_RDWR);
    return fd;
}

/* Reads from the port until it has `size` bytes, or one that is `last`. */
static size_t read_port(int port, void *to, size_t size, int last) {
    uint8_t *at = to;
    for (size_t have = 0; have < size;) {
        ssize_t n = read(port, at + have, 1);
        if (n < 0 && errno != EINTR)
            init_fail("cannot read what the vm is", "");
        if (n == 0)
            init_pause();
        have += n > 0;
        if (n > 0 && at[have - 1] == last)
            return have;
    }
    return size;
}

static void set_clock(const struct vm_wake *wake) {
    const struct timespec now = {(time_t)wake->seconds, (long)wake->nanoseconds};
    if (wake->seconds > 0 && clock_settime(CLOCK_REALTIME, &now) < 0)
        init_fail("cannot set the clock", "");
}

/* A clone of a vm would have the random numbers of every other one. */
static void set_seed(const struct vm_wake *wake) {
    struct {
        int bits, size;
        uint8_t seed[sizeof(wake->seed)];
    } entropy = {sizeof(wake->seed) * 8, sizeof(wake->seed), {0}};
    memcpy(entropy.seed, wake->seed, sizeof(entropy.seed));
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, RND_ADD_ENTROPY, &entropy) < 0 || ioctl(fd, RND_RESEED_CRNG) < 0)
        init_fail("cannot set the seed of random numbers", "");
    close_fd(&fd);
}

/*
 * Waits until the host says what this vm is, and returns the words. Until here all vms of one kind
 * are the same, and a template may be made of this one: the words may reach another vm, later.
 */
static size_t await_wake(char *ret, size_t size) {
    struct vm_wake wake;
    int port = open_port(VM_WAKE_PORT);
    if (write(port, VM_WAITS, sizeof(VM_WAITS) - 1) < 0)
        init_fail("cannot write to the port of the host", "");
    read_port(port, &wake, sizeof(wake), EOF);
    size_t n = read_port(port, ret, size - 1, '\n');
    ret[n] = '\0';
    if (write(port, VM_AWAKE, sizeof(VM_AWAKE) - 1) < 0)
        init_fail("cannot write to the port of the host", "");
    close_fd(&port);
    set_clock(&wake);
    set_seed(&wake);
    return n;
}

/* Network. */

static void set_address(struct sockaddr *to, const char *text) {
    struct sockaddr_in in = {.sin_family = AF_INET};
    inet_pton(AF_INET, text, &in.sin_addr);
    memcpy(to, &in, sizeof(in));
}

static void interface_up(int sock, const char *name) {
    struct ifreq r = {.ifr_flags = IFF_UP | IFF_RUNNING};
    memcpy(r.ifr_name, name, strlen(name) + 1);
    if (ioctl(sock, SIOCSIFFLAGS, &r) < 0)
        init_fail("cannot set up the network interface ", name);
}

/* Waits for the device, then gives it the address and the route that every vm has. */
static void join_network(int sock) {
    struct ifreq r = {.ifr_name = "eth0"};
    for (int i = 0; ioctl(sock, SIOCGIFFLAGS, &r) < 0; i++) {
        if (i == DEVICE_TRIES)
            init_fail("the network device does not appear", "");
        init_pause();
    }
    set_address(&r.ifr_addr, VM_ADDRESS);
    if (ioctl(sock, SIOCSIFADDR, &r) < 0)
        init_fail("cannot set the address of eth0", "");
    struct sockaddr_in mask = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(~0u << (32 - VM_PREFIX))};
    memcpy(&r.ifr_netmask, &mask, sizeof(mask));
    if (ioctl(sock, SIOCSIFNETMASK, &r) < 0)
        init_fail("cannot set the netmask of eth0", "");
    interface_up(sock, "eth0");
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    set_address(&route.rt_gateway, VM_GATEWAY);
    set_address(&route.rt_dst, "0.0.0.0");
    set_address(&route.rt_genmask, "0.0.0.0");
    if (ioctl(sock, SIOCADDRT, &route) < 0)
        init_fail("cannot set the default route", "");
}

static void set_up_network(bool has_net) {
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        init_fail("cannot open a socket", "");
    interface_up(sock, "lo");
    if (has_net)
        join_network(sock);
    close_fd(&sock);
}

/*
 * Mounts a file of the memory over /etc/resolv.conf: in the files of the machine it names the name
 * server of a box. A symbolic link belongs to a name service inside, and stays.
 */
static void set_name_server(void) {
    static const char text[] = "nameserver " VM_GATEWAY "\noptions timeout:1 attempts:1\n";
    int file = open("/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 || write(file, text, sizeof(text) - 1) < 0)
        init_fail("cannot write resolv.conf", "");
    close_fd(&file);
    struct stat st;
    if (lstat(ROOT "/etc", &st) < 0 || !S_ISDIR(st.st_mode) ||
        lstat(ROOT "/etc/resolv.conf", &st) < 0 || !S_ISREG(st.st_mode))
        return;
    if (mount("/resolv.conf", ROOT "/etc/resolv.conf", NULL, MS_BIND, NULL) < 0)
        init_fail("cannot mount /etc/resolv.conf", "");
}

/* The root. */

/* The files of the machine come through a virtio port: see pump.h. */
static void mount_root(bool starts_system) {
    static char options[80] =
        "rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions,fd=";
    int port, fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    port = open_port(VM_FILES_PORT);
    if (fuse < 0 || fuse > 9)
        init_fail("cannot open /dev/fuse", "");
    options[strlen(options)] = (char)('0' + fuse);
    init_dir(ROOT, 0755);
    if (mount("carrel", ROOT, "fuse", 0, options) < 0 || !pump_start(fuse, port, starts_system))
        init_fail("cannot mount the root of the vm", "");
}

static void init_move(const char *from, const char *to) {
    init_dir(to, 0755);
    if (mount(from, to, NULL, MS_MOVE, NULL) < 0)
        init_fail("cannot mount ", to);
}

static void make_dev(void) {
    init_mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "mode=0620,gid=5,ptmxmode=0666");
    init_mount("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
    if (symlink("/proc/self/fd", "/dev/fd") < 0 || symlink("fd/0", "/dev/stdin") < 0 ||
        symlink("fd/1", "/dev/stdout") < 0 || symlink("fd/2", "/dev/stderr") < 0)
        init_fail("cannot make the links in /dev", "");
}

/* /run is in memory, as in every computer, but keeps the machine's /run/carrel if there is one. */
static void make_run(void) {
    struct stat st;
    bool has_own = lstat(ROOT "/run/carrel", &st) == 0 && S_ISDIR(st.st_mode);
    init_dir("/carrel", 0755);
    if (has_own && mount(ROOT "/run/carrel", "/carrel", NULL, MS_BIND | MS_REC, NULL) < 0)
        init_fail("cannot mount /run/carrel", "");
    init_mount("tmpfs", ROOT "/run", MS_NOSUID | MS_NODEV, "mode=0755");
    init_dir(ROOT "/run/lock", 01777);
    if (has_own)
        init_move("/carrel", ROOT "/run/carrel");
}

static void enter_root(void) {
    init_move("/dev", ROOT "/dev");
    init_move("/proc", ROOT "/proc");
    init_move("/sys", ROOT "/sys");
    if (chdir(ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        init_fail("cannot enter the root of the vm", "");
}

/* Pid 1 becomes the init of the vm. The guest, its child, does not wait for it. */
static void start_system(void) {
    if (access("/sbin/init", X_OK) < 0) {
        init_say("there is no /sbin/init in the vm, so the guest is pid 1", "");
        return;
    }
    pid_t child = fork();
    if (child < 0)
        init_fail("cannot start the guest", "");
    if (child == 0) {
        setsid();
        return;
    }
    static char path[] = "/sbin/init";
    char *argv[] = {path, NULL};
    execve(path, argv, environ);
    init_fail("cannot start ", path);
}

bool init_is_wanted(char **argv) {
    return getpid() == 1 && argv[0] && strcmp(argv[0], "/init") == 0;
}

int init_run(void) {
    is_vm = true;
    umask(022);
    char text[VM_LINE_SIZE];
    struct vm_line line;
    init_mount("devtmpfs", "/dev", MS_NOSUID, "mode=0755");
    init_mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    init_mount("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    init_mount("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    init_dir("/sys/fs/cgroup/carrel", 0755);
    int cgroups = open("/sys/fs/cgroup/carrel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroups < 0)
        init_fail("cannot make a cgroup", "");
    make_dev();
    load_modules();
    size_t n = await_wake(text, sizeof(text));
    if (!vm_line_read(text, n, &line))
        init_fail("wrong words from the host: ", text);
    if (sethostname(line.hostname, strlen(line.hostname)) < 0)
        init_fail("cannot set the host name ", line.hostname);
    mount_root(line.starts_system);
    make_run();
    set_up_network(line.has_net);
    if (line.has_net)
        set_name_server();
    enter_root();
    if (line.starts_system)
        start_system();
    return cgroups;
}

void guest_end(void) {
    if (is_vm) {
        sync();
        reboot(RB_POWER_OFF);
    }
    _exit(0);
}
