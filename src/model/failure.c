#include "model/failure.h"

#include <jansson.h>

#include "base/defer.h"
#include "base/utf8.h"
#include "model/json.h"

static const struct model_failure_row rows[MODEL_FAIL_COUNT] = {
    [MODEL_FAIL_NONE] = {"none", ERR_INTERNAL, false, 500, "api_error", "server_error", NULL,
                         "nothing failed", ""},
    [MODEL_FAIL_INVALID] = {"invalid", ERR_INVALID, false, 400, "invalid_request_error",
                            "invalid_request_error", NULL,
                            "the model provider rejected the request as invalid",
                            "check the model's name, its format and the provider's base URL"},
    [MODEL_FAIL_KEY] = {"key", ERR_DENIED, false, 401, "authentication_error",
                        "invalid_request_error", "invalid_api_key",
                        "the model provider rejected the API key",
                        "set the API key of this provider again (see docs/reference/models.md)"},
    [MODEL_FAIL_DENIED] = {"denied", ERR_DENIED, false, 403, "permission_error",
                           "invalid_request_error", "permission_denied",
                           "the model provider does not allow this call with this API key",
                           "ask the provider for access to this model, or use another model"},
    [MODEL_FAIL_NOT_FOUND] = {"not_found", ERR_NOT_FOUND, false, 404, "not_found_error",
                              "invalid_request_error", "model_not_found",
                              "the model provider does not have this model or path",
                              "check the model's name and the provider's base URL"},
    [MODEL_FAIL_CONTEXT] = {"context", ERR_LIMIT, false, 400, "invalid_request_error",
                            "invalid_request_error", "context_length_exceeded",
                            "the conversation is longer than the model's context window",
                            "shorten the conversation, or use a model with a larger window"},
    [MODEL_FAIL_SPENT] = {"spent", ERR_LIMIT, false, 429, "billing_error", "insufficient_quota",
                          "insufficient_quota",
                          "the account at the model provider has no credit left",
                          "add credit at the provider, or use another key"},
    [MODEL_FAIL_BUDGET] = {"budget", ERR_LIMIT, false, 402, "billing_error", "insufficient_quota",
                           "insufficient_quota", "the budget does not allow this model call",
                           "raise the budget, or ask for fewer tokens"},
    [MODEL_FAIL_RATE] = {"rate", ERR_BUSY, true, 429, "rate_limit_error", "rate_limit_error",
                         "rate_limit_exceeded", "the model provider limits the rate of requests",
                         "wait and try again"},
    [MODEL_FAIL_SERVER] = {"server", ERR_UNKNOWN, true, 500, "api_error", "server_error", NULL,
                           "the model provider failed", "try again later"},
    [MODEL_FAIL_BUSY] = {"busy", ERR_BUSY, true, 529, "overloaded_error", "server_error",
                         "server_overloaded", "the model provider is overloaded",
                         "try again later"},
    [MODEL_FAIL_GARBAGE] = {"garbage", ERR_UNKNOWN, true, 502, "api_error", "server_error", NULL,
                            "the model provider sent an invalid answer",
                            "check that the base URL matches the format"},
    [MODEL_FAIL_CUT] = {"cut", ERR_UNKNOWN, true, 502, "api_error", "server_error", NULL,
                        "the model's answer was cut off", "try again"},
    [MODEL_FAIL_LARGE] = {"large", ERR_LIMIT, false, 502, "api_error", "server_error", NULL,
                          "the model's answer is too large", "ask for fewer tokens"},
    [MODEL_FAIL_CONNECT] = {"connect", ERR_UNKNOWN, true, 502, "api_error", "server_error", NULL,
                            "the model provider cannot be reached",
                            "check the network and the provider's base URL"},
    [MODEL_FAIL_TRUST] = {"trust", ERR_DENIED, false, 502, "api_error", "server_error", NULL,
                          "the certificate of the model provider is not trusted",
                          "install the CA certificate of the provider on this host"},
    [MODEL_FAIL_TIMEOUT] = {"timeout", ERR_TIMEOUT, true, 504, "timeout_error", "server_error",
                            NULL, "the model provider did not answer in time", "try again later"},
    [MODEL_FAIL_CANCELLED] = {"cancelled", ERR_GONE, false, 499, "api_error", "server_error", NULL,
                              "the model call was cancelled", ""},
    [MODEL_FAIL_SCRIPT] = {"script", ERR_NOT_FOUND, false, 400, "invalid_request_error",
                           "invalid_request_error", "no_such_turn",
                           "the rehearsal script has no turn for this request",
                           "add a turn with this number and result to the script"},
};

