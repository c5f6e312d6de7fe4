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
    fixture_before_prepare = NULL;
    fixture_before_read = NULL;
    fixture_before_bytes = NULL;
}

void fixture_remove(struct fixture *f)
{
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

void fixture_check(const struct fixture *f, const struct hr_batch *batch, int external,
                   uint64_t position)
{
    struct hr_batch_view view;
    struct hr_error error;
    hr_batch_get(batch, &view);
    assert_int_equal((uintptr_t)view.images % 64, 0);
    for (size_t i = 0; i < view.count; i++) {
        struct hr_draw_key key = {.seed = FIXTURE_SEED,
                                  .epoch = view.epoch + (external ? (position + i) << 32 : 0),
                                  .index = (uint64_t)view.indices[i]};
        assert_in_range(view.indices[i], 0, f->count - 1);
        assert_int_equal(view.labels[i], view.indices[i] % LABELS);
        struct hr__read read = {.path = f->paths[view.indices[i]], .expected = -1};
        assert_int_equal(__real_hr__read_file(&read, 0), 0);
        if (hr_preparer_run(f->preparer, f->recipe, read.bytes, read.length, &key, f->expected,
                            &error))
            fail_msg("%s", error.message);
        hr__free(read.bytes);
        assert_memory_equal((char *)view.images + i * f->spec.bytes, f->expected, f->spec.bytes);
    }
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
