/*
 * carrel.conf: the optional configuration file (INI). One table has a row per key with type,
 * default, range and meaning; docs/reference/conf.md is generated from it.
 *
 * The file is parsed like untrusted input: sizes are capped, and an unknown key or a value out of
 * range is an error that names the line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/conf/agents.h"
#include "store/conf_models.h"

enum { CONF_TEXT_SIZE = 256, CONF_ROOTS_MAX = 32, CONF_FILE_MAX = 64 << 10, CONF_LINE_MAX = 190 };

struct conf {
    char path[CONF_TEXT_SIZE];   /* of this file, absolute, set by the daemon; may be empty */
    char listen[CONF_TEXT_SIZE]; /* "ADDRESS:PORT"; empty: only the unix socket */
    char group[CONF_TEXT_SIZE];  /* who may use root's daemon; empty: every user */
    /* directories below which TCP clients may use paths */
    char roots[CONF_ROOTS_MAX][CONF_TEXT_SIZE];
    /* owner of each root; empty: the user that runs the daemon */
    char root_owners[CONF_ROOTS_MAX][CONF_TEXT_SIZE];
    size_t root_count;
    uint64_t max_machines;
    uint64_t machines_per_owner; /* 0: no limit */
    uint64_t mem_bytes; /* limits of a new machine; 0: the defaults of its kind of machine */
    uint64_t cpu_milli;
    uint64_t pids;
    uint64_t disk_bytes;
    uint64_t ttl_ms;                                      /* 0: no limit */
    uint64_t idle_ms;                                     /* 0: never */
    uint32_t idle_action;                                 /* enum idle_action */
    uint32_t steps;                                       /* enum step_policy */
    uint64_t steps_keep, steps_keep_ms, steps_keep_bytes; /* 0: see the table in conf.c */
    uint64_t durable_after_ms;                            /* 0: never */
    uint64_t log_bytes;
    uint64_t output_keep_bytes, output_owner_bytes, output_keep_ms; /* 0: no such limit */
    uint64_t journal_segment_bytes;
    uint64_t journal_keep_ms; /* 0: keep everything; also for journal_keep_bytes */
    uint64_t journal_keep_bytes;
    /* refused network requests per machine and minute that get their own journal record */
    uint64_t journal_refusals;
    uint64_t ended_keep_ms;
    uint64_t execs_per_machine;
    uint64_t execs_per_owner;
    uint64_t uid_base;
    char gate_hosts[CONF_TEXT_SIZE]; /* empty: none */
    char gate_ca[CONF_TEXT_SIZE];
    uint64_t package_cache_bytes; /* package cache of one owner; 0: none */
    char package_keyring[CONF_TEXT_SIZE];
    char ingress[CONF_TEXT_SIZE];     /* "ADDRESS:PORT"; empty: the default or a free port */
    char vm_kernel[CONF_TEXT_SIZE];   /* empty: choose one of /boot */
    char model[CONF_TEXT_SIZE];       /* default model, "PROVIDER/MODEL" */
    char domain[CONF_TEXT_SIZE];      /* of exposed ports; empty: only names below localhost */
    char certificate[CONF_TEXT_SIZE]; /* of exposed ports; empty: no TLS */
    char certificate_key[CONF_TEXT_SIZE];
    char e2b_image[CONF_TEXT_SIZE];
    char e2b_internet[CONF_TEXT_SIZE];   /* deny, ask or allow */
    char notify_command[CONF_TEXT_SIZE]; /* empty: none; also for notify_webhook */
    char notify_webhook[CONF_TEXT_SIZE];
    char notify_events[CONF_TEXT_SIZE]; /* types of events, separated by blanks or commas */
    char proxy[CONF_TEXT_SIZE];         /* HTTP proxy for calls to model providers; empty: none */
    char currency[CONF_TEXT_SIZE];      /* of prices and budgets */
    uint64_t owner_tokens, owner_micro; /* model budget per owner; 0: no limit */
    struct conf_provider providers[CONF_PROVIDERS_MAX];
    size_t provider_count;
    struct conf_alias aliases[CONF_ALIASES_MAX];
    size_t alias_count;
    struct conf_model known[CONF_MODELS_MAX]; /* models with prices and context sizes */
    size_t known_count;
    /* URLs of vendors that get the tokens of logins (model/login.h) */
    char login_claude_url[CONF_TEXT_SIZE];
    char login_codex_url[CONF_TEXT_SIZE];
    char login_codex_token_url[CONF_TEXT_SIZE];
    uint64_t agent_tokens, agent_micro; /* budget of a machine of `carrel agent`; 0: no limit */
    struct conf_agents agents;
};

/* Fills in the defaults. Parsing an empty configuration file gives the same result. */
void conf_defaults(struct conf *ret);

/*
 * Parses the text of a whole configuration file; errors name the line. On failure *ret is
 * untouched.
 */
int conf_parse(const char *text, size_t len, struct conf *ret, struct err *err);

/* Reads and parses the configuration file at `path`. A missing file counts as empty. */
int conf_read(const char *path, struct conf *ret, struct err *err);

/*
 * Writes the table of keys as Markdown, for docs/reference/conf.md. False: the table does not fit
 * into *ret.
 */
bool conf_describe(struct buf *ret);
