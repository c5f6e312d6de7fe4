/* Workers that serve many publishers (crew.h). */
#include "loader/crew.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/memory.h"
#include "loader/process.h"
#include "loader/publisher_inside.h"
#include "loader/schedule.h"

#include <errno.h>
#include <limits.h>

/* A publisher in the crew. */
struct member {
    struct hr_loader *loader;
    atomic_int visitors;     /* workers in the loader or with a sample of it */
    atomic_int is_leaving;   /* workers must not visit it any more */
    _Atomic uint64_t served; /* value of the crew's `visits` at its last visit */
};

struct worker {
    struct hr__thread thread; /* .loader: the one visited last */
    struct hr__crew *crew;
    struct hr__home home;
};

struct hr__crew {
    struct worker *workers;
    int count; /* of them, how many run */
    hr__crew_watch_fn watch;
    void *watch_arg;

    atomic_uint word;    /* a futex, incremented at each wake-up */
    atomic_int sleepers; /* workers that sleep or are about to */
    atomic_int watched;  /* a sleeper will wake up when the first delayed sample is due */
    atomic_int stop;

    _Atomic uint64_t visits;

    /* Guards the list. Workers only read it, and choose side by side: looking at all publishers
     * takes many lines of memory that other cores have just changed. */
    pthread_rwlock_t list;
    struct member **members;
    int member_count;

    pthread_mutex_t lock; /* for `left`; taken below `list` */
    pthread_cond_t left;  /* signalled when a worker returns from a leaving publisher */
};

/* Result of checking all publishers. */
struct look {
    struct member *due;  /* the most urgent one; NULL: none has work */
    struct member *idle; /* one with an item that an idle worker may convert */
    int others;          /* how many publishers besides `due` may have work */
    uint64_t soonest_ns; /* when the first delayed sample is due; UINT64_MAX: none */
};

static int may_have_work(const struct hr__publisher *publisher, uint64_t now_ns)
{
    return atomic_load(&publisher->has_work) || atomic_load(&publisher->ask_ns) <= now_ns;
}

/* Returns how many batches more a publisher of another node counts as having ready. */
static double distance(const struct hr__home *home, const struct hr_loader *loader)
{
    return home->node >= 0 && loader->home.node >= 0 && home->node != loader->home.node;
}

static struct look look_locked(const struct hr__crew *c, const struct hr__home *home)
{
    struct look found = {.soonest_ns = UINT64_MAX};
    uint64_t now_ns = 0;
    double least = 0;
    for (int i = 0; i < c->member_count; i++) {
        struct member *m = c->members[i];
        struct hr__publisher *publisher = m->loader->publisher;
        if (atomic_load(&m->is_leaving))
            continue;
        uint64_t ask_ns = atomic_load(&publisher->ask_ns);
        if (ask_ns != UINT64_MAX && !now_ns)
            now_ns = hr__now_ns();
        if (ask_ns < found.soonest_ns)
            found.soonest_ns = ask_ns;
        if (atomic_load(&publisher->may_convert) && (!found.idle || m->served < found.idle->served))
            found.idle = m;
        if (!may_have_work(publisher, now_ns))
            continue;
        double ahead = publisher->ops->ahead(publisher->self) + distance(home, m->loader);
        found.others += found.due != NULL;
        if (!found.due || ahead < least || (ahead == least && m->served < found.due->served)) {
            found.due = m;
            least = ahead;
        }
    }
    return found;
}

void hr__crew_wake(struct hr__crew *c, int count)
{
    /* The atomics are sequentially consistent: the waker stores its hint, then loads `sleepers`; a
     * sleeper counts itself, then checks the hints. So at least one sees the other. */
    if (!atomic_load(&c->sleepers))
        return;
    atomic_fetch_add(&c->word, 1);
    hr__futex_wake(&c->word, count, 0);
}

/* Sleeps until there may be work. One of the sleepers sets a timeout for samples that other
 * processes are reading. */
static void sleep_until_work(const struct worker *w)
{
    struct hr__crew *c = w->crew;
    atomic_fetch_add(&c->sleepers, 1);
    unsigned word = atomic_load(&c->word);
    pthread_rwlock_rdlock(&c->list);
    struct look found = look_locked(c, &w->home);
    pthread_rwlock_unlock(&c->list);
    if (!found.due && !found.idle && !atomic_load(&c->stop)) {
        int watches = found.soonest_ns != UINT64_MAX && !atomic_exchange(&c->watched, 1);
        hr__futex_wait(&c->word, word, watches ? found.soonest_ns : HR__FUTEX_EVER, 0);
        if (watches)
            atomic_store(&c->watched, 0);
    }
    atomic_fetch_sub(&c->sleepers, 1);
}

