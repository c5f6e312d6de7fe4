/*
 * What the jobs of the soaks share: a dataset with a loader, the checksums of all pixels that are
 * right, and how a job prints, fails and ends.
 */
#ifndef HR_SOAK_WORKER_H
#define HR_SOAK_WORKER_H

#include <headrace/headrace.h>

#include <signal.h>

/* A job. The reference has `sums` checksums for each sample of the dataset. */
struct soak_worker {
    struct hr_dataset *dataset;
    struct hr_loader *loader;
    uint64_t *reference;
};

/* Prints warnings of the library. */
void worker_begin(void);

/* From now on SIGTERM only sets worker_is_ending. Without SA_RESTART, so that a wait for a batch
 * ends, too. */
void worker_catch_end(void);
extern volatile sig_atomic_t worker_is_ending;

/* End the program: with status 3, an error of the library; with 9, wrong pixels. */
_Noreturn void worker_die(const struct hr_error *error);
_Noreturn void worker_complain(const char *what, uint64_t epoch, uint64_t index);

/* Opens the folder and makes the loader; takes the recipe over. Ends the program if that fails, or
 * SIGTERM came. */
void worker_open(struct soak_worker *w, const char *folder, struct hr_recipe *recipe,
                 const struct hr_loader_options *options, size_t sums);
void worker_close(struct soak_worker *w);

/* Makes a recipe of bytes; ends the program if that fails. The last operation is added. */
struct hr_recipe *worker_recipe(struct hr_operation *operations, int count);
/* A crop that depends only on the sample. */
struct hr_recipe *worker_crop(int side);

uint64_t worker_checksum(const struct hr_batch_view *view, size_t i);

/* Write and read the checksums of a reference; worker_write returns an exit status. */
int worker_write(const char *path, const uint64_t *sums, size_t count);
void worker_read(const char *path, uint64_t *sums, size_t count);

/* Prints a line with one write, so that a kill truncates at most the last one. */
void worker_print(const char *line, int length);
/* The same: `head`, and the indices of a batch. */
void worker_print_batch(const char *head, const struct hr_batch_view *view);

/* Reads words KEY=VALUE, which it modifies. Returns 0, or -1 if a word is none or `set` returns
 * -1. */
int worker_read_keys(char **words, int count,
                     int (*set)(void *plan, const char *key, const char *value), void *plan);

#endif
