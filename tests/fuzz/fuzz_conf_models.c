/* Property: lines about providers and models are refused with a sentence, or complete and in range.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "store/conf_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct conf_provider p = {.name = "before"};
    struct conf_model m = {.name = "before"};
    struct err err = {0};
    char *text DEFER_FREE = strndup((const char *)data, size);
    if (!text)
        return 0;
    if (conf_provider_parse(text, &p, &err) < 0)
        assert(err.text[0] && strcmp(p.name, "before") == 0);
    else
        assert(p.name[0] && p.format[0] && strncmp(p.url, "http", 4) == 0);
    err = (struct err){0};
    if (conf_model_parse(text, &m, &err) < 0)
        assert(err.text[0] && strcmp(m.name, "before") == 0);
    else
        assert(m.name[0] && m.in <= 1000000000000 && m.out <= 1000000000000 &&
               m.window <= 1ull << 32);
    struct conf_alias a = {.name = "before"};
    err = (struct err){0};
    if (conf_alias_parse(text, &a, &err) < 0)
        assert(err.text[0] && strcmp(a.name, "before") == 0);
    else
        assert(a.name[0] && a.count >= 1 && a.count <= CONF_TARGETS_MAX &&
               strchr(a.targets[a.count - 1], '/'));
    return 0;
}