static void notify_watch(const struct worker *w, uint64_t begin_ns, uint64_t index,
                         const struct hr__outcome *outcome)
{
    struct hr__crew_event event = {
        .begin_ns = begin_ns,
        .end_ns = hr__now_ns(),
        .worker = w->thread.number,
        .loader = w->thread.loader,
        .index = index,
        .read_ns = outcome->fetch_ns,
    };
    w->crew->watch(w->crew->watch_arg, &event);
}

/* Prepares a sample of the publisher. */
static void prepare_unlocking(struct worker *w, struct hr__job *job)
{
    struct hr_loader *l = w->thread.loader;
    struct hr__outcome outcome;
    pthread_mutex_unlock(&l->lock);
    uint64_t index = (uint64_t)job->batch->indices[job->place];
    uint64_t begin_ns = w->crew->watch ? hr__now_ns() : 0;
    hr__process(&w->thread, job, &outcome);
    if (w->crew->watch)
        notify_watch(w, begin_ns, index, &outcome);
    pthread_mutex_lock(&l->lock);
    hr__finish_job_unlocking(l, job, &outcome);
}

/* Sets the hints of a publisher without a sample to take. Whatever changes that holds the same lock
 * and sets the hints again. */
static void say_none_locked(struct hr_loader *l)
{
    atomic_store(&l->publisher->has_work, 0);
    int may = l->keeper->may_convert_locked && l->keeper->may_convert_locked(l, 1);
    atomic_store(&l->publisher->may_convert, may);
}

/* Does one turn of the loop of a loader's own worker (threads.c), without the waiting. */
static void work_unlocking(struct worker *w)
{
    struct hr_loader *l = w->thread.loader;
    if (l->stop)
        return;
    if (l->keeper->should_convert_locked && l->keeper->should_convert_locked(&w->thread)) {
        l->keeper->convert_unlocking(&w->thread);
        return;
    }
    struct hr__job *job = hr__next_job_unlocking(l);
    if (job)
        prepare_unlocking(w, job);
    else if (hr__has_work_locked(l)) /* looking may have released the lock */
        atomic_store(&l->publisher->has_work, 1);
    else if (!hr__bands_help_unlocking(&w->thread))
        say_none_locked(l);
}

static void convert_unlocking(struct worker *w)
{
    struct hr_loader *l = w->thread.loader;
    int may = l->keeper->may_convert_locked && l->keeper->may_convert_locked(l, 1);
    atomic_store(&l->publisher->may_convert, may);
    if (may)
        l->keeper->convert_unlocking(&w->thread);
}

static void visit(struct worker *w, struct hr_loader *l, int is_idle)
{
    if (w->thread.loader != l)
        w->thread.converting = 0;
    w->thread.loader = l;
    pthread_mutex_lock(&l->lock);
    if (is_idle)
        convert_unlocking(w);
    else
        work_unlocking(w);
    int has_turn = l->publisher->turn;
    atomic_store(&l->publisher->ask_ns, l->delayed ? l->delayed->ask_ns : UINT64_MAX);
    pthread_mutex_unlock(&l->lock);
    if (has_turn)
        hr__publisher_publish(l->publisher);
}

/* Chooses the publisher to visit; NULL: none. *is_idle: only to convert an item. */
static struct member *choose_locked(const struct worker *w, int *is_idle)
{
    struct hr__crew *c = w->crew;
    struct look found = look_locked(c, &w->home);
    struct member *m = found.due ? found.due : found.idle;
    *is_idle = !found.due;
    if (!m)
        return NULL;
    atomic_store(&m->served, atomic_fetch_add(&c->visits, 1) + 1);
    atomic_fetch_add(&m->visitors, 1);
    if (found.others || (found.soonest_ns != UINT64_MAX && !atomic_load(&c->watched)))
        hr__crew_wake(c, 1);
    return m;
}

/* The thread that removes the publisher sets is_leaving, then loads `visitors`. It frees the member
 * with the list locked for writing, so not before this function is done with it. */
static void come_back_locked(struct hr__crew *c, struct member *m)
{
    if (atomic_fetch_sub(&m->visitors, 1) != 1 || !atomic_load(&m->is_leaving))
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->left);
    pthread_mutex_unlock(&c->lock);
}

static void *run(void *arg)
{
    struct worker *w = arg;
    struct hr__crew *c = w->crew;
    hr__numa_enter("", &w->home, w->thread.number);
    pthread_rwlock_rdlock(&c->list);
    while (!atomic_load(&c->stop)) {
        int is_idle;
        struct member *m = choose_locked(w, &is_idle);
        pthread_rwlock_unlock(&c->list);
        if (m)
            visit(w, m->loader, is_idle);
        else
            sleep_until_work(w);
        pthread_rwlock_rdlock(&c->list);
        if (m)
            come_back_locked(c, m);
    }
    pthread_rwlock_unlock(&c->list);
    return NULL;
}

