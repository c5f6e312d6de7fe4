/* The straight line of least squares through the bytes delivered so far; see steady.h. */
#include "storage/steady.h"

/* Fewer show no line: files that were all read in a moment. */
#define LEAST_BINS 64

double hr__steady_rate(const uint64_t *bytes, size_t count, double each_s)
{
    double middle = ((double)count - 1) / 2, so_far = 0;
    double across = 0, along = 0; /* sums of products with the distance from the middle */
    if (count < LEAST_BINS)
        return 0;
    for (size_t i = 0; i < count; i++) {
        double at = (double)i - middle;
        so_far += (double)bytes[i];
        across += at * so_far;
        along += at * at;
    }
    return across / along / each_s;
}
