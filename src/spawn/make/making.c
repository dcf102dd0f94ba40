#include "spawn/make/making.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"
#include "base/jot.h"
#include "base/limits.h"
#include "base/wire/msg.h"
#include "spawn/disk/layers.h"
#include "spawn/make/child.h"
#include "spawn/spawner.h"

struct making *making_new(void) {
    struct making *m = malloc(sizeof(*m));
    if (!m)
        return NULL;
    *m = (struct making){
        .berth = BERTH_NONE, .listener = -1, .admin = -1, .control = {-1, -1}, .link = {-1, -1}};
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        m->grants[i] = m->uppers[i] = -1;
    for (size_t i = 0; i < NETNS_FDS; i++)
        m->doors[i] = -1;
    return m;
}

void making_close_doors(struct making *m) {
    for (size_t i = 0; i < NETNS_FDS; i++)
        close_fd(&m->doors[i]);
}

void making_free(struct making *m) {
    int *fds[] = {&m->listener,   &m->admin,   &m->control[0],
                  &m->control[1], &m->link[0], &m->link[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        close_fd(fds[i]);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++) {
        close_fd(&m->grants[i]);
        close_fd(&m->uppers[i]);
    }
    making_close_doors(m);
    berth_close(&m->berth);
    free(m);
}

void making_undo(struct spawner *s, struct making *m) {
    if (m->has_berth)
        berth_drop(s, &m->berth);
    making_free(m);
}

static int making_facts(const struct spawner *s, const struct plan *plan, struct buf *out) {
    struct jot j = JOT(out);
    jot_object(&j, NULL);
    jot_string(&j, "id", plan->id);
    jot_string(&j, "kind", "box");
    jot_string(&j, "image", plan->image);
    jot_array(&j, "enforced");
    if (s->cgroups.memory >= 0)
        jot_string(&j, NULL, "memory");
    if (s->cgroups.cpu >= 0)
        jot_string(&j, NULL, "cpu");
    if (s->cgroups.pids >= 0)
        jot_string(&j, NULL, "processes");
    if (!s->maker.tmpfs_bare)
        jot_string(&j, NULL, "disk");
    jot_end(&j, ']');
    jot_array(&j, "grants"); /* upkeep_tell() replaces everything from here on */
    static const char *const modes[] = {"", "ro", "cow", "rw"};
    for (size_t i = 0; i < plan->grant_count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "kind", plan->grants[i].volume ? "volume" : "dir");
        jot_string(&j, "path", plan->grants[i].path);
        jot_string(&j, "mode", modes[plan->grants[i].mode]);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    limits_write(&j, &(struct limits_told){
                         .mem_bytes = plan->mem_bytes ? plan->mem_bytes : LIMIT_MEM,
                         .disk_bytes = plan->disk_bytes ? plan->disk_bytes : s->maker.usual,
                         .pids = plan->pids ? plan->pids : LIMIT_PIDS,
                         .cpu_milli = plan->cpu_milli,
                         .lifetime_ms = plan->deadline_ms});
    jot_object(&j, "network");
    jot_string(&j, "policy", "none");
    jot_end(&j, '}');
    jot_end(&j, '}');
    return j.failed || !buf_add(out, "\n", 1) ? -1 : 0;
}

enum { RECORD_SIZE = 1024 };

void making_home(const struct spawner *s, char ret[48]) {
    struct stat st;
    ret[0] = '\0';
    if (fstat(s->store, &st) == 0)
        snprintf(ret, 48, "%" PRIx64 ":%" PRIx64, (uint64_t)st.st_dev, (uint64_t)st.st_ino);
}

/* Records have a fixed size, so that a new one can overwrite the old one. */
static bool print_record(const struct box *box, char text[RECORD_SIZE]) {
    int n = snprintf(text, RECORD_SIZE,
                     "slot=%" PRIu32 "\nupper=%" PRIu32 "\ncgroup=%" PRIu64 "\nlinger=%" PRIu64
                     "\nuntil=%" PRIu64 "\nborn=%" PRIu64 "\nimage=%s\npid=%d\nlayer=%" PRIu32
                     "\nnext=%" PRIu32 "\nside=%c\ndrifted=%d\nhome=%s\nstore=%s\nmem=%" PRIu64
                     "\ncpu=%" PRIu64 "\npids=%" PRIu64 "\ndisk_bytes=%" PRIu64 "\n",
                     box->slot, box->upper, box->cgroup, box->linger, box->due_ms, box->born,
                     box->image_key, (int)box->pid, box->layer, box->next_layer, box->side,
                     box->drifted, box->home, box->store, box->limits.mem_bytes,
                     box->limits.cpu_milli, box->limits.pids, box->limits.disk_bytes);
    for (size_t i = 0; i < box->disk_count && n < RECORD_SIZE; i++)
        n += snprintf(text + n, RECORD_SIZE - (size_t)n, "disk=%s:%" PRIu32 "\n", box->disks[i].id,
                      box->disks[i].upper);
    if (n >= RECORD_SIZE)
        return false;
    memset(text + n, '\n', RECORD_SIZE - (size_t)n);
    return true;
}

static int write_record(int dir, const char *name, int flags, const char text[RECORD_SIZE]) {
    int file DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CLOEXEC | flags, 0600);
    return file >= 0 && pwrite(file, text, RECORD_SIZE, 0) == RECORD_SIZE ? 0 : -errno;
}

