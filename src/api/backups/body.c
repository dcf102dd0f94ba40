/* Schemas of backups. */
#include "api/body_fields.h"
#include "service/backups/backups.h"

static const struct field backup_prune_request[] = {
    {"keep", FIELD_NUMBER, AT(struct backup_prune_request, keep),
     "number of backups to keep, the newest ones", .required = true, .min = 1, .max = BACKUPS_MAX},
};
const struct schema backup_prune_request_schema =
    SCHEMA("BackupPruneRequest", struct backup_prune_request, backup_prune_request);

static const struct field backup_restore_request[] = {
    {"as", FIELD_TEXT, AT(struct backup_restore_request, as),
     "name of the new machine (default: none)", .max = NAME_MAX_BYTES},
};
const struct schema backup_restore_request_schema =
    SCHEMA("BackupRestoreRequest", struct backup_restore_request, backup_restore_request);

static const struct field backup_view[] = {
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"machine", SHOW_TEXT, 0, "id of the machine", .required = true},
    {"name", SHOW_TEXT, 0, "name of the machine when the backup was made"},
    {"created_ms", SHOW_NUMBER, 0, "when it was complete, in milliseconds since 1970",
     .required = true},
    {"files", SHOW_NUMBER, 0, "files, directories and links in it", .required = true},
    {"bytes", SHOW_NUMBER, 0, "bytes of its files", .required = true},
    {"written_bytes", SHOW_NUMBER, 0,
     "bytes that it added to the store: the rest is in earlier backups", .required = true},
};
const struct schema backup_schema = SCHEMA("Backup", char *, backup_view);

static const struct field backups_view[] = {
    {"backups", SHOW_JSON, 0, NULL, .required = true, .sub = &backup_schema},
};
const struct schema backups_schema = SCHEMA("Backups", char *, backups_view);

static const struct field backup_verified_view[] = {
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"packs", SHOW_NUMBER, 0, "files that were read", .required = true},
    {"bytes", SHOW_NUMBER, 0, "bytes that were read", .required = true},
};
const struct schema backup_verified_schema = SCHEMA("BackupVerified", char *, backup_verified_view);

static const struct field backup_forgotten_view[] = {
    {"forgotten", SHOW_NUMBER, 0, "number of backups that were deleted", .required = true},
};
const struct schema backup_forgotten_schema =
    SCHEMA("BackupForgotten", char *, backup_forgotten_view);
