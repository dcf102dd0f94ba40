/*
 * Messages between a host and carrel-guest (frames: base/wire/frame.h).
 *
 * Each message is a plain struct here and one table of fields in msg.c; one
 * encoder and one decoder serve them all. Decoded strings and bytes point into
 * the frame's payload; strings are NUL-terminated there and hold no other NUL.
 * A message that does not decode exactly is refused, and the connection is closed.
 *
 * Conversation
 *   The first frame each way is HELLO. The host speaks first and may send more
 *   without waiting. A request with a tag gets exactly one reply with that tag:
 *   the one named beside it below, OK, or ERROR. A guest serves several
 *   connections; only that of the spawner may send the messages that are listed last below.
 *
 * A command's life
 *   EXEC under an id the host chose -> EXEC_STARTED, EXEC_FAILED (id free again)
 *   or ERROR (`exists`: that id is still in the table). Then data frames, and
 *   EXIT once its main process has ended; EXIT stays in the table, through
 *   disconnects, until EXIT_ACK. EXIT may overtake output: a stream ends with
 *   FRAME_EOF, and a background child may hold it open for long. A command
 *   belongs to the connection that sent EXEC, until another one sends ATTACH; while
 *   it belongs to no connection, it blocks on full pipes and loses no output.
 *
 * Flow control
 *   A data frame carries its byte offset in its stream. The receiver reports with
 *   CREDIT how many bytes from the start it has consumed, and the sender never
 *   has more than `window` bytes beyond that in flight. The sender keeps those
 *   bytes, so an ATTACH with the consumed offsets continues without loss. Credit is
 *   an absolute offset: repeating it is harmless. After an ATTACH the consumed offset
 *   of STDIN counts as 0 until a CREDIT says more; OK says how much was received.
 *
 * Logs
 *   With MSG_EXEC_LOG the guest drains the command's pipes or terminal into a log
 *   (base/wire/outlog.h) that the host made, at full speed, whether a host is connected or
 *   not; there are no data frames and no CREDIT. The host reads the log's memory. To
 *   be woken it sends LOG_WAIT with the sizes it has seen; the one reply, LOG_GREW, comes
 *   when there is more output, so at most one reply is on its way. At EXIT the log
 *   holds all that the main process wrote. The guest closes the log with the row,
 *   so a host acknowledges the exit when it has the end of the output it wants.
 *   Over a serial port no descriptor can come with EXEC: there the guest makes the log, and the
 *   host reads it with LOG_READ.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/wire/frame.h"

#define MSG_VERSION 2u
/*
 * The oldest protocol version that the host still speaks, at most one before MSG_VERSION; with
 * version 3 it stays 2. The host sends it in HELLO, and a guest answers with its own version. So
 * machines of the previous release continue to run under the next release.
 */
#define MSG_VERSION_OLDEST 2u
_Static_assert(MSG_VERSION - MSG_VERSION_OLDEST <= 1, "at most one older version");
#define MSG_ID_NONE UINT32_MAX /* no uid or gid is given */
/* uid of an EXEC with MSG_EXEC_NAMED: the account's. A guest that does not know the flag refuses
 * it. */
#define MSG_ID_LOOKUP (UINT32_MAX - 1)
#define MSG_CHUNK_MAX (64u << 10) /* most data bytes in one data frame, file read or write */
#define MSG_WINDOW_MIN (4u << 10)
#define MSG_WINDOW_MAX (1u << 20)
#define MSG_WINDOW_DEFAULT (256u << 10)
#define MSG_STRINGS_MAX 65536u /* strings in one argv or env */
#define MSG_GROUPS_MAX 32u
#define MSG_RLIMITS_MAX 16u
#define MSG_KILL_ALL 0u /* no command has this id: it means every process except the guest */

enum msg_type {
    MSG_HELLO = 1, /* struct msg_hello, both ways */
    MSG_OK,        /* struct msg_ok: the reply where no other is named */
    MSG_ERROR,     /* struct msg_error */
    MSG_PING,      /* -> OK */
    MSG_SHUTDOWN,  /* ends the machine; no reply, the connection closes */

