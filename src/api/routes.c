/* The table of routes: dispatch, OpenAPI and docs/reference/api.md are all made from it. */
#include <stdio.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "io/http_uri.h"

#define M "/v1/machines/{}"
#define X M "/execs/{}"
#define F M "/files"

static const struct query list_queries[] = {
    {"state", "string", "states, separated by commas, or `all` (default: all except ended)"},
    {"kind", "string", NULL},
    {"name", "string", NULL},
    {"meta", "string", "list only machines with this KEY=VALUE in their metadata"},
    {"all", "boolean", "include the machines of every owner; needs the scope admin"},
    {"limit", "integer", "rows per page, up to 1000 (default 100)"},
    {"cursor", "string", "`next` of the previous page"},
    {0},
};
static const struct query page_queries[] = {
    {"limit", "integer", "rows per page, up to 1000 (default 100)"},
    {"cursor", "string", "`next` of the previous page"},
    {0},
};
static const struct query exec_list_queries[] = {
    {"state", "string", "only commands in this state; running includes starting"},
    {"limit", "integer", "rows per page, up to 1000 (default 100)"},
    {"cursor", "string", "`next` of the previous page"},
    {0},
};
static const struct query diff_queries[] = {
    {"from", "string",
     "compare this step, the step after a command (its id), or `start` (default), which is the "
     "machine as created"},
    {"to", "string", "compare `from` with this step, or with `now` (default)"},
    {"path", "string", "show only changes of this path and everything below it"},
    {"context", "integer", "context lines around a change (default 3)"},
    {"brief", "boolean", "omit the diffs of text files"},
    {"skip_repos", "boolean", "omit the files in granted repositories, which have change sets"},
    {"volume", "string",
     "compare this volume of the machine instead; paths are those in the volume. Mode `cow`: with "
     "the volume itself; `rw`: with `from`, a snapshot of it (default: the newest)"},
    {0},
};
static const struct query create_queries[] = {
    {"hold", "boolean",
     "keep the response open after its first line; the machine is deleted when the client closes "
     "it"},
    {0},
};
static const struct query run_queries[] = {
    {"hold", "boolean",
     "keep the stream open after the event `exit`; the machine is deleted when the client closes "
     "it"},
    {"keep", "boolean", "do not delete the machine afterwards"},
    {"output", "boolean", "0: send no output, only the events `start` and `exit`"},
    {0},
};
static const struct query runs_queries[] = {
    {"limit", "integer", "runs per page, up to 200 (default 50)"},
    {0},
};
static const struct query transcript_queries[] = {
    {"after", "integer",
     "start at this byte of the transcript; the id of an event is the offset of the next one"},
    {"follow", "boolean",
     "keep the stream open until the run ends or is interrupted (default: true for events)"},
    {0},
};
static const struct query exec_queries[] = {
    {"output", "boolean", "0: send no output, only the events `start` and `exit`"},
    {0},
};
static const char *const output_streams[] = {"stdout", "stderr", NULL};
static const struct query output_queries[] = {
    {"stream", "string", "stdout (default) or stderr", .choices = output_streams},
    {"offset", "integer", "offset of the first byte (default 0)"},
    {"limit", "integer", "maximum number of bytes"},
    {"follow", "boolean",
     "keep the response open until the stream ends: until the command and all processes that it "
     "left behind have closed it"},
    {0},
};
static const struct query follow_queries[] = {
    {"stdout", "integer", "offset in stdout to start from (default 0)"},
    {"stderr", "integer", "offset in stderr to start from (default 0)"},
    {"follow", "boolean", "keep the stream open until the command ends (default true)"},
    {"output", "boolean", "0: send no output, only the events `start` and `exit`"},
    {0},
};
static const struct query stdin_queries[] = {
    {"offset", "integer",
     "offset of the first byte of the body; bytes received before are skipped"},
    {"eof", "boolean", "close standard input after the body"},
    {0},
};
static const struct query terminal_queries[] = {
    {"exec", "string", "attach to this command instead of starting a shell"},
    {"offset", "integer", "offset of the first byte of output to send (default 0: all of it)"},
    {"wait", "boolean",
     "while a client is connected, the command waits until the client has read its output"},
    {"command", "string", "command line to run instead of a shell"},
    {"cwd", "string", NULL},
    {"user", "string", NULL},
    {"term", "string", "value of the variable TERM"},
    {"rows", "integer", NULL},
    {"cols", "integer", NULL},
    {0},
};
#define FILE_QUERIES                                                                        \
    {"path", "string", "absolute path in the machine", .required = true}, {                 \
        "user", "string", "act as user, root, or a numeric uid (default: the image's user)" \
    }
static const struct query file_queries[] = {FILE_QUERIES, {0}};
static const struct query tar_queries[] = {
    FILE_QUERIES,
    {"compress", "string",
     "zstd: compress the archive; Content-Encoding and Accept-Encoding work as well"},
    {0},
};
static const struct query stat_queries[] = {
    FILE_QUERIES, {"follow", "boolean", "follow a symbolic link"}, {0}};
static const struct query file_list_queries[] = {
    FILE_QUERIES,
    {"limit", "integer", "entries per page, up to 10000 (default 1000)"},
    {"cursor", "string", "`next` of the previous page"},
    {0},
};
static const struct query remove_queries[] = {
    FILE_QUERIES, {"recursive", "boolean", "delete a directory and everything below it"}, {0}};
