/*
 * The text that describes a cache: any bytes are parsed completely, or refused with a message;
 * accepted values are within the bounds of their struct.
 */
#include "cache/spec.h"

#include <headrace/form.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__cache_spec spec;
    struct hr__cache_tiers tiers;
    char directory[HR__CACHE_PATH];
    struct hr_error error = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    int r = hr__cache_spec_parse(&spec, text, &error);
    if (r ? !error.message[0]
          : !spec.size_bytes || !spec.share_bytes || spec.share_bytes > spec.size_bytes ||
                strnlen(spec.name, sizeof spec.name) == sizeof spec.name ||
                strnlen(spec.group, sizeof spec.group) == sizeof spec.group ||
                strchr(spec.name, '/') || spec.form < HR__FORM_UNSET || spec.form >= HR_FORMS)
        abort();
    error.message[0] = 0;
    r = hr__cache_tiers_parse(&tiers, text, &error);
    if (r ? !error.message[0]
          : !tiers.first.share_bytes || (*tiers.disk.path && !tiers.disk.share_bytes) ||
                strnlen(tiers.disk.path, sizeof tiers.disk.path) == sizeof tiers.disk.path)
        abort();
    error.message[0] = 0;
    r = hr__hosts_disk_parse(&spec, text, &error);
    if (r ? !error.message[0] : *spec.path && !spec.share_bytes)
        abort();
    if (!hr__cache_spec_directory(directory, text, &error) && directory[0] != '/')
        abort();
    free(text);
    return 0;
}
