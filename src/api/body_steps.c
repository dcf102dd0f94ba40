/* Steps of a machine, what changed between them, and images. */
#include "api/body_fields.h"
#include "service/images/images.h"
#include "service/steps/check.h"
#include "service/steps/steps.h"
#include "service/strays.h"

static const struct field snap_request[] = {
    {"name", FIELD_TEXT, AT(struct snap_request, name), "one that has a name is never dropped",
     .max = NAME_MAX_BYTES},
};
static const struct field image_request[] = {
    {"name", FIELD_TEXT, AT(struct image_request, name), "of the image", .required = true,
     .max = NAME_MAX_BYTES},
    {"step", FIELD_TEXT, AT(struct image_request, step), "of the machine (default: as it is now)",
     .max = NAME_MAX_BYTES},
    {"env", FIELD_MAP, AT(struct image_request, env), "of commands, over the image's own",
     .max = 256},
    {"user", FIELD_TEXT, AT(struct image_request, user), "whom commands run as",
     .max = NAME_MAX_BYTES},
    {"workdir", FIELD_TEXT, AT(struct image_request, workdir), "where they start",
     .max = PATH_MAX_BYTES},
    {"command", FIELD_TEXTS, AT(struct image_request, command), "kept for others to run",
     .max = 256},
};
static const struct field tag_request[] = {
    {"name", FIELD_TEXT, AT(struct tag_request, name), "in place of what had that name",
     .required = true, .max = NAME_MAX_BYTES},
};
const struct schema tag_request_schema = SCHEMA("ImageName", struct tag_request, tag_request);

const struct schema image_request_schema =
    SCHEMA("ImageRequest", struct image_request, image_request);

const struct schema snap_request_schema = SCHEMA("SnapRequest", struct snap_request, snap_request);

static const struct field rewind_request[] = {
    {"step", FIELD_TEXT, AT(struct rewind_request, step), "its number, id or name; last",
     .required = true, .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct rewind_request, drifted),
     "also if the host's packages changed since"},
};
const struct schema rewind_request_schema =
    SCHEMA("RewindRequest", struct rewind_request, rewind_request);

static const struct field hibernate_request[] = {
    {"files_only", FIELD_FLAG, AT(struct hibernate_request, files_only),
     "a step is taken and every process ended: memory is lost"},
};
const struct schema hibernate_request_schema =
    SCHEMA("HibernateRequest", struct hibernate_request, hibernate_request);

static const struct field fork_request[] = {
    {"count", FIELD_NUMBER, AT(struct fork_request, count), "machines (default 1)", .min = 1,
     .max = FORK_MAX},
    {"step", FIELD_TEXT, AT(struct fork_request, step),
     "which (default: as it is now); start: as it was made", .max = NAME_MAX_BYTES},
    {"drifted", FIELD_FLAG, AT(struct fork_request, drifted),
     "also if the host's packages changed since"},
    {"key", FIELD_TEXT, AT(struct fork_request, key),
     "idempotency key: sent again, it yields the same machines", .max = FORK_KEY_MAX},
};
const struct schema fork_request_schema = SCHEMA("ForkRequest", struct fork_request, fork_request);

