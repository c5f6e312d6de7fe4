/*
 * The private cache: lookups find the offered or converted items, the budget is never exceeded and
 * no item is evicted, an item is a hit at every moment of its conversion; many threads at once,
 * failing allocations, freed memory.
 */
#include "../test.h"

#include "base/memory.h"
#include "cache/cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLES 500

static struct hr__cache *make(uint64_t samples, uint64_t budget)
{
    struct hr__cache *cache = NULL;
    struct hr_error error;
    struct hr__cache_options options = {.samples = samples, .budget_bytes = budget};
    if (hr__cache_create(&cache, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* The length and bytes of sample `index` in a form. */
static size_t length_of(uint64_t index, enum hr_form form)
{
    size_t length = 100 + index * 37 % 3000;
    return form == HR_FORM_INDEXED ? length + length / 3 : length;
}

static void fill(uint8_t *bytes, uint64_t index, enum hr_form form)
{
    size_t length = length_of(index, form);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(index * 131 + i * 7 + (size_t)form * 59);
}

static int offer(struct hr__cache *cache, uint64_t index, int convert, size_t reserve)
{
    uint8_t bytes[8192];
    fill(bytes, index, HR_FORM_ENCODED);
    struct hr__cache_offer o = {.index = index,
                                .bytes = bytes,
                                .length = length_of(index, HR_FORM_ENCODED),
                                .form = HR_FORM_ENCODED,
                                .convert = convert,
                                .reserve = reserve};
    return hr__cache_offer(cache, &o);
}

/* Returns non-zero if the sample is cached; its bytes must then be right. */
static int check(struct hr__cache *cache, uint64_t index, enum hr_form *form)
{
    uint8_t bytes[8192];
    struct hr__cache_item item;
    int has = hr__cache_has(cache, index);
    if (!hr__cache_find(cache, index, &item)) {
        assert_false(has);
        return 0;
    }
    assert_int_equal((uintptr_t)item.bytes % 64, 0);
    assert_int_equal(item.length, length_of(index, item.form));
    fill(bytes, index, item.form);
    assert_memory_equal(item.bytes, bytes, item.length);
    hr__cache_unpin(cache, &item);
    if (form)
        *form = item.form;
    return 1;
}

static int settle(struct hr__cache *cache, struct hr__cache_staged *staged, uint64_t index,
                  int convert, uint64_t leave_free)
{
    uint8_t bytes[8192];
    fill(bytes, index, HR_FORM_INDEXED);
    struct hr__cache_final final = {.bytes = convert ? bytes : NULL,
                                    .length = length_of(index, HR_FORM_INDEXED),
                                    .form = HR_FORM_INDEXED,
                                    .leave_free = leave_free};
    return hr__cache_settle(cache, staged, &final);
}

static uint64_t padded(size_t length)
{
    return (length + 63) / 64 * 64;
}

static void test_final_items(void **state)
{
    struct hr__cache *cache = make(SAMPLES, 1 << 30);
    uint64_t bytes = 0, source = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        assert_false(check(cache, i, NULL));
        assert_true(offer(cache, i, 0, 0));
        assert_false(offer(cache, i, 0, 0));
        assert_false(offer(cache, i, 1, 0));
        bytes += padded(length_of(i, HR_FORM_ENCODED));
        source += length_of(i, HR_FORM_ENCODED);
    }
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_true(check(cache, i, NULL));
    struct hr__cache_counts counts;
    hr__cache_get_counts(cache, &counts);
    assert_int_equal(counts.items[HR_FORM_ENCODED], SAMPLES);
    assert_int_equal(counts.bytes, bytes);
    assert_int_equal(counts.reserved, bytes);
    assert_int_equal(counts.source_bytes, source);
    assert_int_equal(counts.staged, 0);
    assert_int_equal(counts.refused, 0);
    struct hr__cache_item item;
    assert_null(hr__cache_take(cache, &item));
    hr__cache_destroy(&cache);
    assert_null(cache);
    hr__cache_destroy(&cache);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

/* Every byte of a budget can be used, and no more; no item is evicted. */
static void test_exact_budget(void **state)
{
    for (int convert = 0; convert < 2; convert++) {
        uint64_t budget =
            padded(length_of(0, 0)) + padded(length_of(1, 0)) + padded(length_of(2, 0));
        struct hr__cache *cache = make(SAMPLES, budget);
        struct hr__cache_counts counts;
        for (uint64_t i = 0; i < 3; i++)
            assert_true(offer(cache, i, convert, 0));
        for (uint64_t i = 3; i < SAMPLES; i++)
            assert_false(offer(cache, i, convert, 0));
        hr__cache_get_counts(cache, &counts);
        assert_int_equal(counts.reserved, budget);
        assert_int_equal(counts.refused, SAMPLES - 3);
        for (uint64_t i = 0; i < SAMPLES; i++)
            assert_int_equal(check(cache, i, NULL), i < 3);
        hr__cache_destroy(&cache);

        cache = make(SAMPLES, budget - 1);
        assert_true(offer(cache, 0, convert, 0));
        assert_true(offer(cache, 1, convert, 0));
        assert_false(offer(cache, 2, convert, 0));
        hr__cache_destroy(&cache);
    }
}

/* Items that do not fit leave no trace, and may be offered again. */
static void test_larger_than_the_budget(void **state)
{
    struct hr__cache *cache = make(2, 64);
    uint8_t bytes[65] = {1};
    struct hr__cache_offer o = {.index = 1, .bytes = bytes, .length = 65};
    assert_false(hr__cache_offer(cache, &o));
    assert_false(hr__cache_has(cache, 1));
    o.length = 0;
    assert_false(hr__cache_offer(cache, &o));
    o.length = 64;
    assert_true(hr__cache_offer(cache, &o));
    assert_true(hr__cache_has(cache, 1));
    hr__cache_destroy(&cache);
}

static void test_conversion(void **state)
{
    struct hr__cache *cache = make(SAMPLES, 1 << 30);
    struct hr__cache_counts counts;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_true(offer(cache, i, 1, 0));
    assert_int_equal(hr__cache_waiting(cache), SAMPLES);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        struct hr__cache_item item;
        enum hr_form form;
        struct hr__cache_staged *staged = hr__cache_take(cache, &item);
        assert_non_null(staged);
        assert_int_equal(item.index, i);
        assert_int_equal(item.length, length_of(i, HR_FORM_ENCODED));
        assert_true(check(cache, i, &form));
        assert_int_equal(form, HR_FORM_ENCODED);
        assert_int_equal(settle(cache, staged, i, i % 3 != 0, 0), i % 3 != 0);
        assert_true(check(cache, i, &form));
        assert_int_equal(form, i % 3 ? HR_FORM_INDEXED : HR_FORM_ENCODED);
        bytes += padded(length_of(i, form));
    }
    hr__cache_get_counts(cache, &counts);
    assert_int_equal(counts.bytes, bytes);
    assert_int_equal(counts.reserved, bytes);
    assert_int_equal(counts.staged, 0);
    assert_int_equal(counts.staged_bytes, 0);
    assert_int_equal(counts.items[HR_FORM_ENCODED], (SAMPLES + 2) / 3);
    assert_int_equal(counts.items[HR_FORM_INDEXED], SAMPLES - (SAMPLES + 2) / 3);
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_true(check(cache, i, NULL));
    hr__cache_destroy(&cache);
}

/* A larger form takes the space that was reserved for it, then free space, but never the space that
 * must stay free; an item that cannot grow stays as it was. */
static void test_growth(void **state)
{
    uint64_t before = padded(length_of(40, HR_FORM_ENCODED));
    uint64_t after = padded(length_of(40, HR_FORM_INDEXED));
    static const struct {
        int reserve, leave;
        int64_t budget_more;
        int converted;
    } cases[] = {
        {0, 0, 0, 1},   {0, 0, -1, 0}, {0, 64, 0, 0},
        {0, 64, 64, 1}, {1, 0, 0, 1},  {1, 1 << 20, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__cache *cache = make(SAMPLES, after + (uint64_t)cases[i].budget_more);
        struct hr__cache_item item;
        struct hr__cache_counts counts;
        assert_true(offer(cache, 40, 1, cases[i].reserve ? after : 0));
        hr__cache_get_counts(cache, &counts);
        assert_int_equal(counts.reserved, cases[i].reserve ? after : before);
        assert_int_equal(counts.bytes, before);
        struct hr__cache_staged *staged = hr__cache_take(cache, &item);
        assert_int_equal(settle(cache, staged, 40, 1, (uint64_t)cases[i].leave),
                         cases[i].converted);
        assert_true(check(cache, 40, NULL));
        hr__cache_get_counts(cache, &counts);
        assert_int_equal(counts.reserved, cases[i].converted ? after : before);
        hr__cache_destroy(&cache);
    }
    /* The unused part of a reservation is freed. */
    struct hr__cache *cache = make(SAMPLES, 1 << 20);
    struct hr__cache_counts counts;
    struct hr__cache_item item;
    assert_true(offer(cache, 40, 1, 1 << 20));
    assert_false(offer(cache, 41, 1, 0));
    struct hr__cache_staged *staged = hr__cache_take(cache, &item);
    assert_false(settle(cache, staged, 40, 0, 0));
    hr__cache_get_counts(cache, &counts);
    assert_int_equal(counts.reserved, before);
    assert_true(offer(cache, 41, 1, 0));
    hr__cache_destroy(&cache);
}

/* Bytes that a reader has pinned stay in place while the item changes its form. */
static void test_pinned_during_settle(void **state)
{
    struct hr__cache *cache = make(SAMPLES, 1 << 20);
    uint8_t before[8192];
    struct hr__cache_item held, item;
    fill(before, 7, HR_FORM_ENCODED);
    for (uint64_t i = 7; i < 9; i++)
        assert_true(offer(cache, i, 1, 0));
    assert_true(hr__cache_find(cache, 7, &held));
    for (uint64_t i = 7; i < 9; i++)
        assert_true(settle(cache, hr__cache_take(cache, &item), i, 1, 0));
    for (uint64_t i = 20; i < 60; i++) /* they would get the space if it were free */
        assert_true(offer(cache, i, 1, 0));
    assert_memory_equal(held.bytes, before, held.length);
    enum hr_form form;
    assert_true(check(cache, 7, &form));
    assert_int_equal(form, HR_FORM_INDEXED);
    hr__cache_unpin(cache, &held);
    assert_true(offer(cache, 9, 0, 0));
    hr__cache_destroy(&cache);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

struct crowd {
    struct hr__cache *cache;
    atomic_uint next;
    atomic_uint admitted, settled;
};

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    struct hr__cache_item item;
    unsigned step;
    while ((step = atomic_fetch_add(&crowd->next, 1)) < 12 * SAMPLES) {
        uint64_t index = step * 7919u % SAMPLES;
        if (!check(crowd->cache, index, NULL))
            atomic_fetch_add(&crowd->admitted,
                             (unsigned)offer(crowd->cache, index, step % 4 != 0, 0));
        if (step % 3)
            continue;
        struct hr__cache_staged *staged = hr__cache_take(crowd->cache, &item);
        if (!staged)
            continue;
        settle(crowd->cache, staged, item.index, step % 11 != 0, 0);
        atomic_fetch_add(&crowd->settled, 1);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    static const uint64_t budgets[] = {1 << 30, 300000};
    for (size_t b = 0; b < 2; b++) {
        struct crowd crowd = {.cache = make(SAMPLES, budgets[b])};
        pthread_t threads[6];
        for (int t = 0; t < 6; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, crowd_run, &crowd), 0);
        for (int t = 0; t < 6; t++)
            pthread_join(threads[t], NULL);
        struct hr__cache_counts counts;
        hr__cache_get_counts(crowd.cache, &counts);
        uint64_t cached = 0, bytes = 0, items[HR_FORMS] = {0};
        for (uint64_t i = 0; i < SAMPLES; i++) {
            enum hr_form form;
            if (!check(crowd.cache, i, &form))
                continue;
            cached++;
            items[form]++;
            bytes += padded(length_of(i, form));
        }
        assert_int_equal(cached, crowd.admitted);
        if (b == 0)
            assert_int_equal(cached, SAMPLES);
        assert_int_equal(counts.bytes, bytes);
        assert_int_equal(counts.items[0], items[0]);
        assert_int_equal(counts.items[HR_FORM_INDEXED], items[HR_FORM_INDEXED]);
        assert_true(counts.reserved <= budgets[b]);
        assert_int_equal(counts.staged, hr__cache_waiting(crowd.cache));
        assert_true(crowd.settled > 0);
        hr__cache_destroy(&crowd.cache);
    }
}

static void test_failing_allocations(void **state)
{
    for (uint64_t n = 1; n < 8; n++) {
        struct hr__cache *cache = NULL;
        struct hr_error error;
        struct hr__cache_options options = {.samples = 10, .budget_bytes = 1 << 20};
        hr__alloc_fail_at(n, 0);
        int r = hr__cache_create(&cache, &options, &error);
        if (r) {
            assert_int_equal(r, -ENOMEM);
            assert_null(cache);
        } else {
            for (uint64_t i = 0; i < 3; i++)
                offer(cache, i, 1, 0);
            hr__alloc_fail_at(0, 0);
            for (uint64_t i = 0; i < 3; i++) {
                int had = check(cache, i, NULL);
                assert_int_equal(offer(cache, i, 1, 0), !had);
                assert_true(check(cache, i, NULL));
            }
            hr__cache_destroy(&cache);
        }
        hr__alloc_fail_at(0, 0);
        assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    }
}

static void test_refusals(void **state)
{
    struct hr__cache *cache = NULL;
    struct hr_error error;
    struct hr__cache_options options = {.samples = 10};
    assert_int_equal(hr__cache_create(&cache, &options, &error), -EINVAL);
    options.budget_bytes = UINT64_MAX;
    assert_int_equal(hr__cache_create(&cache, &options, &error), -ENOMEM);
    assert_non_null(strstr(error.message, "ulimit -v"));
    assert_null(cache);
}

/* Returns the resident bytes of this process. */
static uint64_t resident(void)
{
    unsigned long long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &total, &pages), 2);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A large budget takes no memory by itself. Items do, and destroying the cache frees it; staging is
 * freed as its items leave. */
static void test_memory(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* sanitizers use several bytes of their own for each byte */
#endif
    static uint8_t bytes[1 << 20];
    memset(bytes, 1, sizeof bytes);
    uint64_t start = resident();
    struct hr__cache *cache = make(200, UINT64_C(1) << 38);
    assert_true(resident() < start + (8 << 20));
    for (uint64_t i = 0; i < 64; i++) {
        struct hr__cache_offer o = {
            .index = i, .bytes = bytes, .length = sizeof bytes, .convert = 1};
        assert_true(hr__cache_offer(cache, &o));
    }
    assert_true(resident() >= start + (60 << 20));
    struct hr__cache_item item;
    struct hr__cache_staged *staged;
    while ((staged = hr__cache_take(cache, &item))) {
        struct hr__cache_final final = {.bytes = bytes, .length = 1000, .form = HR_FORM_INDEXED};
        assert_true(hr__cache_settle(cache, staged, &final));
    }
    assert_true(resident() < start + (16 << 20));
    for (uint64_t i = 100; i < 164; i++) {
        struct hr__cache_offer o = {.index = i, .bytes = bytes, .length = sizeof bytes};
        assert_true(hr__cache_offer(cache, &o));
    }
    assert_true(resident() >= start + (60 << 20));
    hr__cache_destroy(&cache);
    assert_true(resident() < start + (8 << 20));
}

static int refusals;

static void count_refusals(void *arg, enum hr_log_level level, const char *message)
{
    refusals += level == HR_LOG_WARNING && strstr(message, "give the process more memory") != NULL;
}

/* Runs in a process that may allocate 100 MiB more. Returns 0 if everything is right. */
static int fill_until_refused(int convert)
{
    static uint8_t bytes[1 << 20];
    struct rlimit limit;
    struct hr__cache *cache = make(1000, UINT64_C(1) << 30);
    hr_log_set(count_refusals, NULL);
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = resident() + (100 << 20);
    if (setrlimit(RLIMIT_DATA, &limit))
        return 1;
    uint64_t in = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct hr__cache_offer o = {
            .index = i, .bytes = bytes, .length = sizeof bytes, .convert = convert};
        memset(bytes, (int)i, sizeof bytes);
        in += (uint64_t)hr__cache_offer(cache, &o);
    }
    if (in < 8 || in > 200 || refusals != 1)
        return 2;
    for (uint64_t i = 0; i < in; i++) {
        struct hr__cache_item item;
        if (!hr__cache_find(cache, i, &item) || item.bytes[77] != (uint8_t)i)
            return 3;
        hr__cache_unpin(cache, &item);
    }
    /* An item that cannot get a new place stays where it is. */
    struct hr__cache_item item;
    struct hr__cache_staged *staged;
    uint64_t settled = 0, converted = 0;
    while ((staged = hr__cache_take(cache, &item))) {
        struct hr__cache_final final = {
            .bytes = bytes, .length = sizeof bytes, .form = HR_FORM_INDEXED};
        converted += (uint64_t)hr__cache_settle(cache, staged, &final);
        settled++;
    }
    struct hr__cache_counts counts;
    hr__cache_get_counts(cache, &counts);
    if (settled != (convert ? in : 0) || counts.items[HR_FORM_INDEXED] != converted ||
        hr__all_items(counts.items) != in || counts.staged || counts.reserved != in << 20)
        return 4;
    for (uint64_t i = 0; i < 1000; i++)
        if (hr__cache_has(cache, i) != (i < in))
            return 5;
    hr__cache_destroy(&cache);
    return 0;
}

/* If the system refuses memory, new items are not cached, cached ones stay, and one message is
 * logged. */
static void test_memory_refused(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* sanitizers need more memory themselves */
#endif
    for (int convert = 0; convert < 2; convert++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid)
            _exit(fill_until_refused(convert));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* A child does not get the items, and can free its copy of the cache. */
static void test_fork(void **state)
{
    struct hr__cache *cache = make(SAMPLES, 1 << 20);
    assert_true(offer(cache, 1, 0, 0));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        hr__cache_abandon(&cache);
        _exit(cache != NULL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(check(cache, 1, NULL));
    hr__cache_destroy(&cache);
}

/* ---- a file that changes while others read its item ---- */

#define VERSIONS 12

struct private_changing {
    struct hr__cache *cache;
    char path[96];
    atomic_int version, is_over;
    atomic_uint wrong, found;
};

static size_t version_length(int version)
{
    return 1000 + (size_t)version * 512;
}

static void write_version(struct private_changing *c, int version)
{
    uint8_t bytes[8192];
    FILE *file = fopen(c->path, "wb");
    assert_non_null(file);
    memset(bytes, version, sizeof bytes);
    assert_int_equal(fwrite(bytes, 1, version_length(version), file), version_length(version));
    assert_int_equal(fclose(file), 0);
}

static void *read_versions(void *arg)
{
    struct private_changing *c = arg;
    struct hr__cache_item item;
    while (!atomic_load(&c->is_over)) {
        int before = atomic_load(&c->version);
        if (!hr__cache_find(c->cache, 0, &item))
            continue;
        const uint8_t *bytes = item.bytes;
        int whole = item.length == version_length(bytes[0]) && bytes[0] >= before;
        for (size_t i = 0; whole && i < item.length; i++)
            whole = bytes[i] == bytes[0];
        atomic_fetch_add(&c->wrong, !whole);
        atomic_fetch_add(&c->found, 1);
        hr__cache_unpin(c->cache, &item);
    }
    return NULL;
}

/* Offers the file's current contents once they are old enough to be cached. */
static void offer_version(struct private_changing *c, int version, int convert)
{
    uint8_t bytes[8192];
    memset(bytes, version, sizeof bytes);
    for (int tries = 0, is_in = 0; !is_in && tries < 500; tries++) {
        struct hr__cache_ticket ticket;
        struct hr__cache_item item;
        if (hr__cache_find(c->cache, 0, &item))
            hr__cache_unpin(c->cache, &item);
        hr__cache_claim(c->cache, 0, &ticket);
        struct hr__cache_offer o = {.ticket = &ticket,
                                    .bytes = bytes,
                                    .length = version_length(version),
                                    .convert = convert};
        is_in = hr__cache_offer(c->cache, &o);
        usleep(5000);
    }
    struct hr__cache_item item;
    struct hr__cache_staged *staged = hr__cache_take(c->cache, &item);
    if (staged)
        hr__cache_settle(c->cache, staged, &(struct hr__cache_final){.bytes = NULL});
}

/* A hit is always of one whole version: the file's version at the check, or a later one. */
static void test_changing_file(void **state)
{
    char root[] = "/tmp/headrace-private-XXXXXX", command[64];
    struct private_changing c = {.version = 1};
    assert_non_null(mkdtemp(root));
    snprintf(c.path, sizeof c.path, "%s/a.jpg", root);
    const char *const paths[] = {c.path};
    write_version(&c, 1);
    struct hr__cache_options options = {.samples = 1, .budget_bytes = 1 << 20};
    assert_int_equal(hr_dataset_from_paths(&options.dataset, paths, NULL, 1, NULL), 0);
    assert_int_equal(hr__cache_create(&c.cache, &options, NULL), 0);
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_versions, &c), 0);
    for (int version = 1; version <= VERSIONS; version++) {
        write_version(&c, version);
        atomic_store(&c.version, version);
        offer_version(&c, version, version % 2);
    }
    unsigned found = atomic_load(&c.found);
    while (atomic_load(&c.found) == found) /* the last version stays */
        usleep(1000);
    atomic_store(&c.is_over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    assert_int_equal(atomic_load(&c.wrong), 0);
    hr__cache_destroy(&c.cache);
    hr_dataset_unref(&options.dataset);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_final_items),
        cmocka_unit_test(test_exact_budget),
        cmocka_unit_test(test_larger_than_the_budget),
        cmocka_unit_test(test_conversion),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_pinned_during_settle),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_changing_file),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
