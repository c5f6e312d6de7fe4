/*
 * Bytes from a server in place of a rank's record or a text of inputs: they are parsed completely,
 * or refused. An accepted record is the same after it is written and read again, and inputs are
 * found by their names.
 */
#include "cluster/meeting_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const char *text)
{
    struct hr__meeting_record record, again;
    char written[HR__MEETING_RECORD];
    if (hr__meeting_record_read(&record, text))
        return;
    if (record.world_size < 1 || record.host < -1 || !record.number ||
        hr__meeting_record_write(written, &record) || hr__meeting_record_read(&again, written) ||
        memcmp(&record, &again, sizeof record))
        abort();
}

/* Checks the same bytes with a correct checksum, which no mutation finds. */
static void check_sealed(const char *text, size_t size)
{
    char *sealed = malloc(size + 32);
    if (!sealed)
        return;
    snprintf(sealed, size + 32, "hr1 %08" PRIx32 " %s", hr__meeting_record_check(text), text);
    check_record(sealed);
    free(sealed);
}

static void check_inputs(const char *text, size_t size)
{
    struct hr__meeting_value value, found;
    const char *at = text;
    size_t seen = 0;
    while (hr__meeting_inputs_next(&at, &value)) {
        if (value.name < text || value.value + value.value_length > text + size ||
            memchr(value.value, '\n', value.value_length))
            abort();
        if (seen++ < 16 && !hr__meeting_inputs_find(text, value.name, value.name_length, &found))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    check_record(text);
    check_sealed(text, size);
    check_inputs(text, size);
    const struct hr__meeting_input inputs[] = {{text, text, NULL}, {"x", text, NULL}};
    char written[HR__MEETING_TEXT];
    hr__meeting_inputs_write(written, inputs, 2);
    if (strnlen(written, sizeof written) == sizeof written)
        abort();
    check_inputs(written, strlen(written));
    free(text);
    return 0;
}
