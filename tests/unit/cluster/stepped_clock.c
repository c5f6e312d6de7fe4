/* See stepped_clock.h. */
#include "stepped_clock.h"

#include "../test.h"

#include "base/clock.h"

#include <sys/syscall.h>
#include <unistd.h>

struct sleeper {
    struct sleeper *next;
    uint64_t until_ns;
    int is_awake;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the members below */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;  /* signals that sleepers were woken */
static uint64_t now_ns = 1000000000;
static int awake = 1; /* threads that neither sleep nor wait for another's end; the main one */
static struct sleeper *asleep;

/* Wakes those whose sleep is the shortest, if nobody is awake. */
static void step_locked(void)
{
    if (awake || !asleep)
        return;
    uint64_t next_ns = UINT64_MAX;
    for (struct sleeper *s = asleep; s; s = s->next)
        next_ns = s->until_ns < next_ns ? s->until_ns : next_ns;
    now_ns = next_ns;
    for (struct sleeper **at = &asleep; *at;) {
        struct sleeper *s = *at;
        if (s->until_ns > now_ns) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->is_awake = 1;
        awake++;
    }
    pthread_cond_broadcast(&moved);
}

static void sleep_ns(uint64_t ns)
{
    pthread_mutex_lock(&lock);
    struct sleeper s = {.next = asleep, .until_ns = now_ns + ns};
    asleep = &s;
    awake--;
    step_locked();
    while (!s.is_awake)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

/* The ones that the library calls, too. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    pthread_mutex_lock(&lock);
    *out = hr__timespec(now_ns);
    pthread_mutex_unlock(&lock);
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *rest)
{
    sleep_ns((uint64_t)wanted->tv_sec * 1000000000u + (uint64_t)wanted->tv_nsec);
    return 0;
}

void stepped_sleep_ms(long ms)
{
    sleep_ns((uint64_t)ms * 1000000u);
}

static void *run_thread(void *arg)
{
    struct stepped_thread *t = arg;
    void *result = t->run(t->arg);
    pthread_mutex_lock(&lock);
    t->has_ended = 1;
    if (!t->is_joined) { /* else the thread that waits is awake in its place */
        awake--;
        step_locked();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void stepped_start(struct stepped_thread *t, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    t->run = run;
    t->arg = arg;
    t->has_ended = t->is_joined = 0;
    pthread_mutex_lock(&lock);
    awake++;
    pthread_mutex_unlock(&lock);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512 << 10); /* tests start hundreds */
    assert_int_equal(pthread_create(&t->thread, &attr, run_thread, t), 0);
    pthread_attr_destroy(&attr);
}

void stepped_join(struct stepped_thread *t)
{
    pthread_mutex_lock(&lock);
    t->is_joined = 1;
    if (!t->has_ended) {
        awake--;
        step_locked();
    }
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_join(t->thread, NULL), 0);
}
