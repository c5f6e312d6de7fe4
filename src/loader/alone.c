/* For programs that link this room without src/library.c: no agents. */
#include "loader/attach.h"

#include <stddef.h>

const struct hr__attachment *hr__library_attachment(void)
{
    return NULL;
}
