/*
 * stalls.json: any bytes are refused with a message, or become a result that is the same after it
 * is written and read again.
 */
#include "base/memory.h"
#include "stalls/model/result.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_stalls *s, *again;
    struct hr_error error = {0};
    char *first, *second;
    size_t first_length, second_length;
    if (hr__stalls_from_json(&s, (const char *)data, size, "input", &error)) {
        if (s || !error.message[0])
            abort();
        return 0;
    }
    if (hr__stalls_to_json(s, &first, &first_length, &error) ||
        hr__stalls_from_json(&again, first, first_length, "again", &error) ||
        hr__stalls_to_json(again, &second, &second_length, &error) ||
        first_length != second_length || memcmp(first, second, first_length))
        abort();
    hr__free(first);
    hr__free(second);
    hr_stalls_destroy(&s);
    hr_stalls_destroy(&again);
    return 0;
}
