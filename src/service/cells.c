#include "service/cells.h"

#include <string.h>

#include "base/capability.h"
#include "base/limits.h"

static bool kind_is_cell(const char *kind) {
    return kind && strcmp(kind, "cell") == 0;
}

bool live_is_cell(const struct live *l) {
    return kind_is_cell(l->row.kind);
}

int cell_refuse(const struct live *l, const char *what, struct err *err) {
    if (!live_is_cell(l))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "machine '%s' is a cell, which does not support %s", l->row.id,
            what);
    return err_remedy(err, "use a machine of the kind box");
}

static int check_cell(const struct machine_request *r, struct err *err) {
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {r->dirs.count, "directories of the host (--dir)"},
        {r->volumes.count, "volumes (--volume)"},
        {r->grants.count, "grants of files, repositories and databases"},
        {r->guard, "the network guard (--guard)"},
        {r->limits.pids.is, "a limit of processes (--pids)"},
    };
    if (!r->image || strcmp(r->image, "host") == 0) {
        err_set(err, ERR_INVALID, "a cell machine needs an image with WebAssembly programs");
        return err_remedy(err,
                          "import one, and name it: --image NAME; see docs/reference/cells.md");
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].asked) {
            err_set(err, ERR_UNSUPPORTED, "a cell machine does not support %s", rows[i].what);
            return err_remedy(err, "leave it out, or use --kind box");
        }
    return 0;
}

int cell_check_request(const struct machine_request *r, struct err *err) {
    if (r->from.machine) /* a fork has what its source has */
        return 0;
    if (kind_is_cell(r->kind))
        return check_cell(r, err);
    if (r->allow) {
        err_set(err, ERR_UNSUPPORTED, "a box does not support capabilities of programs (--allow)");
        return err_remedy(err, "use --net, --models and carrel grant, or --kind cell");
    }
    if (!r->limits.fuel.is && !r->limits.fuel_rate.is)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "a box does not support limits of fuel (--fuel, --fuel-rate)");
    return err_remedy(err, "limit its processors with --cpus, or use --kind cell");
}

int cell_allow(const char *allow, struct machine_row *row, struct err *err) {
    uint32_t bits;
    if (capabilities_parse(allow, &bits, err) < 0)
        return -1;
    capabilities_text(bits, row->allowed);
    return 0;
}

int cell_fill_row(const struct machine_request *r, struct machine_row *row, struct err *err) {
    const char *allow = r->allow ? r->allow : r->from.allowed;
    if (!kind_is_cell(row->kind))
        return 0;
    row->fuel = r->limits.fuel.is ? r->limits.fuel.value : LIMIT_FUEL;
    row->fuel_rate = r->limits.fuel_rate.is ? r->limits.fuel_rate.value : 0;
    return allow ? cell_allow(allow, row, err) : 0;
}