int making_amend(struct spawner *s, const struct box *box, const char *name, struct err *err) {
    char text[RECORD_SIZE];
    int dir DEFER_CLOSE = openat(s->boxes, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "cannot save the record of machine '%s'", box->id);
    if (!print_record(box, text))
        return err_set(err, ERR_LIMIT, "cannot save the record of machine '%s': it is too long",
                       box->id);
    /*
     * A box always has a record on disk, since it may outlive this spawner. One write of less than
     * a page is atomic even if the spawner is killed; after a power failure the box does not exist
     * any more.
     */
    int r = write_record(dir, "box", 0, text);
    if (r == -ENOENT && (r = write_record(dir, "box.new", O_CREAT | O_TRUNC, text)) == 0)
        r = renameat(dir, "box.new", dir, "box") < 0 ? -errno : 0;
    return r < 0 ? err_num(err, r, "cannot save the record of machine '%s'", box->id) : 0;
}

/*
 * Writes the record into the new directory of a box. If the spawner is killed meanwhile, the next
 * one finds a damaged record of a box whose guest was never started, and removes both.
 */
static int write_first(struct spawner *s, const struct box *box, const char *name,
                       struct err *err) {
    char text[RECORD_SIZE], path[64];
    snprintf(path, sizeof(path), "%s/box", name);
    if (!print_record(box, text))
        return err_set(err, ERR_LIMIT, "cannot save the record of machine '%s': it is too long",
                       box->id);
    int r = write_record(s->boxes, path, O_CREAT | O_EXCL, text);
    return r < 0 ? err_num(err, r, "cannot save the record of machine '%s'", box->id) : 0;
}

static void stack_name(const struct box *box, uint32_t layer, char ret[64]) {
    snprintf(ret, 64, "%s/stack.%" PRIu32, box->id, layer);
}

