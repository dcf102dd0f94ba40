/* Schemas of volumes. */
#include "api/body_fields.h"
#include "base/limits.h"
#include "service/volumes/volumes.h"

static const char *const volume_modes[] = {"ro", "cow", "rw", NULL};

static const struct field volume_use_request[] = {
    {"name", FIELD_TEXT, AT(struct volume_use_request, name),
     "name of the volume, or NAME@SNAPSHOT", .required = true, .max = VOLUME_NAME_MAX},
    {"at", FIELD_TEXT, AT(struct volume_use_request, at), "path in the machine", .required = true,
     .max = PATH_MAX_BYTES},
    {"mode", FIELD_TEXT, AT(struct volume_use_request, mode),
     "ro: read-only; cow: changes stay in the machine; rw (default): writable, for one machine at "
     "a "
     "time. A snapshot is ro by default and never rw",
     .choices = volume_modes},
};
const struct schema volume_use_request_schema =
    SCHEMA("VolumeUse", struct volume_use_request, volume_use_request);

static const struct field volume_request[] = {
    {"name", FIELD_TEXT, AT(struct volume_request, name),
     "name of the volume, unique among those of the owner", .required = true,
     .max = NAME_MAX_BYTES},
    {"size", FIELD_SIZE, AT(struct volume_request, size),
     "limit of bytes in the volume (default: 1G)", .min = LIMIT_VOLUME_MIN,
     .max = LIMIT_VOLUME_MAX},
    {"from", FIELD_TEXT, AT(struct volume_request, from),
     "volume or snapshot to copy, which no machine may have; the copy has its size",
     .max = VOLUME_NAME_MAX},
};
const struct schema volume_request_schema =
    SCHEMA("VolumeRequest", struct volume_request, volume_request);

static const struct field volume_snap_request[] = {
    {"name", FIELD_TEXT, AT(struct volume_snap_request, name),
     "name of the snapshot (default: the time)", .max = NAME_MAX_BYTES},
};
const struct schema volume_snap_request_schema =
    SCHEMA("VolumeSnapRequest", struct volume_snap_request, volume_snap_request);

static const struct field volume_view[] = {
    {"name", SHOW_TEXT, 0, "name of the volume, or NAME@SNAPSHOT", .required = true},
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"size", SHOW_NUMBER, 0, "limit of bytes in the volume", .required = true},
    {"used_bytes", SHOW_NUMBER, 0, "bytes on the disk of the store", .required = true},
    {"created_ms", SHOW_NUMBER, 0, "when it was made, in milliseconds since 1970",
     .required = true},
    {"from", SHOW_TEXT, 0, "name of the volume or snapshot that it was copied from"},
    {"machines", SHOW_JSON, 0, "machines that have it, each with machine, at and mode",
     .required = true, .sub = &volume_place_schema},
};
const struct schema volume_schema = SCHEMA("Volume", char *, volume_view);

static const struct field volumes_view[] = {
    {"volumes", SHOW_JSON, 0, NULL, .required = true, .sub = &volume_schema},
};
const struct schema volumes_schema = SCHEMA("Volumes", char *, volumes_view);
