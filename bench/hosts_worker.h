/*
 * What the ranks of bench/hosts.py have in common, ours (hosts_rank.c) and the one with
 * fixed threads (hosts_fixed.c): options, recipe, the step that all ranks take together, and
 * the words that they exchange with the harness.
 *
 * A rank takes options as NAME=VALUE, prints a line of JSON when it is ready, and for each
 * line "pass" reads an epoch and prints what came of it. Ranks train synchronously: after
 * each batch they sleep for the step's time and wait for each other, as they would to sum
 * gradients.
 */
#ifndef HOSTS_WORKER_H
#define HOSTS_WORKER_H

#include <headrace/headrace.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct worker_options {
    const char *data;       /* an image folder */
    const char *cache;      /* ours: as hr_loader_options.cache; fixed: HOST:PORT,HOST:PORT,... */
    const char *assignment; /* ours: "local" or "exact"; NULL: what the loader takes */
    const char *together;   /* path of a file of zeros, at least sizeof(struct together) */
    int rank, world, batch, threads, ahead;
    uint64_t step_us; /* that the training of a batch takes */
    uint64_t seed;
};

/* Exits where an option is unknown or missing. */
void worker_parse(struct worker_options *options, int argc, char **argv);

/* In memory that all ranks map: who has come to the end of the step. */
struct together {
    _Atomic uint32_t arrived;
    _Atomic uint32_t generation; /* steps that are over; waited on */
};

struct together *worker_map_together(const struct worker_options *options);

/* Sleeps for the step's time and waits for the other ranks; exits where they do not come. */
void worker_step(struct together *together, const struct worker_options *options);

/* What a consumer saw of one epoch. */
struct worker_epoch {
    double seconds, cpu_seconds;
    double first_s; /* until its first batch was there */
    double wait_s;  /* for the later ones */
    uint64_t samples, batches;
};

void worker_print_epoch(const struct worker_epoch *epoch);

double worker_seconds(clockid_t clock);
_Noreturn void worker_die(const char *what, const char *detail);

/* The next line of the harness, without its end, into `line`; 0: no more is wanted. */
int worker_line(char *line, size_t room);

struct hr_dataset *worker_dataset(const char *path);

/* A small crop as bytes: the least preparation that decodes an image. */
struct hr_recipe *worker_recipe(void);

#endif
