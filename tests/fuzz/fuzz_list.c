/* The parser of list files: any bytes give a list or an error. */
#include "dataset/list.h"

#include <headrace/dataset.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__catalog *c;
    struct hr_error error;
    /* an exact copy: the parser must not read past the end */
    char *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (!hr__list_parse(&c, text, size, "list", &error)) {
        if (!c->header->samples || c->arena_used != c->header->arena_bytes)
            abort();
        for (uint64_t i = 0; i < c->header->samples; i++)
            if (!*hr__catalog_at(c, c->names[i]))
                abort();
        hr__catalog_destroy(&c);
    }
    free(text);
    return 0;
}
