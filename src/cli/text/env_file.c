#include "cli/text/env_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

int env_entry_split(const char *text, size_t *ret_name_len, const char **ret_value,
                    struct err *err) {
    const char *eq = strchr(text, '=');
    size_t len = eq ? (size_t)(eq - text) : strlen(text);
    if (len == 0)
        return err_set(err, ERR_INVALID, "--env '%s' has no name", text);
    const char *value = eq ? eq + 1 : getenv(text);
    if (!value)
        return err_set(err, ERR_INVALID, "--env %s: the variable is not set", text);
    *ret_name_len = len;
    *ret_value = value;
    return 0;
}

static int read_lines(FILE *file, const char *path, env_file_fn *each, void *ctx, struct err *err) {
    char *line DEFER_FREE = NULL;
    size_t size = 0;
    ssize_t n;
    for (unsigned number = 1; (n = getline(&line, &size, file)) >= 0; number++) {
        if (strlen(line) != (size_t)n)
            return err_set(err, ERR_INVALID, "--env-file %s: line %u has a NUL byte", path, number);
        line[strcspn(line, "\r\n")] = '\0';
        const char *text = line + strspn(line, " \t");
        if (*text && *text != '#' && each(ctx, text, err) < 0)
            return err_wrap(err, "--env-file %s: line %u", path, number);
    }
    return ferror(file) ? err_sys(err, "--env-file %s", path) : 0;
}

int env_file_read(const char *path, env_file_fn *each, void *ctx, struct err *err) {
    FILE *file = fopen(path, "re");
    if (!file)
        return err_sys(err, "--env-file %s", path);
    int r = read_lines(file, path, each, ctx, err);
    fclose(file);
    return r;
}
