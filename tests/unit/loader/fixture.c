/* See fixture.h. */
#include "fixture.h"
#include "wrapped.h"

#include "base/memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#define LABELS 7

/* Samples whose tensors a fixture remembers. */
#define REMEMBERED 1024

/* What fixture_check has prepared: most tests see the same samples many times, and preparing them
 * takes most of the time with a sanitizer. */
struct fixture_known {
    struct hr_recipe *recipe; /* of the tensors; this holds a reference */
    struct {
        void *bytes;
        size_t length;
    } * files; /* contents of each file when its samples were prepared */
    struct {
        struct hr_draw_key key;
        void *tensor;
    } samples[REMEMBERED];
};

void (*fixture_before_prepare)(uint64_t index);
void (*fixture_before_read)(const char *path);
void (*fixture_before_bytes)(const void *bytes, size_t length);

int __wrap_hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                                 const struct hr_item *item, const struct hr_draw_key *key,
                                 const struct hr__prepared *prepared, struct hr_error *error)
{
    if (fixture_before_prepare)
        fixture_before_prepare(key->index);
    if (fixture_before_bytes)
        fixture_before_bytes(item->bytes, item->length);
    return __real_hr__preparer_run_item(preparer, recipe, item, key, prepared, error);
}

int __wrap_hr__read_file(struct hr__read *read, uint64_t max_bytes)
{
    if (fixture_before_read)
        fixture_before_read(read->path);
    return __real_hr__read_file(read, max_bytes);
}

void fixture_delay(uint64_t index)
{
    static atomic_uint calls;
    unsigned n = atomic_fetch_add(&calls, 1) * 2654435761u + (unsigned)index * 40503u;
    if (n % 3 == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(n >> 8) % 2000000}, NULL);
}

void fixture_settle(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 40000000}, NULL);
}

static void write_jpeg(const char *path, size_t index)
{
    int width = 40 + (int)(index * 7 % 50), height = 36 + (int)(index * 11 % 40);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 85, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    unsigned char row[3 * 128];
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            row[3 * x] = (unsigned char)(x * 5 + (int)index * 37);
            row[3 * x + 1] = (unsigned char)(y * 6 + (int)index * 11);
            row[3 * x + 2] = (unsigned char)((x ^ y) * 3 + (int)index * 71);
        }
        JSAMPROW rows[1] = {row};
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    assert_int_equal(fclose(file), 0);
}

static struct hr_recipe *make_recipe(void)
{
    struct hr_operation operations[4];
    struct hr_recipe *recipe = NULL;
    struct hr_error error;
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = 24;
    operations[0].u.random_resized_crop.width = 24;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&operations[2], HR_TO_DTYPE);
    operations[2].u.to_dtype.dtype = HR_FLOAT32;
    operations[2].u.to_dtype.scale = 1;
    hr_operation_default(&operations[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        operations[3].u.normalize.mean[c] = 0.45;
        operations[3].u.normalize.std[c] = 0.225;
    }
    if (hr_recipe_create(&recipe, operations, 4, NULL, &error))
        fail_msg("%s", error.message);
    return recipe;
}