static const struct field step_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct step_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct step_view, machine), NULL, .required = true},
    {"number", SHOW_NUMBER, AT(struct step_view, number), "1, 2, ... in its machine",
     .required = true},
    {"kind", SHOW_TEXT, AT(struct step_view, kind),
     "exec, file, snap, kept (what was there before a rewind), rewind or fork", .required = true},
    {"name", SHOW_TEXT, AT(struct step_view, name), NULL},
    {"created", SHOW_TIME, AT(struct step_view, created_ms), NULL, .required = true},
    {"exec", SHOW_TEXT, AT(struct step_view, exec), "the command that ended"},
    {"what", SHOW_TEXT, AT(struct step_view, what), "its argv as JSON, a path, or a remark"},
    {"status", SHOW_SIGNED, AT(struct step_view, status), "of the command; -1: none",
     .required = true},
    {"restorable", SHOW_FLAG, AT(struct step_view, restorable), "it can be returned to",
     .required = true},
    {"reason", SHOW_TEXT, AT(struct step_view, reason), "why it cannot"},
    {"how", SHOW_TEXT, AT(struct step_view, how),
     "it was taken: switch (of root); while commands ran btrfs (a snapshot), reflink or copy; same "
     "(nothing was written since)"},
    {"layers", SHOW_NUMBER, AT(struct step_view, layers), "it is made of, above the image",
     .required = true},
    {"counted", SHOW_FLAG, AT(struct step_view, counted), "the next two are known",
     .required = true},
    {"files", SHOW_NUMBER, AT(struct step_view, files), "changed since the step before",
     .required = true},
    {"bytes", SHOW_NUMBER, AT(struct step_view, bytes), "they take on disk", .required = true},
    {"durable", SHOW_FLAG, AT(struct step_view, durable),
     "the machine is this after a restart of the host", .required = true},
};
const struct schema step_schema = SCHEMA("Step", struct step_view, step_view_fields);

static const struct field image_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct image_view, id), "by content", .required = true},
    {"name", SHOW_TEXT, AT(struct image_view, name), NULL, .required = true},
    {"owner", SHOW_TEXT, AT(struct image_view, owner), NULL, .required = true},
    {"origin", SHOW_TEXT, AT(struct image_view, origin), "import, or the machine it was made of",
     .required = true},
    {"created", SHOW_TIME, AT(struct image_view, created_ms), NULL, .required = true},
    {"bytes", SHOW_NUMBER, AT(struct image_view, bytes), "in its files", .required = true},
    {"entries", SHOW_NUMBER, AT(struct image_view, entries), "files, directories and links",
     .required = true},
    {"machines", SHOW_NUMBER, AT(struct image_view, machines), "that lie on it now",
     .required = true},
    {"stored", SHOW_TEXT, AT(struct image_view, stored),
     "`erofs`, a file that is mounted, or `directory`", .required = true},
    {"config", SHOW_JSON, AT(struct image_view, config), "arch, env, user, workdir, command ...",
     .required = true},
};
const struct schema image_schema = SCHEMA("Image", struct image_view, image_view_fields);

static const struct field images_view[] = {
    {"images", SHOW_JSON, 0, NULL, .required = true, .sub = &image_schema},
};
const struct schema images_schema = {.name = "Images", .fields = images_view, .count = 1};

static const struct field pruned_view[] = {
    {"removed", SHOW_NUMBER, 0, "names", .required = true},
    {"bytes", SHOW_NUMBER, 0, "in the files behind them", .required = true},
};
const struct schema pruned_schema = {.name = "Pruned", .fields = pruned_view, .count = 2};

