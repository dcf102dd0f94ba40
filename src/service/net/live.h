/*
 * The network of a live machine, for the rest of src/service: functions to call when a machine is
 * created, restored, forked or ended, and periodically. Only net/ knows the members of struct
 * service_net and struct live_net.
 */
#pragma once

#include "gate/gate.h"
#include "service/service.h"

struct live;
struct live_net;
struct secret;
struct service_net;

struct live_net *live_net_new(void);
void live_net_free(struct live_net *n);

/* ---- net.c ---- */

/* NULL: the gate cannot be created. */
struct service_net *service_net_new(struct service *s, struct err *err);
void service_net_free(struct service_net *n); /* call after all machines are freed; n may be NULL */
struct gate *net_gate(const struct service *s);
int net_keep(struct live *l, struct err *err); /* writes the network policy to the store */
void net_restore(struct live *l); /* reads the network state after a restart of the daemon */
/* A machine that this daemon created has its gate sockets. An adopted machine (found after a
 * restart of the daemon) gets them later. */
void net_attach_made(struct live *l);
void net_attach_adopted(struct live *l);
void net_look(struct live *l, uint64_t now_ms); /* call periodically */
void net_detach(struct live *l);
/* Call when the machine has no process left: records the remaining counts of refusals. */
void net_ended(struct live *l);

/* ---- crossings.c ---- */

/* Records a request to an exposed port, or a refusal with its reason. Above a limit they are only
 * counted. */
void net_note(struct live *l, const char *verb, const char *why, const char *detail);

/* ---- rules.c ---- */

/* Adds the network rules of a request to the policy of a machine. */
int net_add_rules(const struct service *s, const char *owner, const char *image,
                  const struct rows *rules, struct policy *policy, struct err *err);
/* Replaces the rules that have `from`; see policy_set_given(). */
int net_set_given(const struct service *s, const char *owner, const char *image,
                  const struct rows *rules, struct policy *policy, struct err *err);
int net_add_models(struct policy *policy, struct err *err); /* adds the rule for models.carrel */
/* A fork starts with the policy of its source; parent NULL: with none. */
void net_inherit_rules(const struct live *parent, struct policy *ret);

/* ---- expose.c ---- */

void expose_restore(struct live *l);
void expose_detach(struct live *l);

/* ---- mirrors.c ---- */

/* Looks up the mirrors of presets after a change of rules. Calls `done` also if that failed. */
void net_look_up_mirrors(struct live *l, service_done_fn *done, void *arg);
/* Adds the warning about mirrors with private addresses to other warnings, which may be NULL. The
 * result may be NULL; it is valid until the next call for the machine. */
const char *net_warnings(struct live *l, const char *others);

/* ---- tell.c ---- */

/*
 * Writes the machine's limits and network policy to a file inside the machine. Calls `done` (may be
 * NULL) also if that failed.
 */
void net_tell(struct live *l, service_done_fn *done, void *arg);
/* Writes limits, grants, network rules and names of secrets as the machine may know them, as one
 * JSON object; false: it is too long. */
bool net_describe(struct live *l, struct buf *text);

/* ---- trust.c ---- */

void net_restore_trust(struct live *l);
/* A fork trusts the certificate authority that its source trusts, because files of the source may
 * name that authority. */
void net_inherit_trust(struct live *l, const struct live *parent);
/* Call after the root directory of the machine was replaced: writes the certificate authority to
 * the new root, if the old root had it. */
void net_trust_again(struct live *l, service_done_fn *done, void *arg);
/* Makes the machine trust the certificate authority of its network. Calls `done` also if that
 * failed. */
void net_trust(struct live *l, service_done_fn *done, void *arg);
/* A file that Carrel writes into the machine so that programs trust the network, mode 0644. */
struct net_own {
    const char *path, *bytes;
    size_t n;
    uint32_t user; /* id of its user and group */
};
typedef void net_own_fn(void *arg, const struct net_own *file);
/* Calls fn for each of these files, as they were written unless the host's certificates changed
 * since; for none if the machine has no authority. */
void net_own_files(struct live *l, net_own_fn *fn, void *arg);
/* Returns the environment variables that commands get for the network (certificates, placeholders
 * of secrets): alternating names and values. */
const struct texts *net_env(struct live *l);
/* Whether a rule lets some request of the machine reach models.carrel, perhaps after an approval.
 */
bool net_reaches_models(const struct live *l);

/* ---- secrets.c ---- */

/* Tells the gate which secrets are granted to this machine. */
void secrets_restore(struct live *l);
/* Returns the value of a secret for the gate; NULL: deleted or never set. */
struct secret *secrets_value(struct service *s, const char *machine, const char *name);
void secrets_used(struct live *l, const char *name);
/* A change of secret PREFIX + PLAIN; PLAIN comes from the request. */
struct secret_change {
    const char *verb, *prefix, *plain;
    const struct secret *value; /* NULL: delete it */
};
/* Checks the caller's rights and changes the secret. Calls `done` once the change is on disk. -1
 * with *err: nothing was changed, and `done` is not called. */
int secrets_keep(struct service *s, const struct caller *who, const struct secret_change *c,
                 service_done_fn *done, void *arg, struct err *err);
