/* Schemas of steps (restore points of a machine), diffs between them, images and the store. */
#include "api/body_fields.h"
#include "service/images/builds.h"
#include "service/images/images.h"
#include "service/steps/check.h"
#include "service/steps/reinstall.h"
#include "service/steps/steps.h"
#include "service/strays.h"

static const struct field snap_request[] = {
    {"name", FIELD_TEXT, AT(struct snap_request, name),
     "name of the step; a step with a name is never deleted", .max = NAME_MAX_BYTES},
    {"memory", FIELD_FLAG, AT(struct snap_request, memory),
     "vm: save its memory too, so that a rewind to the step resumes its processes"},
};
static const struct field image_request[] = {
    {"name", FIELD_TEXT, AT(struct image_request, name), "name of the image", .required = true,
     .max = NAME_MAX_BYTES},
    {"step", FIELD_TEXT, AT(struct image_request, step),
     "step of the machine (default: its present state)", .max = NAME_MAX_BYTES},
    {"env", FIELD_MAP, AT(struct image_request, env),
     "environment variables of commands; they override those of the base image", .max = 256},
    {"user", FIELD_TEXT, AT(struct image_request, user), "default user of commands",
     .max = NAME_MAX_BYTES},
    {"workdir", FIELD_TEXT, AT(struct image_request, workdir),
     "default working directory of commands", .max = PATH_MAX_BYTES},
    {"command", FIELD_TEXTS, AT(struct image_request, command),
     "default command, kept for other runtimes", .max = 256},
    {"entrypoint", FIELD_TEXTS, AT(struct image_request, entrypoint),
     "program in front of the default command; if this or `command` is given, both are replaced",
     .max = 256},
};
static const struct field tag_request[] = {
    {"name", FIELD_TEXT, AT(struct tag_request, name),
     "new name of the image; another image with this name loses it", .required = true,
     .max = NAME_MAX_BYTES},
};
const struct schema tag_request_schema = SCHEMA("ImageName", struct tag_request, tag_request);

static const struct field layers_request[] = {
    {"digests", FIELD_TEXTS, AT(struct layers_request, digests),
     "digests of all layers of the image, lowest first, as sha256:HEX", .required = true,
     .max = 128},
};
const struct schema layers_request_schema =
    SCHEMA("LayersRequest", struct layers_request, layers_request);

const struct schema image_request_schema =
    SCHEMA("ImageRequest", struct image_request, image_request);

const struct schema snap_request_schema = SCHEMA("SnapRequest", struct snap_request, snap_request);

static const struct field step_name[] = {
    {"name", FIELD_TEXT, AT(struct step_name_request, name),
     "new name of the step; empty: it has none, and may be deleted when it is old",
     .required = true, .max = NAME_MAX_BYTES},
};
const struct schema step_name_schema = SCHEMA("StepName", struct step_name_request, step_name);

static const struct field rewind_request[] = {
    {"step", FIELD_TEXT, AT(struct rewind_request, step),
     "number, id or name of the step, `last`, or `start`: the machine as created", .required = true,
     .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct rewind_request, drifted),
     "proceed even if the host's packages have changed"},
    {"stop_processes", FIELD_FLAG, AT(struct rewind_request, stop_processes),
     "if the step has no restore point, return to the newest one before it; a rewind ends all "
     "processes of the machine"},
};
const struct schema rewind_request_schema =
    SCHEMA("RewindRequest", struct rewind_request, rewind_request);

static const struct field hibernate_request[] = {
    {"files_only", FIELD_FLAG, AT(struct hibernate_request, files_only),
     "take a step and end every process; memory is lost"},
};
const struct schema hibernate_request_schema =
    SCHEMA("HibernateRequest", struct hibernate_request, hibernate_request);

static const struct field fork_request[] = {
    {"count", FIELD_NUMBER, AT(struct fork_request, count), "number of new machines (default 1)",
     .min = 1, .max = FORK_MAX},
    {"step", FIELD_TEXT, AT(struct fork_request, step),
     "step to fork (default: the present state); `start`: the machine as created",
     .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct fork_request, drifted),
     "proceed even if the host's packages have changed"},
    {"memory", FIELD_FLAG, AT(struct fork_request, memory),
     "vm: copy its memory too, so that its processes go on in each new machine"},
    {"key", FIELD_TEXT, AT(struct fork_request, key),
     "idempotency key: a repeated request returns the same machines", .max = FORK_KEY_MAX},
};
const struct schema fork_request_schema = SCHEMA("ForkRequest", struct fork_request, fork_request);

