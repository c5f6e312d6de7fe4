/* Names of categories and devices; see names.h. */
#include "memory/record/names.h"

#include <stdio.h>

static const struct {
    const char *name, *plural;
} categories[HR__CATEGORIES] = {
    [HR_MEMORY_UNKNOWN] = {"unknown", "of unknown use"},
    [HR_MEMORY_PARAMETER] = {"parameter", "parameters"},
    [HR_MEMORY_GRADIENT] = {"gradient", "gradients"},
    [HR_MEMORY_OPTIMIZER_STATE] = {"optimizer state", "optimizer state"},
    [HR_MEMORY_INPUT] = {"input", "inputs"},
    [HR_MEMORY_ACTIVATION] = {"activation", "activations"},
    [HR_MEMORY_TEMPORARY] = {"temporary", "temporaries"},
    [HR_MEMORY_WORKSPACE] = {"workspace", "workspaces"},
};

const char *hr__category_name(unsigned category)
{
    return categories[category < HR__CATEGORIES ? category : HR_MEMORY_UNKNOWN].name;
}

const char *hr__category_plural(unsigned category)
{
    return categories[category < HR__CATEGORIES ? category : HR_MEMORY_UNKNOWN].plural;
}

const char *hr__device_name(int device, char out[HR__DEVICE_NAME_BYTES])
{
    if (device == HR_MEMORY_LIBRARIES)
        snprintf(out, HR__DEVICE_NAME_BYTES, "libraries");
    else if (device)
        snprintf(out, HR__DEVICE_NAME_BYTES, "cuda:%d", device - 1);
    else
        snprintf(out, HR__DEVICE_NAME_BYTES, "cpu");
    return out;
}
