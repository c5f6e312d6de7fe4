/* Fragmentation; see segments.h. */
#include "memory/segments.h"

#include "base/memory.h"

void hr__segments_clear(struct hr__segments *segments)
{
    hr__free(segments->points);
    *segments = (struct hr__segments){.points = NULL};
}
