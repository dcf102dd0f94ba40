/*
 * Translates the steps of a template, as E2B's clients send them, into the recipe of a build
 * (service/images/builds.h). Pure.
 *
 * The recipe has a step for the base, one for each step of the client and one at the end, so that
 * the number of a step of the recipe tells which step of the client it is.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { TEMPLATE_STEPS_MAX = 256, TEMPLATE_HASH_SIZE = 65, TEMPLATE_STEP_SIZE = 16 };

/*
 * What a sandbox of a template starts with. It is kept as the default command of the image, in the
 * form {"/bin/bash", "-l", "-c", START, "e2b", READY, CPUS, MEM}, which is also how the interface
 * knows images that its clients built. START ":" means none.
 */
struct template_start {
    const char *start, *ready; /* NULL: none */
    uint64_t cpus, mem_mb;     /* 0: not given */
};

/* config: that of the image. False: the image is not a template of a client. */
bool template_start_read(const json_t *config, struct template_start *ret);

/* What the image that a template starts from has. */
struct template_base {
    const char *what;     /* as the client named it */
    const char *image;    /* name or id */
    bool is_template;     /* it is used as it is: another one gets the user "user" */
    const json_t *config; /* of the image; NULL: none */
};

struct template_request {
    const json_t *steps; /* list; NULL: none */
    bool force;
    const char *start, *ready; /* NULL: those of the base, if that is a template */
    uint64_t cpus, mem_mb;
    bool net; /* steps may reach every public host */
};

/* A COPY step, whose files a worker brings into the form that a build takes. */
struct template_copy {
    size_t step;                   /* number in the recipe, from 0 */
    char hash[TEMPLATE_HASH_SIZE]; /* of the files that the client sent */
    char *source;
    const char *to; /* in the recipe */
    int mode;       /* -1: not given */
};

struct template_plan {
    json_t *recipe;
    struct template_copy copies[TEMPLATE_STEPS_MAX];
    size_t copy_count, steps;
};

int template_plan_make(const struct template_base *base, const struct template_request *r,
                       struct template_plan *ret, struct err *err);
void template_plan_done(struct template_plan *p);
/* Sets the destination of a copy, once it is known what the files are: see context_write(). */
void template_copy_into(struct template_plan *p, size_t copy, const char *dir);

/* The name that clients know a step by: "base", "1", "2", "finalize". number: from 1. */
void template_step_name(const struct template_plan *p, uint64_t number,
                        char ret[TEMPLATE_STEP_SIZE]);
