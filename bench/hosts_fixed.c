/*
 * The rank that bench/hosts.py compares with (see hosts_worker.h): a data loader that uses half of
 * its threads for fetching and half for preparing, over memcached with its default settings, which
 * evicts the least recently used items.
 *
 * It takes the usual samples of each batch: positions r, r + world, ... of the epoch's order.
 * libmemcached spreads items over the servers by a hash of the key. A fetcher requests a group of a
 * batch in bulk, reads missing items from their files, and stores them. The number of batches ahead
 * and the recipe are those of our rank.
 */
#include "hosts_worker.h"

#include <libmemcached/memcached.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 32, KEY_ROOM = 32 };

struct sample {
    struct sample *next; /* in the queue of samples to prepare */
    uint64_t batch;
    size_t place, index;
    void *bytes; /* malloc'd, or the dataset's */
    size_t length;
    int is_read; /* non-zero: the dataset's */
};

struct hosts_fixed_slot {
    unsigned char *images;
    size_t left; /* samples that are not yet prepared */
};

struct fixed {
    struct worker_options options;
    struct together *together;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    size_t sample_bytes;            /* of a prepared sample */
    uint32_t *order;                /* all samples in the order of this epoch */
    uint64_t batches;               /* of this rank in an epoch */
    struct hosts_fixed_slot *slots; /* options.ahead + 1 */

    pthread_mutex_t lock;   /* guards the members below, and `left` of the slots */
    pthread_cond_t changed; /* signals a change of any of them */
    uint64_t epoch;
    uint64_t consumed;            /* batches of the epoch */
    uint64_t fetch_batch;         /* the batch of the next group */
    size_t fetch_place;           /* in that batch */
    struct sample *first, **last; /* queue of samples to prepare */
    int is_over;
    uint64_t bytes_read, hits, hit_bytes, stored;
};

/* ---- order ---- */

