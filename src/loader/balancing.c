/* What a loader says of itself, when it decides, and who stands by; see balancing.h. */
#include "loader/balancing.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/balance_board.h"
#include "loader/loader.h"

#include <headrace/cache.h>

#include <errno.h>
#include <time.h>

/* Who has said nothing for so long is looked at, so often, whether it lives. */
#define BURY_NS UINT64_C(300000000)

/* Batches of the window whose ready samples are counted. */
#define STOCK_BATCHES 64

/* Means are of about so many batches, and of half as many at first; a pause of so many periods is
 * none of training. */
#define MEAN_BATCHES 8
#define PERIOD_PAUSE 16

struct hr__balancing {
    struct hr__board *board;
    struct hr__balance balance;
    struct hr__balance_rank mine; /* what was said last */
    int most;                     /* workers that there are */
    uint64_t decide_ns, bury_ns;  /* when next */
    uint64_t changes;
    unsigned pauses;          /* of the consumer's, in a row */
    double worked_ns, worked; /* of late: time of workers, and samples */
    pthread_cond_t spare;     /* those that stand by */
};

static struct hr__balancing *make(struct hr_loader *l, struct hr_error *error)
{
    char run[HR_CACHE_RUN];
    struct hr__balancing *b = hr__alloc(HR__TAG_LOADER, 1, sizeof *b);
    if (!b) {
        hr__fail(error, -ENOMEM, "out of memory");
        return NULL;
    }
    /* The ranks of a machine have the process in common that started them. */
    hr_cache_run(run, 2);
    if (hr__board_open(&b->board, run, error)) {
        hr__free(b);
        return NULL;
    }
    b->balance.active = b->most = l->workers_wanted;
    b->mine.base = b->mine.active = (uint32_t)l->workers_wanted;
    b->mine.cores = hr__cpu_digest();
    pthread_cond_init(&b->spare, NULL);
    return b;
}

void hr__balancing_start(struct hr_loader *l)
{
    /* An external order is its owner's, and a watch's, which measures this loader alone. */
    if (l->options.local_world_size < 2 || l->options.world_size < 2 || l->lane ||
        l->options.external_order || l->balancing)
        return;
    struct hr_error error = {0};
    struct hr__balancing *b = make(l, &error);
    if (!b)
        hr__log(HR_LOG_INFO, "threads are not balanced between this machine's ranks: %s",
                error.message);
    pthread_mutex_lock(&l->lock);
    l->balancing = b;
    pthread_mutex_unlock(&l->lock);
}

void hr__balancing_end(struct hr_loader *l)
{
    struct hr__balancing *b = l->balancing;
    if (!b)
        return;
    l->balancing = NULL;
    hr__board_close(&b->board);
    /* In a child those who wait do not exist, and destruction would wait for them. */
    if (!hr__in_child(l))
        pthread_cond_destroy(&b->spare);
    hr__free(b);
}

int hr__balancing_most(const struct hr_loader *l)
{
    if (!l->balancing)
        return l->workers_wanted;
    int times = l->options.local_world_size;
    return l->workers_wanted * (times < HR__BALANCE_MOST ? times : HR__BALANCE_MOST);
}

void hr__balancing_started_locked(struct hr_loader *l, int workers)
{
    if (l->balancing)
        l->balancing->most = workers;
}

int hr__balancing_workers_locked(const struct hr_loader *l)
{
    return l->balancing ? l->balancing->balance.active : l->workers_wanted;
}

int hr__balancing_limit_locked(const struct hr_loader *l, int limit)
{
    int allowed = l->balancing ? limit >> l->balancing->balance.shift : limit;
    return allowed > 0 ? allowed : limit > 0;
}

uint64_t hr__balancing_changes_locked(const struct hr_loader *l)
{
    return l->balancing ? l->balancing->changes : 0;
}

/* Ready samples, in thousandths of a batch. */
static uint64_t stock_locked(const struct hr_loader *l)
{
    uint64_t stock = 0;
    int n = 0;
    for (const struct hr_batch *batch = l->window; batch && n < STOCK_BATCHES;
         batch = batch->next, n++)
        stock += batch->count ? batch->done * 1000 / batch->count : 0;
    return stock;
}

static void say_locked(struct hr_loader *l, uint64_t now_ns)
{
    struct hr__balancing *b = l->balancing;
    b->mine.updated_ns = now_ns;
    b->mine.stock = stock_locked(l);
    b->mine.active = (uint32_t)b->balance.active;
    hr__board_say(b->board, &b->mine);
}

