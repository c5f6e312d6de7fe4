/*
 * Compares the offsets used to read activity records with the CUPTI header of this machine; built
 * only if there is one.
 */
#include "memory/record/cupti.h"

#include <cuda.h>
#include <cupti.h>

#define WORK(record, begin_at, end_at, device_at, correlation_at)                                  \
    _Static_assert(offsetof(record, kind) == 0 && offsetof(record, start) == begin_at &&           \
                       offsetof(record, end) == end_at &&                                          \
                       offsetof(record, deviceId) == device_at &&                                  \
                       offsetof(record, correlationId) == correlation_at,                          \
                   #record)

WORK(CUpti_ActivityKernel8, 16, 24, 40, 92);
WORK(CUpti_ActivityMemcpy5, 16, 24, 32, 44);
WORK(CUpti_ActivityMemset4, 16, 24, 32, 44);
WORK(CUpti_ActivityMemcpyPtoP4, 16, 24, 32, 60);
WORK(CUpti_ActivityGraphTrace, 8, 16, 24, 4);

_Static_assert(offsetof(CUpti_ActivityExternalCorrelation, externalKind) == HR__CUPTI_EXTERNAL_KIND,
               "the kind of an external id");
_Static_assert(offsetof(CUpti_ActivityExternalCorrelation, externalId) == HR__CUPTI_EXTERNAL_ID,
               "an external id");
_Static_assert(offsetof(CUpti_ActivityExternalCorrelation, correlationId) ==
                   HR__CUPTI_EXTERNAL_CORRELATION,
               "a correlation id");
_Static_assert((int)CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 == HR__CUPTI_CORRELATION &&
                   (int)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == HR__CUPTI_FLUSH_FORCED &&
                   (int)CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ==
                       HR__CUPTI_OTHER_SUBSCRIBER &&
                   (int)CUPTI_ERROR_INSUFFICIENT_PRIVILEGES == HR__CUPTI_INSUFFICIENT_RIGHTS,
               "constants");
_Static_assert((int)CUPTI_ACTIVITY_KIND_MEMCPY == HR__CUPTI_MEMCPY &&
                   (int)CUPTI_ACTIVITY_KIND_MEMSET == HR__CUPTI_MEMSET &&
                   (int)CUPTI_ACTIVITY_KIND_DRIVER == HR__CUPTI_DRIVER &&
                   (int)CUPTI_ACTIVITY_KIND_RUNTIME == HR__CUPTI_RUNTIME &&
                   (int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == HR__CUPTI_KERNEL &&
                   (int)CUPTI_ACTIVITY_KIND_MEMCPY2 == HR__CUPTI_MEMCPY2 &&
                   (int)CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION == HR__CUPTI_EXTERNAL &&
                   (int)CUPTI_ACTIVITY_KIND_GRAPH_TRACE == HR__CUPTI_GRAPH,
               "kinds");

/* The offsets compared above are those that the library uses. */
int main(void)
{
    static const struct hr__cupti_layout layouts[] = HR__CUPTI_LAYOUTS;
    static const struct hr__cupti_layout expected[] = {{HR__CUPTI_KERNEL, 16, 24, 40, 92},
                                                       {HR__CUPTI_MEMCPY, 16, 24, 32, 44},
                                                       {HR__CUPTI_MEMSET, 16, 24, 32, 44},
                                                       {HR__CUPTI_MEMCPY2, 16, 24, 32, 60},
                                                       {HR__CUPTI_GRAPH, 8, 16, 24, 4}};
    int differ = sizeof layouts != sizeof expected;
    for (size_t i = 0; !differ && i < sizeof expected / sizeof *expected; i++)
        differ = layouts[i].kind != expected[i].kind || layouts[i].begin != expected[i].begin ||
                 layouts[i].end != expected[i].end || layouts[i].device != expected[i].device ||
                 layouts[i].correlation != expected[i].correlation;
    return differ;
}
