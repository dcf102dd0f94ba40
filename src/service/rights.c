#include "service/rights.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "service/state.h"

const struct right_row right_rows[RIGHT_COUNT] = {
    [RIGHT_MACHINE_DIRS] = {"MachineRequest.dirs", SCOPE_RUN, ROLE_ANYBODY,
                            "grant a directory that the caller opened, or below its roots"},
    [RIGHT_MACHINE_DIRS_RW] = {"MachineRequest.dirs.mode=rw", SCOPE_RUN, ROLE_ADMIN,
                               "change files of this host without review"},
    [RIGHT_MACHINE_VOLUMES] = {"MachineRequest.volumes", SCOPE_RUN, ROLE_OWNER,
                               "attach a volume to a machine"},
    [RIGHT_MACHINE_NET] = {"MachineRequest.net", SCOPE_RUN, ROLE_OWNER,
                           "give a machine network access"},
    [RIGHT_MACHINE_MODELS] = {"MachineRequest.models", SCOPE_RUN, ROLE_OWNER,
                              "give a machine a model budget"},
    [RIGHT_MACHINE_SECRETS] = {"MachineRequest.secrets", SCOPE_RUN, ROLE_OWNER,
                               "let a machine use a secret"},
    [RIGHT_MACHINE_GRANTS] = {"MachineRequest.grants", SCOPE_RUN, ROLE_OWNER,
                              "grant a machine files, databases, repositories or identities"},
    [RIGHT_MACHINE_ALLOW] = {"MachineRequest.allow", SCOPE_RUN, ROLE_OWNER,
                             "give programs of a machine capabilities"},
    [RIGHT_UPDATE_MODELS] = {"UpdateRequest.models", SCOPE_RUN, ROLE_OWNER,
                             "change the model budget of a machine"},
    [RIGHT_UPDATE_ALLOW] = {"UpdateRequest.allow", SCOPE_RUN, ROLE_OWNER,
                            "change the capabilities of programs of a machine"},
    [RIGHT_RUN_MODEL] = {"RunStart.model", SCOPE_RUN, ROLE_OWNER,
                         "use a model provider of carrel.conf"},
    [RIGHT_RUN_URL] = {"RunStart.keys", SCOPE_RUN, ROLE_OWNER,
                       "let this host call a model server other than the provider's own"},
    [RIGHT_MOVE] = {"KindRequest", SCOPE_RUN, ROLE_OWNER, "make a box a vm"},
    [RIGHT_NET_RULE] = {"NetRule", SCOPE_RUN, ROLE_OWNER, "change the network rules of a machine"},
    [RIGHT_GRANT] = {"GrantRequest", SCOPE_RUN, ROLE_OWNER, "add or revoke a grant of a machine"},
    [RIGHT_EXPOSE] = {"ExposeRequest", SCOPE_RUN, ROLE_OWNER,
                      "expose a port of a machine, or close it"},
    [RIGHT_SECRET] = {"SecretRequest", SCOPE_RUN, ROLE_OWNER, "store or remove a secret"},
    [RIGHT_APPROVE_REQUEST] = {"Approval", SCOPE_RUN, ROLE_OWNER,
                               "approve or refuse a network request of a machine"},
    [RIGHT_APPROVE_CALL] = {"Approval of a run", SCOPE_RUN, ROLE_OWNER,
                            "approve a call that is not in the plan of a run"},
    [RIGHT_SHIP] = {"Ship", SCOPE_RUN, ROLE_OWNER, "announce that a change set is shipped"},
    [RIGHT_TOKEN] = {"TokenRequest", SCOPE_READ, ROLE_OWNER, "create, list or revoke tokens"},
    [RIGHT_TOKEN_OWNER] = {"TokenRequest.owner", SCOPE_READ, ROLE_ADMIN,
                           "create a token for another owner"},
    [RIGHT_BUILD_NET] = {"BuildRequest.steps.net", SCOPE_RUN, ROLE_OWNER,
                         "give a step of a build network access"},
    [RIGHT_BUILD_LOCAL] = {"BuildRequest.local", SCOPE_RUN, ROLE_OWNER,
                           "let a build reach private addresses"},
    [RIGHT_VOLUME] = {"VolumeRequest", SCOPE_RUN, ROLE_OWNER, "make, copy or delete a volume"},
    [RIGHT_LIST_ALL] = {"all", SCOPE_READ, ROLE_ADMIN, "see what belongs to other owners"},
};

static const char *const scope_names[] = {
    [SCOPE_READ] = "read", [SCOPE_RUN] = "run", [SCOPE_ADMIN] = "admin"};

/* Returns how errors name the caller: a user, a token, or a run or MCP client. */
static const char *caller_name(const struct caller *who, char ret[STORE_NAME_SIZE + 8]) {
    snprintf(ret, STORE_NAME_SIZE + 8, "user '%s'", who->owner);
    return who->token[0] ? "this token" : who->local ? ret : "this caller";
}

int allow(const struct caller *who, enum token_scope scope, struct err *err) {
    char name[STORE_NAME_SIZE + 8];
    if (who->scopes & scope)
        return 0;
    err_set(err, ERR_DENIED, "%s lacks the scope '%s'", caller_name(who, name), scope_names[scope]);
    if (!who->token[0])
        return err_remedy(err, "ask the user that runs the daemon");
    return err_remedy(err, "ask the owner for a token with this scope: carrel token new --scope %s",
                      scope_names[scope]);
}

int authorise(const struct caller *who, enum right right, struct err *err) {
    const struct right_row *row = &right_rows[right];
    bool admin = who->scopes & SCOPE_ADMIN;
    char name[STORE_NAME_SIZE + 8];
    if (allow(who, row->scope, err) < 0)
        return -1;
    if (row->role == ROLE_ANYBODY || admin || (row->role == ROLE_OWNER && who->local))
        return 0;
    if (who->has_volumes && (right == RIGHT_VOLUME || right == RIGHT_MACHINE_VOLUMES))
        return 0;
    err_set(err, ERR_DENIED, "%s lacks the scope 'admin', which is required to %s",
            caller_name(who, name), row->grants);
    return err_remedy(err,
                      row->role == ROLE_OWNER
                          ? "use the command line on this host, or a token with that scope"
                          : "ask the user that runs the daemon, or use a token with that scope");
}

static bool lends_rw(const struct machine_request *r) {
    const struct dir_request *dirs = r->dirs.v;
    for (size_t i = 0; i < r->dirs.count; i++)
        if (dirs[i].mode && strcmp(dirs[i].mode, "rw") == 0)
            return true;
    return false;
}

int authorise_machine(const struct caller *who, const struct machine_request *r, struct err *err) {
    const struct models_request *m = &r->models;
    const struct {
        bool asked;
        enum right right;
    } rows[] = {
        {r->dirs.count, RIGHT_MACHINE_DIRS},
        {lends_rw(r), RIGHT_MACHINE_DIRS_RW},
        {r->volumes.count, RIGHT_MACHINE_VOLUMES},
        {r->net.count, RIGHT_MACHINE_NET},
        {m->allow || m->tokens.is || m->money.is, RIGHT_MACHINE_MODELS},
        {r->secrets.count, RIGHT_MACHINE_SECRETS},
        {r->grants.count, RIGHT_MACHINE_GRANTS},
        {r->allow, RIGHT_MACHINE_ALLOW},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].asked && authorise(who, rows[i].right, err) < 0)
            return -1;
    return allow(who, SCOPE_RUN, err);
}

bool rights_sends_files(const struct caller *who) {
    return who->local && !who->console[0];
}