    MSG_EXEC = 16,    /* struct msg_exec -> EXEC_STARTED or EXEC_FAILED */
    MSG_EXEC_STARTED, /* struct msg_started */
    MSG_EXEC_FAILED,  /* struct msg_exec_failed */
    MSG_STDIN,        /* struct msg_data, to the guest */
    MSG_STDOUT,       /* struct msg_data, to the host; a terminal's output too */
    MSG_STDERR,
    /*
     * struct msg_credit: for STDIN from the guest, else from the host. A stream that goes to a log
     * does not wait for its reader, unless it was given credit; UINT64_MAX, or the end of the
     * connection, removes that limit.
     */
    MSG_CREDIT,
    MSG_EXIT,     /* struct msg_exit, to the host */
    MSG_EXIT_ACK, /* the host has exit and output; the guest drops the row with its last process */
    MSG_SIGNAL,   /* struct msg_signal; ERROR `gone` once the main process has ended */
    MSG_KILL,     /* SIGKILL to every process of the command, or MSG_KILL_ALL -> OK once sent */
    MSG_RESIZE,   /* struct msg_resize */
    MSG_ATTACH,   /* struct msg_attach -> OK; then data from that offset on, and EXIT if it ended */
    MSG_TABLE,    /* -> TABLE_ROWS */
    MSG_TABLE_ROWS,
    MSG_BUSY, /* -> BUSY_STATE */
    MSG_BUSY_STATE,
    MSG_LOG_WAIT, /* struct msg_log: sizes that the host has seen -> LOG_GREW once they differ */
    MSG_LOG_GREW, /* struct msg_log; at once for a second LOG_WAIT, or if another host attaches */
    MSG_LOG_OPEN, /* -> OK with the descriptor of the log; ERROR `not_found`: there is no log */
    MSG_FUEL,     /* struct msg_fuel, to the host: before the EXIT of a command of a cell machine */
    /*
     * A command of a cell machine is stored in a file (base/cell_command.h). The id is that of the
     * command.
     */
    MSG_PAUSE, /* struct msg_pause and one descriptor -> OK once it is stored, waits, and its output
                  is in the log; ERROR: it runs on */
    MSG_GO_ON, /* a stored command runs on; one that is not stored is not changed */
    MSG_LEAVE, /* kills a stored command and forgets it; its log stays as it is -> OK */

    /* Files. Paths are resolved in the machine; links of /proc (fd, root, exe, cwd) are refused. */
    MSG_STAT = 48, /* struct msg_path, flag MSG_NOFOLLOW -> ENTRY */
    MSG_ENTRY,     /* struct msg_entry */
    MSG_LIST,      /* struct msg_list -> LIST_PAGE */
    MSG_LIST_PAGE, /* struct msg_list_page */
    MSG_READ,      /* struct msg_read -> READ_DATA */
    MSG_READ_DATA, /* struct msg_read_data */
    MSG_WRITE,     /* struct msg_write -> OK, value = size afterwards */
    MSG_MKDIR,     /* struct msg_path, mode, flag MSG_PARENTS */
    MSG_MOVE,      /* struct msg_move */
    MSG_REMOVE,    /* struct msg_path, flag MSG_RECURSIVE */
    MSG_CHMOD,     /* struct msg_path, mode */
    MSG_CHOWN,     /* struct msg_chown */
    MSG_SYMLINK,   /* struct msg_move: `from` is the target of the link, `to` its path */
    MSG_WATCH,     /* struct msg_path under an id that the host chooses; ends with the connection */
    MSG_UNWATCH,   /* id of the watch */
    MSG_EVENT,     /* struct msg_event, with the id of the watch; id 0: events were lost */
    /*
     * A program in the machine called `carrel` (guest/calls.h). The guest sends it only to a host
     * whose HELLO has MSG_FEATURE_CALLS. The id is that of the call.
     */
    MSG_CALL,        /* struct msg_call, to the host */
    MSG_CALL_ANSWER, /* struct msg_call_answer, to the guest; no reply */

