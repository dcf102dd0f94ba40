/* Fields of the request for a build. */
#include "service/images/builds.h"

#define AT(type, member) offsetof(type, member)

static const struct field config_fields[] = {
    {"env", FIELD_MAP, AT(struct image_request, env),
     "environment variables of commands; they override those of the base image", .max = 256},
    {"user", FIELD_TEXT, AT(struct image_request, user), "default user of commands", .max = 256},
    {"workdir", FIELD_TEXT, AT(struct image_request, workdir),
     "default working directory of commands", .max = 4095},
    {"command", FIELD_TEXTS, AT(struct image_request, command), "default command", .max = 4096},
    {"entrypoint", FIELD_TEXTS, AT(struct image_request, entrypoint),
     "program that the command is passed to", .max = 4096},
};
const struct schema build_config_schema =
    SCHEMA("BuildConfig", struct image_request, config_fields);

static const struct field step_fields[] = {
    {"what", FIELD_TEXT, AT(struct build_step, what), "the text of the step, for logs",
     .required = true, .max = 65536},
    {"place", FIELD_TEXT, AT(struct build_step, place),
     "where the step comes from, for errors, such as `line 3 of the recipe`", .max = 100},
    {"how", FIELD_TEXT, AT(struct build_step, how),
     "of a step that is only shown: `using` or `setting`", .max = 16},
    {"make", FIELD_FLAG, AT(struct build_step, make),
     "run the step and keep an image; without it the step is only shown in the log"},
    {"fresh", FIELD_FLAG, AT(struct build_step, fresh),
     "run the step in a new machine of the image before it"},
    {"net", FIELD_TEXTS, AT(struct build_step, net),
     "hosts, URLs and presets that the machine may reach", .max = 32},
    {"dirs", FIELD_TEXTS, AT(struct build_step, dirs), "directories to create first", .max = 256},
    {"command", FIELD_TEXT, AT(struct build_step, command), "a shell command", .max = 1 << 20},
    {"argv", FIELD_TEXTS, AT(struct build_step, argv), "a command, instead of `command`",
     .max = 4096},
    {"env", FIELD_MAP, AT(struct build_step, env), "environment variables of the command",
     .max = 512},
    {"user", FIELD_TEXT, AT(struct build_step, user), "user of the command", .max = 256},
    {"cwd", FIELD_TEXT, AT(struct build_step, cwd), "working directory of the command",
     .max = 4095},
    {"archive", FIELD_NUMBER, AT(struct build_step, archive),
     "number of the archive whose files are copied, from 0 in the order of the steps",
     .max = BUILD_ARCHIVES_MAX - 1},
    {"to", FIELD_TEXT, AT(struct build_step, to), "destination of the copy", .max = 4095},
    {"into", FIELD_FLAG, AT(struct build_step, into),
     "the destination is a directory, also if it does not exist"},
    {"as_file", FIELD_FLAG, AT(struct build_step, as_file),
     "the destination is the path of the one file in the archive"},
    {"chown", FIELD_TEXT, AT(struct build_step, chown), "owner of the copies: USER[:GROUP]",
     .max = 256},
    {"key", FIELD_TEXT, AT(struct build_step, key),
     "hash of the files of the archive: steps with equal keys share their cached image",
     .max = 256},
    {"config", FIELD_OBJECT, AT(struct build_step, config),
     "configuration of the image after this step", .sub = &build_config_schema},
};
const struct schema build_step_schema = SCHEMA("BuildStep", struct build_step, step_fields);

static const struct field build_fields[] = {
    {"base", FIELD_TEXT, AT(struct build_request, base), "image to start from, or `host`",
     .required = true, .max = 255},
    {"name", FIELD_TEXT, AT(struct build_request, name),
     "name of the new image; another image with this name loses it", .max = 127},
    {"no_cache", FIELD_FLAG, AT(struct build_request, no_cache),
     "run all steps, also those whose image exists"},
    {"local", FIELD_TEXTS, AT(struct build_request, local),
     "hosts, or presets such as npm, that machines may reach at private addresses if a step "
     "allows them",
     .max = 64},
    {"steps", FIELD_OBJECTS, AT(struct build_request, steps), "steps, in order",
     .max = BUILD_STEPS_MAX, .sub = &build_step_schema},
};
const struct schema build_request_schema =
    SCHEMA("BuildRequest", struct build_request, build_fields);
