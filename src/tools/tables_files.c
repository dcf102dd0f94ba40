/* Descriptions for models: arguments and results of the tools that work on files. */
#include "service/tickets.h"
#include "tools/tables_inner.h"

const char *const tool_users[] = {"user", "root", NULL};
static const char *const kinds[] = {"content", "name", NULL};

static const struct field read_input[] = {
    MACHINE_FIELD,
    {"path", FIELD_TEXT, AT(read_input, path), "absolute path", .required = true,
     .max = PATH_BYTES},
    {"from_line", FIELD_NUMBER, AT(read_input, from_line),
     "number of the first line to show (default 1)", .min = 1, .max = 1ull << 40},
    {"lines", FIELD_NUMBER, AT(read_input, lines), "number of lines to show (default 2000)",
     .min = 1, .max = 1000000},
    USER_FIELD(read_input),
};
const struct schema read_input_schema = SCHEMA("read_input", struct read_input, read_input);

static const struct field read_output[] = {
    {"path", SHOW_TEXT, AT(read_output, path), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(read_output, machine), NULL, .required = true},
    {"content", SHOW_TEXT, AT(read_output, content),
     "the lines, each with its line number and a tab in front", .required = true},
    {"from_line", SHOW_NUMBER, AT(read_output, from_line), NULL, .required = true},
    {"lines", SHOW_NUMBER, AT(read_output, lines), "number of lines shown", .required = true},
    {"more", SHOW_FLAG, AT(read_output, more), "the file has more content; continue with from_line",
     .required = true},
    {"size", SHOW_NUMBER, AT(read_output, size), "bytes read from the file", .required = true},
    {"sha256", SHOW_TEXT, AT(read_output, sha256),
     "SHA-256 of the file, only if it was read to the end"},
    {"media", SHOW_TEXT, AT(read_output, media),
     "media type, if the file is an image; the image is returned as well"},
};
const struct schema read_output_schema = SCHEMA("read_output", struct read_output, read_output);

static const struct field write_input[] = {
    MACHINE_FIELD,
    {"path", FIELD_TEXT, AT(write_input, path), "absolute path", .required = true,
     .max = PATH_BYTES},
    {"content", FIELD_TEXT, AT(write_input, content),
     "complete new content as text; give either content or content_base64", .max = TEXT_BYTES},
    {"content_base64", FIELD_TEXT, AT(write_input, content_base64),
     "complete new content in base64, for binary files; instead of content", .max = TEXT_BYTES},
    {"mode", FIELD_TEXT, AT(write_input, mode), "octal mode of a new file (default 644)", .max = 4},
    {"if_hash", FIELD_TEXT, AT(write_input, if_hash),
     "write only if the file has this sha256, or `absent`: only if there is no such file",
     .max = 64},
    USER_FIELD(write_input),
};
const struct schema write_input_schema = SCHEMA("write_input", struct write_input, write_input);

static const struct field write_output[] = {
    {"path", SHOW_TEXT, AT(write_output, path), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(write_output, machine), NULL, .required = true},
    {"sha256", SHOW_TEXT, AT(write_output, sha256), NULL, .required = true},
    {"size", SHOW_NUMBER, AT(write_output, size), "size in bytes", .required = true},
};
const struct schema write_output_schema = SCHEMA("write_output", struct write_output, write_output);

static const struct field edit_row[] = {
    {"old", FIELD_TEXT, AT(edit_row, old_text), "exact text to replace, including indentation",
     .required = true, .max = TEXT_BYTES},
    {"new", FIELD_TEXT, AT(edit_row, new_text), "replacement text", .required = true,
     .max = TEXT_BYTES},
    {"count", FIELD_NUMBER, AT(edit_row, count),
     "number of times old must occur; all occurrences are replaced (default 1)", .min = 1,
     .max = 100000},
};
static const struct schema edit_row_schema = SCHEMA("edit_row", struct edit_row, edit_row);

