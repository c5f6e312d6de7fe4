/* Names of categories and devices in JSON, facts and reports. */
#ifndef HR_MEMORY_RECORD_NAMES_H
#define HR_MEMORY_RECORD_NAMES_H

#include <headrace/memory.h>

#include <stddef.h>

#define HR__CATEGORIES        (HR_MEMORY_WORKSPACE + 1)
#define HR__DEVICE_NAME_BYTES 24

/* "parameter", "activation", ...; "unknown" for an invalid category. Static. */
const char *hr__category_name(unsigned category);
/* Plural for display: "parameters", "activations", ... */
const char *hr__category_plural(unsigned category);

/* Writes "cpu", "cuda:0", "libraries"; returns out. */
const char *hr__device_name(int device, char out[HR__DEVICE_NAME_BYTES]);

#endif
