/* Schemas of timers. */
#include "api/body_fields.h"
#include "service/timers/timers.h"
#include "service/timers/upkeep.h"

static const struct field timer_request[] = {
    {"argv", FIELD_TEXTS, AT(struct timer_request, argv), "the command and its arguments",
     .max = TIMER_WORDS_MAX},
    {"task", FIELD_TEXT, AT(struct timer_request, task),
     "a task of upkeep, instead of argv: install security updates, delete old files, or restart "
     "failed units of systemd",
     .choices = upkeep_names},
    {"user", FIELD_TEXT, AT(struct timer_request, user),
     "run as this user (default: that of the image)", .max = TIMER_USER_MAX},
    {"every", FIELD_DURATION, AT(struct timer_request, every),
     "run again and again, at least a minute apart", .min = TIMER_EVERY_MIN_MS,
     .max = TIMER_EVERY_MAX_MS},
    {"in", FIELD_DURATION, AT(struct timer_request, in), "time until the first run", .min = 1,
     .max = TIMER_EVERY_MAX_MS},
    {"at_ms", FIELD_NUMBER, AT(struct timer_request, at_ms),
     "time of the first run, in milliseconds since 1970; without it and `in`: after `every`",
     .min = 1, .max = TIMER_AT_MAX_MS},
};
const struct schema timer_request_schema =
    SCHEMA("TimerRequest", struct timer_request, timer_request);

static const struct field timer_view[] = {
    {"id", SHOW_TEXT, 0, NULL, .required = true},
    {"machine", SHOW_TEXT, 0, NULL, .required = true},
    {"argv", SHOW_JSON, 0, "the command and its arguments", .required = true, .shape = SHAPE_TEXTS},
    {"task", SHOW_TEXT, 0, "task of upkeep; argv is empty"},
    {"user", SHOW_TEXT, 0, NULL},
    {"every_ms", SHOW_NUMBER, 0, "time between two runs; left out: it runs once"},
    {"next_ms", SHOW_NUMBER, 0, "time of the next run, in milliseconds since 1970; 0: none",
     .required = true},
    {"created_ms", SHOW_NUMBER, 0, NULL, .required = true},
    {"runs", SHOW_NUMBER, 0, "how often its command was started", .required = true},
    {"missed", SHOW_NUMBER, 0, "runs left out because no daemon ran at their time",
     .required = true},
    {"last_ms", SHOW_NUMBER, 0, "time of the last run"},
    {"last_exec", SHOW_TEXT, 0, "id of the command of the last run"},
    {"last_status", SHOW_NUMBER, 0,
     "exit status of the last run; -1: none; left out: it has not ended"},
    {"error", SHOW_TEXT, 0, "why the last run did not start"},
};
const struct schema timer_schema = SCHEMA("Timer", char *, timer_view);

static const struct field timers_view[] = {
    {"timers", SHOW_JSON, 0, NULL, .required = true, .sub = &timer_schema},
};
const struct schema timers_schema = SCHEMA("Timers", char *, timers_view);
