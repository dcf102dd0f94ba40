/* The tool preview: the address of a port that the owner exposed. It exposes nothing itself. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "service/net/expose.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

static void preview_refused(struct act *a, uint64_t port) {
    struct err err;
    err_set(&err, ERR_DENIED, "port %" PRIu64 " of machine '%s' is not exposed", port, a->machine);
    err_remedy(&err, "only the owner can expose it: carrel expose %s %" PRIu64, a->machine, port);
    act_fail(a, &err);
}

static void preview_listed(void *arg, const char *json, const struct err *err) {
    struct act *a = arg;
    const struct preview_input *in = a->request;
    json_t *answer DEFER(json_decrefp) = json ? json_loads(json, 0, NULL) : NULL, *row;
    size_t i;
    if (err) {
        act_fail(a, err);
        return;
    }
    json_array_foreach(json_object_get(answer, "exposures"), i, row) {
        const char *url = json_string_value(json_object_get(row, "url"));
        if (url && json_integer_value(json_object_get(row, "port")) == (json_int_t)in->port.value) {
            act_done(a, &(struct preview_output){
                            .machine = a->machine, .url = url, .port = in->port.value});
            return;
        }
    }
    preview_refused(a, in->port.value);
}

void tool_preview(struct act *a) {
    service_expose_list(act_service(a), act_who(a), a->machine, preview_listed, a);
}
