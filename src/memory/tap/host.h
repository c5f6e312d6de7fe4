/* Settings of host.c that alone.c changes at start. */
#ifndef HR_MEMORY_TAP_HOST_H
#define HR_MEMORY_TAP_HOST_H

#include <stdint.h>

/* Sets the smallest allocation, in bytes, to report of those not made by PyTorch. The default
 * applies until the program's constructors have run. */
void hr__tap_set_least(uint64_t bytes);

#endif
