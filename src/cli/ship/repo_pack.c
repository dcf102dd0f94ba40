#include "cli/ship/repo_pack.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/ship/git.h"

enum { LISTED_MAX = 500, LISTED_BYTES = 24576, BODY_MAX = 1 << 17 };

/*
 * $0: the clone; $1: a directory to make; $2: the owner's newest commits; $3: the files that
 * changed since the clone was made, lines "MODE PATH" or "- PATH"; $4: "" if $3 is not known,
 * "check" if git's index may differ from the clone as well, or ignored files may be in $3.
 *
 * Uncommitted changes are packed as a commit on top of HEAD. Branch, index and files in the machine
 * stay as they are. pack_listed() makes its tree from the files of $3 and the tree that was cloned.
 * pack_all() is for everything that pack_listed() does not know or refuses: git looks at all files
 * once, with a copy of the index. If that fails, the commits are packed alone. The bundle leaves
 * out the newest of the owner's commits $2 that the machine has, and all before it. git makes no
 * empty bundle; then a file has the commit of HEAD.
 *
 * The times of the new commit and of the files are not the present time, so that an unchanged
 * repository gives the same archive again.
 */
static const char pack_script[] =
    "set -e; umask 077; tmp=$1.tmp repo=$1.tmp/repo made= rest= known= nl='\n'\n"
    "ref=" REPO_UNCOMMITTED "; mkdir -p \"$1\" \"$repo/objects/info\" \"$repo/refs\"; cd \"$0\"\n"
    "set_ref() { git -c core.hooksPath=/dev/null update-ref \"$@\"; }\n"
    "trap 'code=$?; test -z \"$made\" || set_ref -d $ref || :\n"
    "  test $code = 0 || rm -rf \"$tmp\"' EXIT\n"
    "GIT_AUTHOR_DATE=$(git log -1 --format=%cd --date=raw 2>/dev/null) || :\n"
    "export GIT_AUTHOR_DATE GIT_COMMITTER_DATE=\"$GIT_AUTHOR_DATE\"\n"
    /*
     * The files were those of commit $base when the clone was made. The index had those of $cloned,
     * if that is not empty, and $tmp/loose lists the files that it lacked.
     */
    "read_base() {\n"
    "  : >\"$tmp/loose\"; read -r base cloned <.git/carrel-base || return 1\n"
    "  test -z \"$cloned\" || sed 1d .git/carrel-base >\"$tmp/loose\"\n"
    "}\n"
    /* The index may differ from both commits only in listed files. */
    "index_since() { git diff-index --cached --name-only --no-renames $1 --; }\n"
    "check_index() {\n"
    "  index_since $base >\"$tmp/index\" || return 1\n"
    "  if test -n \"$cloned\"; then\n"
    "    index_since $cloned >\"$tmp/staged\" || return 1\n"
    "    grep -xFf \"$tmp/staged\" \"$tmp/index\" >\"$tmp/both\" || test $? = 1 || return 1\n"
    "    mv \"$tmp/both\" \"$tmp/index\"\n"
    "  fi\n"
    "  ! grep -qvxFf \"$tmp/names\" \"$tmp/index\"\n"
    "}\n"
    /* git check-ignore ends with 1 if no file is ignored. It leaves out tracked files. */
    "list_ignored() {\n"
    "  code=0; git check-ignore --stdin <\"$1\" >\"$tmp/ignored\" || code=$?; test $code -le 1\n"
    "}\n"
    "check_listed() {\n"
    "  test ! -s \"$tmp/loose\" || { list_ignored \"$tmp/loose\" && test ! -s \"$tmp/ignored\"; } "
    "||\n"
    "    return 1\n"
    "  test \"$1\" = check || return 0\n"
    "  sed 's/^[^ ]* //' \"$tmp/list\" >\"$tmp/names\"\n"
    "  check_index && list_ignored \"$tmp/names\" && ignored=$nl$(cat \"$tmp/ignored\")$nl\n"
    "}\n"
    "sort_listed() {\n"
    "  while read -r mode path; do\n"
    "    case $ignored in *\"$nl$path$nl\"*) mode=- ;; esac\n"
    "    case $mode in\n"
    "    -) echo \"D $path\" ;;\n"
    "    *) printf '%s\\n' \"$path\" >>\"$tmp/present\"; echo \"$mode $path\" >>\"$tmp/modes\" ;;\n"
    "    esac\n"
    "  done <\"$tmp/list\"\n"
    "}\n"
    "add_blobs() {\n"
    "  test -s \"$tmp/present\" || return 0\n"
    "  GIT_OBJECT_DIRECTORY=$repo/objects git hash-object -w --stdin-paths \\\n"
    "    <\"$tmp/present\" >\"$tmp/blobs\" || return 1\n"
    "  while read -r mode path && read -r blob <&3; do echo \"M $mode $blob $path\"\n"
    "  done <\"$tmp/modes\" 3<\"$tmp/blobs\"\n"
    "}\n"
    "import_listed() {\n" /* HEAD, its tree, the cloned tree */
    "  who=$(git var GIT_AUTHOR_IDENT) || return 1\n"
    "  printf 'commit %s\\nauthor %s\\ncommitter %s\\n' $ref \"$who\" \"$who\"\n"
    "  printf 'data 20\\nUncommitted changes\\nfrom %s\\nM 040000 %s \"\"\\n' $1 $3\n"
    "  sort_listed && add_blobs && echo 'ls \"\"'\n"
    "}\n"
    /* A repository that only has the new objects: the clone stays as it is. */
    "begin_repo() {\n"
    "  format=0; test ${#1} -lt 64 || format=\"1$nl[extensions]${nl}objectFormat = sha256\"\n"
    "  printf '[core]\\nbare = true\\nrepositoryFormatVersion = %s\\n' \"$format\" "
    ">\"$repo/config\"\n"
    "  echo $1 >\"$repo/HEAD\" && echo \"$PWD/.git/objects\" >\"$repo/objects/info/alternates\"\n"
    "}\n"
    "pack_listed() {\n"
    "  test -n \"$4\" && test ! -e .git/info/sparse-checkout && read_base &&\n"
    "  found=$(git rev-parse HEAD HEAD^{tree} \"$base^{tree}\") || return 1\n"
    "  ignored=; printf '%s' \"$3\" >\"$tmp/list\"; : >\"$tmp/present\"\n"
    "  check_listed $4 || return 1\n"
    "  begin_repo $found && import_listed $found >\"$tmp/import\" || return 1\n"
    "  export GIT_DIR=\"$repo\"\n"
    "  tree=$(git -c fastimport.unpackLimit=1 -c core.fsync=none fast-import --quiet "
    "<\"$tmp/import\") || { unset GIT_DIR; return 1; }\n"
    "  tree=${tree#* tree }; tree=${tree%%[!0-9a-f]*}\n" /* the answer to `ls` */
    "  cloned=${cloned:-$base}\n"
    "  case $nl$2$nl in *\"$nl$cloned$nl\"*) known=^$cloned ;; esac\n"
    "  case $found in *\"$nl$tree$nl\"*) ;; *) rest=$ref ;; esac\n"
    "}\n"
    /* The copy keeps its time: git reads a file again if it is not older than the index. */
    "pack_all() {\n"
    "  index=$(git rev-parse --git-path index) && head=$(git rev-parse HEAD^{tree}) &&\n"
    "  { test ! -e \"$index\" || cp -p \"$index\" \"$tmp/all\"; } &&\n"
    "  GIT_INDEX_FILE=$tmp/all git add -A &&\n"
    "  tree=$(GIT_INDEX_FILE=$tmp/all git write-tree) || return 1\n"
    "  test \"$tree\" != \"$head\" || return 0\n"
    "  work=$(git commit-tree -p HEAD -m 'Uncommitted changes' \"$tree\") &&\n"
    "  made=$ref; set_ref $ref \"$work\" && rest=$ref\n"
    "}\n"
    "pack_listed \"$@\" 2>/dev/null >&2 || pack_all >&2 || echo unpacked\n"
    "test -n \"$known\" || for commit in $2; do\n"
    "  if git cat-file -e \"$commit^{commit}\" 2>/dev/null; then known=^$commit; break; fi\n"
    "done\n"
    "git bundle create -q \"$1/" REPO_BUNDLE "\" HEAD $rest $known || {\n"
    "  test -n \"$known\" && test -z \"$(git rev-list -n 1 HEAD $rest $known)\"\n"
    "  git rev-parse HEAD >\"$1/" REPO_UNCHANGED "\"\n"
    "}\n"
    "touch -t 200001010000 \"$1\"/* \"$1\"\n";