    /* Only the connection of the spawner may send these, except SWITCH_ROOT. */
    MSG_CLONE_ID = 80, /* struct msg_clone_id */
    MSG_DEADLINE,      /* struct msg_deadline */
    MSG_SPARES_WANT,   /* struct msg_spares, guest to spawner: how many cgroups to send */
    MSG_SPARES,        /* struct msg_spares and count * each descriptors; no reply */
    MSG_SWITCH_ROOT,   /* one descriptor of the new root; ERROR `busy` unless only the guest runs */
    MSG_LINGER,        /* the machine continues to run when its creator's connection closes */

    /* Output of a command whose log the guest made itself (MSG_FEATURE_LOG_READ). */
    MSG_LOG_READ, /* struct msg_log_read -> LOG_DATA */
    MSG_LOG_DATA, /* struct msg_log_data */

    /* Files, with MSG_FEATURE_META. */
    MSG_META,      /* struct msg_list, max 0: of the path itself -> META_PAGE */
    MSG_META_PAGE, /* struct msg_meta_page */
    MSG_META_SET,  /* struct msg_meta_set: replaces all metadata of the file */
    MSG_FILE_ROOT, /* struct msg_path: no path of a later request leads out of this directory, not
                      by a symlink either; for all connections, and it cannot be undone */

    /*
     * struct msg_resumed, to the guest of a vm that goes on in saved memory. Unless it was paused,
     * its commands run on, but are none of the host's any more.
     */
    MSG_RESUMED,
};

/* Points to n bytes; when decoded, s[n] is NUL. */
struct msg_str {
    const char *s;
    uint32_t n;
};

struct msg_bytes {
    const uint8_t *p;
    uint32_t n;
};

/* `count` NUL-terminated strings end to end in n bytes. To encode, v may be set instead. */
struct msg_strs {
    const char *s;
    uint32_t n;
    uint32_t count;
    const char *const *v; /* NULL-terminated array, encoding only */
};

struct msg_groups {
    uint32_t count;
    uint32_t v[MSG_GROUPS_MAX];
};

struct msg_rlimit {
    uint32_t resource; /* RLIMIT_*; a limit can only be lowered */
    uint64_t soft;
    uint64_t hard;
};

struct msg_rlimits {
    uint32_t count;
    struct msg_rlimit v[MSG_RLIMITS_MAX];
};

enum msg_feature {
    MSG_FEATURE_FDS = 1,        /* descriptors may be passed on this connection */
    MSG_FEATURE_TREE = 2,       /* commands have cgroups: a kill reaches every process */
    MSG_FEATURE_PRIVILEGED = 4, /* this connection may send the messages of the spawner */
    MSG_FEATURE_MEMORY = 8,     /* commands run in the machine's limit cgroups (v1: by thread) */
    MSG_FEATURE_NAMES = 16,     /* the guest knows MSG_EXEC_NAMED */
    MSG_FEATURE_COPY = 32,      /* the guest knows MSG_EXEC_COPY */
    MSG_FEATURE_CELL = 64,      /* every command runs in the cell worker, never as a program */
    MSG_FEATURE_ALLOW = 128,    /* cell: the worker takes capabilities (base/cell_command.h) */
    MSG_FEATURE_ASKS = 256,     /* cell: the guest knows MSG_EXEC_ASKS */
    MSG_FEATURE_CALLS = 512,    /* guest: it has the socket of `carrel`; host: it takes MSG_CALL */
    MSG_FEATURE_MODULE = 1024,  /* cell: the worker takes a program on standard input */
    MSG_FEATURE_DUMP = 2048,    /* cell: the guest knows MSG_EXEC_DUMP */
    MSG_FEATURE_PAUSE = 4096,   /* cell: the guest knows MSG_PAUSE and MSG_EXEC_STATE */
    /* With MSG_EXEC_LOG the guest makes the log, without a descriptor, and knows MSG_LOG_READ. */
    MSG_FEATURE_LOG_READ = 8192,
    MSG_FEATURE_META = 16384, /* the guest knows MSG_META to MSG_FILE_ROOT */
};

