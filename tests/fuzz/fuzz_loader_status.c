/*
 * A status file with any contents is refused, or is an object whose metrics are lines of
 * Prometheus's text format that no label in it can break.
 */
#include "base/memory.h"
#include "metric_lines.h"
#include "metrics/meter.h"
#include "metrics/status_file.h"

#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(json_t *loader)
{
    json_t *root = json_pack("{s:[o]}", "loaders", loader);
    char *status = root ? json_dumps(root, 0) : NULL, *text = NULL;
    /* What cannot be written as JSON again cannot be a status of ours. */
    if (status && hr__loaders_text(&text, status, NULL))
        abort();
    require_metric_lines(text, "headrace_loader_");
    hr__free(text);
    free(status);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* As it is, and with a header that is right. */
    json_decref(hr__status_parse(data, size));
    uint8_t *file = malloc(sizeof(struct hr__status_header) + size);
    struct hr__status_header header = {.magic = "HRLOADE",
                                       .version = 1,
                                       .length = (uint32_t)size,
                                       .digest = XXH3_64bits(data, size)};
    header.magic[7] = 'R';
    if (!file)
        abort();
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, data, size);
    json_t *json = hr__status_parse(file, sizeof header + size);
    if (json)
        check_text(json);
    free(file);
    return 0;
}
