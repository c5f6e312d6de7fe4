/*
 * For fuzz targets of metrics: what must hold of any text in Prometheus's format that we write.
 */
#ifndef HR_TEST_FUZZ_METRIC_LINES_H
#define HR_TEST_FUZZ_METRIC_LINES_H

#include <stdlib.h>
#include <string.h>

/* Returns non-zero for a comment, or a metric whose name begins with `begin` and that ends in one
 * number. */
static inline int is_metric_line(const char *line, size_t length, const char *begin)
{
    if (length > 2 && line[0] == '#' && line[1] == ' ')
        return 1;
    if (length <= strlen(begin) || memcmp(line, begin, strlen(begin)))
        return 0;
    const char *value = memrchr(line, ' ', length);
    return value && strspn(value + 1, "-.0123456789") == (size_t)(line + length - value - 1);
}

/* Every line of the text is whole and one of ours. NULL: there is none. */
static inline void require_metric_lines(const char *text, const char *begin)
{
    for (const char *line = text; line && *line;) {
        size_t length = strcspn(line, "\n");
        if (line[length] != '\n' || !is_metric_line(line, length, begin))
            abort();
        line += length + 1;
    }
}

#endif
