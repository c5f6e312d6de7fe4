/*
 * The common part of the ranks of bench/hosts.py, ours (hosts_rank.c) and the one with fixed
 * threads (hosts_fixed.c): options, recipe, the synchronous step of all ranks, and the messages
 * from and to the harness.
 *
 * A rank takes options as NAME=VALUE and prints a line of JSON when it is ready. For each line
 * "pass" it reads an epoch and prints the results. Ranks train synchronously: after each batch they
 * sleep for the step's time and wait for each other, as they would to sum gradients.
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
    const char *assignment; /* ours: "local" or "exact"; NULL: the loader's default */
    const char *together;   /* path of a file of zeros, at least sizeof(struct together) */
    int rank, world, batch, threads, ahead;
    uint64_t step_us; /* duration of training with a batch */
    uint64_t seed;
};

/* Parses the options. Exits if one is unknown or missing. */
void worker_parse(struct worker_options *options, int argc, char **argv);

/* The barrier at the end of a step, in memory that all ranks map. */
struct together {
    _Atomic uint32_t arrived;
    _Atomic uint32_t generation; /* steps that have ended; ranks wait on it */
};

struct together *worker_map_together(const struct worker_options *options);

/* Sleeps for the step's time and waits for the other ranks; exits if one is missing. */
void worker_step(struct together *together, const struct worker_options *options);

/* A consumer's measurements of one epoch. */
struct worker_epoch {
    double seconds, cpu_seconds;
    double first_s; /* wait for its first batch */
    double wait_s;  /* wait for the later ones */
    uint64_t samples, batches;
};

void worker_print_epoch(const struct worker_epoch *epoch);

double worker_seconds(clockid_t clock);
_Noreturn void worker_die(const char *what, const char *detail);

/* Reads the next line from the harness, without its end, into `line`. Returns 0 at the end. */
int worker_line(char *line, size_t room);

struct hr_dataset *worker_dataset(const char *path);

/* A small crop as bytes: the cheapest preparation that decodes an image. */
struct hr_recipe *worker_recipe(void);

#endif