const struct model_failure_row *model_failure_row(enum model_failure failure) {
    return &rows[failure < MODEL_FAIL_COUNT ? failure : MODEL_FAIL_NONE];
}

static const struct {
    const char *word;
    enum model_failure failure;
} words[] = {
    {"context_length_exceeded", MODEL_FAIL_CONTEXT},
    {"request_too_large", MODEL_FAIL_CONTEXT},
    {"insufficient_quota", MODEL_FAIL_SPENT},
    {"billing_error", MODEL_FAIL_SPENT},
    {"enforced_spend_limit_reached", MODEL_FAIL_SPENT},
    {"ramp_limit_exceeded", MODEL_FAIL_SPENT},
    {"invalid_api_key", MODEL_FAIL_KEY},
    {"authentication_error", MODEL_FAIL_KEY},
    {"permission_error", MODEL_FAIL_DENIED},
    {"not_found_error", MODEL_FAIL_NOT_FOUND},
    {"model_not_found", MODEL_FAIL_NOT_FOUND},
    {"no_such_turn", MODEL_FAIL_SCRIPT},
    {"rate_limit_error", MODEL_FAIL_RATE},
    {"rate_limit_exceeded", MODEL_FAIL_RATE},
    {"overloaded_error", MODEL_FAIL_BUSY},
    {"server_overloaded", MODEL_FAIL_BUSY},
    {"timeout_error", MODEL_FAIL_TIMEOUT},
    {"api_error", MODEL_FAIL_SERVER},
    {"server_error", MODEL_FAIL_SERVER},
    {"invalid_request_error", MODEL_FAIL_INVALID},
};

static const struct {
    int low, high;
    enum model_failure failure;
} statuses[] = {
    {401, 401, MODEL_FAIL_KEY},       {402, 402, MODEL_FAIL_SPENT},   {403, 403, MODEL_FAIL_DENIED},
    {404, 404, MODEL_FAIL_NOT_FOUND}, {408, 408, MODEL_FAIL_TIMEOUT}, {409, 409, MODEL_FAIL_BUSY},
    {413, 413, MODEL_FAIL_CONTEXT},   {429, 429, MODEL_FAIL_RATE},    {503, 503, MODEL_FAIL_BUSY},
    {504, 504, MODEL_FAIL_TIMEOUT},   {529, 529, MODEL_FAIL_BUSY},    {500, 599, MODEL_FAIL_SERVER},
    {400, 499, MODEL_FAIL_INVALID},
};

static enum model_failure by_word(const char *word) {
    for (size_t i = 0; word && i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].failure;
    return MODEL_FAIL_NONE;
}

static enum model_failure by_status(int status) {
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (status >= statuses[i].low && status <= statuses[i].high)
            return statuses[i].failure;
    return MODEL_FAIL_NONE;
}

/* An error code is more specific than an error type. The type for invalid requests is less specific
 * than any status except 400. */
enum model_failure model_failure_of(int status, const char *type, const char *code) {
    enum model_failure said = by_word(code), from_status = by_status(status);
    if (said == MODEL_FAIL_NONE)
        said = by_word(type);
    if (said == MODEL_FAIL_INVALID && from_status != MODEL_FAIL_NONE)
        return from_status;
    if (said != MODEL_FAIL_NONE)
        return said;
    return from_status != MODEL_FAIL_NONE ? from_status : MODEL_FAIL_GARBAGE;
}

enum model_failure model_failure_read(int status, const char *body, size_t n, struct err *err) {
    json_t *root DEFER(json_decrefp) = n ? json_loadb(body, n, 0, NULL) : NULL;
    const json_t *e = json_object_get(root, "error");
    const char *detail = json_member(e, "message");
    const char *code = json_member(e, "code");
    if (!code)
        code = json_member(json_object_get(e, "details"), "error_code");
    enum model_failure f = model_failure_of(status, json_member(e, "type"), code);
    model_failure_err(f, detail ? detail : json_string_value(e), err);
    return f;
}

/* Reduces a provider's text to one printable line. */
static void clean(char *to, size_t size, const char *from) {
    size_t n = 0;
    for (; from[n] && n + 1 < size; n++)
        to[n] = (unsigned char)from[n] < ' ' || from[n] == 127 ? ' ' : from[n];
    to[from[n] ? utf8_end(to, n) : n] = '\0';
}

int model_failure_err(enum model_failure failure, const char *detail, struct err *err) {
    const struct model_failure_row *row = model_failure_row(failure);
    char shown[200] = "";
    clean(shown, sizeof(shown), detail ? detail : "");
    if (shown[0])
        err_set(err, row->code, "%s: %s", row->says, shown);
    else
        err_set(err, row->code, "%s", row->says);
    return err_remedy(err, "%s", row->remedy);
}