static int start_worker(struct hr__crew *c, struct hr_error *error)
{
    struct worker *w = &c->workers[c->count];
    w->crew = c;
    w->thread.number = c->count;
    w->home = hr__numa_spread("", c->count);
    int r = hr_preparer_create(&w->thread.preparer, error);
    if (!r) {
        hr__bands_begin(&w->thread);
        r = hr__thread_start(&w->thread, run, "hr-crew", error);
    }
    if (r)
        hr_preparer_destroy(&w->thread.preparer);
    else
        c->count++;
    return r;
}

static void init_locks(struct hr__crew *c)
{
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    /* Otherwise a publisher that joins or leaves would wait until no worker chooses. */
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&c->list, &fair);
    pthread_rwlockattr_destroy(&fair);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->left, NULL);
}

int hr__crew_create(struct hr__crew **out, int threads, struct hr_error *error)
{
    *out = NULL;
    struct hr__crew *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a crew of workers");
    init_locks(c);
    int r = 0;
    c->workers = hr__alloc(HR__TAG_LOADER, (size_t)threads, sizeof *c->workers);
    if (!c->workers)
        r = hr__fail(error, -ENOMEM, "out of memory for %d workers", threads);
    while (!r && c->count < threads)
        r = start_worker(c, error);
    if (r)
        hr__crew_destroy(&c);
    *out = c;
    return r;
}

void hr__crew_destroy(struct hr__crew **crew)
{
    struct hr__crew *c = *crew;
    if (!c)
        return;
    *crew = NULL;
    atomic_store(&c->stop, 1);
    hr__crew_wake(c, INT_MAX);
    for (int i = 0; i < c->count; i++) {
        pthread_join(c->workers[i].thread.id, NULL);
        hr_preparer_destroy(&c->workers[i].thread.preparer);
        hr_converter_destroy(&c->workers[i].thread.converter);
    }
    for (int i = 0; i < c->member_count; i++)
        hr__free(c->members[i]);
    hr__free(c->members);
    hr__free(c->workers);
    pthread_cond_destroy(&c->left);
    pthread_mutex_destroy(&c->lock);
    pthread_rwlock_destroy(&c->list);
    hr__free(c);
}

int hr__crew_threads(const struct hr__crew *crew)
{
    return crew->count;
}

void hr__crew_watch(struct hr__crew *crew, hr__crew_watch_fn watch, void *arg)
{
    /* Workers read it only when they have a sample, so after a publisher has joined. */
    pthread_rwlock_wrlock(&crew->list);
    crew->watch = watch;
    crew->watch_arg = arg;
    pthread_rwlock_unlock(&crew->list);
}

int hr__crew_join(struct hr__crew *c, struct hr_loader *loader, struct hr_error *error)
{
    struct member *m = hr__alloc(HR__TAG_LOADER, 1, sizeof *m);
    pthread_rwlock_wrlock(&c->list);
    int r = m ? hr__reserve(HR__TAG_LOADER, &c->members, (size_t)c->member_count + 1) : -ENOMEM;
    if (!r) {
        m->loader = loader;
        c->members[c->member_count++] = m;
    }
    pthread_rwlock_unlock(&c->list);
    if (!r)
        return 0;
    hr__free(m);
    return hr__fail(error, r, "out of memory for a publisher of the crew");
}

static int find_locked(const struct hr__crew *c, const struct hr_loader *loader)
{
    int i = 0;
    while (i < c->member_count && c->members[i]->loader != loader)
        i++;
    return i;
}

void hr__crew_leave(struct hr__crew *c, struct hr_loader *loader)
{
    struct member *m = NULL;
    pthread_rwlock_wrlock(&c->list);
    int i = find_locked(c, loader);
    if (i < c->member_count) {
        m = c->members[i];
        atomic_store(&m->is_leaving, 1);
    }
    pthread_rwlock_unlock(&c->list);
    if (!m)
        return;
    pthread_mutex_lock(&c->lock);
    while (atomic_load(&m->visitors))
        pthread_cond_wait(&c->left, &c->lock);
    pthread_mutex_unlock(&c->lock);
    pthread_rwlock_wrlock(&c->list);
    /* Members may have moved while it waited. */
    i = find_locked(c, loader);
    c->members[i] = c->members[--c->member_count];
    pthread_rwlock_unlock(&c->list);
    hr__free(m);
}
