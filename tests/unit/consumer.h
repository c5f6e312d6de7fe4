/* A test's consumer: if a loader returns an error, the test fails with its message. */
#ifndef TEST_CONSUMER_H
#define TEST_CONSUMER_H

#include "test.h"

#include <headrace/loader.h>

/* Starts an epoch. */
static inline void start(struct hr_loader *loader, uint64_t epoch)
{
    struct hr_error error;
    if (hr_loader_start_epoch(loader, epoch, &error))
        fail_msg("%s", error.message);
}

/* Gets the next batch. Returns 1; 0 at the epoch's end. */
static inline int next(struct hr_loader *loader, struct hr_batch **batch)
{
    struct hr_error error = {0};
    int r = hr_loader_next(loader, batch, &error);
    if (r < 0)
        fail_msg("%s", error.message);
    return r;
}

#endif
