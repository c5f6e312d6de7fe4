/*
 * Several workers on one large image: the tensors are those of one worker, whoever decodes which
 * rows; an index that lies, damage, new epochs and destroying the loader in the middle change
 * nothing. A region's owner waits in these tests until another worker helps.
 */
#include "../codec/images.h"
#include "yard.h"

#include "codec/codec.h"
#include "codec/indexed.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 5

static struct fixture fixture;
static struct yard yard;

/* What owners and helpers did. */
static atomic_int is_help_wanted; /* owners wait until a band of theirs has been claimed */
static atomic_int shared, bands, failed;
static atomic_int pause_ms; /* before a band is decoded */

int __real_hr__decoder_shared(struct hr__decoder *decoder, const struct hr__shared_region *s,
                              const struct hr__row_claims *claims);
int __wrap_hr__decoder_shared(struct hr__decoder *decoder, const struct hr__shared_region *s,
                              const struct hr__row_claims *claims);
int __real_hr__decoder_band(struct hr__decoder *decoder, const struct hr__shared_region *s,
                            int from, int to);
int __wrap_hr__decoder_band(struct hr__decoder *decoder, const struct hr__shared_region *s,
                            int from, int to);

int __wrap_hr__decoder_shared(struct hr__decoder *decoder, const struct hr__shared_region *s,
                              const struct hr__row_claims *claims)
{
    const struct hr_region *region = &s->region;
    atomic_fetch_add(&shared, 1);
    /* A claim of no rows tells how many are left. */
    while (atomic_load(&is_help_wanted) &&
           claims->claim(claims->arg, region->y) == region->y + region->height)
        test_pause_ms(1);
    int r = __real_hr__decoder_shared(decoder, s, claims);
    atomic_fetch_add(&failed, r != 0);
    return r;
}

int __wrap_hr__decoder_band(struct hr__decoder *decoder, const struct hr__shared_region *s,
                            int from, int to)
{
    atomic_fetch_add(&bands, 1);
    test_pause_ms(atomic_load(&pause_ms));
    int r = __real_hr__decoder_band(decoder, s, from, to);
    atomic_fetch_add(&failed, r != 0);
    return r;
}

static void forget(void)
{
    atomic_store(&is_help_wanted, 0);
    atomic_store(&shared, 0);
    atomic_store(&bands, 0);
    atomic_store(&failed, 0);
    atomic_store(&pause_ms, 0);
}

/* One with ThreadSanitizer, whose code is ten times slower: each epoch shares all of its images. */
#ifdef __SANITIZE_THREAD__
#define EPOCHS 1
#else
#define EPOCHS 3
#endif

static struct bytes items[SAMPLES];

/* Items of 1.8 and more megapixels, of every form that can be shared; they take a while. */
static int make_items(void **state)
{
    static const enum hr_form form[SAMPLES] = {HR_FORM_INDEXED, HR_FORM_COEFFICIENTS,
                                               HR_FORM_INDEXED, HR_FORM_PLANES, HR_FORM_INDEXED};
    struct hr_converter_options options;
    struct hr_converter *converter;
    struct hr_item item;
    hr_converter_options_default(&options);
    options.trust = 1;
    assert_int_equal(hr_converter_create(&converter, &options, NULL), 0);
    for (int i = 0; i < SAMPLES; i++) {
        struct jpeg_spec spec = {.width = 1400 + 111 * i,
                                 .height = 1300 + 57 * i,
                                 .components = i == 4 ? 1 : 3,
                                 .h = {1 + (i != 2), 1, 1},
                                 .v = {1 + (i != 3), 1, 1},
                                 .quality = 80,
                                 .restart = i == 2 ? 7 : 0,
                                 .seed = (uint64_t)i};
        struct bytes file = make_jpeg(&spec);
        assert_int_equal(hr_converter_run(converter, form[i], file.data, file.length, &item, NULL),
                         0);
        items[i] = (struct bytes){.data = malloc(item.length), .length = item.length};
        assert_non_null(items[i].data);
        memcpy(items[i].data, item.bytes, item.length);
        free(file.data);
    }
    hr_converter_destroy(&converter);
    return 0;
}

static int free_items(void **state)
{
    for (int i = 0; i < SAMPLES; i++)
        free(items[i].data);
    return 0;
}

