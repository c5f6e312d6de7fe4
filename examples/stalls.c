/*
 * Trains a small classifier on an image folder (root/class/image) and measures where the
 * time of its loop goes. It prints a sentence and a table and writes stalls.json to the current
 * folder, from which `headrace predict stalls.json` computes what more cores, more memory or a
 * faster disk would change.
 *
 *   cc stalls.c $(pkg-config --cflags --libs headrace) -lm -o stalls
 *   ./stalls /path/to/imagefolder [SECONDS]
 *
 * The loop is an ordinary one, except that it calls hr_stalls_watch_next instead of
 * hr_loader_next. The watch then chooses the samples and repeats some of them, so the trained
 * classifier is discarded.
 */
#include <headrace/headrace.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SIDE     224
#define CELL     14 /* pixels of a side that are averaged to one feature */
#define GRID     (SIDE / CELL)
#define FEATURES (3 * GRID * GRID)
#define RATE     0.01f

/* A linear classifier, trained by gradient descent on the cross entropy. */
struct model {
    int classes;
    float *weights; /* classes x FEATURES */
    float *scores;  /* classes */
};

/* An image's means over cells: 3 x GRID x GRID of 3 x SIDE x SIDE. */
static void pool(const float *image, float *features)
{
    for (int i = 0; i < FEATURES; i++)
        features[i] = 0;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                features[(c * GRID + y / CELL) * GRID + x / CELL] +=
                    image[(c * SIDE + y) * SIDE + x] / (CELL * CELL);
}

/* Turns scores into probabilities. */
static void softmax(float *scores, int count)
{
    float most = scores[0], sum = 0;
    for (int i = 1; i < count; i++)
        most = fmaxf(most, scores[i]);
    for (int i = 0; i < count; i++)
        sum += scores[i] = expf(scores[i] - most);
    for (int i = 0; i < count; i++)
        scores[i] /= sum;
}

/* One step on one image. */
static void learn(struct model *model, const float *image, int64_t label)
{
    float features[FEATURES];
    pool(image, features);
    for (int k = 0; k < model->classes; k++) {
        const float *weights = model->weights + (size_t)k * FEATURES;
        model->scores[k] = 0;
        for (int i = 0; i < FEATURES; i++)
            model->scores[k] += weights[i] * features[i];
    }
    softmax(model->scores, model->classes);
    for (int k = 0; k < model->classes; k++) {
        float *weights = model->weights + (size_t)k * FEATURES;
        float error = model->scores[k] - (k == label);
        for (int i = 0; i < FEATURES; i++)
            weights[i] -= RATE * error * features[i];
    }
}

/* The training loop: until the watch knows enough. */
static int train(struct hr_stalls_watch *watch, struct model *model, struct hr_error *error)
{
    struct hr_batch *batch;
    struct hr_batch_view view;
    int r;
    while ((r = hr_stalls_watch_next(watch, &batch, error)) == 1) {
        hr_batch_get(batch, &view);
        const float *images = view.images;
        for (size_t i = 0; i < view.count; i++)
            learn(model, images + i * 3 * SIDE * SIDE, view.labels[i]);
        hr_batch_release(&batch);
    }
    return r;
}

static int measure(struct hr_loader *loader, struct model *model, double seconds,
                   struct hr_error *error)
{
    struct hr_stalls_watch *watch = NULL;
    struct hr_stalls *stalls = NULL;
    struct hr_stalls_watch_options options;
    hr_stalls_watch_options_default(&options);
    options.time_s = seconds;
    int r = hr_stalls_watch_open(&watch, loader, &options, error);
    if (!r)
        r = train(watch, model, error);
    if (!r)
        r = hr_stalls_watch_result(watch, &stalls, error);
    if (!r)
        r = hr_stalls_write_text(stalls, "-", 100, error); /* the sentence and a table */
    if (!r)
        r = hr_stalls_write(stalls, "stalls.json", error);
    hr_stalls_destroy(&stalls);
    hr_stalls_watch_close(&watch);
    return r;
}

static int make_recipe(struct hr_recipe **recipe, struct hr_error *error)
{
    struct hr_operation operations[4];
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = operations[0].u.random_resized_crop.width = SIDE;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&operations[2], HR_TO_DTYPE);
    operations[2].u.to_dtype.dtype = HR_FLOAT32;
    operations[2].u.to_dtype.scale = 1;
    hr_operation_default(&operations[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        operations[3].u.normalize.mean[c] = (double[]){0.485, 0.456, 0.406}[c];
        operations[3].u.normalize.std[c] = (double[]){0.229, 0.224, 0.225}[c];
    }
    return hr_recipe_create(recipe, operations, 4, NULL, error);
}

int main(int argc, char **argv)
{
    struct hr_dataset *dataset = NULL;
    struct hr_recipe *recipe = NULL;
    struct hr_loader *loader = NULL;
    struct hr_loader_options options;
    struct hr_error error = {0};
    struct model model = {0};
    double seconds = argc > 2 ? atof(argv[2]) : 30;
    if (argc < 2 || argc > 3 || !(seconds > 0))
        return fprintf(stderr, "usage: stalls IMAGEFOLDER [SECONDS]\n"), 2;
    hr_loader_options_default(&options);
    options.batch_size = 16;
    options.on_error = HR_ON_ERROR_SKIP;
    options.external_order = 1; /* the watch pushes what it wants to see */

    int r = hr_dataset_open_folder(&dataset, argv[1], NULL, &error);
    if (!r)
        r = make_recipe(&recipe, &error);
    if (!r)
        r = hr_loader_create(&loader, dataset, recipe, &options, &error);
    if (!r) {
        model.classes = (int)hr_dataset_class_count(dataset);
        model.weights = calloc((size_t)model.classes * FEATURES, sizeof *model.weights);
        model.scores = calloc((size_t)model.classes, sizeof *model.scores);
        if (model.weights && model.scores)
            r = measure(loader, &model, seconds, &error);
        else
            r = -1, snprintf(error.message, sizeof error.message, "out of memory");
    }
    if (r)
        fprintf(stderr, "stalls: %s\n", error.message);
    free(model.weights);
    free(model.scores);
    hr_loader_destroy(&loader);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
    return r ? 3 : 0;
}