static uint64_t next_random(uint64_t *state)
{
    /* SplitMix64 (Steele, Lea and Flood, OOPSLA'14). */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch)
{
    uint64_t state = seed * 0x100000001b3u + epoch;
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        size_t j = next_random(&state) % i;
        uint32_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static size_t index_of(const struct fixed *f, uint64_t batch, size_t place)
{
    size_t world = (size_t)f->options.world;
    return f->order[(batch * (size_t)f->options.batch + place) * world + (size_t)f->options.rank];
}

/* ---- fetching ---- */

static memcached_st *connect_servers(const char *list)
{
    memcached_st *servers = memcached_create(NULL);
    memcached_server_st *parsed = memcached_servers_parse(list);
    if (!servers || !parsed || memcached_server_push(servers, parsed) != MEMCACHED_SUCCESS)
        worker_die(list, "is no list of servers");
    memcached_server_list_free(parsed);
    memcached_behavior_set(servers, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    return servers;
}

/* Waits for a group of samples that may be fetched now. Returns their number; 0 at the end. */
static size_t take_group(struct fixed *f, struct sample **group)
{
    size_t count = 0, batch = (size_t)f->options.batch;
    pthread_mutex_lock(&f->lock);
    while (!f->is_over && (f->fetch_batch >= f->batches ||
                           f->fetch_batch > f->consumed + (uint64_t)f->options.ahead - 1))
        pthread_cond_wait(&f->changed, &f->lock);
    for (; !f->is_over && count < GROUP && f->fetch_place < batch; count++) {
        struct sample *s = calloc(1, sizeof *s);
        if (!s)
            worker_die("fetch", "out of memory");
        s->batch = f->fetch_batch;
        s->place = f->fetch_place++;
        s->index = index_of(f, s->batch, s->place);
        group[count] = s;
    }
    if (f->fetch_place == batch) {
        f->fetch_place = 0;
        f->fetch_batch++;
    }
    pthread_mutex_unlock(&f->lock);
    return count;
}

static void ask_servers(memcached_st *servers, struct sample **group, size_t count)
{
    char texts[GROUP][KEY_ROOM];
    const char *keys[GROUP];
    size_t lengths[GROUP];
    memcached_return_t rc;
    memcached_result_st *result;
    for (size_t i = 0; i < count; i++) {
        lengths[i] = (size_t)snprintf(texts[i], KEY_ROOM, "fixed:%zu", group[i]->index);
        keys[i] = texts[i];
    }
    if (memcached_mget(servers, keys, lengths, count) != MEMCACHED_SUCCESS)
        return; /* missing items are read */
    while ((result = memcached_fetch_result(servers, NULL, &rc))) {
        char key[KEY_ROOM] = "";
        size_t length = memcached_result_key_length(result), i = 0;
        memcpy(key, memcached_result_key_value(result), length < KEY_ROOM ? length : KEY_ROOM - 1);
        while (i < count && strcmp(texts[i], key))
            i++;
        if (i < count && !group[i]->bytes) {
            group[i]->length = memcached_result_length(result);
            group[i]->bytes = memcached_result_take_value(result);
        }
        memcached_result_free(result);
    }
}

static void read_sample(struct fixed *f, memcached_st *servers, struct sample *s)
{
    struct hr_error error;
    char key[KEY_ROOM];
    if (hr_dataset_read(f->dataset, s->index, &s->bytes, &s->length, &error))
        worker_die("read", error.message);
    s->is_read = 1;
    int n = snprintf(key, sizeof key, "fixed:%zu", s->index);
    int is_stored =
        memcached_set(servers, key, (size_t)n, s->bytes, s->length, 0, 0) == MEMCACHED_SUCCESS;
    pthread_mutex_lock(&f->lock);
    f->bytes_read += s->length;
    f->stored += (uint64_t)is_stored;
    pthread_mutex_unlock(&f->lock);
}

static void hand_over(struct fixed *f, struct sample *s)
{
    pthread_mutex_lock(&f->lock);
    if (!s->is_read) {
        f->hits++;
        f->hit_bytes += s->length;
    }
    s->next = NULL;
    *f->last = s;
    f->last = &s->next;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void *fetcher(void *argument)
{
    struct fixed *f = argument;
    struct sample *group[GROUP];
    size_t count;
    memcached_st *servers = connect_servers(f->options.cache);
    while ((count = take_group(f, group))) {
        ask_servers(servers, group, count);
        /* Samples that have arrived do not wait for the others. */
        for (size_t i = 0; i < count; i++)
            if (group[i]->bytes) {
                hand_over(f, group[i]);
                group[i] = NULL;
            }
        for (size_t i = 0; i < count; i++)
            if (group[i]) {
                read_sample(f, servers, group[i]);
                hand_over(f, group[i]);
            }
    }
    memcached_free(servers);
    return NULL;
}

/* ---- preparing ---- */

static struct sample *take_sample(struct fixed *f)
{
    pthread_mutex_lock(&f->lock);
    while (!f->first && !f->is_over)
        pthread_cond_wait(&f->changed, &f->lock);
    struct sample *s = f->first;
    if (s && !(f->first = s->next))
        f->last = &f->first;
    pthread_mutex_unlock(&f->lock);
    return s;
}

static void free_sample(struct sample *s)
{
    if (s->is_read)
        hr_bytes_free(s->bytes);
    else
        free(s->bytes);
    free(s);
}

static struct hosts_fixed_slot *slot_of(struct fixed *f, uint64_t batch)
{
    return &f->slots[batch % ((uint64_t)f->options.ahead + 1)];
}

static void *preparer(void *argument)
{
    struct fixed *f = argument;
    struct hr_preparer *preparer;
    struct hr_error error;
    struct sample *s;
    if (hr_preparer_create(&preparer, &error))
        worker_die("preparer", error.message);
    while ((s = take_sample(f))) {
        struct hosts_fixed_slot *slot = slot_of(f, s->batch);
        struct hr_draw_key key = {f->options.seed, f->epoch, s->index};
        if (hr_preparer_run(preparer, f->recipe, s->bytes, s->length, &key,
                            slot->images + s->place * f->sample_bytes, &error))
            worker_die("prepare", error.message);
        pthread_mutex_lock(&f->lock);
        if (!--slot->left)
            pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
        free_sample(s);
    }
    hr_preparer_destroy(&preparer);
    return NULL;
}

/* ---- consuming ---- */

static void begin_epoch(struct fixed *f, uint64_t epoch)
{
    pthread_mutex_lock(&f->lock);
    shuffle(f->order, hr_dataset_count(f->dataset), f->options.seed, epoch);
    for (int i = 0; i <= f->options.ahead; i++)
        f->slots[i].left = (size_t)f->options.batch;
    f->epoch = epoch;
    f->consumed = f->fetch_batch = 0;
    f->bytes_read = f->hits = f->hit_bytes = f->stored = 0;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* Waits for a batch, then frees its slot. */
static void next_batch(struct fixed *f, uint64_t number)
{
    struct hosts_fixed_slot *slot = slot_of(f, number);
    pthread_mutex_lock(&f->lock);
    while (slot->left)
        pthread_cond_wait(&f->changed, &f->lock);
    slot->left = (size_t)f->options.batch;
    f->consumed = number + 1;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void pass(struct fixed *f, uint64_t number)
{
    struct worker_epoch epoch = {.batches = f->batches,
                                 .samples = f->batches * (uint64_t)f->options.batch};
    double start = worker_seconds(CLOCK_MONOTONIC), cpu = worker_seconds(CLOCK_PROCESS_CPUTIME_ID);
    begin_epoch(f, number);
    for (uint64_t n = 0; n < f->batches; n++) {
        double asked = worker_seconds(CLOCK_MONOTONIC);
        next_batch(f, n);
        *(n ? &epoch.wait_s : &epoch.first_s) += worker_seconds(CLOCK_MONOTONIC) - asked;
        worker_step(f->together, &f->options);
    }
    epoch.seconds = worker_seconds(CLOCK_MONOTONIC) - start;
    epoch.cpu_seconds = worker_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("{");
    worker_print_epoch(&epoch);
    pthread_mutex_lock(&f->lock);
    printf(", \"bytes_read\": %llu, \"cache_hits\": %llu, \"hit_bytes\": %llu, \"stored\": %llu}\n",
           (unsigned long long)f->bytes_read, (unsigned long long)f->hits,
           (unsigned long long)f->hit_bytes, (unsigned long long)f->stored);
    pthread_mutex_unlock(&f->lock);
    fflush(stdout);
}

static void prepare(struct fixed *f)
{
    struct hr_tensor_spec spec;
    size_t count, each = (size_t)f->options.batch;
    if (!f->options.cache)
        worker_die("cache", "the list of servers is needed");
    f->together = worker_map_together(&f->options);
    f->dataset = worker_dataset(f->options.data);
    f->recipe = worker_recipe();
    hr_recipe_output(f->recipe, &spec);
    f->sample_bytes = hr_dtype_bytes(spec.dtype) * (size_t)spec.channels * (size_t)spec.height *
                      (size_t)spec.width;
    count = hr_dataset_count(f->dataset);
    f->batches = count / each / (size_t)f->options.world;
    f->order = malloc((count + !count) * sizeof *f->order);
    f->slots = calloc((size_t)f->options.ahead + 1, sizeof *f->slots);
    f->last = &f->first;
    f->fetch_batch = f->batches; /* no batch is due yet */
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (!f->order || !f->slots || !f->batches)
        worker_die("fixed", "no memory, or no batch");
    for (int i = 0; i <= f->options.ahead; i++)
        if (!(f->slots[i].images = malloc(each * f->sample_bytes)))
            worker_die("fixed", "out of memory");
}

static void clear(struct fixed *f)
{
    for (int i = 0; i <= f->options.ahead; i++)
        free(f->slots[i].images);
    free(f->slots);
    free(f->order);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    hr_recipe_unref(&f->recipe);
    hr_dataset_unref(&f->dataset);
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    struct fixed f = {0};
    worker_parse(&f.options, argc, argv);
    prepare(&f);
    int half = f.options.threads > 1 ? f.options.threads / 2 : 1, others = f.options.threads - half;
    int count = half + (others ? others : 1);
    pthread_t *threads = malloc((size_t)count * sizeof *threads);
    for (int i = 0; threads && i < count; i++)
        if (pthread_create(&threads[i], NULL, i < half ? fetcher : preparer, &f))
            worker_die("thread", "none can be made");
    printf("{\"name\": \"ready\", \"fetchers\": %d, \"preparers\": %d}\n", half, count - half);
    fflush(stdout);
    for (uint64_t epoch = 0; worker_line(line, sizeof line); epoch++) {
        if (!strncmp(line, "rates ", 6))
            continue;
        pass(&f, epoch);
    }
    pthread_mutex_lock(&f.lock);
    f.is_over = 1;
    pthread_cond_broadcast(&f.changed);
    pthread_mutex_unlock(&f.lock);
    for (int i = 0; threads && i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    clear(&f);
    return 0;
}
