/*
 * An agent's status with any contents is converted to metrics: it is refused, or becomes lines of
 * Prometheus's text format that no name or label in the status can break.
 */
#include "agent/server/metrics.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns non-zero for a comment, or one of our metrics that ends in one number. */
static int is_line(const char *line, size_t length)
{
    static const char begin[] = "headrace_";
    if (length > 2 && line[0] == '#' && line[1] == ' ')
        return 1;
    if (length < sizeof begin || memcmp(line, begin, sizeof begin - 1))
        return 0;
    const char *value = memrchr(line, ' ', length);
    return value && strspn(value + 1, "-.0123456789") == (size_t)(line + length - value - 1);
}

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
    for (const char *line = text; line && *line;) {
        size_t length = strcspn(line, "\n");
        if (line[length] != '\n' || !is_line(line, length))
            abort();
        line += length + 1;
    }
    hr__free(text);
    free(status);
    return 0;
}
