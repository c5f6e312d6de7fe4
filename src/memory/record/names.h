/* Names of categories and devices, as JSON, facts and reports have them. */
#ifndef HR_MEMORY_RECORD_NAMES_H
#define HR_MEMORY_RECORD_NAMES_H

#include <headrace/memory.h>

#include <stddef.h>

#define HR__CATEGORIES        (HR_MEMORY_WORKSPACE + 1)
#define HR__DEVICE_NAME_BYTES 24

/* "parameter", "activation", ...; static. "unknown" of what is no category. */
const char *hr__category_name(unsigned category);
/* "parameters", "activations", ...: what blocks of a category are called. */
const char *hr__category_plural(unsigned category);

/* "cpu", "cuda:0", "libraries". Returns out. */
const char *hr__device_name(int device, char out[HR__DEVICE_NAME_BYTES]);

#endif
