/* Models: which ones machines can call, what their calls cost, and agents that use them. */
#include "service/models/models.h"

#include "api/bodies.h"
#include "api/route.h"

enum { USAGE_DAYS = 30 };

void api_model_list(struct call *c) {
    service_model_list(c->service, &c->who, call_told, c);
}

void api_model_usage(struct call *c) {
    const char *by = call_query(c, "by");
    uint64_t days = USAGE_DAYS;
    struct err err;
    if (call_number(c, "days", 1, MODEL_USAGE_DAYS_MAX, &days, &err) < 0)
        call_error(c, &err);
    else
        service_model_usage(c->service, &c->who, by ? by : "day", days, call_told, c);
}

void api_agent_list(struct call *c) {
    service_agent_list(c->service, &c->who, call_told, c);
}