static const struct field edit_input[] = {
    MACHINE_FIELD,
    {"path", FIELD_TEXT, AT(edit_input, path), "absolute path", .required = true,
     .max = PATH_BYTES},
    {"edits", FIELD_OBJECTS, AT(edit_input, edits), "replacements, applied in order; all or none",
     .required = true, .max = EDITS_MAX, .sub = &edit_row_schema},
    {"if_hash", FIELD_TEXT, AT(edit_input, if_hash), "edit only if the file has this sha256",
     .max = 64},
    USER_FIELD(edit_input),
};
const struct schema edit_input_schema = SCHEMA("edit_input", struct edit_input, edit_input);

static const struct field edit_output[] = {
    {"path", SHOW_TEXT, AT(edit_output, path), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(edit_output, machine), NULL, .required = true},
    {"replaced", SHOW_NUMBER, AT(edit_output, replaced), "number of replacements",
     .required = true},
    {"diff", SHOW_TEXT, AT(edit_output, diff), "the changes as unified diff hunks",
     .required = true},
    {"sha256", SHOW_TEXT, AT(edit_output, sha256), "SHA-256 of the changed file", .required = true},
};
const struct schema edit_output_schema = SCHEMA("edit_output", struct edit_output, edit_output);

static const struct field search_input[] = {
    MACHINE_FIELD,
    {"pattern", FIELD_TEXT, AT(search_input, pattern),
     "extended regular expression; with kind name a file name pattern such as *.c",
     .required = true, .max = 4096},
    {"path", FIELD_TEXT, AT(search_input, path),
     "directory or file to search (default: the granted directory, else the home directory)",
     .max = PATH_BYTES},
    {"glob", FIELD_TEXT, AT(search_input, glob),
     "with kind content: search only files whose name matches, such as *.py", .max = 1000},
    {"kind", FIELD_TEXT, AT(search_input, kind),
     "content: lines in files (default); name: file names", .choices = kinds},
    {"ignore_case", FIELD_FLAG, AT(search_input, ignore_case), NULL},
    {"max", FIELD_NUMBER, AT(search_input, max), "maximum number of matches (default 200)",
     .min = 1, .max = SEARCH_MAX},
};
const struct schema search_input_schema = SCHEMA("search_input", struct search_input, search_input);

struct match_row {
    const char *path, *text;
    uint64_t line;
};
static const struct field match_row[] = {
    {"path", SHOW_TEXT, AT(match_row, path), NULL, .required = true},
    {"line", SHOW_NUMBER, AT(match_row, line), NULL},
    {"text", SHOW_TEXT, AT(match_row, text), NULL},
};
static const struct schema match_row_schema = SCHEMA("match_row", struct match_row, match_row);

static const struct field search_output[] = {
    {"matches", SHOW_JSON, AT(search_output, matches), NULL, .required = true,
     .sub = &match_row_schema},
    {"count", SHOW_NUMBER, AT(search_output, count), NULL, .required = true},
    {"more", SHOW_FLAG, AT(search_output, more),
     "there may be more matches: the limit of matches, time or output was reached",
     .required = true},
    {"machine", SHOW_TEXT, AT(search_output, machine), NULL, .required = true},
};
const struct schema search_output_schema =
    SCHEMA("search_output", struct search_output, search_output);

/* ---- list ---- */

static const struct field list_input[] = {
    MACHINE_FIELD,
    {"path", FIELD_TEXT, AT(list_input, path),
     "directory, an absolute path (default: the granted directory, else the home directory)",
     .max = PATH_BYTES},
    {"depth", FIELD_NUMBER, AT(list_input, depth), "levels to show (default 2)", .min = 1,
     .max = LIST_DEPTH_MAX},
    {"max", FIELD_NUMBER, AT(list_input, max), "maximum number of entries (default 500)", .min = 1,
     .max = LIST_MAX},
    USER_FIELD(list_input),
};
const struct schema list_input_schema = SCHEMA("list_input", struct list_input, list_input);

struct list_row {
    const char *path, *type;
    uint64_t size;
};
static const struct field list_row[] = {
    {"path", SHOW_TEXT, AT(list_row, path), "path below the directory", .required = true},
    {"type", SHOW_TEXT, AT(list_row, type), "one of file, directory, symlink, other",
     .required = true},
    {"size", SHOW_NUMBER, AT(list_row, size), "size of a file in bytes", .required = true},
};
static const struct schema list_row_schema = SCHEMA("list_row", struct list_row, list_row);

