/*
 * The analysis of random records against a short and slow reference: live blocks after each event,
 * the peak and its blocks, intervals between accesses, and the blocks that are not touched during
 * the peak.
 */
#include "written.h"

#include <stdlib.h>
#include <string.h>

#define PLACES   60 /* addresses */
#define DEVICES  3
#define EVENTS   4000
#define OPS      7
#define FIRST_NS 1000

static const uint8_t devices[DEVICES] = {0, 1, HR_MEMORY_LIBRARIES};

/* A block of the model. */
struct model_block {
    uint64_t bytes, begin_ns, free_ns; /* UINT64_MAX: lives */
    uint64_t accesses[400];            /* times */
    uint32_t calls[400];
    uint8_t kinds[400];
    int access_count, device, was_there;
};

struct model {
    struct model_block *blocks;
    int count, of_place[DEVICES][PLACES]; /* the block that lives there, -1: none */
    uint64_t odd_frees, odd_allocs, accesses;
    uint64_t times[EVENTS];
    int time_count;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct model_block *begin(struct model *m, int device, int place, uint64_t now,
                                 uint64_t bytes, int was_there)
{
    struct model_block *b = &m->blocks[m->count];
    b->bytes = bytes;
    b->begin_ns = was_there ? 0 : now;
    b->free_ns = UINT64_MAX;
    b->device = device;
    b->was_there = was_there;
    m->of_place[device][place] = m->count++;
    return b;
}

static struct model_block *living(struct model *m, int device, int place)
{
    int at = m->of_place[device][place];
    return at < 0 ? NULL : &m->blocks[at];
}

static void end(struct model *m, int device, int place, uint64_t now)
{
    living(m, device, place)->free_ns = now;
    m->of_place[device][place] = -1;
}

/* Writes one event to the record, and applies it to the model. */
static void act(struct model *m, struct written *w, uint64_t *random, uint64_t now,
                const uint32_t *ops)
{
    int device = (int)(next_random(random) % DEVICES), place = (int)(next_random(random) % PLACES);
    uint64_t address = 4096 + 64 * (uint64_t)place, bytes = 1 + next_random(random) % 100000;
    struct model_block *b = living(m, device, place);
    w->device = devices[device];
    w->phase = (uint8_t)(next_random(random) % 4);
    switch (next_random(random) % 10) {
    case 0:
    case 1:
        if (b && next_random(random) % 4) {
            written_put(w, HR_MEMORY_FREE, now, address, 0, 0);
            end(m, device, place, now);
        } else if (b) {
            m->odd_allocs++;
            end(m, device, place, now);
            written_put(w, HR_MEMORY_ALLOC, now, address, bytes, 0);
            begin(m, device, place, now, bytes, 0);
        } else if (next_random(random) % 8) {
            written_put(w, HR_MEMORY_ALLOC, now, address, bytes, 0);
            begin(m, device, place, now, bytes, 0);
        } else {
            written_put(w, HR_MEMORY_FREE, now, address, 0, 0);
            m->odd_frees++;
        }
        return;
    case 2:
        if (!b) {
            written_put(w, HR_MEMORY_PRESENT, now, address, bytes, 0);
            begin(m, device, place, now, bytes, 1);
        }
        return;
    case 3:
        w->call++; /* it is between accesses, although it is not counted */
        return;
    default:
        w->call += next_random(random) % 3 == 0;
        if (!b)
            b = begin(m, device, place, now, 0, 1);
        if (b->access_count == 400)
            return;
        b->kinds[b->access_count] = next_random(random) % 2 ? HR_MEMORY_READ : HR_MEMORY_WRITE;
        b->calls[b->access_count] = w->call;
        b->accesses[b->access_count] = now;
        written_access(w, b->kinds[b->access_count++], now, address,
                       ops[next_random(random) % OPS]);
        m->accesses++;
    }
}

static uint64_t live_at(const struct model *m, int device, uint64_t ns)
{
    uint64_t bytes = 0;
    for (int i = 0; i < m->count; i++)
        if (m->blocks[i].device == device && m->blocks[i].begin_ns <= ns &&
            ns < m->blocks[i].free_ns)
            bytes += m->blocks[i].bytes;
    return bytes;
}

/* Returns the peak and its first moment; there are at most as many events as moments. */
static uint64_t peak_of(const struct model *m, int device, uint64_t *ns)
{
    uint64_t most = live_at(m, device, FIRST_NS - 1);
    *ns = FIRST_NS - 1;
    for (int i = 0; i < m->time_count; i++) {
        uint64_t now = live_at(m, device, m->times[i]);
        if (now > most) {
            most = now;
            *ns = m->times[i];
        }
    }
    return most;
}

static const struct hr__device_memory *device_of(const struct hr__memory *found, int device)
{
    for (size_t i = 0; i < found->device_count; i++)
        if (found->devices[i].device == devices[device])
            return &found->devices[i];
    fail_msg("device %d is missing", device);
    return NULL;
}

static void compare_live(const struct hr__memory *found, const struct model *m)
{
    for (int device = 0; device < DEVICES; device++) {
        const struct hr__device_memory *d = device_of(found, device);
        uint64_t peak_ns, peak = peak_of(m, device, &peak_ns), groups = 0, parts = 0, living = 0;
        assert_int_equal(d->timeline.peak_bytes, peak);
        assert_int_equal(d->timeline.peak.time_ns, peak_ns);
        assert_int_equal(d->backward.peak_bytes, peak);
        assert_int_equal(d->timeline.negative + d->backward.negative, 0);
        assert_int_equal(d->timeline.end_bytes, live_at(m, device, UINT64_MAX - 1));
        for (size_t i = 0; i < d->timeline.count; i++) {
            uint64_t sum = 0;
            for (int c = 0; c < HR__CATEGORIES; c++)
                sum += d->timeline.points[i].bytes[c];
            assert_int_equal(sum, live_at(m, device, d->timeline.points[i].time_ns));
        }
        for (size_t i = 0; i < d->group_count; i++)
            groups += d->groups[i].bytes;
        assert_int_equal(groups + d->other_bytes, peak);
        for (size_t i = 0; i < d->part_count; i++)
            for (int c = 0; c < HR__CATEGORIES; c++)
                parts += d->parts[i].bytes[c];
        assert_int_equal(parts, peak);
        for (size_t i = 0; i < d->living_count; i++)
            living += found->found.blocks[d->living[i]].bytes;
        assert_int_equal(living, peak);
    }
}

/* Compares the number and the sum of the intervals of each behaviour. */
static void compare_intervals(const struct hr__memory *found, const struct model *m)
{
    uint64_t counts[HR__BEHAVIOURS] = {0}, sums[HR__BEHAVIOURS] = {0}, swappable = 0;
    for (int i = 0; i < m->count; i++) {
        const struct model_block *b = &m->blocks[i];
        for (int k = 1; k < b->access_count; k++) {
            if (b->calls[k] == b->calls[k - 1])
                continue;
            int behaviour =
                2 * (b->kinds[k - 1] == HR_MEMORY_WRITE) + (b->kinds[k] == HR_MEMORY_WRITE);
            uint64_t ns = b->accesses[k] - b->accesses[k - 1];
            counts[behaviour]++;
            sums[behaviour] += ns;
            /* 12 GB/s each way: 6 bytes per nanosecond. */
            swappable += b->bytes && b->bytes <= 6 * ns;
        }
    }
    for (int k = 0; k < HR__BEHAVIOURS; k++) {
        assert_int_equal(found->intervals.of[k].count, counts[k]);
        assert_int_equal(found->intervals.of[k].sum_ns, sums[k]);
    }
    assert_int_equal(found->intervals.swappable, swappable);
    assert_int_equal(found->intervals.left_out, 0);
}

/* Computes from the model the bytes that could be swapped out over the peaks, and those freed
 * late. */
static void compare_advice(const struct hr__memory *found, const struct model *m)
{
    uint64_t swaps = 0, late = 0, listed_swaps = 0, described_late = 0;
    for (int device = 0; device < DEVICES; device++) {
        uint64_t peak_ns, running_ns = 0;
        uint32_t running = 0;
        peak_of(m, device, &peak_ns);
        for (int i = 0; i < m->count; i++)
            for (int k = 0; k < m->blocks[i].access_count; k++)
                if (m->blocks[i].accesses[k] <= peak_ns && m->blocks[i].accesses[k] >= running_ns) {
                    running_ns = m->blocks[i].accesses[k];
                    running = m->blocks[i].calls[k];
                }
        for (int i = 0; i < m->count; i++) {
            const struct model_block *b = &m->blocks[i];
            int next = 0;
            if (b->device != device || b->begin_ns > peak_ns || b->free_ns <= peak_ns ||
                !b->access_count || !b->bytes)
                continue;
            while (next < b->access_count && b->accesses[next] <= peak_ns)
                next++;
            if (next == b->access_count) {
                late += b->free_ns != UINT64_MAX && b->calls[next - 1] != running &&
                                b->accesses[next - 1] < peak_ns
                            ? b->bytes
                            : 0;
                continue;
            }
            if (!next || b->calls[next - 1] == running || b->calls[next] == running ||
                b->calls[next] == b->calls[next - 1])
                continue;
            swaps += b->bytes <= 6 * (b->accesses[next] - b->accesses[next - 1]) ? b->bytes : 0;
        }
    }
    for (size_t k = 0; k < found->advice_count; k++) {
        listed_swaps += found->advice[k].kind == HR__ADVICE_SWAP ? found->advice[k].bytes : 0;
        described_late +=
            found->advice[k].kind == HR__ADVICE_LATE_FREE ? found->advice[k].bytes : 0;
        assert_true(!k || found->advice[k - 1].bytes >= found->advice[k].bytes);
    }
    /* If more were found than are kept, or small ones, the kept ones are a part of them. */
    if (found->advice_count < HR__ADVICE_MOST) {
        uint64_t peaks = 0;
        for (size_t i = 0; i < found->device_count; i++)
            peaks += found->devices[i].timeline.peak_bytes;
        assert_true(listed_swaps <= swaps && listed_swaps + peaks / 4 >= swaps);
        assert_true(described_late <= late && described_late + peaks / 4 >= late);
    } else {
        assert_true(listed_swaps <= swaps && described_late <= late);
    }
}

static void make(struct model *m, struct written *w, uint64_t seed, int with_ties)
{
    uint64_t random = seed, now = FIRST_NS;
    uint32_t ops[OPS];
    static const char *const names[OPS] = {"a", "b", "c", "d", "e", "f", "g"};
    for (int i = 0; i < OPS; i++)
        ops[i] = written_name(w, names[i]);
    memset(m->of_place, -1, sizeof m->of_place);
    w->call = 1;
    written_put(w, HR_MEMORY_MARK, now, 0, 0, written_name(w, "begins"));
    for (int i = 0; i < EVENTS; i++) {
        now += with_ties ? next_random(&random) % 2 : 1 + next_random(&random) % 3000;
        m->times[m->time_count++] = now;
        act(m, w, &random, now, ops);
    }
}

static void test_against_model(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct model m = {.blocks = calloc(EVENTS, sizeof *m.blocks)};
        struct hr__record *record;
        assert_non_null(m.blocks);
        make(&m, *state, seed * UINT64_C(0x9e3779b97f4a7c15), 0);
        struct hr__memory *found = written_analyse(*state, &record);
        assert_int_equal(found->found.count, m.count);
        assert_int_equal(found->found.accesses, m.accesses);
        assert_int_equal(found->found.odd_frees, m.odd_frees);
        assert_int_equal(found->found.odd_allocs, m.odd_allocs);
        compare_live(found, &m);
        compare_intervals(found, &m);
        compare_advice(found, &m);
        hr__memory_destroy(&found);
        hr__record_close(&record);
        free(m.blocks);
        written_tear_down(state);
        assert_int_equal(written_set_up(state), 0);
    }
}

