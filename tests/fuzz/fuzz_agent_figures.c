/*
 * An agent's status with any contents is converted to metrics: it is refused, or becomes lines of
 * Prometheus's text format that no name or label in the status can break.
 */
#include "agent/server/metrics.h"
#include "base/memory.h"
#include "metric_lines.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_error error;
    char *text = NULL, *status = malloc(size + 1);
    if (!status)
        abort();
    memcpy(status, data, size);
    status[size] = 0;
    int r = hr__metrics_text(&text, status, &error);
    if (r && (r != -EPROTO || error.code != r || !*error.message))
        abort();
    require_metric_lines(text, "headrace_");
    hr__free(text);
    free(status);
    return 0;
}