struct msg_hello {
    uint32_t version; /* host: the oldest it speaks; guest: its own, or ERROR `unsupported` */
    uint32_t features;
    uint64_t incarnation; /* guest: a random number that identifies this start of the guest */
};

struct msg_ok {
    uint64_t value;
};

struct msg_error {
    uint32_t code;   /* enum err_code; 0: use errno in `number` */
    uint32_t number; /* errno, or 0 */
    struct msg_str text;
};

enum msg_stdio {
    MSG_STDIO_NULL, /* /dev/null */
    MSG_STDIO_PIPE, /* a pipe the guest feeds or drains in data frames */
    MSG_STDIO_FD,   /* the next descriptor attached to the EXEC frame, in order 0, 1, 2 */
    MSG_STDIO_PTY,  /* the command's terminal; its output is STDOUT */
    MSG_STDIO_SAME, /* stderr only: the same place as stdout */
};

enum msg_exec_flag {
    MSG_EXEC_QUIET = 1,     /* no EXEC_STARTED is sent, only EXIT or EXEC_FAILED */
    MSG_EXEC_KILL_LEFT = 2, /* when the main process ends, kill its remaining processes */
    MSG_EXEC_LOG = 4,       /* stdout and stderr that are PIPE or PTY go into a log, whose
                               descriptor is the last one attached; see io/outlog_fd.h */
    MSG_EXEC_TOOL = 8,      /* argv[0] names a tool of the guest's own: see guest/tool.h */
    /*
     * The first string of `env` is not a variable but the name or number of the user, which the
     * guest looks up in the machine's passwd and group files. It adds the groups of that account,
     * and HOME, SHELL, USER and LOGNAME where `env` lacks them. The uid is MSG_ID_LOOKUP, or only
     * an account with this uid counts and a missing one is not an error. gid MSG_ID_NONE is the
     * account's group, cwd MSG_CWD_HOME its home directory.
     */
    MSG_EXEC_NAMED = 16,
    /*
     * argv[0] is /bin/sh, and the guest runs /bin/bash instead if the machine has it. An older
     * guest ignores this flag.
     */
    MSG_EXEC_SHELL = 32,
    /*
     * With MSG_EXEC_LOG: stdout and stderr that are FD (a pipe of the host) are not given to the
     * command. It gets a pipe of the guest, which writes the output to the log and to FD. The
     * command waits while FD is full, and its pipe is closed when nobody reads FD any more. The
     * guest closes FD after the last byte that was written before the main process ended; later
     * output of background processes goes only to the log.
     */
    MSG_EXEC_COPY = 64,
    /* The descriptor after the log is a socket that the cell worker gets. */
    MSG_EXEC_ASKS = 128,
    /* The last descriptor is a dump of an interpreter (cell/dump.h) that the cell worker gets. */
    MSG_EXEC_DUMP = 256,
    /*
     * The last descriptor is a stored command, which waits for MSG_GO_ON. Its log is not empty, and
     * goes on. Not with MSG_EXEC_DUMP.
     */
    MSG_EXEC_STATE = 512,
    /*
     * With MSG_EXEC_LOG: stdout and stderr begin with a credit of 0, as after a CREDIT, so that the
     * command waits for its reader from its first byte on. An older guest ignores this flag.
     */
    MSG_EXEC_PACED = 1024,
    /* Each of these flags stands for one more descriptor. */
    MSG_EXEC_WITH_FD = MSG_EXEC_LOG | MSG_EXEC_ASKS | MSG_EXEC_DUMP | MSG_EXEC_STATE,
};

#define MSG_CWD_HOME "~"

