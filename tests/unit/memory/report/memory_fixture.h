/*
 * Records of a small training run with a known time for every event, so that the contents of
 * reports are known to the byte.
 */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H

#include <headrace/memory.h>

struct memory_fixture {
    const char *name; /* of the file */
    int batch;        /* samples of a batch; activations grow with it */
    int iterations;
    int odd;             /* the iteration with one more access; -1: none */
    int device;          /* 0: host; 1: the first accelerator, with segments */
    int is_hostile;      /* names contain codes that would break a page or a terminal */
    int refuses;         /* an allocation fails at the end */
    int with_relu_kept;  /* a larger activation that the backward pass does not need is kept */
    uint32_t first_line; /* of the stacks */
    uint64_t size;       /* bytes of each layer's parameters; 0: 1 MiB */
};

/* Writes the record into a folder of the test, and opens it. */
struct hr_memory *memory_fixture_open(const struct memory_fixture *f);

/* Returns the path of the record's file. */
const char *memory_fixture_path(const struct memory_fixture *f);

/* Removes the files and the folder. */
void memory_fixture_clean(void);

#endif
