/*
 * A job of an agent, for the tests of headrace agent and headrace top: reads the epochs of a
 * dataset in batches of BATCH from a stream, with a pause after each batch. Prints "ready" after
 * the first batch; ends when its standard input is closed.
 *
 * Usage: agent_job SOCKET STREAM DATASET BATCH PAUSE_US; SOCKET and STREAM "": without an agent
 */
#include <headrace/headrace.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int make(struct hr_loader **out, char **argv, struct hr_error *error)
{
    struct hr_dataset *dataset = NULL;
    struct hr_recipe *recipe = NULL;
    struct hr_loader_options options;
    struct hr_operation crop;
    hr_operation_default(&crop, HR_RANDOM_RESIZED_CROP);
    crop.u.random_resized_crop.height = crop.u.random_resized_crop.width = 32;
    hr_loader_options_default(&options);
    options.agent = argv[1];
    options.stream = argv[2];
    options.batch_size = atoi(argv[4]);
    options.shuffle = 1;
    int r = hr_dataset_open(&dataset, argv[3], NULL, error);
    if (!r)
        r = hr_recipe_create(&recipe, &crop, 1, NULL, error);
    if (!r)
        r = hr_loader_create(out, dataset, recipe, &options, error);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
    return r;
}

/* Reads one epoch; returns 1 to continue. */
static int read_epoch(struct hr_loader *loader, uint64_t epoch, int pause_us,
                      struct hr_error *error)
{
    struct hr_batch *batch = NULL;
    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    int r = hr_loader_start_epoch(loader, epoch, error);
    for (int first = !epoch; !r; first = 0) {
        r = hr_loader_next(loader, &batch, error);
        if (r <= 0)
            return r ? r : 1;
        hr_batch_release(&batch);
        if (first) {
            puts("ready");
            fflush(stdout);
        }
        usleep((useconds_t)pause_us);
        r = poll(&end, 1, 0) ? -ECANCELED : 0;
    }
    return r;
}

int main(int argc, char **argv)
{
    struct hr_loader *loader = NULL;
    struct hr_error error = {0};
    if (argc != 6)
        return 2;
    int r = make(&loader, argv, &error);
    for (uint64_t epoch = 0; !r; epoch++) {
        r = read_epoch(loader, epoch, atoi(argv[5]), &error);
        r = r == 1 ? 0 : r;
    }
    hr_loader_destroy(&loader);
    if (r == -ECANCELED)
        return 0;
    fprintf(stderr, "%s\n", error.message);
    return 3;
}