void fixture_make(struct fixture *f, size_t count)
{
    struct hr_error error;
    if (hr__allocated(HR__TAG_LOADER))
        fail_msg("a test before this one failed, and left its loader");
    memset(f, 0, sizeof *f);
    f->count = count;
    strcpy(f->dir, "/tmp/headrace-loader-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->paths = calloc(count, sizeof *f->paths);
    int64_t *labels = calloc(count, sizeof *labels);
    assert_non_null(f->paths);
    assert_non_null(labels);
    for (size_t i = 0; i < count; i++) {
        assert_true(asprintf(&f->paths[i], "%s/%05zu.jpg", f->dir, i) > 0);
        write_jpeg(f->paths[i], i);
        labels[i] = (int64_t)(i % LABELS);
    }
    if (hr_dataset_from_paths(&f->dataset, (const char *const *)f->paths, labels, count, &error))
        fail_msg("%s", error.message);
    free(labels);
    fixture_settle();
    f->recipe = make_recipe();
    hr_recipe_output(f->recipe, &f->spec);
    assert_int_equal(hr_preparer_create(&f->preparer, &error), 0);
    f->expected = aligned_alloc(64, (f->spec.bytes + 63) / 64 * 64);
    assert_non_null(f->expected);
    f->known = calloc(1, sizeof *f->known);
    assert_non_null(f->known);
    f->known->files = calloc(count, sizeof *f->known->files);
    assert_non_null(f->known->files);
    fixture_before_prepare = NULL;
    fixture_before_read = NULL;
    fixture_before_bytes = NULL;
}

static void forget(struct fixture_known *known)
{
    for (size_t i = 0; i < REMEMBERED; i++) {
        free(known->samples[i].tensor);
        known->samples[i].tensor = NULL;
    }
    hr_recipe_unref(&known->recipe);
}

static void remove_known(struct fixture *f)
{
    forget(f->known);
    for (size_t i = 0; i < f->count; i++)
        free(f->known->files[i].bytes);
    free(f->known->files);
    free(f->known);
}

void fixture_remove(struct fixture *f)
{
    remove_known(f);
    fixture_before_prepare = NULL;
    fixture_before_read = NULL;
    fixture_before_bytes = NULL;
    for (size_t i = 0; i < f->count; i++) {
        unlink(f->paths[i]);
        free(f->paths[i]);
    }
    free(f->paths);
    assert_int_equal(rmdir(f->dir), 0);
    hr_dataset_unref(&f->dataset);
    hr_recipe_unref(&f->recipe);
    hr_preparer_destroy(&f->preparer);
    free(f->expected);
}

int fixture_end(struct fixture *f)
{
    /* A test that failed left its loader, whose threads still use all of this. */
    if (hr__allocated(HR__TAG_LOADER))
        return -1;
    fixture_remove(f);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
    assert_int_equal(hr__allocated(HR__TAG_SLOT), 0);
    assert_int_equal(hr__allocated(HR__TAG_STALLS), 0);
    return 0;
}

void fixture_spoil(const struct fixture *f, size_t index, const char *bytes)
{
    assert_int_equal(unlink(f->paths[index]), 0);
    if (!bytes)
        return;
    test_write_text(f->paths[index], bytes);
}

void fixture_options(struct hr_loader_options *options)
{
    hr_loader_options_default(options);
    options->batch_size = 8;
    options->shuffle = 1;
    options->seed = FIXTURE_SEED;
    options->threads = 2;
}

struct hr_loader *fixture_loader(const struct fixture *f, const struct hr_loader_options *options)
{
    struct hr_loader *loader = NULL;
    struct hr_error error;
    if (hr_loader_create(&loader, f->dataset, f->recipe, options, &error))
        fail_msg("%s", error.message);
    return loader;
}

static void *copy_of(const void *bytes, size_t length)
{
    void *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    return copy;
}

/* Returns the tensor of a sample, whose file has these contents. */
static const void *expected_tensor(const struct fixture *f, const struct hr__read *read,
                                   const struct hr_draw_key *key)
{
    struct fixture_known *known = f->known;
    size_t index = (size_t)key->index;
    int is_other_file = !known->files[index].bytes || known->files[index].length != read->length ||
                        memcmp(known->files[index].bytes, read->bytes, read->length) != 0;
    if (known->recipe != f->recipe || (is_other_file && known->files[index].bytes)) {
        forget(known);
        known->recipe = hr_recipe_ref(f->recipe);
    }
    if (is_other_file) {
        free(known->files[index].bytes);
        known->files[index].bytes = copy_of(read->bytes, read->length);
        known->files[index].length = read->length;
    }
    size_t slot = (size_t)(key->epoch * 61 + (key->epoch >> 32) + key->index) % REMEMBERED;
    const struct hr_draw_key *before = &known->samples[slot].key;
    if (known->samples[slot].tensor && before->epoch == key->epoch && before->index == key->index)
        return known->samples[slot].tensor;
    struct hr_error error;
    if (hr_preparer_run(f->preparer, f->recipe, read->bytes, read->length, key, f->expected,
                        &error))
        fail_msg("%s", error.message);
    free(known->samples[slot].tensor);
    known->samples[slot].tensor = copy_of(f->expected, f->spec.bytes);
    known->samples[slot].key = *key;
    return known->samples[slot].tensor;
}

void fixture_check_sample(const struct fixture *f, uint64_t epoch, int64_t index, int64_t label,
                          const void *image)
{
    assert_in_range(index, 0, f->count - 1);
    assert_int_equal(label, index % LABELS);
    struct hr_draw_key key = {.seed = FIXTURE_SEED, .epoch = epoch, .index = (uint64_t)index};
    struct hr__read read = {.path = f->paths[index], .expected = -1};
    assert_int_equal(__real_hr__read_file(&read, 0), 0);
    const void *expected = expected_tensor(f, &read, &key);
    hr__free(read.bytes);
    if (memcmp(image, expected, f->spec.bytes)) /* which is fast, and says less */
        assert_memory_equal(image, expected, f->spec.bytes);
}

void fixture_check(const struct fixture *f, const struct hr_batch *batch, int external,
                   uint64_t position)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    assert_int_equal((uintptr_t)view.images % 64, 0);
    for (size_t i = 0; i < view.count; i++)
        fixture_check_sample(f, view.epoch + (external ? (position + i) << 32 : 0), view.indices[i],
                             view.labels[i], (char *)view.images + i * f->spec.bytes);
}

struct hr_batch *fixture_next(struct hr_loader *loader)
{
    struct hr_batch *batch = NULL;
    struct hr_error error;
    int r = hr_loader_next(loader, &batch, &error);
    if (r < 0)
        fail_msg("%s", error.message);
    assert_int_equal(r, 1);
    assert_non_null(batch);
    return batch;
}
