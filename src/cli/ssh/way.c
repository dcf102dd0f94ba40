/*
 * The way of one connection: a command in the machine starts sshd on a port and prints the port and
 * the host key; then bytes are forwarded to it. When the standard input of the command ends, it
 * ends sshd, so that no process is left and the step after it can be restored.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/forward/serve.h"
#include "cli/ssh/inner.h"

enum { LINE = 512, NO_SSHD = 96 };

/*
 * sshd runs as the user who logs in, so it needs no root and reads no passwords. The only key it
 * accepts is $1. The keys are in memory of the machine, never in its steps. The session gets the
 * variables of the command. A shell reads all of a function before it runs it: then the rest of its
 * standard input is ours.
 */
static const char script[] =
    "umask 077\n"
    "serve() {\n"
    "sshd=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; command -v sshd) && command -v ssh-keygen "
    ">/dev/null || exit 96\n"
    "uid=$(id -u); dir=/dev/shm; [ -d $dir ] && [ -w $dir ] || dir=/tmp\n"
    "dir=$dir/carrel-ssh-$uid; mkdir $dir 2>/dev/null\n"
    "[ -d $dir ] && [ ! -L $dir ] && [ -O $dir ] || {\n"
    "    echo \"$dir belongs to somebody else\" >&2; exit 1; }\n"
    "one=$dir/$$\n"
    "[ -s $dir/key ] || {\n"
    "    ssh-keygen -q -t ed25519 -N '' -C '' -f $one.new || exit 1\n"
    "    ln $one.new $dir/key 2>/dev/null; rm -f $one.new $one.new.pub; }\n"
    "[ $uid != 0 ] || mkdir -p -m 755 /run/sshd\n"
    "vars=\n"
    "for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do\n"
    "    eval \"value=\\$$name\"\n"
    "    case $name in PWD|OLDPWD|SHLVL|_|TERM|HOME|USER|LOGNAME|SHELL) continue;; esac\n"
    "    case $value in *[\\\"\\\\[:cntrl:]]*) continue;; esac\n"
    "    vars=\"$vars \\\"$name=$value\\\"\"\n"
    "done\n"
    "echo \"$1\" >$one.allowed\n"
    "cat >$one.conf <<END\n"
    "ListenAddress 0.0.0.0\n"
    "HostKey $dir/key\n"
    "PidFile $one.pid\n"
    "AuthorizedKeysFile $one.allowed\n"
    "StrictModes no\n"
    "UsePAM no\n"
    "AuthenticationMethods publickey\n"
    "PermitRootLogin prohibit-password\n"
    "PrintMotd no\n"
    "Subsystem sftp internal-sftp\n"
    "AcceptEnv LANG LC_* COLORTERM\n"
    "SetEnv$vars\n"
    "END\n"
    "count=0\n"
    "while [ $count -lt 20 ] && [ ! -s $one.pid ]; do\n"
    "    port=$((22000 + ($$ + count * 61) % 10000)); count=$((count + 1)); rm -f $one.over\n"
    "    (\"$sshd\" -D -f $one.conf -p $port -E $one.log; echo >$one.over) </dev/null >&2 &\n"
    "    until [ -s $one.pid ] || [ -e $one.over ]; do sleep 0.02; done\n"
    "done\n"
    "if pid=$(cat $one.pid 2>/dev/null); then\n"
    "    echo \"$port $(ssh-keygen -y -f $dir/key)\"\n"
    "    cat >/dev/null\n"
    "    count=0\n"
    "    while [ $count -lt 100 ] && [ -n \"$(cat /proc/$pid/task/$pid/children 2>&1)\" ]; do\n"
    "        sleep 0.02; count=$((count + 1))\n"
    "    done\n"
    "    kill $pid; until [ -e $one.over ]; do sleep 0.02; done\n"
    "    status=0\n"
    "else\n"
    "    cat $one.log >&2; status=1\n"
    "fi\n"
    "rm -f $one.*\n"
    "exit $status\n"
    "}\n";

/* A `carrel exec` of our own, with pipes. */
struct way_command {
    pid_t pid;
    int in, out; /* -1: none */
};

static int command_start(const char *const *words, struct way_command *ret, struct err *err) {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* Ctrl-C is for the session, not for the command that serves it */
        if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0)
            _exit(CLI_FAILED);
        execv("/proc/self/exe", (char *const *)words);
        _exit(CLI_FAILED);
    }
    close(in[0]);
    close(out[1]);
    *ret = (struct way_command){.pid = pid, .in = in[1], .out = out[0]};
    return pid < 0 ? err_sys(err, "cannot start a process") : 0;
}