/* The arguments $3 and $4 of pack_script. */
struct listed {
    struct buf files;
    const char *how;
    bool other; /* a file was added, or git's index changed */
};

static int run_inside(struct ship *s, const char *machine, const char *const *argv, json_t **ret,
                      struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(BODY_MAX);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_array(&j, "argv");
    for (size_t i = 0; argv[i]; i++)
        jot_string(&j, NULL, argv[i]);
    jot_end(&j, ']');
    jot_string(&j, "cwd", "/");
    jot_string(&j, "timeout", "5m");
    jot_string(&j, "key", id_new('k').text);
    jot_bool(&j, "no_step", true); /* a review leaves nothing behind */
    jot_end(&j, '}');
    return client_target(target, err, "/v1/machines/%s/execs", machine) < 0
               ? -1
               : client_call_again(s->client, &r, ret, err);
}

/*
 * Lists the newest commits of the granted branch or tag: the bundle may leave them out, because the
 * owner has them. Empty if the ref no longer exists; then the bundle has all commits.
 */
static void list_granted(const struct ship *s, const char *ref, struct buf *ret) {
    char from[sizeof(((struct slice *)0)->ref) + 16];
    struct err none;
    snprintf(from, sizeof(from), "%s^{commit}", ref);
    const char *const words[] = {"-C", s->target, "rev-list", "--max-count=50", "--end-of-options",
                                 from, NULL};
    if (!*ref || git_ask(words, ret, &none) < 0)
        ret->len = 0;
}