static const struct field list_output[] = {
    {"path", SHOW_TEXT, AT(list_output, path), "the directory", .required = true},
    {"entries", SHOW_JSON, AT(list_output, entries), NULL, .required = true,
     .sub = &list_row_schema},
    {"count", SHOW_NUMBER, AT(list_output, count), NULL, .required = true},
    {"more", SHOW_FLAG, AT(list_output, more),
     "there are more entries: the limit of entries was reached", .required = true},
    {"machine", SHOW_TEXT, AT(list_output, machine), NULL, .required = true},
};
const struct schema list_output_schema = SCHEMA("list_output", struct list_output, list_output);

/* ---- transfer ---- */

static const char *const ways[] = {"download", "upload", NULL};
static const struct field transfer_input[] = {
    MACHINE_FIELD,
    {"path", FIELD_TEXT, AT(transfer_input, path), "absolute path of the file", .required = true,
     .max = PATH_BYTES},
    {"way", FIELD_TEXT, AT(transfer_input, way),
     "download: out of the machine; upload: into the machine", .required = true, .choices = ways},
    {"life_s", FIELD_NUMBER, AT(transfer_input, life_s),
     "seconds until the URL expires (default 600)", .min = 1, .max = TICKET_LIFE_S},
    USER_FIELD(transfer_input),
};
const struct schema transfer_input_schema =
    SCHEMA("transfer_input", struct transfer_input, transfer_input);

static const struct field transfer_output[] = {
    {"url", SHOW_TEXT, AT(transfer_output, url), "secret URL of the file", .required = true},
    {"method", SHOW_TEXT, AT(transfer_output, method), "GET or PUT", .required = true},
    {"socket", SHOW_TEXT, AT(transfer_output, socket),
     "unix socket that serves the URL; absent: TCP"},
    {"command", SHOW_TEXT, AT(transfer_output, command),
     "command for the client's host; replace FILE", .required = true},
    {"life_s", SHOW_NUMBER, AT(transfer_output, life_s), "seconds until the URL expires",
     .required = true},
    {"path", SHOW_TEXT, AT(transfer_output, path), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(transfer_output, machine), NULL, .required = true},
};
const struct schema transfer_output_schema =
    SCHEMA("transfer_output", struct transfer_output, transfer_output);

/* ---- patch ---- */

static const struct field patch_input[] = {
    MACHINE_FIELD,
    {"patch", FIELD_TEXT, AT(patch_input, patch),
     "a unified diff, or *** Begin Patch, *** Update File: PATH (or Add, Delete), hunks, *** End "
     "Patch",
     .required = true, .max = TEXT_BYTES},
    {"cwd", FIELD_TEXT, AT(patch_input, cwd),
     "directory of relative paths, an absolute path (default: the granted directory, else the home "
     "directory)",
     .max = PATH_BYTES},
    USER_FIELD(patch_input),
};
const struct schema patch_input_schema = SCHEMA("patch_input", struct patch_input, patch_input);

struct patched_row {
    const char *path, *change, *from, *sha256;
    uint64_t lines_added, lines_removed;
};
static const struct field patched_row[] = {
    {"path", SHOW_TEXT, AT(patched_row, path), "absolute path", .required = true},
    {"change", SHOW_TEXT, AT(patched_row, change), "one of added, modified, deleted, moved",
     .required = true},
    {"from", SHOW_TEXT, AT(patched_row, from), "previous path of a moved file"},
    {"lines_added", SHOW_NUMBER, AT(patched_row, lines_added), NULL, .required = true},
    {"lines_removed", SHOW_NUMBER, AT(patched_row, lines_removed), NULL, .required = true},
    {"sha256", SHOW_TEXT, AT(patched_row, sha256), "SHA-256 of the new content"},
};
static const struct schema patched_row_schema =
    SCHEMA("patched_row", struct patched_row, patched_row);

static const struct field patch_output[] = {
    {"files", SHOW_JSON, AT(patch_output, files), NULL, .required = true,
     .sub = &patched_row_schema},
    {"count", SHOW_NUMBER, AT(patch_output, count), "number of files", .required = true},
    {"machine", SHOW_TEXT, AT(patch_output, machine), NULL, .required = true},
};
const struct schema patch_output_schema = SCHEMA("patch_output", struct patch_output, patch_output);
