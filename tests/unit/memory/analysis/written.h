/* Records written by hand: events with given times, in the given order. */
#ifndef HR_TEST_WRITTEN_H
#define HR_TEST_WRITTEN_H

#include "../../test.h"

#include "memory/analysis/analysis.h"

/* A record that is being written, for one test at a time. */
struct written {
    struct hr_memory_recorder *recorder;
    char path[64];
    uint8_t phase, device, flags; /* of the next events */
    uint32_t call;                /* of the next accesses; 0: of none */
};

/* cmocka's set-up and tear-down; *state is the struct written. */
int written_set_up(void **state);
int written_tear_down(void **state);

void written_put(struct written *w, enum hr_memory_kind kind, uint64_t time_ns, uint64_t address,
                 uint64_t bytes, uint32_t what);

/* Writes a READ or WRITE by the operator with the name `op`, in call w->call. */
void written_access(struct written *w, enum hr_memory_kind kind, uint64_t time_ns, uint64_t address,
                    uint32_t op);

uint32_t written_name(struct written *w, const char *name);

/* Ends the record and opens it. */
struct hr__record *written_done(struct written *w);

/* Ends the record and analyses it; close *record after the analysis is destroyed. */
struct hr__memory *written_analyse(struct written *w, struct hr__record **record);

#endif