static const struct query write_queries[] = {
    FILE_QUERIES,
    {"mode", "string", "mode of a new file, octal (default 644)"},
    {"if_hash", "string", "write only if the file has this SHA-256, or is `absent`"},
    {"sync", "boolean", "sync the file to disk before the response"},
    {"offset", "integer", "write in place, starting at this offset"},
    {0},
};
static const char *const usage_groups[] = {"day", "model", "machine", "owner", NULL};
static const struct query usage_queries[] = {
    {"by", "string", "day (default), model, machine or owner", .choices = usage_groups},
    {"days", "integer", "number of days, today included (default: 30). Days are those of UTC"},
    {0},
};
static const struct query audit_queries[] = {
    {"since", "integer", "time of the oldest record to return, in milliseconds since 1970"},
    {"tail", "integer", "return only this number of newest records"},
    {"machine", "string", "id or name of the machine, also of one that has ended"},
    {"verb", "string", "prefix of the action: `machine` also matches `machine.create`"},
    {"owner", "string", "owner of the records; callers without the scope admin see only their own"},
    {"text", "string", "part of the record, in capitals or small letters"},
    {"heads", "boolean",
     "include records that start a journal file (segment) or hold a signature (head)"},
    {0},
};
static const struct query verify_queries[] = {
    {"head", "string",
     "number and hash of a record that you kept, as SEQ:HASH; the journal must contain it"},
    {0},
};
static const struct query events_queries[] = {
    {"after", "integer", "id of the last event that you received; also as header Last-Event-ID"},
    {"machine", "string", "id of the machine"},
    {"type", "string", "type of the events, such as machine.created"},
    {"follow", "boolean", "keep the stream open for new events (default true)"},
    {0},
};

static const struct query image_list_queries[] = {
    {"all", "boolean", "include the images of every owner; needs the scope admin"},
    {0},
};
static const struct query build_log_queries[] = {
    {"offset", "integer", "first byte of the log; also as header Last-Event-ID (default 0)"},
    {"follow", "boolean", "keep the stream open until the build has ended"},
    {0},
};
static const struct query import_queries[] = {
    {"name", "string",
     "name of the image; another image with this name loses it (default: image- and the start of "
     "the id)"},
    {"form", "string",
     "`layers`: keep the layers of the archive, an OCI layout whose files are in the order index, "
     "manifest, configuration, layers; it may leave out layers that are stored (see `/v1/layers`) "
     "(default: any archive, which becomes one tree)"},
    {0},
};
static const struct query export_queries[] = {
    {"form", "string",
     "oci (default): an OCI layout in a tar; oci.zst: the same with layers compressed with zstd; "
     "tar or tar.zst: only the files; packs: packs and "
     "manifests in a tar"},
    {0},
};