/* ---- the files that changed ---- */

/* A path that the shell's `read` and git's lists of paths take as it is. */
static bool is_plain_path(const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < n; i++)
        if (path[i] < ' ' || path[i] > '~' || strchr("\"\\", path[i]))
            return false;
    return n && path[0] != ' ' && path[n - 1] != ' ';
}

/* True if the path is in a repository below the clone, which git adds in its own way. */
static bool is_nested(const char *path) {
    const char *git = strstr(path, "/.git");
    return git && (git[5] == '/' || !git[5]);
}

/* Adds a changed path, relative to the clone. False: only a look at all files is right. */
static bool add_listed(struct listed *l, const char *path, const json_t *change) {
    const json_t *after = json_object_get(change, "after");
    const char *type = client_text(after, "type"),
               *before = client_text(json_object_get(change, "before"), "type");
    bool file = strcmp(type, "file") == 0, was_file = strcmp(before, "file") == 0;
    if (strncmp(path, ".git/", 5) == 0) {
        l->other |= strcmp(path, ".git/index") == 0;
        return true;
    }
    if (!file && !was_file && strcmp(type, "symlink") != 0 && strcmp(before, "symlink") != 0)
        return !is_nested(path); /* a directory: the files in it are listed too */
    bool is_other = *type && !file && strcmp(type, "directory") != 0; /* a link, a pipe */
    if (!is_plain_path(path) || is_nested(path) || is_other)
        return false;
    l->other |= file && !was_file;
    const char *mode = !file                                                 ? "-"
                       : strtoul(client_text(after, "mode"), NULL, 8) & 0100 ? "100755"
                                                                             : "100644";
    return buf_addf(&l->files, "%s %s\n", mode, path);
}

/*
 * Asks which files differ from the state after the clone. Leaves l->how empty if that is not known:
 * no step was taken then, too much changed, or a path needs git's own rules.
 */
static void list_changed(struct ship *s, const char *machine, const struct slice *clone,
                         struct listed *l) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *answer DEFER(json_decrefp) = NULL;
    const json_t *change;
    size_t i, skip = strlen(clone->at);
    struct err none;
    if (!id_valid(clone->exec, strlen(clone->exec), 'x') ||
        client_target(target, &none, "/v1/machines/%s/diff?from=%s&brief=true&path=%s", machine,
                      clone->exec, clone->at) < 0 ||
        client_call_again(s->client, &r, &answer, &none) < 0 || *client_text(answer, "cut") ||
        json_array_size(json_object_get(answer, "changes")) > LISTED_MAX)
        return;
    json_array_foreach(json_object_get(answer, "changes"), i, change) {
        const char *path = client_text(change, "path"); /* without the first slash */
        if (strlen(path) < skip)
            continue; /* the directory of the clone itself */
        if (json_object_get(change, "path_base64") || path[skip - 1] != '/' ||
            !add_listed(l, path + skip, change))
            return;
    }
    l->how = l->other ? "check" : "listed";
}

/* ---- packing ---- */

int repo_pack(struct ship *s, const char *machine, const struct slice *clone, struct err *err) {
    char dir[64], temporary[72];
    const char *place = clone->at;
    struct buf granted DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct listed l = {.files = BUF(LISTED_BYTES), .how = ""};
    list_granted(s, clone->ref, &granted);
    list_changed(s, machine, clone, &l);
    snprintf(dir, sizeof(dir), "/tmp/.carrel-%s", id_new('b').text);
    snprintf(temporary, sizeof(temporary), "%s.tmp", dir);
    const char *const pack[] = {"/bin/sh",
                                "-c",
                                pack_script,
                                place,
                                dir,
                                granted.len ? granted.data : "",
                                *l.how && l.files.len ? l.files.data : "",
                                l.how,
                                NULL};
    const char *const clear[] = {"rm", "-rf", dir, temporary, NULL};
    json_t *done DEFER(json_decrefp) = NULL, *cleared DEFER(json_decrefp) = NULL;
    int status = run_inside(s, machine, pack, &done, err);
    buf_done(&l.files);
    if (status < 0)
        return -1;
    if (client_number(json_object_get(done, "exec"), "status") != 0)
        err_set(err, ERR_INVALID, "cannot bundle the repository with git in the machine: %.200s",
                client_text(done, "stderr"));
    else if (ship_freeze(s, &(struct ship_from){.machine = machine, .path = dir, .slice = place},
                         err) == 0)
        place = NULL;
    struct err late;
    (void)run_inside(s, machine, clear, &cleared, &late);
    if (*client_text(done, "stdout") && !s->options->json)
        puts("uncommitted changes are not shipped: git in the machine cannot add them");
    return place ? -1 : 0;
}
