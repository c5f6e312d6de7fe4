/* See pack_bench.h. */
#include "pack_bench.h"

#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *bench_at(const struct pack_bench *b, const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", b->root, name);
    return path;
}

void bench_open(struct pack_bench *b)
{
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    options.wait_sizes = 1; /* no background thread, because the tests fork */
    hr_dataset_unref(&b->folder);
    assert_int_equal(hr_dataset_open_folder(&b->folder, bench_at(b, "set"), &options, NULL), 0);
}

void bench_make(struct pack_bench *b)
{
    memset(b, 0, sizeof *b);
    fixture_make(&b->f, SAMPLES);
    strcpy(b->root, "/tmp/headrace-pack-XXXXXX");
    assert_non_null(mkdtemp(b->root));
    assert_int_equal(mkdir(bench_at(b, "set"), 0777), 0);
    assert_int_equal(mkdir(bench_at(b, "set/cat"), 0777), 0);
    assert_int_equal(mkdir(bench_at(b, "set/dog"), 0777), 0);
    for (size_t i = 0; i < SAMPLES; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%s/%03zu.jpg", i < 20 ? "cat" : "dog", i);
        assert_int_equal(link(b->f.paths[i], bench_at(b, name)), 0);
    }
    bench_open(b);
}

void bench_remove(struct pack_bench *b)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", b->root);
    hr_dataset_unref(&b->folder);
    fixture_remove(&b->f);
    assert_int_equal(system(command), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
}

void bench_options(struct hr_pack_options *options, int form, int threads)
{
    hr_pack_options_default(options);
    options->form = form;
    options->threads = threads;
    options->commit_bytes = 4096;
}

void bench_write(struct hr_dataset *dataset, const char *path,
                 const struct hr_pack_options *options, struct hr_pack_result *result)
{
    struct hr_error error = {0};
    if (hr_pack_write(dataset, path, options, result, &error))
        fail_msg("%s", error.message);
}

void bench_pack(const struct pack_bench *b, const char *name, int form, int threads)
{
    struct hr_pack_options options;
    bench_options(&options, form, threads);
    options.overwrite = 1;
    bench_write(b->folder, bench_at(b, name), &options, NULL);
}

char *bench_bytes(const char *path, size_t *length)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    char *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *length = (size_t)st.st_size;
    return bytes;
}

void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = bench_bytes(a, &n), *y = bench_bytes(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

struct hr_loader *bench_loader(const struct pack_bench *b, struct hr_dataset *dataset, int threads)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    fixture_options(&options);
    options.threads = threads;
    assert_int_equal(hr_loader_create(&loader, dataset, b->f.recipe, &options, NULL), 0);
    assert_int_equal(hr_loader_start_epoch(loader, 3, NULL), 0);
    return loader;
}

void assert_same_batches(const struct pack_bench *b, struct hr_dataset *other, int threads)
{
    struct hr_loader *one = bench_loader(b, b->folder, 1), *two = bench_loader(b, other, threads);
    struct hr_batch_view x, y;
    for (size_t i = 0; i < SAMPLES / 8; i++) {
        struct hr_batch *first = fixture_next(one), *second = fixture_next(two);
        hr_batch_get(first, &x);
        hr_batch_get(second, &y);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.images, y.images, x.count * x.spec.bytes);
        assert_memory_equal(x.labels, y.labels, x.count * sizeof *x.labels);
        assert_memory_equal(x.indices, y.indices, x.count * sizeof *x.indices);
        hr_batch_release(&first);
        hr_batch_release(&second);
    }
    hr_loader_destroy(&one);
    hr_loader_destroy(&two);
}

void assert_same_names(struct hr_dataset *x, struct hr_dataset *y)
{
    char a[256], b[256];
    assert_int_equal(hr_dataset_count(x), hr_dataset_count(y));
    assert_int_equal(hr_dataset_class_count(x), hr_dataset_class_count(y));
    for (size_t i = 0; i < hr_dataset_class_count(x); i++)
        assert_string_equal(hr_dataset_class_name(x, i), hr_dataset_class_name(y, i));
    for (size_t i = 0; i < hr_dataset_count(x); i++) {
        hr_dataset_key(x, i, a, sizeof a);
        hr_dataset_key(y, i, b, sizeof b);
        assert_string_equal(a, b);
        assert_int_equal(hr_dataset_label(x, i), hr_dataset_label(y, i));
    }
}
