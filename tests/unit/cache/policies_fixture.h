/* Runs a policy of the simulator (bench/policies.h). */
#ifndef POLICIES_FIXTURE_H
#define POLICIES_FIXTURE_H

#include "../../../bench/policies.h"
#include "../test.h"

/* Returns the number of bytes that a policy reads in all, on hosts that are alone. */
uint64_t policies_reads(const struct policies_stream *s, const char *name, uint64_t capacity);

#endif
