/* Fuzzes the reading of the kernel's texts: control groups, limits, lists of cores. The path of a
 * group fits its buffer, ranges are in order, and a list ends. */
#include "base/machine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const controllers[] = {NULL, "cpu", "memory"};
    char *text = malloc(size + 1), path[24];
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (int i = 0; i < 3; i++)
        if (hr__group_path(text, controllers[i], path, sizeof path) &&
            !memchr(path, 0, sizeof path))
            abort();
    unsigned first, last;
    size_t ranges = 0;
    for (const char *list = text; hr__range_next(&list, &first, &last); ranges++)
        if (last < first || ranges > size)
            abort();
    (void)hr__meminfo_available(text);
    (void)hr__group_reclaimable(text, 1);
    (void)hr__group_reclaimable(text, 2);
    (void)hr__group_limit(text);
    free(text);
    return 0;
}
