/* Calls that must succeed, or must be refused. A failure shows the call and its error. */
#pragma once

#include "base/err.h"
#include "tests/unit/unit.h"

/* The error of the last call. */
static struct err err;

#define ok(call)                                                  \
    do {                                                          \
        err = (struct err){0};                                    \
        if ((call) < 0)                                           \
            fail_msg("%s: %s [%s]", #call, err.text, err.remedy); \
    } while (0)

#define refused(error_code, call)                                             \
    do {                                                                      \
        err = (struct err){0};                                                \
        assert_int_equal(call, -1);                                           \
        if (err.code != (error_code))                                         \
            fail_msg("%s: %s: %s", #call, err_code_name(err.code), err.text); \
    } while (0)