/* Exit statuses of a tool. Any other status comes from a signal or the kernel. */
enum msg_tool_status {
    MSG_TOOL_DONE,
    MSG_TOOL_PARTLY, /* stderr lists what was left out */
    MSG_TOOL_FAILED, /* stderr says why */
    MSG_TOOL_UNMET,  /* put: the condition does not hold; stdout describes the existing file */
};

struct msg_exec {
    uint32_t flags;
    uint8_t stdio[3];    /* enum msg_stdio for 0, 1, 2 */
    uint16_t rows;       /* rows of a terminal; 0 = 24 */
    uint16_t cols;       /* 0 = 80 */
    uint32_t window;     /* bytes in flight per stream; 0 = default, else MIN..MAX */
    uint32_t uid;        /* MSG_ID_NONE: stay root */
    uint32_t gid;        /* MSG_ID_NONE: stay root's */
    uint64_t timeout_ms; /* wall time, then all its processes are killed; 0 = no limit */
    struct msg_groups groups;
    struct msg_rlimits rlimits;
    struct msg_str cwd;   /* empty: "/" */
    struct msg_strs argv; /* at least one; a name without '/' is searched in PATH of env */
    struct msg_strs env;  /* the whole environment; nothing is added */
};

struct msg_started {
    uint32_t pid; /* inside the machine */
    uint32_t window;
};

/*
 * The step in which starting a command failed. The host reports EXEC with ENOENT as exit status
 * 127, EXEC with another errno as 126, and all others as 125.
 */
enum msg_step {
    MSG_STEP_FORK = 1,
    MSG_STEP_CGROUP,
    MSG_STEP_STDIO,
    MSG_STEP_RLIMIT,
    MSG_STEP_USER,
    MSG_STEP_CWD,
    MSG_STEP_EXEC,
};

struct msg_exec_failed {
    uint32_t number; /* errno */
    uint32_t step;   /* enum msg_step */
};

struct msg_data {
    uint64_t offset;
    struct msg_bytes data; /* to the end of the payload; may be empty with FRAME_EOF */
};

struct msg_credit {
    uint8_t stream;    /* 0, 1, 2 */
    uint64_t consumed; /* bytes from the start of the stream that the receiver has */
};

enum msg_exit_flag {
    MSG_EXIT_SIGNALED = 1, /* `status` is a signal, else an exit code */
    MSG_EXIT_TIMED_OUT = 2,
    MSG_EXIT_CORE = 4,
    MSG_EXIT_KILLED = 8,  /* a KILL message came before the end */
    MSG_EXIT_BESIDE = 16, /* other processes ran in the machine; older guests never say so */
};

struct msg_exit {
    uint32_t flags;
    uint32_t status;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t max_rss_kb;
    uint64_t wall_us;
};

struct msg_fuel {
    uint64_t used; /* as the worker counted; a worker that was taken over can say anything */
};

struct msg_pause {
    uint64_t max; /* most bytes of the file */
};

struct msg_signal {
    uint32_t number;
    uint8_t group; /* 0: the main process; 1: its group, or the terminal's foreground group */
};

struct msg_resize {
    uint16_t rows;
    uint16_t cols;
};

struct msg_attach {
    uint64_t consumed[2]; /* of stdout and stderr; UINT64_MAX: as in the last CREDIT */
};

struct msg_log {
    uint64_t produced[2]; /* bytes of stdout and stderr */
    uint8_t ended;        /* bit 0: stdout has ended or is not logged; bit 1: stderr */
};

enum msg_state {
    MSG_STATE_RUNNING = 1,
    MSG_STATE_EXITED, /* exit not yet acknowledged */
    MSG_STATE_LEFT,   /* acknowledged, but processes or open streams remain */
};

/* One command. TABLE_ROWS holds `count` of them encoded end to end: see msg_row_next(). */
struct msg_row {
    uint32_t id;
    uint8_t state;
    uint8_t attached; /* 1: to this connection, 2: to another */
    uint8_t stdio[3];
    uint32_t flags; /* enum msg_exec_flag, as it was started */
    uint32_t pid;
    uint64_t age_us;
    uint64_t stdin_received;
    uint64_t consumed[2]; /* as in the last CREDIT */
    uint64_t produced[2]; /* bytes read from the command so far */
    struct msg_exit exit; /* when not RUNNING */
};