int making_keep_stack(struct spawner *s, const struct box *box, uint32_t layer, const char *stack,
                      struct err *err) {
    char name[64];
    stack_name(box, layer, name);
    int file DEFER_CLOSE =
        openat(s->boxes, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = file < 0 ? -errno : write_all(file, stack, strlen(stack));
    return r < 0 ? err_num(err, r, "cannot save the list of layers of machine '%s'", box->id) : 0;
}

void making_drop_stack(struct spawner *s, const struct box *box, uint32_t layer) {
    char name[64];
    stack_name(box, layer, name);
    unlinkat(s->boxes, name, 0);
}

int making_read_stack(struct spawner *s, const struct box *box, char ret[LAYERS_TEXT_SIZE],
                      struct err *err) {
    char name[64];
    /* A new box has only its image as a layer, and no file that lists layers. */
    uint32_t first = image_id_valid(box->image_key) ? LAYER_FIRST + 1 : LAYER_FIRST;
    stack_name(box, box->layer, name);
    ssize_t n = read_file_at(s->boxes, name, ret, LAYERS_TEXT_SIZE);
    if (n >= 0)
        return 0;
    if (n != -ENOENT)
        return err_num(err, (int)n, "cannot read the list of layers of machine '%s'", box->id);
    ret[0] = '\0';
    if (box->layer <= first && !box->disk_count)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "the list of layers of machine '%s' is missing: an older version of Carrel created the "
            "machine",
            box->id);
    return err_remedy(
        err,
        "copy the files of the machine out, then delete the machine with the daemon of its store");
}

struct sockaddr_un box_socket(const struct spawner *s, const char *id, const char *name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/%s", s->boxes, id, name);
    return a;
}

/* Binds the listening sockets that the guest already has to paths that only the host can see. */
static int name_listeners(struct spawner *s, const struct making *m, const char *id,
                          struct err *err) {
    struct sockaddr_un hosts = box_socket(s, id, "guest.sock"),
                       admin = box_socket(s, id, "admin.sock");
    if (bind(m->listener, (struct sockaddr *)&hosts, sizeof(hosts)) < 0 ||
        listen(m->listener, 16) < 0 ||
        bind(m->admin, (struct sockaddr *)&admin, sizeof(admin)) < 0 || listen(m->admin, 4) < 0)
        return err_sys(err, "cannot listen for connections to the guest of a machine");
    return 0;
}

int guest_greet(int link) {
    uint8_t frame[64];
    struct msg_hello hello = {.version = MSG_VERSION_OLDEST, .features = MSG_FEATURE_FDS};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_HELLO}, &hello);
    /*
     * The guest of an adopted box may be dying: MSG_NOSIGNAL, so that SIGPIPE does not end the
     * spawner.
     */
    return send(link, frame, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

static int open_channels(struct making *m, struct err *err) {
    m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    m->admin = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->listener < 0 || m->admin < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->control) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, m->link) < 0 ||
        guest_greet(m->link[0]) < 0)
        return err_sys(err,
                       "cannot create the sockets between the host and the guest of a machine");
    return 0;
}

int making_open_doors(struct spawner *s, struct making *m, const char *id, struct err *err) {
    int r = netns_listen(&s->net, m->berth.netns, netns_loopback, m->doors);
    return r < 0 ? err_num(err, r, "cannot listen in the network of machine '%s'", id) : 0;
}

/*
 * Gives a forked machine its own identity (machine-id, host name and random seed), before the guest
 * accepts requests.
 */
static int renew_identity(const struct making *m, const struct plan *plan, struct err *err) {
    uint8_t frame[256], random[16], seed[32];
    char id[33];
    if (getrandom(random, sizeof(random), 0) < 0 || getrandom(seed, sizeof(seed), 0) < 0)
        return err_sys(err, "cannot generate random numbers for the identity of a machine");
    hex_put(random, sizeof(random), id);
    struct msg_clone_id clone = {.hostname = {plan->hostname, (uint32_t)strlen(plan->hostname)},
                                 .machine_id = {id, 32},
                                 .seed = {seed, sizeof(seed)}};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_CLONE_ID}, &clone);
    return n && send(m->link[0], frame, n, MSG_NOSIGNAL) == (ssize_t)n
               ? 0
               : err_sys(err, "cannot send its identity to the guest of a machine");
}

bool plan_is_restacked(const struct plan *plan) {
    return plan->stack[0] || image_id_valid(plan->image);
}