static const struct field reinstall_request[] = {
    {"keep_home", FIELD_FLAG, AT(struct reinstall_request, keep_home),
     "keep the files in /home and /root"},
};
const struct schema reinstall_request_schema =
    SCHEMA("ReinstallRequest", struct reinstall_request, reinstall_request);

static const char *const step_kinds[] = {"exec", "file", "snap", "kept", "rewind", "fork", NULL};
static const struct field step_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct step_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct step_view, machine), NULL, .required = true},
    {"number", SHOW_NUMBER, AT(struct step_view, number),
     "number of the step in its machine: 1, 2, ...", .required = true},
    {"kind", SHOW_TEXT, AT(struct step_view, kind),
     "cause of the step; kept: state before a rewind or a risky command", .required = true,
     .choices = step_kinds},
    {"name", SHOW_TEXT, AT(struct step_view, name), NULL},
    {"created", SHOW_TIME, AT(struct step_view, created_ms), NULL, .required = true},
    {"exec", SHOW_TEXT, AT(struct step_view, exec), "command that caused the step"},
    {"what", SHOW_TEXT, AT(struct step_view, what),
     "argv of the command as JSON, a path, or a remark"},
    {"status", SHOW_SIGNED, AT(struct step_view, status),
     "exit status of the command; -1: no command", .required = true},
    {"restorable", SHOW_FLAG, AT(struct step_view, restorable), "rewind and fork can use this step",
     .required = true},
    {"memory", SHOW_FLAG, AT(struct step_view, memory), "the step has the memory of the vm",
     .required = true},
    {"reason", SHOW_TEXT, AT(struct step_view, reason), "why the step is not restorable"},
    {"how", SHOW_TEXT, AT(struct step_view, how),
     "how the step was taken: switch (of the root); while commands ran: btrfs (snapshot), reflink "
     "or copy; same (nothing was written since the last step)"},
    {"layers", SHOW_NUMBER, AT(struct step_view, layers),
     "number of filesystem layers of the step, without those of the image", .required = true},
    {"counted", SHOW_FLAG, AT(struct step_view, counted), "`files` and `bytes` are known",
     .required = true},
    {"files", SHOW_NUMBER, AT(struct step_view, files), "files changed since the previous step",
     .required = true},
    {"bytes", SHOW_NUMBER, AT(struct step_view, bytes), "disk space of these files",
     .required = true},
    {"durable", SHOW_FLAG, AT(struct step_view, durable), "the step survives a restart of the host",
     .required = true},
};
const struct schema step_schema = SCHEMA("Step", struct step_view, step_view_fields);

static const struct field image_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct image_view, id), "id of the image, made from its content",
     .required = true},
    {"name", SHOW_TEXT, AT(struct image_view, name), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct image_view, owner), NULL, .required = true},
    {"origin", SHOW_TEXT, AT(struct image_view, origin),
     "`import`, or the machine that the image was made from", .required = true},
    {"created", SHOW_TIME, AT(struct image_view, created_ms), NULL, .required = true},
    {"bytes", SHOW_NUMBER, AT(struct image_view, bytes), "bytes in the files of the image",
     .required = true},
    {"entries", SHOW_NUMBER, AT(struct image_view, entries), "files, directories and links",
     .required = true},
    {"machines", SHOW_NUMBER, AT(struct image_view, machines),
     "machines of the image's owner that use it", .required = true},
    {"layers", SHOW_NUMBER, AT(struct image_view, layers),
     "layers of the image, with those of images below it", .required = true},
    {"stored", SHOW_TEXT, AT(struct image_view, stored),
     "topmost layer: `erofs` (a mounted file) or `directory`", .required = true},
    {"config", SHOW_JSON, AT(struct image_view, config), "arch, env, user, workdir, command ...",
     .required = true, .shape = SHAPE_OBJECT},
};
const struct schema image_schema = SCHEMA("Image", struct image_view, image_view_fields);

static const struct field images_view[] = {
    {"images", SHOW_JSON, 0, NULL, .required = true, .sub = &image_schema},
};
static const char *const build_states[] = {"uploading", "running",   "done",
                                           "failed",    "cancelled", NULL};