const struct route routes[] = {
    {"POST", "/v1/machines", "machine_create", SCOPE_RUN, BODY_JSON, &machine_request_schema,
     &machine_schema, 201, NULL, "Create a machine",
     "-X POST $URL/v1/machines -d '{\"name\":\"tour\",\"limits\":{\"mem\":\"256M\"}}'",
     api_machine_create, create_queries},
    {"GET", "/v1/machines", "machine_list", SCOPE_READ, BODY_NONE, NULL, &machines_schema, 200,
     NULL, "List machines, newest first", "\"$URL/v1/machines?state=running\"", api_machine_list,
     list_queries},
    {"GET", M, "machine_show", SCOPE_READ, BODY_NONE, NULL, &machine_schema, 200, NULL,
     "Show one machine, by id, name or unique prefix", "$URL/v1/machines/$M", api_machine_show,
     NULL},
    {"PATCH", M, "machine_update", SCOPE_RUN, BODY_JSON, &update_request_schema, &machine_schema,
     200, NULL, "Change limits, ttl, idle action, name or metadata",
     "-X PATCH $URL/v1/machines/$M -d '{\"ttl\":\"1h\"}'", api_machine_update, NULL},
    {"DELETE", M, "machine_destroy", SCOPE_RUN, BODY_NONE, NULL, &machine_schema, 200, NULL,
     "Destroy a machine; the response comes when it is gone", "-X DELETE $URL/v1/machines/$M",
     api_machine_destroy, NULL},
    {"POST", M "/pause", "machine_pause", SCOPE_RUN, BODY_NONE, NULL, &machine_schema, 200, NULL,
     "Pause every process of a machine; memory is kept", "-X POST $URL/v1/machines/$M/pause",
     api_machine_pause, NULL},
    {"POST", M "/resume", "machine_resume", SCOPE_RUN, BODY_NONE, NULL, &machine_schema, 200, NULL,
     "Resume a machine after pause or stop", "-X POST $URL/v1/machines/$M/resume",
     api_machine_resume, NULL},
    {"POST", M "/stop", "machine_stop", SCOPE_RUN, BODY_NONE, NULL, &machine_schema, 200, NULL,
     "End every process of a machine; files are kept", "-X POST $URL/v1/machines/$M/stop",
     api_machine_stop, NULL},
    {"POST", M "/hibernate", "machine_hibernate", SCOPE_RUN, BODY_JSON, &hibernate_request_schema,
     &machine_schema, 200, NULL,
     "Save the processes to disk: `unsupported` with the reason if the host cannot. With "
     "`files_only`, save the files and end the processes",
     "-X POST $URL/v1/machines/$M/hibernate -d '{\"files_only\":true}'", api_machine_hibernate,
     NULL},
    {"POST", M "/move", "machine_move", SCOPE_RUN, BODY_JSON, &kind_request_schema, &machine_schema,
     200, NULL, "Make a box a vm, with the same id, files, grants and rules; its processes end",
     "-X POST $URL/v1/machines/$M/move -d '{\"kind\":\"vm\"}'", api_machine_move, NULL},
    {"GET", M "/stats", "machine_stats", SCOPE_READ, BODY_NONE, NULL, &stats_schema, 200, NULL,
     "Show the resources that a machine uses", "$URL/v1/machines/$M/stats", api_machine_stats,
     NULL},
    {"GET", M "/health", "machine_health", SCOPE_READ, BODY_NONE, NULL, &health_schema, 200, NULL,
     "Check a machine. If it turned bad or good again, it gets an event",
     "$URL/v1/machines/$M/health", api_machine_health, NULL},
    {"GET", M "/changes", "machine_changes", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200, NULL,
     "Get descriptors of the changes in directories granted as copies (cow); unix socket only",
     "$URL/v1/machines/$M/changes", api_machine_changes, NULL},

    {"GET", M "/net", "net_show", SCOPE_READ, BODY_NONE, NULL, &network_schema, 200, NULL,
     "List network rules; the newest rule that matches decides", "$URL/v1/machines/$M/net",
     api_net_show, NULL},
    {"POST", M "/net/rules", "net_add", SCOPE_RUN, BODY_JSON, &net_request_schema, &network_schema,
     200, NULL, "Add a network rule, effective at once; a token needs the scope admin",
     "-X POST $URL/v1/machines/$M/net/rules -d '{\"target\":\"*.example.com\"}'", api_net_add,
     NULL},
    {"DELETE", M "/net/rules/{}", "net_remove", SCOPE_RUN, BODY_NONE, NULL, &network_schema, 200,
     NULL, "Delete a network rule and close the connections that it allowed",
     "-X DELETE $URL/v1/machines/$M/net/rules/1", api_net_remove, NULL},
    {"GET", M "/exposures", "expose_list", SCOPE_READ, BODY_NONE, NULL, &exposures_schema, 200,
     NULL, "List exposed ports", "$URL/v1/machines/$M/exposures", api_expose_list, NULL},
    {"POST", M "/exposures", "expose", SCOPE_RUN, BODY_JSON, &expose_request_schema,
     &exposure_schema, 200, NULL, "Expose a port under a host name; a token needs the scope admin",
     "-X POST $URL/v1/machines/$M/exposures -d '{\"port\":8000}'", api_expose, NULL},
    {"DELETE", M "/exposures/{}", "expose_remove", SCOPE_RUN, BODY_NONE, NULL, &exposures_schema,
     200, NULL, "Stop exposing a port and close its connections",
     "-X DELETE $URL/v1/machines/$M/exposures/8000", api_expose_remove, NULL},
    {"GET", M "/forward/{}", "forward", SCOPE_RUN, BODY_NONE, NULL, NULL, 101,
     "application/octet-stream",
     "Connect to a TCP port of a machine over a WebSocket: binary messages are bytes, the text "
     "message {\"type\":\"end\"} ends those of its sender",
     "-N --max-time 2 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: "
     "13' -H 'Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==' $URL/v1/machines/$M/forward/5432",
     api_forward, NULL},
    {"POST", M "/desktop", "desktop_start", SCOPE_RUN, BODY_JSON, &desktop_request_schema,
     &desktop_schema, 200, NULL, "Start the desktop of a machine, unless it runs",
     "-X POST $URL/v1/machines/$M/desktop -d '{}'", api_desktop_start, NULL},
    {"GET", M "/desktop/screenshot", "desktop_screenshot", SCOPE_RUN, BODY_NONE, NULL, NULL, 200,
     "image/png", "Take a screenshot of the desktop; it is started if it does not run",
     "$URL/v1/machines/$M/desktop/screenshot -o screen.png", api_desktop_screenshot, NULL},
    {"POST", M "/desktop/input", "desktop_input", SCOPE_RUN, BODY_JSON, &desktop_input_schema,
     &desktop_schema, 200, NULL,
     "Click, move, scroll, type text or press keys; answers when the X server has read the input",
     "-X POST $URL/v1/machines/$M/desktop/input -d '{\"action\":\"click\",\"x\":100,\"y\":200}'",
     api_desktop_input, NULL},
    {"GET", M "/grants", "grant_list", SCOPE_READ, BODY_NONE, NULL, &grants_schema, 200, NULL,
     "List grants: directories, files, variables, secrets, repositories and databases",
     "$URL/v1/machines/$M/grants", api_grant_list, NULL},
    {"POST", M "/grants", "grant_add", SCOPE_RUN, BODY_JSON, &grant_request_schema, &grants_schema,
     200, NULL, "Add a grant; a token needs the scope admin",
     "-X POST $URL/v1/machines/$M/grants -d "
     "'{\"kind\":\"secret\",\"what\":\"API_KEY\",\"at\":\"api.example.com\",\"expires\":\"1h\"}'",
     api_grant_add, NULL},
    {"GET", M "/grants/{}/diff", "grant_diff", SCOPE_READ, BODY_NONE, NULL, &grant_diff_schema, 200,
     NULL, "Show changes in a granted database: schema and rows",
     "$URL/v1/machines/$M/grants/$DB/diff", api_grant_diff, NULL},
    {"DELETE", M "/grants/{}", "grant_revoke", SCOPE_RUN, BODY_NONE, NULL, &grants_schema, 200,
     NULL, "Revoke a grant at once; processes with the directory open are killed",
     "-X DELETE $URL/v1/machines/$M/grants/$G", api_grant_revoke, NULL},
    {"POST", M "/steps", "snap", SCOPE_RUN, BODY_JSON, &snap_request_schema, &step_schema, 201,
     NULL, "Take a step (a restore point), with an optional name",
     "-X POST $URL/v1/machines/$M/steps -d '{\"name\":\"good\"}'", api_snap, NULL},
    {"GET", M "/steps", "step_list", SCOPE_READ, BODY_NONE, NULL, &steps_schema, 200, NULL,
     "List the steps of a machine, newest first", "$URL/v1/machines/$M/steps", api_step_list,
     page_queries},
    {"GET", M "/steps/{}", "step_show", SCOPE_READ, BODY_NONE, NULL, &step_schema, 200, NULL,
     "Show one step, by number, id or name", "$URL/v1/machines/$M/steps/1", api_step_show, NULL},
    {"GET", M "/diff", "diff", SCOPE_READ, BODY_NONE, NULL, &diff_schema, 200, NULL,
     "Show file changes between two steps, or a step and now",
     "\"$URL/v1/machines/$M/diff?from=1\"", api_diff, diff_queries},
    {"POST", M "/rewind", "rewind", SCOPE_RUN, BODY_JSON, &rewind_request_schema, &step_schema, 200,
     NULL, "Return to a step. Running commands are killed, and the present state is kept as a step",
     "-X POST $URL/v1/machines/$M/rewind -d '{\"step\":\"1\"}'", api_rewind, NULL},
    {"POST", M "/fork", "fork", SCOPE_RUN, BODY_JSON, &fork_request_schema, &machines_schema, 201,
     NULL, "Create new machines from a step of this machine: all of them, or none if one fails",
     "-X POST $URL/v1/machines/$M/fork -d '{\"step\":\"1\",\"count\":2}'", api_fork, NULL},

    {"GET", "/v1/secrets", "secret_list", SCOPE_READ, BODY_NONE, NULL, &secrets_schema, 200, NULL,
     "List names of secrets; values are never shown", "$URL/v1/secrets", api_secret_list, NULL},
    {"PUT", "/v1/secrets/{}", "secret_set", SCOPE_RUN, BODY_JSON, &secret_request_schema,
     &done_schema, 200, NULL,
     "Store a secret, encrypted, or replace its value; a token needs the scope admin",
     "-X PUT $URL/v1/secrets/API_KEY -d '{\"value\":\"some value\"}'", api_secret_set, NULL},
    {"DELETE", "/v1/secrets/{}", "secret_remove", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200,
     NULL, "Delete a secret; nothing can use it from now on", "-X DELETE $URL/v1/secrets/API_KEY",
     api_secret_remove, NULL},
    {"GET", "/v1/logins", "login_list", SCOPE_READ, BODY_NONE, NULL, &logins_schema, 200, NULL,
     "List subscription logins; tokens are never shown", "$URL/v1/logins", api_login_list, NULL},
    {"PUT", "/v1/logins/{}", "login_set", SCOPE_RUN, BODY_JSON, &login_request_schema, &done_schema,
     200, NULL,
     "Store the login claude or codex, encrypted, or replace it; a token needs the scope admin",
     "-X PUT $URL/v1/logins/claude -d '{\"value\":\"sk-ant-oat01-some-token\"}'", api_login_set,
     NULL},
    {"DELETE", "/v1/logins/{}", "login_remove", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200, NULL,
     "Delete a login; no machine can use it from now on", "-X DELETE $URL/v1/logins/claude",
     api_login_remove, NULL},
    {"GET", "/v1/volumes", "volume_list", SCOPE_READ, BODY_NONE, NULL, &volumes_schema, 200, NULL,
     "List volumes and their snapshots", "$URL/v1/volumes", api_volume_list, NULL},
    {"POST", "/v1/volumes", "volume_create", SCOPE_RUN, BODY_JSON, &volume_request_schema,
     &volume_schema, 200, NULL,
     "Make a volume, empty or a copy of another one; a token needs the scope admin",
     "-X POST $URL/v1/volumes -d '{\"name\":\"data\",\"size\":\"64M\"}'", api_volume_create, NULL},
    {"GET", "/v1/volumes/{}", "volume_show", SCOPE_READ, BODY_NONE, NULL, &volume_schema, 200, NULL,
     "Show a volume and the machines that have it", "$URL/v1/volumes/data", api_volume_show, NULL},
    {"POST", "/v1/volumes/{}/snapshots", "volume_snap", SCOPE_RUN, BODY_JSON,
     &volume_snap_request_schema, &volume_schema, 200, NULL,
     "Make a snapshot of a volume that no machine has; a token needs the scope admin",
     "-X POST $URL/v1/volumes/data/snapshots -d '{\"name\":\"good\"}'", api_volume_snap, NULL},
    {"DELETE", "/v1/volumes/{}", "volume_remove", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200,
     NULL, "Delete a volume or a snapshot that no machine has; a token needs the scope admin",
     "-X DELETE $URL/v1/volumes/data@good", api_volume_remove, NULL},
    {"POST", M "/image", "image_snap", SCOPE_RUN, BODY_JSON, &image_request_schema, &image_schema,
     201, NULL, "Create an image from the machine or one of its steps",
     "-X POST $URL/v1/machines/$M/image -d '{\"name\":\"mine\"}'", api_image_snap, NULL},
    {"GET", "/v1/images", "image_list", SCOPE_READ, BODY_NONE, NULL, &images_schema, 200, NULL,
     "List images by name", "$URL/v1/images", api_image_list, image_list_queries},
    {"POST", "/v1/images", "image_import", SCOPE_RUN, BODY_STREAM, NULL, &image_schema, 201, NULL,
     "Import an archive: a root filesystem, a Docker archive or an OCI layout in a tar, plain or "
     "packed with gzip, xz or zstd",
     "-X POST \"$URL/v1/images?name=small\" --data-binary @$TAR", api_image_import, import_queries},
    {"POST", "/v1/images/prune", "image_prune", SCOPE_RUN, BODY_NONE, NULL, &pruned_schema, 200,
     NULL, "Delete intermediate images of builds that no machine uses",
     "-X POST $URL/v1/images/prune", api_image_prune, NULL},
    {"POST", "/v1/layers", "image_layers", SCOPE_RUN, BODY_JSON, &layers_request_schema,
     &layers_schema, 200, NULL, "Count the layers of an image that are stored already",
     "-X POST $URL/v1/layers -d '{\"digests\":[\"sha256:"
     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"]}'",
     api_image_layers, NULL},
    {"POST", "/v1/images/builds", "build_start", SCOPE_RUN, BODY_JSON, &build_request_schema,
     &build_schema, 202, NULL, "Start the build of an image",
     "-X POST $URL/v1/images/builds -d '{\"base\":\"small\",\"name\":\"app\",\"steps\":"
     "[{\"what\":\"run make\",\"make\":true,\"command\":\"make\"}]}'",
     api_build_start, NULL},
    {"GET", "/v1/images/builds", "build_list", SCOPE_READ, BODY_NONE, NULL, &builds_schema, 200,
     NULL, "List builds, newest first", "$URL/v1/images/builds", api_build_list,
     image_list_queries},
    {"GET", "/v1/images/builds/{}", "build_show", SCOPE_READ, BODY_NONE, NULL, &build_schema, 200,
     NULL, "Show a build", "$URL/v1/images/builds/$B", api_build_show, NULL},
    {"PUT", "/v1/images/builds/{}/files/{}", "build_files", SCOPE_RUN, BODY_STREAM, NULL,
     &build_schema, 200, NULL,
     "Send a tar of files that a step copies; the last one starts the build",
     "-X PUT $URL/v1/images/builds/$B/files/0 --data-binary @$TAR", api_build_files, NULL},
    {"GET", "/v1/images/builds/{}/log", "build_log", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/x-ndjson", "Read the log of a build, as NDJSON or server-sent events",
     "$URL/v1/images/builds/$B/log", api_build_log, build_log_queries},
    {"DELETE", "/v1/images/builds/{}", "build_cancel", SCOPE_RUN, BODY_NONE, NULL, &build_schema,
     202, NULL, "Cancel a build", "-X DELETE $URL/v1/images/builds/$B", api_build_cancel, NULL},
    {"GET", "/v1/packages", "package_list", SCOPE_READ, BODY_NONE, NULL, &packages_schema, 200,
     NULL, "List the packages in the package cache of the caller", "$URL/v1/packages",
     api_package_list, NULL},
    {"DELETE", "/v1/packages", "package_clear", SCOPE_RUN, BODY_NONE, NULL, &cleared_schema, 200,
     NULL, "Delete all packages in the package cache of the caller", "-X DELETE $URL/v1/packages",
     api_package_clear, NULL},
    {"GET", "/v1/images/{}", "image_show", SCOPE_READ, BODY_NONE, NULL, &image_schema, 200, NULL,
     "Show one image, by name, id or unique prefix", "$URL/v1/images/$I", api_image_show, NULL},
    {"POST", "/v1/images/{}/names", "image_tag", SCOPE_RUN, BODY_JSON, &tag_request_schema,
     &image_schema, 201, NULL, "Add a name to an image",
     "-X POST $URL/v1/images/$I/names -d '{\"name\":\"other\"}'", api_image_tag, NULL},
    {"DELETE", "/v1/images/{}", "image_remove", SCOPE_RUN, BODY_NONE, NULL, &image_schema, 200,
     NULL, "Delete a name of an image; the files stay while machines use them",
     "-X DELETE $URL/v1/images/$I", api_image_remove, NULL},
    {"GET", "/v1/images/{}/archive", "image_export", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/x-tar", "Export an image as an archive; the bytes are reproducible",
     "\"$URL/v1/images/$I/archive?form=tar\"", api_image_export, export_queries},

    {"GET", "/v1/store/check", "store_check", SCOPE_READ, BODY_NONE, NULL, &store_check_schema, 200,
     NULL, "Verify that every layer your machines and steps refer to exists", "$URL/v1/store/check",
     api_store_check, NULL},
    {"GET", "/v1/store/boxes", "store_boxes", SCOPE_ADMIN, BODY_NONE, NULL, &strays_schema, 200,
     NULL, "List boxes on this host that belong to another store or are unknown to this one",
     "$URL/v1/store/boxes", api_store_boxes, NULL},
    {"POST", "/v1/store/boxes/{}/adopt", "store_adopt", SCOPE_ADMIN, BODY_NONE, NULL,
     &machine_schema, 200, NULL,
     "Adopt a box from GET /v1/store/boxes as your machine; the machine is tainted, guarded and "
     "has no network access",
     "-X POST $URL/v1/store/boxes/$STRAY/adopt", api_store_adopt, NULL},

    {"GET", "/v1/pending", "pending_list", SCOPE_READ, BODY_NONE, NULL, &pendings_schema, 200, NULL,
     "List requests that wait for approval", "$URL/v1/pending", api_pending_list, NULL},
    {"POST", "/v1/pending/{}", "pending_decide", SCOPE_RUN, BODY_JSON, &approval_request_schema,
     &decided_schema, 200, NULL,
     "Approve or refuse a pending request; a token needs the scope admin",
     "-X POST $URL/v1/pending/$P -d '{\"decision\":\"approve\"}'", api_pending_decide, NULL},

    {"POST", "/v1/run", "run", SCOPE_RUN, BODY_JSON, &run_request_schema, &result_schema, 200, NULL,
     "Create a machine, run one command, destroy the machine",
     "-X POST $URL/v1/run -d '{\"exec\":{\"command\":\"echo hello\"}}'", api_run, run_queries},
    {"POST", M "/execs", "exec", SCOPE_RUN, BODY_JSON, &exec_request_schema, &result_schema, 200,
     NULL,
     "Run a command. The response is one JSON result; with Accept: application/x-ndjson or "
     "text/event-stream it is a stream of the events start, stdout, stderr, gap and exit",
     "-X POST $URL/v1/machines/$M/execs -d '{\"argv\":[\"echo\",\"hello\"]}'", api_exec,
     exec_queries},
    {"GET", M "/execs", "exec_list", SCOPE_READ, BODY_NONE, NULL, &execs_schema, 200, NULL,
     "List the commands of a machine, newest first", "$URL/v1/machines/$M/execs", api_exec_list,
     exec_list_queries},
    {"GET", X, "exec_show", SCOPE_READ, BODY_NONE, NULL, &exec_schema, 200, NULL,
     "Show one command", "$URL/v1/machines/$M/execs/$X", api_exec_show, NULL},
    {"GET", X "/output", "exec_output", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/octet-stream",
     "Read output as bytes from any offset, during or after the command. The response ends before "
     "bytes that were not kept. Ask again from there: Carrel-Left-Out is their number, "
     "Carrel-Offset the next offset. Carrel-Left-Open is 1 if the command has ended, but processes "
     "that it left behind still have its output open. If no output is kept the error is 'gone'",
     "\"$URL/v1/machines/$M/execs/$X/output?offset=0\"", api_exec_output, output_queries},
    {"GET", X "/events", "exec_events", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/x-ndjson", "Stream the events of a command again, from any offset",
     "$URL/v1/machines/$M/execs/$X/events", api_exec_events, follow_queries},
    {"POST", X "/stdin", "exec_stdin", SCOPE_RUN, BODY_STREAM, NULL, &done_schema, 200, NULL,
     "Write to the standard input of a command",
     "-X POST \"$URL/v1/machines/$M/execs/$X/stdin?eof=1\" -d hello", api_exec_stdin,
     stdin_queries},
    {"POST", X "/signal", "exec_signal", SCOPE_RUN, BODY_JSON, &signal_request_schema, &done_schema,
     200, NULL, "Send a signal to a command",
     "-X POST $URL/v1/machines/$M/execs/$X/signal -d '{\"signal\":\"TERM\"}'", api_exec_signal,
     NULL},
    {"POST", X "/resize", "exec_resize", SCOPE_RUN, BODY_JSON, &resize_request_schema, &done_schema,
     200, NULL, "Resize the terminal of a command",
     "-X POST $URL/v1/machines/$M/execs/$X/resize -d '{\"rows\":40,\"cols\":120}'", api_exec_resize,
     NULL},
    {"DELETE", X, "exec_kill", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200, NULL,
     "Kill a command and everything it started", "-X DELETE $URL/v1/machines/$M/execs/$X",
     api_exec_kill, NULL},

    {"GET", M "/pty", "terminal", SCOPE_RUN, BODY_NONE, NULL, NULL, 101, "application/octet-stream",
     "Open a terminal as a WebSocket: binary messages are input and output, text messages are "
     "control",
     "-N --max-time 2 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: "
     "13' -H 'Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==' \"$URL/v1/machines/$M/pty?command=id\"",
     api_terminal, terminal_queries},

    {"GET", F, "file_read", SCOPE_READ, BODY_NONE, NULL, NULL, 200, "application/octet-stream",
     "Read a file, whole or by Range", "\"$URL/v1/machines/$M/files?path=/etc/hostname\"",
     api_file_read, file_queries},
    {"PUT", F, "file_write", SCOPE_RUN, BODY_STREAM, NULL, &written_schema, 200, NULL,
     "Write a file of any size atomically",
     "-X PUT \"$URL/v1/machines/$M/files?path=/home/user/note\" -d hello", api_file_write,
     write_queries},
    {"DELETE", F, "file_remove", SCOPE_RUN, BODY_NONE, NULL, &done_schema, 200, NULL,
     "Delete a file or directory",
     "-X DELETE \"$URL/v1/machines/$M/files?path=/home/user/old&recursive=1\"", api_file_remove,
     remove_queries},
    {"GET", F "/stat", "file_stat", SCOPE_READ, BODY_NONE, NULL, &entry_schema, 200, NULL,
     "Show type, size, mode and owner of a path",
     "\"$URL/v1/machines/$M/files/stat?path=/home/user/note\"", api_file_stat, stat_queries},
    {"GET", F "/list", "file_list", SCOPE_READ, BODY_NONE, NULL, &entries_schema, 200, NULL,
     "List a directory", "\"$URL/v1/machines/$M/files/list?path=/home/user\"", api_file_list,
     file_list_queries},
    {"POST", F "/mkdir", "file_mkdir", SCOPE_RUN, BODY_JSON, &mkdir_request_schema, &done_schema,
     200, NULL, "Create a directory and missing parents",
     "-X POST $URL/v1/machines/$M/files/mkdir -d '{\"path\":\"/home/user/a/b\"}'", api_file_mkdir,
     NULL},
    {"POST", F "/move", "file_move", SCOPE_RUN, BODY_JSON, &move_request_schema, &done_schema, 200,
     NULL, "Move or rename a file",
     "-X POST $URL/v1/machines/$M/files/move -d "
     "'{\"from\":\"/home/user/note\",\"to\":\"/home/user/a/note\"}'",
     api_file_move, NULL},
    {"POST", F "/chmod", "file_chmod", SCOPE_RUN, BODY_JSON, &chmod_request_schema, &done_schema,
     200, NULL, "Change the mode of a file",
     "-X POST $URL/v1/machines/$M/files/chmod -d "
     "'{\"path\":\"/home/user/a/note\",\"mode\":\"600\"}'",
     api_file_chmod, NULL},
    {"POST", F "/chown", "file_chown", SCOPE_RUN, BODY_JSON, &chown_request_schema, &done_schema,
     200, NULL, "Change owner and group of a file",
     "-X POST $URL/v1/machines/$M/files/chown -d "
     "'{\"path\":\"/home/user/a/note\",\"owner\":0,\"group\":0}'",
     api_file_chown, NULL},
    {"POST", F "/symlink", "file_symlink", SCOPE_RUN, BODY_JSON, &symlink_request_schema,
     &done_schema, 200, NULL, "Create a symbolic link",
     "-X POST $URL/v1/machines/$M/files/symlink -d "
     "'{\"target\":\"a/note\",\"path\":\"/home/user/link\"}'",
     api_file_symlink, NULL},
    {"GET", F "/tar", "tar_read", SCOPE_RUN, BODY_NONE, NULL, NULL, 200, "application/x-tar",
     "Read a directory as a tar archive",
     "-o /dev/null \"$URL/v1/machines/$M/files/tar?path=/home/user\"", api_tar_read, tar_queries},
    {"PUT", F "/tar", "tar_write", SCOPE_RUN, BODY_STREAM, NULL, &written_schema, 200, NULL,
     "Unpack a tar archive into a directory",
     "-X PUT \"$URL/v1/machines/$M/files/tar?path=/home/user/a\" --data-binary @$TAR",
     api_tar_write, tar_queries},
    {"GET", F "/watch", "file_watch", SCOPE_READ, BODY_NONE, NULL, NULL, 200, "text/event-stream",
     "Stream changes of a file or directory",
     "-N --max-time 2 \"$URL/v1/machines/$M/files/watch?path=/home/user\"", api_file_watch,
     file_queries},

    {"POST", M "/changesets", "freeze", SCOPE_RUN, BODY_JSON, &freeze_request_schema,
     &changeset_schema, 201, NULL,
     "Freeze a directory or a granted database as a change set, for review",
     "-X POST $URL/v1/machines/$M/changesets -d '{\"path\":\"/home/user\"}'", api_freeze, NULL},
    {"GET", "/v1/changesets/{}", "changeset_show", SCOPE_READ, BODY_NONE, NULL, &changeset_schema,
     200, NULL, "Show one change set", "$URL/v1/changesets/$C", api_changeset_show, NULL},
    {"GET", "/v1/changesets/{}/archive", "changeset_archive", SCOPE_READ, BODY_NONE, NULL, NULL,
     200, "application/x-tar", "Read the frozen files as a tar archive",
     "$URL/v1/changesets/$C/archive -o /dev/null", api_changeset_archive, NULL},
    {"GET", "/v1/changesets/{}/base", "changeset_base", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "text/plain",
     "List files of the granted directory on the owner's side, a line per file; empty: unknown",
     "$URL/v1/changesets/$C/base", api_changeset_base, NULL},
    {"GET", "/v1/changesets/{}/database", "changeset_database", SCOPE_READ, BODY_NONE, NULL,
     &grant_diff_schema, 200, NULL, "Show the diff of a frozen database",
     "$URL/v1/changesets/$CDB/database", api_changeset_database, NULL},
    {"POST", "/v1/changesets/{}/ship", "changeset_ship", SCOPE_RUN, BODY_JSON, &ship_request_schema,
     &ship_schema, 200, NULL,
     "Record in the journal that files will be shipped, or were; only for the owner on this host "
     "or the scope admin",
     "-X POST $URL/v1/changesets/$C/ship -d "
     "'{\"action\":\"ship\",\"target\":\"/tmp\",\"files\":1,\"sha256\":"
     "\"0000000000000000000000000000000000000000000000000000000000000000\"}'",
     api_changeset_ship, NULL},

    {"POST", "/v1/runs", "run_start", SCOPE_RUN, BODY_JSON, &run_start_request_schema, &run_schema,
     201, NULL, "Start a run: a model works on a task on a machine",
     "-X POST $URL/v1/runs -d '{\"machine\":\"'$M'\",\"task\":\"say hello\",\"model\":"
     "\"rehearsal/hello\",\"script\":\"{\\\"turns\\\":[{}]}\"}'",
     api_run_start, NULL},
    {"GET", "/v1/runs", "run_list", SCOPE_READ, BODY_NONE, NULL, &runs_schema, 200, NULL,
     "List runs, newest first", "$URL/v1/runs", api_run_list, runs_queries},
    {"GET", "/v1/runs/{}", "run_show", SCOPE_READ, BODY_NONE, NULL, &run_schema, 200, NULL,
     "Show one run, with its report once it has ended", "$URL/v1/runs/$R", api_run_show, NULL},
    {"GET", "/v1/runs/{}/events", "run_events", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "text/event-stream",
     "Stream the transcript of a run; a client can resume after the id of an event",
     "-N \"$URL/v1/runs/$R/events?follow=0\"", api_run_events, transcript_queries},
    {"GET", "/v1/runs/{}/transcript", "run_transcript", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/x-ndjson", "Read the transcript of a run", "$URL/v1/runs/$R/transcript",
     api_run_transcript, transcript_queries},
    {"GET", "/v1/runs/{}/export", "run_export", SCOPE_READ, BODY_NONE, NULL, NULL, 200,
     "application/json", "Export a run as an agent trajectory (ATIF v1.4)",
     "$URL/v1/runs/$R/export", api_run_export, NULL},
    {"POST", "/v1/runs/{}/answer", "run_answer", SCOPE_RUN, BODY_JSON, &run_answer_request_schema,
     &run_schema, 200, NULL, "Answer the question of a run",
     "-X POST $URL/v1/runs/$ASKING/answer -d '{\"answer\":\"yes\"}'", api_run_answer, NULL},
    {"POST", "/v1/runs/{}/resume", "run_resume", SCOPE_RUN, BODY_JSON, &run_resume_request_schema,
     &run_schema, 200, NULL, "Resume an interrupted run; no effect is repeated",
     "-X POST $URL/v1/runs/$R/resume -d '{}'", api_run_resume, NULL},
    {"POST", "/v1/runs/{}/cancel", "run_cancel", SCOPE_RUN, BODY_NONE, NULL, &run_schema, 200, NULL,
     "Cancel a run and the commands that it waits for", "-X POST $URL/v1/runs/$R/cancel",
     api_run_cancel, NULL},

    {"GET", "/v1/events", "events", SCOPE_READ, BODY_NONE, NULL, NULL, 200, "text/event-stream",
     "Stream events of all machines (server-sent events); a client can resume after the id of an "
     "event",
     "-N \"$URL/v1/events?follow=0\"", api_events, events_queries},
    {"GET", "/v1/audit", "audit", SCOPE_READ, BODY_NONE, NULL, NULL, 200, "application/x-ndjson",
     "List journal records, oldest first", "\"$URL/v1/audit?tail=5\"", api_audit, audit_queries},
    {"GET", "/v1/audit/verify", "audit_verify", SCOPE_READ, BODY_NONE, NULL, &verify_schema, 200,
     NULL, "Verify the hash chain and signatures of the journal", "$URL/v1/audit/verify",
     api_audit_verify, verify_queries},
    {"POST", "/v1/tokens", "token_new", SCOPE_READ, BODY_JSON, &token_request_schema, &token_schema,
     201, NULL, "Create a token",
     "-X POST $URL/v1/tokens -d '{\"note\":\"ci\",\"scopes\":[\"read\"]}'", api_token_new, NULL},
    {"GET", "/v1/tokens", "token_list", SCOPE_READ, BODY_NONE, NULL, &tokens_schema, 200, NULL,
     "List tokens, without their secrets", "$URL/v1/tokens", api_token_list, NULL},
    {"DELETE", "/v1/tokens/{}", "token_revoke", SCOPE_READ, BODY_NONE, NULL, &done_schema, 200,
     NULL, "Revoke a token", "-X DELETE $URL/v1/tokens/$T", api_token_revoke, NULL},
    {"GET", "/v1/models", "model_list", SCOPE_READ, BODY_NONE, NULL, &models_schema, 200, NULL,
     "List model providers, aliases and prices", "$URL/v1/models", api_model_list, NULL},
    {"GET", "/v1/models/usage", "model_usage", SCOPE_READ, BODY_NONE, NULL, &model_usage_schema,
     200, NULL,
     "Show what your model calls cost, by day, model or machine; by owner, those of all owners "
     "if you are an admin",
     "\"$URL/v1/models/usage?by=model\"", api_model_usage, usage_queries},
    {"GET", "/v1/agents", "agent_list", SCOPE_READ, BODY_NONE, NULL, &agents_schema, 200, NULL,
     "List the agents of carrel.conf, their budget, and which model formats have a provider",
     "$URL/v1/agents", api_agent_list, NULL},
    {"GET", "/v1/status", "status", SCOPE_READ, BODY_NONE, NULL, &status_schema, 200, NULL,
     "Show the status of the daemon and its host", "$URL/v1/status", api_status, NULL},
    {"GET", "/metrics", "metrics", SCOPE_READ, BODY_NONE, NULL, NULL, 200, "text/plain",
     "Read metrics for Prometheus", "$URL/metrics", api_metrics, NULL},
    {"GET", "/v1/transfers/{}", "transfer_download", 0, BODY_NONE, NULL, NULL, 200,
     "application/octet-stream",
     "Download the file of a ticket, whole or by Range; the ticket replaces the token",
     "$URL/v1/transfers/$DOWNLOAD", api_ticket_read, NULL},
    {"PUT", "/v1/transfers/{}", "transfer_upload", 0, BODY_STREAM, NULL, &written_schema, 200, NULL,
     "Upload the file of a ticket, all or nothing; the ticket replaces the token",
     "-X PUT $URL/v1/transfers/$UPLOAD -d hello", api_ticket_write, NULL},
    {"GET", "/v1/openapi.json", "openapi", 0, BODY_NONE, NULL, NULL, 200, NULL,
     "Read this API as an OpenAPI 3.1 document", "$URL/v1/openapi.json", api_openapi, NULL},
    {"GET", "/healthz", "healthz", 0, BODY_NONE, NULL, NULL, 200, "text/plain",
     "Answer `ok` if the daemon is running", "$URL/healthz", api_health, NULL},
};
const size_t route_count = sizeof(routes) / sizeof(*routes);

