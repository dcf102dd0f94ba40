/*
 * State of a client's toolbox. Private to src/tools.
 *
 * Only the loop's thread uses it. Acts (calls) in progress hold a reference.
 */
#pragma once

#include "service/taint.h"
#include "tools/coproc.h"
#include "tools/requests.h"
#include "tools/tool.h"

/* The output offsets up to which a command was shown. */
struct shown {
    char exec[ID_SIZE];
    uint64_t at[2];
};

struct toolbox {
    uint32_t refs;
    struct loop *loop;
    struct service *service;
    struct caller who;
    char key[TOOLBOX_KEY_SIZE];
    char machine[ID_SIZE];
    bool bound;
    enum tool_set set;
    bool making;         /* the client's own machine is being created or resumed */
    struct act *waiting; /* acts that wait for the machine */
    void (*made)(void *arg, const char *machine);
    void *arg;
    struct shown shown[TOOLBOX_SESSIONS];
    size_t shown_next;
    char *plan; /* the client's plan, a JSON array, or NULL */
    char talk[TOOLBOX_KEY_SIZE];
    char saw[TAINT_SOURCE_SIZE]; /* first untrusted source that the client has seen */
    bool saw_unsaved;            /* `saw` is not stored yet */
    struct python *pythons;      /* interpreters of the tool python */
    struct browser *browsers;    /* of the tool browser */
    struct joins *joins;         /* joined MCP servers, or NULL */
};

enum { TOOLBOX_IDLE_MS = 30 * 60 * 1000 };
struct given toolbox_ttl(const struct toolbox *b);

/* The shown offsets of a command; created if new. */
struct shown *toolbox_shown(struct toolbox *b, const char *exec);

/* Calls a->tool->start(a) once a->machine is running, or fails the act. */
void toolbox_bring(struct toolbox *b, struct act *a, const char *ref);

void act_free(struct act *a);
void act_go(struct act *a);

struct coproc_place toolbox_place(const struct toolbox *b);

/* python.c: kills the interpreters of a client; frees what the toolbox knows about them. */
void pythons_kill(struct toolbox *b);
void pythons_free(struct toolbox *b);
/* browser.c: likewise. */
void browsers_kill(struct toolbox *box);
void browsers_free(struct toolbox *box);

struct machine_output machine_output_of(const struct machine_view *view);

/* The handlers, by file. */
void tool_exec(struct act *a);
void tool_install(struct act *a);
void tool_session(struct act *a);
void tool_read(struct act *a);
void tool_write(struct act *a);
void tool_edit(struct act *a);
void tool_patch(struct act *a);
void tool_search(struct act *a);
void tool_list(struct act *a);
void tool_fetch(struct act *a);
void tool_preview(struct act *a);
void tool_browser(struct act *a);
void tool_desktop_screenshot(struct act *a);
void tool_desktop_click(struct act *a);
void tool_desktop_move(struct act *a);
void tool_desktop_scroll(struct act *a);
void tool_desktop_type(struct act *a);
void tool_desktop_key(struct act *a);
void tool_transfer(struct act *a);
void tool_python(struct act *a);
void tool_checkpoint(struct act *a);
void tool_rewind(struct act *a);
void tool_fork(struct act *a);
void tool_diff(struct act *a);
void tool_plan(struct act *a);
void tool_ask(struct act *a);
void tool_finish(struct act *a);
void tool_program(struct act *a);
bool has_program(const struct toolbox *box);
void tool_machine_create(struct act *a);
void tool_machine_list(struct act *a);
void tool_machine_destroy(struct act *a);