struct msg_rows {
    uint32_t count;
    struct msg_bytes rows;
};

struct msg_busy_state {
    uint8_t busy;       /* 1: the machine has a process besides the guest */
    uint32_t commands;  /* running */
    uint32_t unacked;   /* exits waiting for their EXIT_ACK */
    uint32_t terminals; /* running commands with a terminal */
};

enum msg_file_flag {
    MSG_NOFOLLOW = 1,
    MSG_PARENTS = 2,   /* mkdir: create missing parents; an existing directory is not an error */
    MSG_RECURSIVE = 4, /* flag of REMOVE */
    MSG_CREATE = 8,    /* flag of WRITE, as the three below */
    MSG_EXCLUSIVE = 16,
    MSG_TRUNCATE = 32,
    MSG_APPEND = 64,     /* offset is ignored */
    MSG_NOREPLACE = 128, /* flag of MOVE */
};

struct msg_log_read {
    uint8_t stream;  /* 1 stdout, 2 stderr */
    uint64_t offset; /* from the start of the stream */
    uint32_t bytes;  /* at most MSG_CHUNK_MAX */
};

struct msg_log_data {
    uint64_t offset;       /* of the first byte: larger than asked for if bytes were left out */
    uint64_t produced;     /* bytes that the command has written so far */
    uint64_t lost;         /* how many of these there was no memory for */
    uint8_t ended;         /* 1: the stream ends at `produced` */
    struct msg_bytes data; /* to the end of the payload; empty: there is nothing at `offset` yet */
};

/* uid and gid: act with this fsuid/fsgid; MSG_ID_NONE: as root of the machine. */
struct msg_path {
    uint32_t uid;
    uint32_t gid;
    uint32_t flags;
    uint32_t mode;
    struct msg_str path;
};

struct msg_entry {
    uint32_t mode; /* with the type bits of stat */
    uint32_t uid;
    uint32_t gid;
    uint32_t nlink;
    uint64_t size;
    uint64_t mtime_ns;
    uint64_t ino;
    struct msg_str name;   /* in a LIST_PAGE; empty in the answer to STAT */
    struct msg_str target; /* target of a symlink, in the answer to STAT with NOFOLLOW */
};

struct msg_list {
    uint32_t uid;
    uint32_t gid;
    uint64_t cookie; /* 0: from the start; else `next` of the page before */
    uint32_t max;    /* entries wanted; a page may hold fewer */
    struct msg_str path;
};

struct msg_list_page {
    uint64_t next; /* 0: this was the last page */
    uint32_t count;
    struct msg_bytes entries; /* see msg_entry_next() */
};

struct msg_read {
    uint32_t uid;
    uint32_t gid;
    uint64_t offset;
    uint32_t bytes; /* at most MSG_CHUNK_MAX */
    struct msg_str path;
};

struct msg_read_data {
    uint64_t size; /* size, mtime and ino show whether the file changes while it is read */
    uint64_t mtime_ns;
    uint64_t ino;
    uint32_t mode;
    struct msg_bytes data; /* to the end of the payload; short only at the end of file */
};

struct msg_write {
    uint32_t uid;
    uint32_t gid;
    uint32_t flags;
    uint32_t mode; /* permissions of a new file */
    uint64_t offset;
    struct msg_str path;
    struct msg_bytes data; /* to the end of the payload, at most MSG_CHUNK_MAX */
};

struct msg_move {
    uint32_t uid;
    uint32_t gid;
    uint32_t flags;
    struct msg_str from;
    struct msg_str to;
};

struct msg_chown {
    uint32_t uid;
    uint32_t gid;
    uint32_t flags;
    uint32_t owner; /* MSG_ID_NONE: keep the present one */
    uint32_t group;
    struct msg_str path;
};