static const struct field build_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct build_view, id), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct build_view, owner), NULL, .required = true},
    {"name", SHOW_TEXT, AT(struct build_view, name), "name of the new image"},
    {"state", SHOW_TEXT, AT(struct build_view, state),
     "a build is `uploading` until the files of its steps have come", .required = true,
     .choices = build_states},
    {"step", SHOW_NUMBER, AT(struct build_view, step), "number of the present step, from 1",
     .required = true},
    {"steps", SHOW_NUMBER, AT(struct build_view, steps), "number of steps", .required = true},
    {"what", SHOW_TEXT, AT(struct build_view, what), "text of the present step"},
    {"made", SHOW_NUMBER, AT(struct build_view, made), "steps that were run", .required = true},
    {"cached", SHOW_NUMBER, AT(struct build_view, cached), "steps whose image existed",
     .required = true},
    {"started", SHOW_TIME, AT(struct build_view, started_ms), NULL, .required = true},
    {"ended", SHOW_TIME, AT(struct build_view, ended_ms), NULL},
    {"image", SHOW_TEXT, AT(struct build_view, image), "id of the new image"},
    {"code", SHOW_TEXT, AT(struct build_view, code), "of a failed build: code of the error"},
    {"error", SHOW_TEXT, AT(struct build_view, error), "of a failed build: the error"},
    {"remedy", SHOW_TEXT, AT(struct build_view, remedy), "of a failed build: what to do"},
};
const struct schema build_schema = SCHEMA("Build", struct build_view, build_view_fields);

static const struct field builds_view[] = {
    {"builds", SHOW_JSON, 0, NULL, .required = true, .sub = &build_schema},
};
const struct schema builds_schema = {.name = "Builds", .fields = builds_view, .count = 1};

const struct schema images_schema = {.name = "Images", .fields = images_view, .count = 1};

static const struct field pruned_view[] = {
    {"removed", SHOW_NUMBER, 0, "number of deleted image names", .required = true},
    {"bytes", SHOW_NUMBER, 0, "bytes in the files of layers that became free", .required = true},
};
const struct schema pruned_schema = {.name = "Pruned", .fields = pruned_view, .count = 2};

static const struct field layers_view[] = {
    {"stored", SHOW_NUMBER, 0, "number of the lowest layers that an import need not send",
     .required = true},
};
const struct schema layers_schema = {.name = "Layers", .fields = layers_view, .count = 1};

static const struct field package_view[] = {
    {"url", SHOW_TEXT, 0, "URL that the package came from, with its port", .required = true},
    {"digest", SHOW_TEXT, 0, "verified digest, as sha256:HEX or sha512:HEX", .required = true},
    {"bytes", SHOW_NUMBER, 0, "size of the package", .required = true},
    {"used_ms", SHOW_NUMBER, 0, "when it was last stored or delivered, ms since 1970",
     .required = true},
};
const struct schema package_schema = {.name = "Package", .fields = package_view, .count = 4};

static const struct field packages_view[] = {
    {"bytes", SHOW_NUMBER, 0, "disk space of the package cache", .required = true},
    {"max_bytes", SHOW_NUMBER, 0, "limit of the disk space", .required = true},
    {"packages", SHOW_JSON, 0, "packages, the last used first", .required = true,
     .sub = &package_schema},
};
const struct schema packages_schema = {.name = "Packages", .fields = packages_view, .count = 3};

static const struct field cleared_view[] = {
    {"removed", SHOW_NUMBER, 0, "number of deleted packages", .required = true},
    {"bytes", SHOW_NUMBER, 0, "disk space that became free", .required = true},
};
const struct schema cleared_schema = {.name = "Cleared", .fields = cleared_view, .count = 2};