/* What changed is done: wakes who may work now. */
static void apply_locked(struct hr_loader *l)
{
    struct hr__balancing *b = l->balancing;
    b->changes++;
    pthread_cond_broadcast(&b->spare);
    if (l->hosting)
        hr__hosting_wake_locked(l);
}

static void decide_locked(struct hr_loader *l, uint64_t now_ns)
{
    struct hr__balancing *b = l->balancing;
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    if (now_ns >= b->bury_ns) {
        b->bury_ns = now_ns + BURY_NS;
        hr__board_bury(b->board, now_ns - BURY_NS);
    }
    hr__board_hear(b->board, ranks);
    int self = hr__board_self(b->board);
    /* What is its own it knows better than the memory that all can write to. */
    ranks[self] = b->mine;
    if (!hr__balance_decide(&b->balance, ranks, HR__BALANCE_RANKS, self, b->most, now_ns))
        return;
    say_locked(l, now_ns);
    apply_locked(l);
}

void hr__balancing_pass_locked(struct hr_loader *l)
{
    struct hr__balancing *b = l->balancing;
    if (!b)
        return;
    uint64_t now_ns = hr__now_ns();
    if (now_ns < b->decide_ns)
        return;
    b->decide_ns = now_ns + HR__BALANCE_NS;
    say_locked(l, now_ns);
    decide_locked(l, now_ns);
}

void hr__balancing_worked_locked(struct hr_loader *l, uint64_t ns)
{
    struct hr__balancing *b = l->balancing;
    double batch = l->options.batch_size;
    b->worked_ns += (double)ns;
    b->worked++;
    if (b->worked >= MEAN_BATCHES / 2 * batch)
        b->mine.work_ns = (uint64_t)(b->worked_ns / b->worked * batch);
    if (b->worked < MEAN_BATCHES * batch)
        return;
    b->worked_ns /= 2;
    b->worked /= 2;
}

void hr__balancing_took_locked(struct hr_loader *l)
{
    struct hr__balancing *b = l->balancing;
    if (!b)
        return;
    uint64_t now_ns = hr__now_ns();
    struct hr__balance_rank *mine = &b->mine;
    if (mine->taken_ns && now_ns > mine->taken_ns) {
        uint64_t took_ns = now_ns - mine->taken_ns;
        int is_pause = mine->period_ns && took_ns / PERIOD_PAUSE >= mine->period_ns;
        b->pauses = is_pause ? b->pauses + 1 : 0;
        /* Two in a row are none: the first batches were taken at once (a prefetching trainer). */
        if (!mine->period_ns || b->pauses > 1)
            mine->period_ns = took_ns;
        else if (!is_pause)
            mine->period_ns += took_ns / MEAN_BATCHES - mine->period_ns / MEAN_BATCHES;
    }
    mine->taken_ns = now_ns;
    mine->waits_ns = 0;
    say_locked(l, now_ns);
    hr__balancing_pass_locked(l);
}

void hr__balancing_waits_locked(struct hr_loader *l, int waits)
{
    struct hr__balancing *b = l->balancing;
    if (!b || (waits != 0) == (b->mine.waits_ns != 0))
        return;
    uint64_t now_ns = hr__now_ns();
    b->mine.waits_ns = waits ? now_ns : 0;
    say_locked(l, now_ns);
}

void hr__balancing_rests_locked(struct hr_loader *l)
{
    struct hr__balancing *b = l->balancing;
    if (!b)
        return;
    b->mine.taken_ns = b->mine.waits_ns = 0;
    say_locked(l, hr__now_ns());
}

/* Sleeps until something changes. */
static void stand_by_locked(struct hr_loader *l)
{
    pthread_cond_wait(&l->balancing->spare, &l->lock);
}

int hr__balancing_worker_stands_by_locked(struct hr_loader *l, int number)
{
    if (!l->balancing || l->stop || number < l->balancing->balance.active)
        return 0;
    hr__wake_worker_locked(l);
    stand_by_locked(l);
    return 1;
}

int hr__balancing_fetcher_stands_by_locked(struct hr_loader *l, int number)
{
    if (!l->balancing || l->stop || number < hr__balancing_limit_locked(l, HR__PREAD_FETCHERS))
        return 0;
    if (l->idle_fetchers)
        pthread_cond_signal(&l->fetch);
    stand_by_locked(l);
    return 1;
}

void hr__balancing_stop_locked(struct hr_loader *l)
{
    if (l->balancing)
        pthread_cond_broadcast(&l->balancing->spare);
}
