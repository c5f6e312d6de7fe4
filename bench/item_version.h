/* Items for prepare_worker.c, in the version of the layout that a program measures. */
#ifndef HR_BENCH_ITEM_VERSION_H
#define HR_BENCH_ITEM_VERSION_H

#include <stddef.h>

/* Takes an item that the converter made, in malloc'ed memory, and returns it or what replaces it.
 */
unsigned char *item_in_version(unsigned char *item, size_t *length);

#endif
