/*
 * The parser of a list of mounts: any bytes give a name that fits, or none. The first two bytes are
 * the device to look for.
 */
#include "storage/filesystem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[16];
    memset(name, 'x', sizeof name);
    if (size < 3)
        return 0;
    FILE *mounts = fmemopen((void *)(data + 2), size - 2, "r");
    if (!mounts)
        return 0;
    int found = hr__filesystem_from_mounts(mounts, makedev(data[0], data[1]), name, sizeof name);
    fclose(mounts);
    if (found ? !*name || !memchr(name, 0, sizeof name) : *name != 'x')
        abort();
    return 0;
}