/*
 * Metadata of files are extended attributes with this prefix, whose names and values are printable
 * ASCII. Others are not reported.
 */
#define MSG_META_PREFIX "user.e2b."
enum {
    MSG_META_KEY_MAX = 255 - (int)sizeof(MSG_META_PREFIX) + 1, /* bytes of a name, as the kernel */
    MSG_META_MAX = 4096, /* bytes of all names and values of a file, without the prefix */
    MSG_META_PAIRS = 64, /* names of a file */
};

/* In a page one for each entry of the directory, without a name for the path itself. */
struct msg_meta {
    struct msg_str name;
    uint64_t atime_ns;
    uint64_t ctime_ns;
    struct msg_strs pairs; /* a name, its value, the next name */
};

struct msg_meta_page {
    uint64_t next; /* as in msg_list_page */
    uint32_t count;
    struct msg_bytes entries; /* see msg_meta_next() */
};

struct msg_meta_set {
    uint32_t uid;
    uint32_t gid;
    struct msg_str path;
    struct msg_strs pairs;
};

struct msg_event {
    uint32_t mask;   /* IN_* of inotify; IN_Q_OVERFLOW: events were lost, list the path again */
    uint32_t cookie; /* same number in the two events of a move */
    struct msg_str name;
};

enum {
    MSG_CALL_MAX = 4 << 10,         /* bytes of all words of a call */
    MSG_CALL_ANSWER_MAX = 32 << 10, /* bytes of the text of an answer */
    MSG_CALL_AGAIN = 75,            /* status: nobody could answer yet; call again */
};

struct msg_call {
    uint8_t left;           /* 1: the caller has left, and there are no words */
    struct msg_bytes words; /* to the end of the payload: NUL after each word */
};

struct msg_call_answer {
    uint8_t status;        /* exit status of the caller */
    struct msg_bytes text; /* to the end of the payload: what it prints */
};

struct msg_clone_id {
    struct msg_str hostname;
    struct msg_str machine_id; /* 32 hex digits; empty: keep the present one */
    struct msg_bytes seed;     /* 32 random bytes */
};

struct msg_resumed {
    uint64_t seconds, nanoseconds; /* of the clock */
    uint8_t who;                   /* enum vm_resumed (vm_memory.h) */
    struct msg_str hostname;
    struct msg_bytes seed; /* 32 random bytes */
};

struct msg_deadline {
    uint64_t in_ms; /* from now; 0 = none */
};

/*
 * Spare command cgroups. SPARES carries count * each descriptors, per spare:
 * cgroup.procs (O_RDWR), then on v1 freezer.state (O_RDWR), on v2 cgroup.freeze
 * (O_RDWR) and, with each = 3, cgroup.kill (O_WRONLY).
 */
struct msg_spares {
    uint8_t count;
    uint8_t each; /* 2 or 3; 0 in SPARES_WANT */
};

/*
 * Writes header and payload of one frame; head->bytes is computed. msg is the
 * struct of head->type, or NULL for a type without one. Returns the number of
 * bytes, 0 if they do not fit into cap or pass a limit.
 */
size_t msg_encode(uint8_t *to, size_t cap, const struct frame_head *head, const void *msg);

/*
 * As msg_encode(), without the last `tail` bytes of the payload: the caller sends them after it, so
 * that they are not copied. The trailing bytes in the struct must be empty.
 */
size_t msg_encode_before(uint8_t *to, size_t cap, const struct frame_head *head, const void *msg,
                         uint32_t tail);

/*
 * Decodes the payload of a frame as a message of `kind`. The caller names the kind, so that a peer
 * cannot choose the struct. `size` is the size of that struct. -1: the frame is of another kind, or
 * its payload is not exactly one such message. Use the accessors below.
 */
int msg_decode(const struct frame *frame, enum msg_type kind, void *ret, size_t size);

/*
 * One accessor per kind, msg_get_hello() to msg_get_file_root(). Kinds without a payload have none.
 */
