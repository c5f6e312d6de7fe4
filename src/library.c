/* The library is its rooms (see src/meson.build); this file only names it. */
#include <headrace/headrace.h>

_Static_assert(sizeof(struct hr_error) == sizeof(int) + HR_ERROR_MESSAGE_BYTES, "part of the ABI");