static int setup(void **state)
{
    fixture_make(&fixture, SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        test_write(fixture.paths[i], items[i].data, items[i].length);
    forget();
    return 0;
}

static int teardown(void **state)
{
    return fixture_end(&fixture);
}

/* From now on samples are whole images, so all of them are shared. */
static void use_whole_images(enum hr_damaged damaged)
{
    struct hr_recipe_options options;
    struct hr_operation operation[2];
    hr_recipe_options_default(&options);
    options.damaged = damaged;
    hr_operation_default(&operation[0], HR_RESIZE);
    operation[0].u.resize.height = operation[0].u.resize.width = 24;
    hr_operation_default(&operation[1], HR_TO_DTYPE);
    operation[1].u.to_dtype.dtype = HR_FLOAT32;
    hr_recipe_unref(&fixture.recipe);
    assert_int_equal(hr_recipe_create(&fixture.recipe, operation, 2, &options, NULL), 0);
    hr_recipe_output(fixture.recipe, &fixture.spec);
}

/* One sample at a time, so that all workers but one are free. */
static void one_at_a_time(struct hr_loader_options *options, int threads)
{
    fixture_options(options);
    options->batch_size = options->batches_ahead = 1;
    options->threads = threads;
}

static void check_epoch(struct hr_loader *loader, uint64_t epoch)
{
    struct hr_batch *batch;
    assert_int_equal(hr_loader_start_epoch(loader, epoch, NULL), 0);
    for (uint64_t i = 0; i < hr_loader_batches(loader); i++) {
        batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
}

static void tensors_are_the_same(void **state)
{
    for (int threads = 1; threads <= 4; threads++) {
        struct hr_loader_options options;
        one_at_a_time(&options, threads);
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        forget();
        atomic_store(&is_help_wanted, threads > 1);
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            check_epoch(loader, epoch);
        assert_true(atomic_load(&shared) > 0 && !atomic_load(&failed));
        assert_int_equal(atomic_load(&bands) >= atomic_load(&shared), threads > 1);
        hr_loader_destroy(&loader);
    }
}

static void several_images_are_shared_at_once(void **state)
{
    struct hr_loader_options options;
    use_whole_images(HR_DAMAGED_REFUSE);
    fixture_options(&options);
    options.batch_size = 3;
    options.batches_ahead = 1;
    options.threads = 4;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    atomic_store(&is_help_wanted, 1);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        check_epoch(loader, epoch);
    assert_true(atomic_load(&bands) >= EPOCHS * SAMPLES && !atomic_load(&failed));
    hr_loader_destroy(&loader);
}

/* Copies an item; the caller frees it. */
static struct bytes copy_item(int index)
{
    struct bytes item = {.data = malloc(items[index].length), .length = items[index].length};
    assert_non_null(item.data);
    memcpy(item.data, items[index].data, item.length);
    return item;
}

static void an_index_that_lies_costs_only_time(void **state)
{
    struct hr_loader_options options;
    struct hr__indexed parts;
    struct bytes item = copy_item(0);
    assert_int_equal(hr__indexed_open(&parts, item.data, item.length, NULL), 0);
    /* DC coefficients of every other point near the image's end, where the first helper begins */
    uint8_t *points = item.data + (parts.index.points - item.data);
    for (uint64_t k = parts.index.count * 9 / 10; k < parts.index.count; k += 2)
        points[k * HR__POINT_BYTES + 5] ^= 16;
    test_write(fixture.paths[0], item.data, item.length);
    free(item.data);
    use_whole_images(HR_DAMAGED_REFUSE);
    one_at_a_time(&options, 3);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    atomic_store(&is_help_wanted, 1);
    check_epoch(loader, 0);
    assert_true(atomic_load(&failed) > 0);
    hr_loader_destroy(&loader);
}

/* Runs the fixture's recipe on an item alone. */
static int prepare_alone(const struct bytes *item, struct hr_error *error)
{
    const struct hr_draw_key key = {.seed = FIXTURE_SEED};
    return hr_preparer_run(fixture.preparer, fixture.recipe, item->data, item->length, &key,
                           fixture.expected, error);
}

/* Damages the scan of sample 0 near its end such that the sample is used only if damaged images are
 * accepted. Gives the error of who refuses it. */
static void spoil(struct hr_error *error)
{
    struct bytes item = copy_item(0);
    struct hr__indexed parts;
    int is_found = 0;
    assert_int_equal(hr__indexed_open(&parts, item.data, item.length, NULL), 0);
    uint8_t *file = item.data + (parts.file.bytes - item.data);
    for (size_t at = parts.file.length * 9 / 10; !is_found; at += 101) {
        uint8_t before[16];
        assert_true(at + sizeof before < parts.file.length);
        memcpy(before, file + at, sizeof before);
        for (size_t i = 0; i < sizeof before; i++)
            file[at + i] = (uint8_t)(0xF0 + i % 15);
        use_whole_images(HR_DAMAGED_REFUSE);
        is_found = prepare_alone(&item, error) == -EBADMSG;
        use_whole_images(HR_DAMAGED_ACCEPT);
        is_found = is_found && !prepare_alone(&item, NULL);
        if (!is_found)
            memcpy(file + at, before, sizeof before);
    }
    test_write(fixture.paths[0], item.data, item.length);
    free(item.data);
}

static void damage_is_found_as_by_one_worker(void **state)
{
    struct hr_loader_options options;
    struct hr_batch *batch;
    struct hr_error why, error;
    spoil(&why);
    /* accepted, with the pixels of one worker */
    one_at_a_time(&options, 3);
    options.shuffle = 0;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    atomic_store(&is_help_wanted, 1);
    check_epoch(loader, 0);
    assert_int_equal(hr_loader_damaged_count(loader), 1);
    assert_true(atomic_load(&failed) > 0);
    hr_loader_destroy(&loader);
    /* refused, for the same reason */
    use_whole_images(HR_DAMAGED_REFUSE);
    loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EBADMSG);
    assert_non_null(strstr(error.message, why.message));
    hr_loader_destroy(&loader);
    /* skipped: a stand-in has its place */
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 1;
    loader = fixture_loader(&fixture, &options);
    check_epoch(loader, 0);
    assert_int_equal(hr_loader_skipped_count(loader), 1);
    hr_loader_destroy(&loader);
}

static void wait_for_band(void)
{
    while (!atomic_load(&bands))
        test_pause_ms(1);
}

static void epochs_and_loaders_end_in_the_middle(void **state)
{
    struct hr_loader_options options;
    use_whole_images(HR_DAMAGED_REFUSE);
    one_at_a_time(&options, 3);
    atomic_store(&is_help_wanted, 1);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        atomic_store(&pause_ms, 20);
        atomic_store(&bands, 0);
        assert_int_equal(hr_loader_start_epoch(loader, epoch, NULL), 0);
        wait_for_band();
        atomic_store(&pause_ms, 0);
        if (epoch)
            check_epoch(loader, 3 + epoch);
    }
    hr_loader_destroy(&loader);
    atomic_store(&pause_ms, 20);
    for (int i = 0; i < 3; i++) {
        loader = fixture_loader(&fixture, &options);
        atomic_store(&bands, 0);
        assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
        wait_for_band();
        hr_loader_destroy(&loader);
    }
}

