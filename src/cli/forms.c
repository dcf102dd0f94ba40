/*
 * Subcommands: the words that follow the name of a command, and a summary of each.
 *
 * `--help`, the manual and completion read these rows. A word in lower case is typed as it is; a
 * word in capitals is a name for a value, and completion offers values by that name.
 */
#include "cli/cli.h"

const struct form net_forms[] = {
    {"MACHINE [show]", "list the machine's network rules"},
    {"MACHINE allow TARGET...", "add rules that allow connections"},
    {"MACHINE deny TARGET...", "add rules that refuse connections"},
    {"MACHINE ask TARGET...", "add rules that ask you before a connection (see carrel pending)"},
    {"MACHINE rm RULE...", "delete rules, by the numbers that `show` prints"},
    {NULL, NULL},
};

const char net_notes[] =
    "TARGET is [http://|https://|tcp://]HOST[:PORT][/PATH]. HOST is a name, *.suffix (all names\n"
    "below it), an address, a range of IPv4 addresses (10.1.2.0/24, without http:// and "
    "https://),\n"
    "or *. Or TARGET is a preset (apt, npm, pip, cargo or go): the hosts that this tool is\n"
    "configured to use. The newest rule that matches decides. A connection that matches no rule\n"
    "is refused.\n"
    "With carrel new --guard, a machine that has read untrusted data (from a server without\n"
    "--trusted, or a grant with :untrusted) may use only rules with --tainted, presets (to "
    "install\n"
    "packages), models, and requests that you approve.";

const char sh_notes[] =
    "A shell continues when its terminal is closed. To leave it running yourself, press Ctrl-] "
    "three\n"
    "times within a second. EXEC is the id or the name of an open shell, as --ls prints them.";

const char health_notes[] = "The exit status is 1 if a check is bad. A machine that turned bad, or "
                            "good again, since the last\n"
                            "check gets an event: carrel events.";

const char reinstall_notes[] =
    "The machine's programs end. It keeps its id, name, grants, network rules, budget and steps.\n"
    "The step before the reinstallation has all files: carrel rewind to it undoes everything.";

const char serial_notes[] =
    "The console works when the guest of the machine does not answer. It is kept while nobody\n"
    "looks: the last 256K. Several users may look and type at once. To leave it, press Ctrl-]\n"
    "three times within a second.";

const char ssh_notes[] =
    "The machine needs openssh-server. Its sshd runs only during a connection, which goes through\n"
    "the daemon: no port of this host listens. See docs/howto/ssh.md.";

const char steps_notes[] = "In the list, * marks the durable step: the newest one whose files are "
                           "saved in the store. The\n"
                           "machine goes back to it if the host restarts. ! marks a step that "
                           "cannot be restored; its row\n"
                           "says why.";

const char forward_notes[] = "LOCAL is a port of this host (default: PORT; 0: a free port). Runs "
                             "until it is interrupted, or\n"
                             "until the machine has ended.";

const struct form expose_forms[] = {
    {"MACHINE PORT", "make a port of the machine reachable and print its URL"},
    {"MACHINE", "list the machine's ports that are reachable"},
    {"MACHINE rm PORT", "make a port unreachable again"},
    {NULL, NULL},
};

const struct form rename_forms[] = {
    {"MACHINE NAME", "change the name of a machine"},
    {"MACHINE@STEP NAME", "name a step, such as work@7; '' removes its name"},
    {NULL, NULL},
};

const struct form grant_forms[] = {
    {"ls MACHINE", "list the grants of a machine (the same as `carrel grants`)"},
    {"show MACHINE GRANT", "show one grant of a machine"},
    {"add MACHINE OPTIONS", "add grants, such as --file FILE or --secret NAME@HOST"},
    {"revoke MACHINE GRANT", "revoke a grant at once"},
    {NULL, NULL},
};

const struct form secret_forms[] = {
    {"set NAME", "store a secret, typed (not shown) or from standard input"},
    {"ls", "list the names of secrets, and when each was last used"},
    {"show SECRET", "show when a secret was made, changed and used"},
    {"rm SECRET", "delete a secret, at once and for all machines"},
    {NULL, NULL},
};

const struct form login_forms[] = {
    {"claude", "store a token of `claude setup-token`, typed (not shown) or from standard input"},
    {"codex", "store the file auth.json of a ChatGPT login, from standard input"},
    {"ls", "list logins, and when each was last used"},
    {"rm LOGIN", "delete a login, at once and for all machines"},
    {NULL, NULL},
};

const char login_notes[] =
    "Machines use a login only if their agent was started with --login, and never see its "
    "tokens.\n"
    "For Codex, make a login of its own: CODEX_HOME=DIR codex login; carrel login codex\n"
    "<DIR/auth.json; rm -r DIR. See docs/reference/logins.md.";

const struct form timer_forms[] = {
    {"add MACHINE COMMAND [ARG...]", "run a command at a set time: --every, --in or --at"},
    {"ls MACHINE", "list the timers of a machine"},
    {"rm MACHINE TIMER", "remove a timer"},
    {NULL, NULL},
};