/* The `host` image has programs of the host, which a cell machine never runs. */
static int cell_can_be_made(const struct spawner *s, const struct plan *plan, struct err *err) {
    if (s->worker < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "cannot create a cell machine: the program carrel-cell is not installed");
    if (!image_id_valid(plan->image))
        return err_set(err, ERR_INVALID, "a cell machine needs an image of its own");
    return 0;
}

int making_gather(struct spawner *s, const struct plan *plan, const int *fds, struct making *m,
                  struct err *err) {
    if (plan->cell && cell_can_be_made(s, plan, err) < 0)
        return -1;
    if (pool_take(s, plan, &m->berth, err) < 0)
        return -1;
    m->has_berth = true;
    if (plan_is_restacked(plan) && layers_restack(s, plan, &m->berth.root, err) < 0)
        return -1;
    if (cgroup_limit(&s->cgroups, m->berth.cgroup.number, plan, err) < 0 ||
        open_channels(m, err) < 0 || (plan->gate && making_open_doors(s, m, plan->id, err) < 0) ||
        (plan->stack[0] && !plan->same && !plan->cell && renew_identity(m, plan, err) < 0))
        return -1;
    for (unsigned i = 0; i < plan->grant_count; i++)
        if (rootfs_grant(&s->maker, &m->berth.root, &plan->grants[i], i, fds[i], &m->grants[i],
                         &m->uppers[i], err) < 0)
            return -1;
    return 0;
}

int making_order(const struct making *m, const struct plan *plan, struct err *err) {
    int fds[ORDER_GRANTS + PLAN_MAX_GRANTS + 2 + LAYERS_DISKS_MAX] = {
        [ORDER_CONTROL] = m->control[1],
        [ORDER_LISTENER] = m->listener,
        [ORDER_ADMIN] = m->admin,
        [ORDER_SPAWNER] = m->link[1]};
    struct plan filled = *plan;
    if (!filled.mem_bytes)
        filled.mem_bytes = LIMIT_MEM;
    memcpy(fds + ORDER_GRANTS, m->grants, plan->grant_count * sizeof(int));
    size_t n = ORDER_GRANTS + plan->grant_count;
    if (plan_is_restacked(plan)) {
        fds[n++] = m->berth.root.root;
        if (m->berth.root.usr >= 0) {
            fds[n++] = m->berth.root.usr;
            snprintf(filled.image, sizeof(filled.image), "host"); /* tells it of the /usr */
        }
        for (size_t i = 1; i < DISKS && m->berth.root.held[i] >= 0; i++)
            fds[n++] = m->berth.root.held[i];
    }
    int r = send_fds(m->berth.socket, &filled, child_order_size(plan), fds, n);
    if (r == 0)
        return 0;
    return err_num(err, r, "cannot send the settings of machine '%s' to its process", plan->id);
}

int making_record(struct spawner *s, const struct making *m, const struct box *box,
                  const char *name, struct err *err) {
    if (mkdirat(s->boxes, name, 0700) < 0)
        return err_sys(err, "cannot create the directory of machine '%s'", name);
    if (write_first(s, box, name, err) < 0)
        return -1;
    return name_listeners(s, m, name, err);
}

int making_describe(struct spawner *s, struct making *m, const struct plan *plan, struct err *err) {
    struct buf json DEFER(buf_done) = BUF(65536);
    if (making_facts(s, plan, &json) < 0)
        return err_set(err, ERR_LIMIT, "cannot write machine.json: its content is too large");
    return rootfs_meta(&s->maker, &m->berth.root, json.data, err);
}

int making_release(const struct making *m, struct err *err) {
    return send(m->berth.socket, "g", 1, MSG_NOSIGNAL) == 1
               ? 0
               : err_sys(err, "cannot start the guest of a machine");
}

void making_tell(const struct making *m, const struct err *err) {
    uint8_t frame[512];
    struct msg_error e = {.code = err->code, .text = {err->text, (uint32_t)strlen(err->text)}};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_ERROR}, &e);
    if (n)
        (void)!write(m->control[1], frame, n);
}