static void crews_help(void **state)
{
    struct hr_loader_options options, embedded;
    struct samples expected;
    one_at_a_time(&options, 0);
    use_whole_images(HR_DAMAGED_REFUSE);
    embedded_options(&embedded, &options);
    samples_make(&expected, &fixture, &embedded, 0, 0);
    forget();
    struct hr__crew *crew = crew_make(3);
    atomic_store(&is_help_wanted, 1);
    yard_make(&yard, crew, &fixture, &options);
    assert_int_equal(yard_start(&yard, 0, 0), SAMPLES);
    yard_wait(&yard, SAMPLES);
    samples_compare(&expected, &yard, 0, 0);
    assert_true(atomic_load(&bands) >= SAMPLES && !atomic_load(&failed));
    /* and a publisher ends in the middle */
    atomic_store(&pause_ms, 20);
    atomic_store(&bands, 0);
    yard_start(&yard, 1, 0);
    wait_for_band();
    atomic_store(&is_help_wanted, 0);
    yard_remove(&yard);
    hr__crew_destroy(&crew);
    samples_free(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_are_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(several_images_are_shared_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(an_index_that_lies_costs_only_time, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_found_as_by_one_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(epochs_and_loaders_end_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(crews_help, setup, teardown),
    };
    return cmocka_run_group_tests(tests, make_items, free_items);
}
