/* Schemas of requests about files of a machine. */
#include "api/body_fields.h"
#include "service/view.h"

#define FILE_PATH(type, member, text) \
    { #member, FIELD_TEXT, AT(type, member), text, .required = true, .max = PATH_MAX_BYTES }
#define FILE_USER(type)                                                        \
    {                                                                          \
        "user", FIELD_TEXT, AT(type, user),                                    \
            "act as user, root, or a numeric uid (default: the image's user)", \
            .max = NAME_MAX_BYTES                                              \
    }

static const struct field mkdir_request[] = {
    FILE_PATH(struct mkdir_request, path, NULL),
    {"mode", FIELD_NUMBER, AT(struct mkdir_request, mode),
     "mode as a decimal number (default 493, which is 0755)", .max = 07777},
    {"exact", FIELD_FLAG, AT(struct mkdir_request, exact),
     "fail if the parent directory is missing or the directory exists"},
    FILE_USER(struct mkdir_request),
};
const struct schema mkdir_request_schema =
    SCHEMA("MkdirRequest", struct mkdir_request, mkdir_request);

static const struct field move_request[] = {
    FILE_PATH(struct move_request, from, NULL),
    FILE_PATH(struct move_request, to, NULL),
    {"no_replace", FIELD_FLAG, AT(struct move_request, no_replace), "fail if `to` exists"},
    FILE_USER(struct move_request),
};
const struct schema move_request_schema = SCHEMA("MoveRequest", struct move_request, move_request);

static const struct field chmod_request[] = {
    FILE_PATH(struct chmod_request, path, NULL),
    {"mode", FIELD_TEXT, AT(struct chmod_request, mode), "mode in octal, such as 644",
     .required = true, .max = 5},
    FILE_USER(struct chmod_request),
};
const struct schema chmod_request_schema =
    SCHEMA("ChmodRequest", struct chmod_request, chmod_request);

static const struct field chown_request[] = {
    FILE_PATH(struct chown_request, path, NULL),
    {"owner", FIELD_NUMBER, AT(struct chown_request, owner), "numeric id of the new owner (uid)",
     .max = 65534},
    {"group", FIELD_NUMBER, AT(struct chown_request, group), "numeric id of the new group (gid)",
     .max = 65534},
    FILE_USER(struct chown_request),
};
const struct schema chown_request_schema =
    SCHEMA("ChownRequest", struct chown_request, chown_request);

static const struct field symlink_request[] = {
    FILE_PATH(struct symlink_request, target, "target of the link"),
    FILE_PATH(struct symlink_request, path, "path of the link"),
    FILE_USER(struct symlink_request),
};
const struct schema symlink_request_schema =
    SCHEMA("SymlinkRequest", struct symlink_request, symlink_request);

static const char *const entry_types[] = {"file", "directory", "symlink", "other", NULL};
static const struct field entry_view[] = {
    {"name", SHOW_TEXT, AT(struct entry_view, name), NULL, .required = true},
    {"type", SHOW_TEXT, AT(struct entry_view, type), NULL, .required = true,
     .choices = entry_types},
    {"mode", SHOW_CHARS, AT(struct entry_view, mode), "permission bits in octal", .required = true},
    {"size", SHOW_NUMBER, AT(struct entry_view, size), NULL, .required = true},
    {"uid", SHOW_NUMBER, AT(struct entry_view, uid), NULL, .required = true},
    {"gid", SHOW_NUMBER, AT(struct entry_view, gid), NULL, .required = true},
    {"modified", SHOW_TIME, AT(struct entry_view, mtime_ms), NULL},
    {"target", SHOW_TEXT, AT(struct entry_view, target), "target of a symlink"},
};
const struct schema entry_schema = SCHEMA("Entry", struct entry_view, entry_view);

static const struct field entries_view[] = {
    {"entries", SHOW_JSON, 0, NULL, .required = true, .sub = &entry_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent on the last page"},
};
const struct schema entries_schema = SCHEMA("Entries", char *, entries_view);

static const struct field written_view[] = {
    {"sha256", SHOW_TEXT, 0, "SHA-256 of the file after the write"},
    {"size", SHOW_NUMBER, 0, NULL},
    {"left_out", SHOW_TEXT, 0,
     "entries of the archive that were skipped, with a reason; one line per entry"},
};
const struct schema written_schema = SCHEMA("Written", char *, written_view);