static const struct field steps_view[] = {
    {"steps", SHOW_JSON, 0, NULL, .required = true, .sub = &step_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent on the last page"},
};
const struct schema steps_schema = SCHEMA("Steps", char *, steps_view);

static const char *const change_types[] = {"file",   "directory", "symlink", "fifo",
                                           "socket", "device",    NULL};
static const char *const change_kinds[] = {"added", "modified", "deleted", NULL};
static const char *const change_contents[] = {"text", "binary", "large", "cut", "unreadable", NULL};
static const char *const diff_cuts[] = {"entries", "looked", "time", "depth", NULL};
static const struct field change_side_view[] = {
    {"type", SHOW_TEXT, 0, "kind of file", .required = true, .choices = change_types},
    {"mode", SHOW_TEXT, 0, "permission bits in octal", .required = true},
    {"owner", SHOW_NUMBER, 0, "numeric id of the owner (uid) in the machine", .required = true},
    {"group", SHOW_NUMBER, 0, NULL, .required = true},
    {"size", SHOW_NUMBER, 0, "size in bytes", .required = true},
};
const struct schema change_side_schema = SCHEMA("ChangeSide", char *, change_side_view);

static const struct field change_view[] = {
    {"path", SHOW_TEXT, 0, "path of the file from the root, without a leading '/'",
     .required = true},
    {"path_base64", SHOW_TEXT, 0, "the path as base64, if it is not UTF-8"},
    {"change", SHOW_TEXT, 0, NULL, .required = true, .choices = change_kinds},
    {"own", SHOW_FLAG, 0,
     "true if Carrel itself wrote the file for the network, and nobody changed it since"},
    {"before", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"after", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"target_before", SHOW_TEXT, 0, "target of a symbolic link before the change"},
    {"target_before_base64", SHOW_TEXT, 0, NULL},
    {"target_after", SHOW_TEXT, 0, NULL},
    {"target_after_base64", SHOW_TEXT, 0, NULL},
    {"content", SHOW_TEXT, 0,
     "present if the content differs; large: over 1 MiB, without a line diff; cut: the diff "
     "reached "
     "its size limit",
     .choices = change_contents},
    {"lines_added", SHOW_NUMBER, 0, NULL},
    {"lines_removed", SHOW_NUMBER, 0, NULL},
    {"diff", SHOW_TEXT, 0, "unified hunks of a text file, without file headers"},
};
const struct schema change_schema = SCHEMA("Change", char *, change_view);

static const struct field diff_end_view[] = {
    {"name", SHOW_TEXT, 0,
     "id of the compared step, or `start` or `now`; or the id of the command that cloned a "
     "repository, if its step is gone",
     .required = true},
    {"number", SHOW_NUMBER, 0, "number of the step"},
};
const struct schema diff_end_schema = SCHEMA("DiffEnd", char *, diff_end_view);

static const struct field diff_view_fields[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"from", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"to", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"added", SHOW_NUMBER, 0, "number of all added entries, listed or not", .required = true},
    {"modified", SHOW_NUMBER, 0, NULL, .required = true},
    {"deleted", SHOW_NUMBER, 0, NULL, .required = true},
    {"looked", SHOW_NUMBER, 0,
     "file names that were looked at; depends on what changed, not on the number of files",
     .required = true},
    {"cut", SHOW_TEXT, 0,
     "why the list is incomplete; entries: over 5,000 differ; looked: over two million file names; "
     "time: over 25 s; absent if complete",
     .choices = diff_cuts},
    {"changes", SHOW_JSON, 0, NULL, .required = true, .sub = &change_schema},
};
const struct schema diff_schema = SCHEMA("Diff", char *, diff_view_fields);

static const struct field store_problem_view[] = {
    {"machine", SHOW_TEXT, AT(struct store_problem, machine),
     "machine that needs the layer (directory of changed files)", .required = true},
    {"layer", SHOW_TEXT, AT(struct store_problem, layer), NULL},
    {"what", SHOW_TEXT, AT(struct store_problem, what), NULL, .required = true},
    {"remedy", SHOW_TEXT, AT(struct store_problem, remedy), NULL, .required = true},
};
const struct schema store_problem_schema =
    SCHEMA("StoreProblem", struct store_problem, store_problem_view);

static const struct field store_check_view[] = {
    {"whole", SHOW_FLAG, 0, "true if there are no problems", .required = true},
    {"machines", SHOW_NUMBER, 0, "machines that were checked", .required = true},
    {"unchecked", SHOW_NUMBER, 0, "machines that could not be checked", .required = true},
    {"stacks", SHOW_NUMBER, 0, "stacks (ordered lists of layers) of steps and root filesystems",
     .required = true},
    {"layers", SHOW_NUMBER, 0, "number of layers that the stacks refer to", .required = true},
    {"leftovers", SHOW_NUMBER, 0,
     "unused layers, which are deleted together with the next old steps", .required = true},
    {"problems", SHOW_JSON, 0, NULL, .required = true, .sub = &store_problem_schema},
};
const struct schema store_check_schema = SCHEMA("StoreCheck", char *, store_check_view);

static const struct field stray_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct stray_view, id), "id of the box", .required = true},
    {"store", SHOW_TEXT, AT(struct stray_view, store),
     "store that owns the box; absent if unknown"},
    {"reason", SHOW_TEXT, AT(struct stray_view, reason), "why the daemon leaves the box alone",
     .required = true},
    {"adoptable", SHOW_FLAG, AT(struct stray_view, adoptable),
     "true if adopt can make the box a machine of the caller", .required = true},
};
const struct schema stray_schema = SCHEMA("Box", struct stray_view, stray_view_fields);

static const struct field strays_view[] = {
    {"store", SHOW_TEXT, 0, "id of this store", .required = true},
    {"boxes", SHOW_JSON, 0, NULL, .required = true, .sub = &stray_schema},
};
const struct schema strays_schema = SCHEMA("Boxes", char *, strays_view);
