/*
 * Reads an image folder (root/class/image) in batches of 64 for training, and
 * prints how fast.
 *
 *   cc read_batches.c $(pkg-config --cflags --libs headrace) -o read_batches
 *   ./read_batches /path/to/imagefolder
 */
#include <headrace/headrace.h>
#include <stdio.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    struct hr_dataset *dataset = NULL;
    struct hr_recipe *recipe = NULL;
    struct hr_loader *loader = NULL;
    struct hr_batch *batch;
    struct hr_batch_view view;
    struct hr_loader_options options;
    struct hr_operation operations[4];
    struct hr_error error = {0};
    if (argc != 2)
        return fprintf(stderr, "usage: read_batches IMAGEFOLDER\n"), 2;

    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = operations[0].u.random_resized_crop.width = 224;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&operations[2], HR_TO_DTYPE);
    operations[2].u.to_dtype.dtype = HR_FLOAT32;
    operations[2].u.to_dtype.scale = 1;
    hr_operation_default(&operations[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        operations[3].u.normalize.mean[c] = (double[]){0.485, 0.456, 0.406}[c];
        operations[3].u.normalize.std[c] = (double[]){0.229, 0.224, 0.225}[c];
    }
    hr_loader_options_default(&options);
    options.batch_size = 64;
    options.shuffle = 1;
    options.on_error = HR_ON_ERROR_SKIP; /* bad files are replaced, and listed */

    int r = hr_dataset_open(&dataset, argv[1], NULL, &error);
    if (!r)
        r = hr_recipe_create(&recipe, operations, 4, NULL, &error);
    if (!r)
        r = hr_loader_create(&loader, dataset, recipe, &options, &error);
    if (!r)
        r = hr_loader_start_epoch(loader, 0, &error);
    size_t samples = 0;
    double start = seconds();
    while (r >= 0 && (r = hr_loader_next(loader, &batch, &error)) == 1) {
        hr_batch_get(batch, &view); /* view.images: count x 3 x 224 x 224 floats; view.labels */
        samples += view.count;
        hr_batch_release(&batch);
    }
    if (r)
        fprintf(stderr, "read_batches: %s\n", error.message);
    else
        printf("%zu samples of %zu classes, %.0f samples/s\n", samples,
               hr_dataset_class_count(dataset), (double)samples / (seconds() - start));
    hr_loader_destroy(&loader);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
    return r ? 3 : 0;
}