/* Compares a path with the pattern of a route, part by part; "{}" matches one decoded parameter. */
static bool match(const char *pattern, struct http_text path,
                  char params[CALL_PARAMS][CALL_PARAM_SIZE]) {
    struct http_text want = {pattern, strlen(pattern)}, a, b;
    size_t param = 0;
    for (;;) {
        bool more = http_path_next(&want, &a);
        if (http_path_next(&path, &b) != more)
            return false;
        if (!more)
            return true;
        if (http_text_is(a, "{}")) {
            size_t n;
            if (param == CALL_PARAMS ||
                http_decode_segment(b, params[param], CALL_PARAM_SIZE, &n) < 0 || n == 0)
                return false;
            param++;
        } else if (!http_text_same(a, b)) {
            return false;
        }
    }
}

static void add_method(char allow[ROUTE_ALLOW_SIZE], const char *method) {
    size_t n = strlen(allow);
    snprintf(allow + n, ROUTE_ALLOW_SIZE - n, "%s%s", n ? ", " : "", method);
}

const struct route *route_find(struct http_text method, struct http_text path,
                               char params[CALL_PARAMS][CALL_PARAM_SIZE],
                               char ret_allow[ROUTE_ALLOW_SIZE]) {
    bool every = http_text_is(method, "OPTIONS") && http_text_is(path, "*");
    ret_allow[0] = '\0';
    for (size_t i = 0; i < route_count; i++) {
        if (!match(routes[i].path, path, params))
            continue;
        bool get = strcmp(routes[i].method, "GET") == 0;
        if ((get && http_text_is(method, "HEAD")) || http_text_is(method, routes[i].method))
            return &routes[i];
        add_method(ret_allow, routes[i].method);
        if (get)
            add_method(ret_allow, "HEAD");
    }
    if (every)
        snprintf(ret_allow, ROUTE_ALLOW_SIZE, "GET, HEAD, POST, PUT, PATCH, DELETE");
    if (*ret_allow)
        add_method(ret_allow, "OPTIONS");
    return NULL;
}

