/* Fits a least-squares line through the bytes delivered so far; see steady.h. */
#include "storage/steady.h"

/* Fewer bins give no usable line: all files were read in a moment. */
#define LEAST_BINS 64

double hr__steady_rate(const uint64_t *bytes, size_t count, double each_s)
{
    double middle = ((double)count - 1) / 2, so_far = 0;
    double across = 0, along = 0; /* sums of products with the distance from the middle bin */
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
