/* Copies versioned structs between program and library; see versioned.h. */
#include "base/versioned.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* A larger size cannot be genuine: the member was not initialised. */
#define MOST_BYTES 4096

void hr__versioned_default(void *out, size_t size, const void *defaults, size_t known)
{
    memset(out, 0, size);
    memcpy(out, defaults, size < known ? size : known);
    if (size >= sizeof size)
        memcpy(out, &size, sizeof size);
}

int hr__versioned_take(void *out, size_t known, const void *given, const char *name,
                       struct hr_error *error)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > MOST_BYTES)
        return hr__fail(error, -EINVAL, "%s.size is %zu: call %s_default first", name, size, name);
    for (size_t i = known; i < size; i++)
        if (((const char *)given)[i])
            return hr__fail(error, -EINVAL,
                            "%s has a member set that headrace %s does not know: update the "
                            "library, or leave that member as %s_default makes it",
                            name, hr_version(), name);
    memcpy(out, given, size < known ? size : known);
    memcpy(out, &known, sizeof known);
    return 0;
}

void hr__versioned_give(void *out, const void *result, size_t known)
{
    size_t size;
    memcpy(&size, out, sizeof size);
    size = size < known ? size : known;
    if (size < sizeof size)
        return;
    memcpy(out, result, size);
    memcpy(out, &size, sizeof size);
}
