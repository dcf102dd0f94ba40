/* A machine that is made as its options say: for `new`, and for commands that make one. */
#pragma once

#include <jansson.h>

#include "cli/client.h"
#include "cli/handed.h"
#include "cli/options.h"
#include "cli/spec.h"

struct new_options {
    const char *kind, *image, *name, *idle_action, *steps, *models;
    struct spec spec;
    uint64_t idle_ms;
    struct option_list env, meta, net;
    struct handed_options handed;
    bool json, help;
};

/* *ret is the machine as the daemon tells it; its warnings have been said. */
int new_make(const struct new_options *o, struct client *c, json_t **ret, struct err *err);