/* Returns the name of a parameter, which follows from the part of the path before it. */
static const char *param_name(const char *path, const char *at) {
    static const struct {
        const char *before, *name;
    } rows[] = {{"/machines/", "machine"}, {"/execs/", "exec"},     {"/tokens/", "token"},
                {"/pending/", "item"},     {"/rules/", "rule"},     {"/steps/", "step"},
                {"/secrets/", "secret"},   {"/runs/", "run"},       {"/changesets/", "changeset"},
                {"/builds/", "build"},     {"/files/", "archive"},  {"/images/", "image"},
                {"/exposures/", "port"},   {"/forward/", "port"},   {"/grants/", "grant"},
                {"/boxes/", "box"},        {"/volumes/", "volume"}, {"/logins/", "login"},
                {"/transfers/", "ticket"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t n = strlen(rows[i].before);
        if ((size_t)(at - path) >= n && memcmp(at - n, rows[i].before, n) == 0)
            return rows[i].name;
    }
    return "name";
}

void route_path_named(const struct route *r, char ret[ROUTE_PATH_SIZE]) {
    size_t n = 0;
    for (const char *p = r->path; *p && n + 16 < ROUTE_PATH_SIZE; p++) {
        if (strncmp(p, "{}", 2) == 0) {
            n += (size_t)snprintf(ret + n, ROUTE_PATH_SIZE - n, "{%s}", param_name(r->path, p));
            p++;
        } else {
            ret[n++] = *p;
        }
    }
    ret[n] = '\0';
}
