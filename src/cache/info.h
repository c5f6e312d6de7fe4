/* Describes a segment for programs that inspect caches. */
#ifndef HR_CACHE_INFO_H
#define HR_CACHE_INFO_H

#include "cache/segment.h"

#include <headrace/cache.h>

/* Fills in all of *out. Touches one page of the segment per 2 MiB. Any thread. */
void hr__info_fill(struct hr_cache_info *out, struct hr__segment *segment);

/* Returns the bytes in huge pages of the mapping [from, to), from the text of /proc/self/smaps.
 * Pure. */
uint64_t hr__info_huge_bytes(const char *smaps, uint64_t from, uint64_t to);

#endif
