/* Settings of host.c that alone.c changes. */
#ifndef HR_MEMORY_TAP_HOST_H
#define HR_MEMORY_TAP_HOST_H

#include <stdint.h>

/* From how many bytes on allocations are told that are not PyTorch's. Before the program's
 * constructors have run it is the default. */
void hr__tap_set_least(uint64_t bytes);

#endif