/* Ends its input and waits. Returns its exit status. */
static int command_end(struct way_command *c) {
    int status = 0;
    close_fd(&c->in);
    close_fd(&c->out);
    while (waitpid(c->pid, &status, 0) < 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reads one line. False: the output has ended before. */
static bool command_line(const struct way_command *c, char ret[LINE]) {
    size_t n = 0;
    while (n < LINE - 1 && read(c->out, ret + n, 1) == 1 && ret[n] != '\n')
        n++;
    bool whole = n < LINE - 1 && ret[n] == '\n';
    ret[whole ? n : 0] = '\0';
    return whole;
}

/* Runs the program `words` in the machine; NULL ends them. */
static int way_begin(const char *machine_id, const char *user, const char *const *program,
                     struct way_command *ret, struct err *err) {
    const char *words[16] = {"carrel", "exec", "--quiet", "--no-tty"};
    size_t n = 4;
    if (user) {
        words[n++] = "--user";
        words[n++] = user;
    }
    words[n++] = machine_id;
    words[n++] = "--";
    for (; *program; program++)
        words[n++] = *program;
    return command_start(words, ret, err);
}

/* Starts the shell with the script. Its last word is for people who list commands. */
static int way_script(const char *machine_id, const char *user, const char *key,
                      struct way_command *ret, struct err *err) {
    static const char *const shell[] = {"/bin/sh", "-s", "carrel-ssh", NULL};
    char call[SSH_KEY_MAX + 16];
    int n = snprintf(call, sizeof(call), "serve '%s'\n", key);
    if (way_begin(machine_id, user, shell, ret, err) < 0)
        return -1;
    signal(SIGPIPE, SIG_IGN); /* if the command failed at once, its output has ended */
    if (write_all(ret->in, script, sizeof(script) - 1) == 0)
        (void)!write_all(ret->in, call, (size_t)n);
    return 0;
}

/* Says why sshd did not start. The command itself has said what it knew. */
static int no_sshd(int status, const char *machine_id) {
    struct err err;
    if (status != NO_SSHD)
        return status ? status : CLI_FAILED;
    err_set(&err, ERR_UNSUPPORTED, "machine '%s' has no sshd", machine_id);
    err_remedy(&err, "install it: carrel exec --user root %s -- apt-get install openssh-server",
               machine_id);
    return cli_fail(&err);
}

static int way_connect(const struct ssh_files *f, const char *machine_id, char *line,
                       struct err *err) {
    uint64_t port;
    char *key = strchr(line, ' ');
    if (key)
        *key++ = '\0';
    if (!key || parse_u64(line, 1, 65535, &port, err) < 0)
        return err_set(err, ERR_INVALID, "the machine named no port of sshd");
    key[strcspn(key, " ") + 1 + strcspn(key + strcspn(key, " ") + 1, " ")] = '\0';
    if (ssh_files_know(f, machine_id, key, err) < 0)
        return -1;
    return forward_serve((struct forward_ends){STDIN_FILENO, STDOUT_FILENO}, machine_id,
                         (uint16_t)port);
}

int ssh_way(const struct ssh_files *f, const char *machine_id, const char *user) {
    struct err err;
    char line[LINE], key[SSH_KEY_MAX];
    struct way_command c;
    if (ssh_files_public(f, key, &err) < 0 || way_script(machine_id, user, key, &c, &err) < 0)
        return cli_fail(&err);
    if (!command_line(&c, line))
        return no_sshd(command_end(&c), machine_id);
    int status = way_connect(f, machine_id, line, &err);
    if (status < 0)
        status = cli_fail(&err);
    command_end(&c);
    return status;
}

int ssh_account(const char *machine_id, const char *user, char ret[ACCOUNT_NAME_MAX + 1],
                struct err *err) {
    char line[LINE];
    struct way_command c;
    static const char *const program[] = {"id", "-un", NULL};
    if (way_begin(machine_id, user, program, &c, err) < 0)
        return -1;
    bool said = command_line(&c, line);
    int status = command_end(&c);
    if (!said || status != 0 || strlen(line) > ACCOUNT_NAME_MAX || !account_name_is_valid(line)) {
        err_set(err, ERR_UNKNOWN, "machine '%s' runs no command as its user%s%s", machine_id,
                user ? " " : "", user ? user : "");
        return err_remedy(err, "see why: carrel exec %s%s%s%s id", user ? "--user " : "",
                          user ? user : "", user ? " " : "", machine_id);
    }
    memcpy(ret, line, strlen(line) + 1);
    return 0;
}