#define MSG_KINDS(X)                        \
    X(hello, HELLO, msg_hello)              \
    X(ok, OK, msg_ok)                       \
    X(error, ERROR, msg_error)              \
    X(exec, EXEC, msg_exec)                 \
    X(started, EXEC_STARTED, msg_started)   \
    X(failed, EXEC_FAILED, msg_exec_failed) \
    X(input, STDIN, msg_data)               \
    X(output, STDOUT, msg_data)             \
    X(errors, STDERR, msg_data)             \
    X(credit, CREDIT, msg_credit)           \
    X(exit, EXIT, msg_exit)                 \
    X(fuel, FUEL, msg_fuel)                 \
    X(pause, PAUSE, msg_pause)              \
    X(signal, SIGNAL, msg_signal)           \
    X(resize, RESIZE, msg_resize)           \
    X(attach, ATTACH, msg_attach)           \
    X(rows, TABLE_ROWS, msg_rows)           \
    X(busy, BUSY_STATE, msg_busy_state)     \
    X(log_wait, LOG_WAIT, msg_log)          \
    X(log_grew, LOG_GREW, msg_log)          \
    X(stat, STAT, msg_path)                 \
    X(entry, ENTRY, msg_entry)              \
    X(list, LIST, msg_list)                 \
    X(list_page, LIST_PAGE, msg_list_page)  \
    X(read, READ, msg_read)                 \
    X(read_data, READ_DATA, msg_read_data)  \
    X(write, WRITE, msg_write)              \
    X(mkdir, MKDIR, msg_path)               \
    X(move, MOVE, msg_move)                 \
    X(remove, REMOVE, msg_path)             \
    X(chmod, CHMOD, msg_path)               \
    X(chown, CHOWN, msg_chown)              \
    X(symlink, SYMLINK, msg_move)           \
    X(watch, WATCH, msg_path)               \
    X(event, EVENT, msg_event)              \
    X(call, CALL, msg_call)                 \
    X(answer, CALL_ANSWER, msg_call_answer) \
    X(clone_id, CLONE_ID, msg_clone_id)     \
    X(deadline, DEADLINE, msg_deadline)     \
    X(spares_want, SPARES_WANT, msg_spares) \
    X(spares, SPARES, msg_spares)           \
    X(log_read, LOG_READ, msg_log_read)     \
    X(log_data, LOG_DATA, msg_log_data)     \
    X(meta, META, msg_list)                 \
    X(meta_page, META_PAGE, msg_meta_page)  \
    X(meta_set, META_SET, msg_meta_set)     \
    X(file_root, FILE_ROOT, msg_path)       \
    X(resumed, RESUMED, msg_resumed)

#define MSG_GETTER(name, type, struc)                                                \
    static inline int msg_get_##name(const struct frame *frame, struct struc *ret) { \
        return msg_decode(frame, MSG_##type, ret, sizeof(*ret));                     \
    }
MSG_KINDS(MSG_GETTER)
#undef MSG_GETTER

/* True if `reply` may answer `request`: the reply named beside it, OK or ERROR. */
bool msg_answers(uint16_t request, uint16_t reply);

/* Rows and entries inside a page: append one, or take the first one (0: none is left). */
size_t msg_row_put(uint8_t *to, size_t cap, const struct msg_row *row);
size_t msg_entry_put(uint8_t *to, size_t cap, const struct msg_entry *entry);
size_t msg_meta_put(uint8_t *to, size_t cap, const struct msg_meta *meta);
int msg_row_next(struct msg_bytes *rows, struct msg_row *ret);        /* 1, 0, -1 malformed */
int msg_entry_next(struct msg_bytes *entries, struct msg_entry *ret); /* 1, 0, -1 malformed */
int msg_meta_next(struct msg_bytes *entries, struct msg_meta *ret);   /* 1, 0, -1 malformed */

/* "EXEC", for logs and errors; "?" for an unknown type. */
const char *msg_type_name(uint16_t type);
