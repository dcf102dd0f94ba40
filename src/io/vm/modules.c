#include "io/vm/modules.h"

#include <stdbool.h>

/* A part of a line. */
struct path {
    const char *s;
    size_t n;
};

static struct path path_base(struct path p) {
    size_t start = p.n;
    while (start > 0 && p.s[start - 1] != '/')
        start--;
    return (struct path){p.s + start, p.n - start};
}

/* Whether the path is that of the module: `kernel/fs/fuse/virtiofs.ko.xz` is that of virtiofs. File
 * names may have a dash where lsmod has an underscore. */
static bool path_is_of(struct path p, const char *name) {
    struct path base = path_base(p);
    size_t n = strlen(name);
    if (base.n < n + 3 || memcmp(base.s + n, ".ko", 3) != 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (base.s[i] != name[i] && !(base.s[i] == '-' && name[i] == '_'))
            return false;
    return true;
}

/* The line of a module in `modules.dep` or `modules.builtin`; NULL: there is none. */
static const char *modules_line(const char *text, const char *name) {
    for (const char *at = text; *at;) {
        if (path_is_of((struct path){at, strcspn(at, ":\n")}, name))
            return at;
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return NULL;
}

static bool modules_have(const struct modules *m, struct path p) {
    for (unsigned i = 0; i < m->count; i++)
        if (strlen(m->path[i]) == p.n && memcmp(m->path[i], p.s, p.n) == 0)
            return true;
    return false;
}

static int modules_put(struct modules *m, struct path p, struct err *err) {
    if (modules_have(m, p))
        return 0;
    if (m->count == MODULES_MAX || p.n == 0 || p.n >= MODULE_PATH_SIZE)
        return err_set(err, ERR_UNSUPPORTED, "the kernel's modules depend on too many others");
    memcpy(m->path[m->count], p.s, p.n);
    m->path[m->count++][p.n] = '\0';
    return 0;
}

/* A line is `PATH: PATH...`. It names all that the module depends on, the deepest last. */
static int modules_put_line(struct modules *m, const char *line, struct err *err) {
    size_t end = strcspn(line, "\n"), own = strcspn(line, ":\n");
    for (size_t stop = end; stop > own + 1;) {
        size_t start = stop;
        while (start > own + 1 && line[start - 1] != ' ')
            start--;
        if (start < stop && modules_put(m, (struct path){line + start, stop - start}, err) < 0)
            return -1;
        stop = start > own + 1 ? start - 1 : start;
    }
    return modules_put(m, (struct path){line, own}, err);
}

int modules_add(struct modules *m, const char *dep, const char *builtin, const char *name,
                struct err *err) {
    const char *line = modules_line(dep, name);
    if (line)
        return modules_put_line(m, line, err);
    if (modules_line(builtin, name))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "the kernel has no module '%s'", name);
}
