/* The library is its rooms (see src/meson.build). This file knows the loader and the agent: it
 * tells loaders with options.agent who prepares their batches. */
#include "agent/client/attach.h"
#include "loader/attach.h"

#include <headrace/headrace.h>

_Static_assert(sizeof(struct hr_error) == sizeof(int) + HR_ERROR_MESSAGE_BYTES, "part of the ABI");

const struct hr__attachment *hr__library_attachment(void)
{
    return &hr__attachment_agent;
}