static const struct field steps_view[] = {
    {"steps", SHOW_JSON, 0, NULL, .required = true, .sub = &step_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema steps_schema = SCHEMA("Steps", char *, steps_view);

static const struct field change_side_view[] = {
    {"type", SHOW_TEXT, 0, "file, directory, symlink, fifo, socket or device", .required = true},
    {"mode", SHOW_TEXT, 0, "octal", .required = true},
    {"owner", SHOW_NUMBER, 0, "as the machine has it", .required = true},
    {"group", SHOW_NUMBER, 0, NULL, .required = true},
    {"size", SHOW_NUMBER, 0, "bytes", .required = true},
};
const struct schema change_side_schema = SCHEMA("ChangeSide", char *, change_side_view);

static const struct field change_view[] = {
    {"path", SHOW_TEXT, 0, "from the root on, without a leading '/'", .required = true},
    {"path_base64", SHOW_TEXT, 0, "its bytes, when they are no UTF-8"},
    {"change", SHOW_TEXT, 0, "added, modified or deleted", .required = true},
    {"before", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"after", SHOW_OBJECT, 0, NULL, .sub = &change_side_schema},
    {"target_before", SHOW_TEXT, 0, "of a symbolic link"},
    {"target_before_base64", SHOW_TEXT, 0, NULL},
    {"target_after", SHOW_TEXT, 0, NULL},
    {"target_after_base64", SHOW_TEXT, 0, NULL},
    {"content", SHOW_TEXT, 0,
     "of a file whose content differs: text, binary, large (more than 1 MiB: not compared by "
     "lines), cut (text, but there was no room) or unreadable"},
    {"lines_added", SHOW_NUMBER, 0, NULL},
    {"lines_removed", SHOW_NUMBER, 0, NULL},
    {"diff", SHOW_TEXT, 0, "unified hunks of a text, without the lines that name files"},
};
const struct schema change_schema = SCHEMA("Change", char *, change_view);

static const struct field diff_end_view[] = {
    {"name", SHOW_TEXT, 0, "start, now, or a step's id", .required = true},
    {"number", SHOW_NUMBER, 0, "of the step"},
};
const struct schema diff_end_schema = SCHEMA("DiffEnd", char *, diff_end_view);

static const struct field diff_view_fields[] = {
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"from", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"to", SHOW_OBJECT, 0, NULL, .required = true, .sub = &diff_end_schema},
    {"added", SHOW_NUMBER, 0, "all that were found, listed or not", .required = true},
    {"modified", SHOW_NUMBER, 0, NULL, .required = true},
    {"deleted", SHOW_NUMBER, 0, NULL, .required = true},
    {"cut", SHOW_TEXT, 0,
     "why something is missing: entries (more than 5,000 differ), looked (more than two million "
     "names), time (25 s) or depth; absent when nothing is"},
    {"changes", SHOW_JSON, 0, NULL, .required = true, .sub = &change_schema},
};
const struct schema diff_schema = SCHEMA("Diff", char *, diff_view_fields);

static const struct field store_problem_view[] = {
    {"machine", SHOW_TEXT, AT(struct store_problem, machine), "that needs it", .required = true},
    {"layer", SHOW_TEXT, AT(struct store_problem, layer), NULL},
    {"what", SHOW_TEXT, AT(struct store_problem, what), NULL, .required = true},
    {"remedy", SHOW_TEXT, AT(struct store_problem, remedy), NULL, .required = true},
};
const struct schema store_problem_schema =
    SCHEMA("StoreProblem", struct store_problem, store_problem_view);

static const struct field store_check_view[] = {
    {"whole", SHOW_FLAG, 0, "there are no problems", .required = true},
    {"machines", SHOW_NUMBER, 0, "that were looked at", .required = true},
    {"unchecked", SHOW_NUMBER, 0, "that could not be", .required = true},
    {"stacks", SHOW_NUMBER, 0, "of steps and roots", .required = true},
    {"layers", SHOW_NUMBER, 0, "that they name", .required = true},
    {"leftovers", SHOW_NUMBER, 0, "layers that nobody names; they go when steps are next dropped",
     .required = true},
    {"problems", SHOW_JSON, 0, NULL, .required = true, .sub = &store_problem_schema},
};
const struct schema store_check_schema = SCHEMA("StoreCheck", char *, store_check_view);

static const struct field stray_view_fields[] = {
    {"id", SHOW_TEXT, AT(struct stray_view, id), "of the box", .required = true},
    {"store", SHOW_TEXT, AT(struct stray_view, store), "that it belongs to; absent if unknown"},
    {"reason", SHOW_TEXT, AT(struct stray_view, reason), "why it is left alone", .required = true},
    {"adoptable", SHOW_FLAG, AT(struct stray_view, adoptable), "it can be taken over",
     .required = true},
};
const struct schema stray_schema = SCHEMA("Box", struct stray_view, stray_view_fields);

static const struct field strays_view[] = {
    {"store", SHOW_TEXT, 0, "the id of this store", .required = true},
    {"boxes", SHOW_JSON, 0, NULL, .required = true, .sub = &stray_schema},
};
const struct schema strays_schema = SCHEMA("Boxes", char *, strays_view);
