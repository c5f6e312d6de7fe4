/* Shares large regions among workers; see bands.h. */
#include "loader/bands.h"

#include "base/clock.h"
#include "loader/inside.h"
#include "loader/schedule.h"
#include "recipe/recipe.h"

/* A helper takes this part of the rows that are left: the first helpers get large bands, which cost
 * less, and the last ones small bands, so that all end at about the same time. */
#define HELPER_PART 4

/* Pixels of the smallest band, about: some milliseconds of work. */
#define LEAST_PIXELS (1 << 18)

/* Returns where the next band begins, to the end of the rows that are left; 0 if they are few
 * enough for the owner. */
static int band_of(const struct hr__bands *b)
{
    int rows = (b->end - b->first) / HELPER_PART;
    int least = LEAST_PIXELS / b->shared->region.width + HR__BAND_ROWS;
    int from = b->end - (rows > least ? rows : least);
    from = (from + HR__BAND_ROWS - 1) / HR__BAND_ROWS * HR__BAND_ROWS;
    return from > b->first ? from : 0;
}

static struct hr__bands *find_locked(const struct hr_loader *l)
{
    struct hr__bands *b = l->bands;
    while (b && !band_of(b))
        b = b->next;
    return b;
}

static void list_locked(struct hr_loader *l, struct hr__bands *b)
{
    struct hr__bands **at = &l->bands;
    while (*at)
        at = &(*at)->next;
    *at = b;
    if (l->idle_workers)
        hr__wake_worker_locked(l);
}

static void unlist_locked(struct hr_loader *l, const struct hr__bands *b)
{
    struct hr__bands **at = &l->bands;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
}

static int claim(void *arg, int until)
{
    struct hr__thread *self = arg;
    struct hr__bands *b = &self->bands;
    pthread_mutex_lock(&self->loader->lock);
    b->first = until < b->end ? until : b->end;
    int end = b->end;
    pthread_mutex_unlock(&self->loader->lock);
    return end;
}

/* Decodes a region of the worker's own, with the help of others. */
static int decode(void *arg, struct hr__decoder *decoder, const struct hr__shared_region *shared)
{
    struct hr__thread *self = arg;
    struct hr_loader *l = self->loader;
    struct hr__bands *b = &self->bands;
    const struct hr__row_claims claims = {claim, self};
    const struct hr_region *region = &shared->region;
    *b = (struct hr__bands){.shared = shared,
                            .first = region->y,
                            .end = region->y + region->height,
                            .helped_ns = b->helped_ns};
    pthread_mutex_lock(&l->lock);
    list_locked(l, b);
    pthread_mutex_unlock(&l->lock);
    int r = hr__decoder_shared(decoder, shared, &claims);
    pthread_mutex_lock(&l->lock);
    unlist_locked(l, b);
    while (b->helpers)
        pthread_cond_wait(&l->helped, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return r ? r : b->failed;
}

void hr__bands_begin(struct hr__thread *self)
{
    hr__preparer_set_help(self->preparer, decode, self);
}

int hr__bands_help_unlocking(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    struct hr__bands *b = find_locked(l);
    if (!b)
        return 0;
    int to = b->end, from = band_of(b);
    b->end = from;
    b->helpers++;
    if (l->idle_workers && find_locked(l))
        hr__wake_worker_locked(l);
    pthread_mutex_unlock(&l->lock);
    uint64_t start_ns = hr__thread_cpu_ns();
    int r = hr__decoder_band(hr__preparer_decoder(self->preparer), b->shared, from, to);
    uint64_t ns = hr__thread_cpu_ns() - start_ns;
    pthread_mutex_lock(&l->lock);
    b->helped_ns += ns;
    if (r) {
        b->failed = r;
        b->end = b->first; /* nobody goes on */
    }
    if (!--b->helpers)
        pthread_cond_broadcast(&l->helped);
    return 1;
}
