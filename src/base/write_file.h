/* Writing to files. */
#ifndef HR_BASE_WRITE_FILE_H
#define HR_BASE_WRITE_FILE_H

#include <stddef.h>

/* Writes all of `bytes`, also where a call writes only some or a signal interrupts it. 0 or a
 * negative errno. */
int hr__write_all(int fd, const void *bytes, size_t length);

#endif