/* If many events have the same time, their order in the record counts: a replay from the end gives
 * the same, and live bytes are never negative. */
static void test_ties(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct model m = {.blocks = calloc(EVENTS, sizeof *m.blocks)};
        struct hr__record *record;
        assert_non_null(m.blocks);
        make(&m, *state, seed * UINT64_C(0x2545f4914f6cdd1d), 1);
        struct hr__memory *found = written_analyse(*state, &record);
        for (int device = 0; device < DEVICES; device++) {
            const struct hr__device_memory *d = device_of(found, device);
            uint64_t living = 0;
            assert_int_equal(d->timeline.negative + d->backward.negative, 0);
            assert_int_equal(d->backward.peak_bytes, d->timeline.peak_bytes);
            for (size_t i = 0; i < d->living_count; i++)
                living += found->found.blocks[d->living[i]].bytes;
            assert_int_equal(living, d->timeline.peak_bytes);
            assert_int_equal(d->timeline.end_bytes, live_at(&m, device, UINT64_MAX - 1));
        }
        hr__memory_destroy(&found);
        hr__record_close(&record);
        free(m.blocks);
        written_tear_down(state);
        assert_int_equal(written_set_up(state), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, written_set_up, written_tear_down)
    const struct CMUnitTest tests[] = {TEST(test_against_model), TEST(test_ties)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
