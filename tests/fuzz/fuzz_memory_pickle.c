/* A pickle of any bytes is read, or refused with a message. */
#include "memory/import/pickle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Visits a part of its contents, to a bounded depth: a value may contain itself. */
static uint64_t walk(const struct hr__pickle_value *value, int depth)
{
    uint64_t number = 0, sum = value->kind;
    if (value->kind == HR__PICKLE_UNSET)
        abort();
    if (hr__pickle_u64(value, &number))
        sum += number;
    if (value->kind == HR__PICKLE_TEXT || value->kind == HR__PICKLE_BYTES)
        for (uint32_t i = 0; i <= value->length; i++)
            sum += (unsigned char)value->as.text[i];
    if (hr__pickle_get(value, "segments"))
        sum++;
    if (value->kind >= HR__PICKLE_LIST)
        for (uint32_t i = 0; i < value->as.many->count && i < 8 && depth < 6; i++)
            sum += walk(&value->as.many->items[i], depth + 1);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__input in;
    struct hr__pickle *pickle;
    struct hr_error error = {0};
    volatile uint64_t seen = 0;
    hr__input_memory(&in, "input", data, size);
    if (!hr__pickle_read(&pickle, &in, &error))
        seen = walk(hr__pickle_root(pickle), 0);
    else if (pickle || !error.message[0])
        abort();
    (void)seen;
    hr__pickle_destroy(&pickle);
    return 0;
}