const char timer_notes[] =
    "A machine at rest is woken. A run that was due while no daemon ran is done once, later. Each\n"
    "run is a command of the machine: carrel logs has its output, carrel events says that it "
    "began.";

const struct form volume_forms[] = {
    {"create NAME", "make a volume: --size SIZE, or --from VOLUME for a copy"},
    {"ls", "list volumes, snapshots and the machines that have them"},
    {"show VOLUME", "show one volume and the machines that have it"},
    {"snap VOLUME [NAME]", "make the snapshot VOLUME@NAME (default: the time)"},
    {"rm VOLUME", "delete a volume or a snapshot that no machine has"},
    {NULL, NULL},
};

const struct form backup_forms[] = {
    {"MACHINE", "back up the files of a machine: store what changed since the last backup"},
    {"MACHINE --to DIR", "also copy the backup, or one that exists, to a directory"},
    {"ls [MACHINE|DIR]", "list backups, newest first"},
    {"verify BACKUP|DIR [BACKUP]", "read a backup, or the newest one of a machine, and check it"},
    {"restore BACKUP|DIR [BACKUP]",
     "create a machine from a backup, or from the newest one of a machine or directory"},
    {"forget BACKUP", "delete a backup, and files that no other backup needs"},
    {"prune MACHINE", "delete all but the newest backups: --keep-last COUNT"},
    {NULL, NULL},
};

const struct form desktop_forms[] = {
    {"MACHINE start", "start the desktop, unless it runs; the other subcommands do it, too"},
    {"MACHINE screenshot FILE", "write a PNG image of the screen; - is stdout"},
    {"MACHINE click X Y", "click at a point of the screenshot"},
    {"MACHINE move X Y", "move the pointer"},
    {"MACHINE scroll X Y [WAY [STEPS]]", "turn the wheel up, down (default), left or right"},
    {"MACHINE type TEXT...", "type text into the window that has the focus"},
    {"MACHINE key KEYS...", "press keys, such as ctrl+s or Return, one after the other"},
    {NULL, NULL},
};

const struct form models_forms[] = {
    {"ls", "list providers, aliases and prices; also without a subcommand"},
    {"usage", "show what calls cost, by day, model, machine or owner"},
    {"show MACHINE", "show the model calls of a machine, their cost, and what is left"},
    {"raise MACHINE", "set a machine's budget: --money AMOUNT or --tokens N"},
    {NULL, NULL},
};

const struct form agent_forms[] = {
    {"claude|codex|opencode|gemini [-- ARG...]", "run it here; or an agent of carrel.conf"},
    {"ls", "list the machines of agents"},
    {"update [NAME]", "download the agents that this version knows"},
    {"import-settings NAME", "show your own settings of an agent, and copy them"},
    {"accept", "show .carrel/agent.conf, and let it take effect"},
    {NULL, NULL},
};

const struct form image_forms[] = {
    {"ls", "list images"},
    {"show IMAGE", "show one image"},
    {"import FILE", "import a tar, docker save archive or OCI layout; - is stdin"},
    {"export IMAGE", "write an image to --oci DIR, --packs DIR or --tar FILE"},
    {"build FILE|DIR", "build an image from a recipe or a Dockerfile"},
    {"builds", "list builds, newest first"},
    {"log BUILD", "print the log of a build"},
    {"cancel BUILD", "cancel a build"},
    {"tag IMAGE NAME", "give an image another name"},
    {"pull REFERENCE", "import an image from a registry, such as debian:12"},
    {"push IMAGE REFERENCE", "copy an image to a registry"},
    {"rm IMAGE...", "delete images; files stay while a machine uses them"},
    {"prune", "delete the intermediate images of builds"},
    {"cache ls|clear", "list or delete downloaded packages that are kept for new machines"},
    {NULL, NULL},
};

const struct form store_forms[] = {
    {"check", "verify that the saved files (layers) of every step exist"},
    {"init", "set the disk format of new machines: --btrfs SIZE or --plain"},
    {"boxes", "list orphan boxes: running machines this store does not own"},
    {"adopt BOX", "add an orphan box to this store as a machine"},
    {NULL, NULL},
};

const struct form token_forms[] = {
    {"new", "create a token and print it"},
    {"ls", "list tokens"},
    {"show TOKEN", "show one token, without its secret"},
    {"rm TOKEN...", "revoke tokens; the id of a machine: all tokens of that machine"},
    {NULL, NULL},
};

const struct form e2b_forms[] = {
    {"env", "make an API key, and print the variables to set"},
    {NULL, NULL},
};

const struct form audit_forms[] = {
    {"[OPTIONS]", "print the records of the journal"},
    {"verify", "verify every hash and signature of the journal"},
    {"verify RECEIPT...", "verify that receipts (files that carrel ship writes) match the journal"},
    {NULL, NULL},
};
