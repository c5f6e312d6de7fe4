/* When a conversion pays off: tables of costs and the expected decisions. */
#include "../test.h"

#include "cache/worth.h"

#include <math.h>

/* `n` equal measurements of photographs: 600 us encoded, 150 us coefficients for
 * 1.35 times the bytes, 90 us planes for 4 times; 3 ms and 1.5 ms to convert. An index saves
 * nothing. */
static struct hr__worth photographs(int n)
{
    struct hr__worth worth = {0};
    for (int i = 0; i < n; i++) {
        hr__mean_add(&worth.prepare_ns[HR_FORM_ENCODED], 600e3);
        hr__mean_add(&worth.prepare_ns[HR_FORM_COEFFICIENTS], 150e3);
        hr__mean_add(&worth.prepare_ns[HR_FORM_PLANES], 90e3);
        hr__mean_add(&worth.prepare_ns[HR_FORM_INDEXED], 600e3);
        hr__mean_add(&worth.convert_ns[HR_FORM_COEFFICIENTS], 3e6);
        hr__mean_add(&worth.convert_ns[HR_FORM_PLANES], 1.5e6);
        hr__mean_add(&worth.growth[HR_FORM_COEFFICIENTS], 1.35);
        hr__mean_add(&worth.growth[HR_FORM_PLANES], 4);
        hr__mean_add(&worth.read_ns, 20e3);
        hr__mean_add(&worth.read_bytes, 110e3);
    }
    return worth;
}

static void test_mean(void **state)
{
    struct hr__mean mean = {0};
    for (int i = 1; i <= 100; i++)
        hr__mean_add(&mean, i);
    assert_true(fabs(mean.value - 50.5) < 1e-9);
    /* The mean follows: after many other values the old ones hardly count. */
    for (int i = 0; i < 3000; i++)
        hr__mean_add(&mean, 7);
    assert_true(fabs(mean.value - 7) < 0.01);
    assert_int_equal(mean.count, 3100);
}

/* A conversion of 3 ms that saves 450 us per use pays off at the seventh use. */
static void test_repays(void **state)
{
    struct hr__worth worth = photographs(100);
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 0));
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 6));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 7));
    assert_false(hr__worth_repays(&worth, HR_FORM_PLANES, 2));
    assert_true(hr__worth_repays(&worth, HR_FORM_PLANES, 3));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, HR__WORTH_FOREVER));
    assert_false(hr__worth_repays(&worth, HR_FORM_ENCODED, 100));
    /* A form that is not faster never pays off. */
    worth.prepare_ns[HR_FORM_COEFFICIENTS].value = 600e3;
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 1000000));
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, HR__WORTH_FOREVER));
}

static void test_when(void **state)
{
    const uint64_t ms = 1000000;
    static const int known = 1, unknown = 0, idle = 1, busy = 0;
    const struct {
        struct hr__worth_moment moment;
        int coefficients;
    } cases[] = {
        /* Idle workers may convert while there are uses left, whatever it has cost so far. */
        {{known, 1, idle, 0, 0, 0}, 1},
        {{known, 1, idle, 100 * ms, 100 * ms, 0}, 1},
        {{known, 0, idle, 100 * ms, 0, 0}, 0},
        {{unknown, 0, idle, 100 * ms, 50 * ms, 0}, 1},
        /* Busy workers may convert only if it pays off, and spend a tenth of their time on it. */
        {{unknown, 0, busy, 1000 * ms, 0, 0}, 0},
        {{known, 6, busy, 1000 * ms, 0, 0}, 0},
        {{known, 7, busy, 1000 * ms, 0, 0}, 1},
        {{known, 90, busy, 29 * ms, 0, 0}, 0},
        {{known, 90, busy, 30 * ms, 0, 0}, 1},
        {{known, 90, busy, 1000 * ms, 97 * ms, 0}, 1},
        {{known, 90, busy, 1000 * ms, 98 * ms, 0}, 0},
        {{known, HR__WORTH_FOREVER, busy, 1000 * ms, 97 * ms, 0}, 1},
        {{known, HR__WORTH_FOREVER, busy, 1000 * ms, 98 * ms, 0}, 0},
        {{known, HR__WORTH_FOREVER, idle, 0, 0, 0}, 1},
    };
    struct hr__worth worth = photographs(100), none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (hr__worth_convert(&worth, HR_FORM_COEFFICIENTS, &cases[i].moment) !=
            cases[i].coefficients)
            fail_msg("case %zu", i);
        /* Settling an item unconverted takes no time. */
        assert_int_equal(hr__worth_convert(&worth, HR_FORM_ENCODED, &cases[i].moment),
                         !cases[i].moment.uses_known || cases[i].moment.uses);
        assert_false(hr__worth_convert(&none, HR_FORM_COEFFICIENTS, &cases[i].moment));
    }
}

/* Before a form has been measured, its costs are estimated from those of encoded items. */
static void test_before_measuring(void **state)
{
    struct hr__worth worth = {0};
    hr__mean_add(&worth.prepare_ns[HR_FORM_ENCODED], 1e6);
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 12));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 13));
    assert_false(hr__worth_repays(&worth, HR_FORM_INDEXED, 3));
    assert_true(hr__worth_repays(&worth, HR_FORM_INDEXED, 4));
    /* One outlier changes nothing yet. */
    hr__mean_add(&worth.prepare_ns[HR_FORM_COEFFICIENTS], 50e6);
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 13));
}

/* No space is reserved for conversions that will not happen. */
static void test_reserve(void **state)
{
    struct hr__worth worth = photographs(100);
    struct hr__worth_space space = {.asked = HR_FORM_COEFFICIENTS, .converted = 5};
    struct hr__worth_moment moment = {.uses_known = 1, .uses = 6};
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 0);
    moment.uses = 7;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 135);
    moment.uses_known = 0;
    space.staged = 5;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 0);
    space.staged = 4;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 135);
}

/* A requested form takes space that encoded items need only if it saves more than their fetches
 * cost; `auto` chooses by the space per sample. */
static void test_choice(void **state)
{
    static const int E = HR_FORM_ENCODED, C = HR_FORM_COEFFICIENTS, P = HR_FORM_PLANES,
                     A = HR_FORM_AUTO;
    const struct {
        uint64_t budget;
        double read_ns;
        int asked, fetch_bound, uses_known;
        uint64_t uses;
        int form;
        uint64_t leave_free;
    } cases[] = {
        /* Everything fits as planes; a part does; nothing does; a part fits as coefficients. */
        {4000, 20e3, A, 0, 1, 90, P, 1350},
        {2000, 20e3, A, 0, 1, 90, P, 1350},
        {1350, 20e3, A, 0, 1, 90, C, 0},
        {500, 20e3, A, 0, 1, 90, C, 0},
        /* Reads that cost more than a form saves have priority. */
        {4000, 5e6, A, 0, 1, 90, P, 1350},
        {1360, 5e6, A, 0, 1, 90, P, 1350},
        {1340, 5e6, A, 0, 1, 90, C, 1000},
        {1010, 5e6, A, 0, 1, 90, C, 1000},
        {1000, 5e6, A, 0, 1, 90, E, 0},
        {1010, 20e3, A, 1, 1, 90, C, 1000},
        {1000, 20e3, A, 1, 1, 90, E, 0},
        /* A form that saves 510 us for three times the bytes: planes are as good as more cached
         * samples if reads take up to 170 us. */
        {1000, 160e3, P, 0, 1, 1000000, P, 0},
        {1000, 180e3, P, 0, 1, 1000000, E, 0},
        {1001, 180e3, P, 0, 1, 1000000, P, 1000},
        {1000, 1.2e6, C, 0, 1, 1000000, C, 0},
        {1000, 1.3e6, C, 0, 1, 1000000, E, 0},
        {9000, 20e3, C, 0, 1, 90, C, 0},
        {9000, 20e3, E, 0, 1, 90, E, 0},
        /* Too few uses to pay off. */
        {4000, 20e3, A, 0, 1, 1, E, 0},
        {4000, 20e3, A, 0, 1, 0, E, 0},
        {1350, 20e3, C, 0, 1, 2, E, 0},
        {4000, 20e3, A, 0, 1, 5, P, 0},
        {4000, 20e3, A, 0, 0, 0, P, 1350},
        {4000, 20e3, A, 0, 1, HR__WORTH_FOREVER, P, 1350},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__worth worth = photographs(100);
        worth.read_ns.value = cases[i].read_ns;
        struct hr__worth_space space = {.budget_bytes = cases[i].budget,
                                        .missing_bytes = 1000,
                                        .asked = cases[i].asked,
                                        .fetch_bound = cases[i].fetch_bound};
        struct hr__worth_moment moment = {.uses_known = cases[i].uses_known, .uses = cases[i].uses};
        enum hr_form form = hr__worth_choose(&worth, 0, &space, &moment);
        uint64_t leave_free = hr__worth_leave_free(&worth, form, &space, &moment);
        if ((int)form != cases[i].form || leave_free != cases[i].leave_free)
            fail_msg("case %zu: form %d, %d bytes left free", i, form, (int)leave_free);
        /* Only the remaining space counts. */
        space.budget_bytes += 7000;
        space.settled_bytes = 7000;
        assert_int_equal(hr__worth_choose(&worth, 0, &space, &moment), cases[i].form);
        space.missing_bytes = 300;
        space.staged_bytes = 700;
        assert_int_equal(hr__worth_choose(&worth, 0, &space, &moment), cases[i].form);
    }
}

static void put(struct hr__mean *mean, double value)
{
    mean->value = value;
    mean->count = 1000;
}

/* 400 us encoded, 300 us indexed for 1.02 times the bytes, 110 us coefficients for 1.34 times, 70
 * us planes for 3.7 times; 0.2, 2.4 and 1.8 ms to convert. */
static struct hr__worth photographs_with_index(double read_ns)
{
    static const double costs[HR_FORMS][3] = {[HR_FORM_ENCODED] = {400e3, 0, 1},
                                              [HR_FORM_INDEXED] = {300e3, 200e3, 1.02},
                                              [HR_FORM_COEFFICIENTS] = {110e3, 2.4e6, 1.34},
                                              [HR_FORM_PLANES] = {70e3, 1.8e6, 3.7}};
    struct hr__worth worth = {0};
    for (int form = 0; form < IMAGE_FORMS; form++) {
        put(&worth.prepare_ns[form], costs[form][0]);
        put(&worth.convert_ns[form], costs[form][1]);
        put(&worth.growth[form], costs[form][2]);
    }
    put(&worth.read_ns, read_ns);
    return worth;
}

/* An index is worth its bytes where reads cost much and memory is short, and where few uses are
 * left. 1000 bytes are missing. */
static void test_choice_of_an_index(void **state)
{
    static const int E = HR_FORM_ENCODED, I = HR_FORM_INDEXED, C = HR_FORM_COEFFICIENTS,
                     P = HR_FORM_PLANES, A = HR_FORM_AUTO;
    const struct {
        uint64_t budget;
        double read_ns;
        int asked, fetch_bound;
        uint64_t uses;
        int form;
        uint64_t leave_free;
    } cases[] = {
        /* Reads of 20 us: a byte of coefficients saves (20 + 290) / 1.34 = 231 us, one of indexed
         * items (20 + 100) / 1.02 = 118. */
        {500, 20e3, A, 0, HR__WORTH_FOREVER, C, 0},
        {1340, 20e3, A, 0, HR__WORTH_FOREVER, C, 0},
        {1350, 20e3, A, 0, HR__WORTH_FOREVER, P, 1340},
        /* Reads of 4 ms: 4100 / 1.02 is more than 4000 / 1 and 4290 / 1.34. */
        {500, 4e6, A, 0, HR__WORTH_FOREVER, I, 0},
        {1020, 4e6, A, 0, HR__WORTH_FOREVER, I, 0},
        {1030, 4e6, A, 0, HR__WORTH_FOREVER, C, 1020},
        {1330, 4e6, A, 0, HR__WORTH_FOREVER, C, 1020},
        {1350, 4e6, A, 0, HR__WORTH_FOREVER, P, 1340},
        /* Reads of 6 ms: encoded items first, because 6100 / 1.02 is less than 6000. */
        {1000, 6e6, A, 0, HR__WORTH_FOREVER, E, 0},
        {1010, 6e6, A, 0, HR__WORTH_FOREVER, I, 1000},
        {1030, 6e6, A, 0, HR__WORTH_FOREVER, C, 1020},
        {1000, 20e3, A, 1, HR__WORTH_FOREVER, E, 0},
        {1010, 20e3, A, 1, HR__WORTH_FOREVER, I, 1000},
        {1030, 20e3, A, 1, HR__WORTH_FOREVER, C, 1020},
        {1350, 20e3, A, 1, HR__WORTH_FOREVER, P, 1340},
        /* Three uses repay an index alone: 100 - 200 / 3 us. One repays nothing. */
        {500, 20e3, A, 0, 3, I, 0},
        {9000, 20e3, A, 0, 3, I, 0},
        {9000, 20e3, A, 0, 1, E, 0},
        /* Ten uses: indexed saves 80 us, coefficients 50, planes 150. */
        {500, 20e3, A, 0, 10, I, 0},
        {1020, 20e3, A, 0, 10, I, 0},
        {1030, 20e3, A, 0, 10, P, 1020},
        {9000, 20e3, I, 0, HR__WORTH_FOREVER, I, 0},
        {1000, 6e6, I, 0, HR__WORTH_FOREVER, E, 0},
        {1010, 6e6, I, 0, HR__WORTH_FOREVER, I, 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__worth worth = photographs_with_index(cases[i].read_ns);
        struct hr__worth_space space = {.budget_bytes = cases[i].budget,
                                        .missing_bytes = 1000,
                                        .asked = cases[i].asked,
                                        .fetch_bound = cases[i].fetch_bound};
        struct hr__worth_moment moment = {.uses_known = 1, .uses = cases[i].uses};
        enum hr_form form = hr__worth_choose(&worth, 0, &space, &moment);
        uint64_t leave_free = hr__worth_leave_free(&worth, form, &space, &moment);
        if ((int)form != cases[i].form || leave_free != cases[i].leave_free)
            fail_msg("case %zu: form %d, %d bytes left free", i, form, (int)leave_free);
    }
    /* One use repays an index that is made while the file is decoded: 100 - 40 us. */
    struct hr__worth_space all = {.budget_bytes = 9000, .missing_bytes = 1000, .asked = A};
    struct hr__worth_moment passing = {.uses_known = 1, .uses = 1, .in_passing = 1};
    struct hr__worth costs = photographs_with_index(20e3);
    assert_int_equal(hr__worth_choose(&costs, 0, &all, &passing), I);
    passing.uses = 0;
    assert_int_equal(hr__worth_choose(&costs, 0, &all, &passing), E);
    /* A conversion of 0.2 ms fits into a tenth of the time much sooner than one of 2.4 ms. */
    struct hr__worth worth = photographs_with_index(20e3);
    struct hr__worth_moment moment = {.uses_known = 1, .uses = 90, .working_ns = 3000000};
    assert_true(hr__worth_convert(&worth, HR_FORM_INDEXED, &moment));
    assert_false(hr__worth_convert(&worth, HR_FORM_COEFFICIENTS, &moment));
}

/* The choices for a few items of one size against all that could be chosen: no mix of forms that
 * fits saves more than theirs and one item's worth besides. */
#define FEW 12

static double random_between(uint64_t *random, double from, double to)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return from + (to - from) * (double)(*random >> 40) / (double)(1 << 24);
}

/* Saved by `counts` items of the forms in an epoch; -1: they do not fit. */
static double saved_ns(const struct hr__worth *worth, double budget, const int counts[HR_FORMS])
{
    double saved = 0, weight = 0;
    for (int form = 0; form < IMAGE_FORMS; form++) {
        weight += counts[form] * worth->growth[form].value;
        saved += counts[form] * (worth->read_ns.value + worth->prepare_ns[0].value -
                                 worth->prepare_ns[form].value);
    }
    return weight <= budget ? saved : -1;
}

static double best_saved_ns(const struct hr__worth *worth, double budget)
{
    double best = 0;
    for (int all = 0; all < (FEW + 1) * (FEW + 1) * (FEW + 1) * (FEW + 1); all++) {
        int counts[HR_FORMS], rest = all, sum = 0;
        for (int form = 0; form < IMAGE_FORMS; form++, rest /= FEW + 1)
            sum += counts[form] = rest % (FEW + 1);
        double saved = sum <= FEW ? saved_ns(worth, budget, counts) : -1;
        best = saved > best ? saved : best;
    }
    return best;
}

/* Items enter one by one, each in the form that is chosen for it. */
static void choose_all(const struct hr__worth *worth, double budget, int counts[HR_FORMS])
{
    const double bytes = 100000;
    double used = 0;
    for (int n = 0; n < FEW; n++) {
        struct hr__worth_space space = {.budget_bytes = (uint64_t)(budget * bytes),
                                        .settled_bytes = (uint64_t)(used * bytes),
                                        .missing_bytes = (uint64_t)((FEW - n) * bytes),
                                        .asked = HR_FORM_AUTO};
        struct hr__worth_moment moment = {.uses_known = 1, .uses = HR__WORTH_FOREVER};
        enum hr_form form = hr__worth_choose(worth, (size_t)bytes, &space, &moment);
        if (used + worth->growth[form].value > budget)
            break;
        used += worth->growth[form].value;
        counts[form]++;
    }
}

static void test_against_all_choices(void **state)
{
    static const double
        least[HR_FORMS] =
            {[HR_FORM_INDEXED] = 1.005, [HR_FORM_COEFFICIENTS] = 1.1, [HR_FORM_PLANES] = 2},
        most[HR_FORMS] = {
            [HR_FORM_INDEXED] = 1.1, [HR_FORM_COEFFICIENTS] = 1.8, [HR_FORM_PLANES] = 6};
    uint64_t random = 1;
    int used[HR_FORMS] = {0};
    for (int n = 0; n < 2000; n++) {
        struct hr__worth worth = {0};
        int counts[HR_FORMS] = {0};
        put(&worth.prepare_ns[0], 400e3);
        put(&worth.growth[0], 1);
        for (int form = 1; form < IMAGE_FORMS; form++) {
            put(&worth.prepare_ns[form], random_between(&random, 20e3, 430e3));
            put(&worth.growth[form], random_between(&random, least[form], most[form]));
        }
        put(&worth.read_ns,
            random_between(&random, 0, 1) < 0.5 ? 20e3 : random_between(&random, 0, 8e6));
        double budget = FEW * random_between(&random, 0.1, n % 2 ? 1.6 : 5);
        choose_all(&worth, budget, counts);
        double saved = saved_ns(&worth, budget, counts), best = best_saved_ns(&worth, budget);
        double one = worth.read_ns.value + 400e3;
        if (saved < 0 || saved + one < best)
            fail_msg("world %d: saves %.0f us of at best %.0f", n, saved / 1e3, best / 1e3);
        for (int form = 0; form < IMAGE_FORMS; form++)
            used[form] += counts[form] > 0;
    }
    for (int form = 0; form < IMAGE_FORMS; form++)
        assert_true(used[form] > 100);
}

/*
 * A model of a cache that fills by these rules: samples come in random order, are admitted or
 * refused, and are converted later. The time of an epoch with the final mix of forms is compared
 * with the best of all mixes.
 */
#define COUNT 4000

struct worth_model {
    struct hr__worth worth;
    struct hr__worth_moment moment;
    double growth[HR_FORMS];
    uint64_t sizes[COUNT], total;
    uint64_t budget;
    /* unconverted */
    uint64_t settled, staged_bytes, reserved, missing, converted;
    uint64_t items[HR_FORMS];
    struct {
        uint64_t length, reserve;
    } staged[COUNT + 1];
    size_t staged_first, staged_last;
};

static struct hr__worth_space space_of(const struct worth_model *m, int staged)
{
    return (struct hr__worth_space){
        .budget_bytes = m->budget,
        .settled_bytes = m->settled + (staged ? 0 : m->staged_bytes + m->reserved),
        .staged_bytes = staged ? m->staged_bytes : 0,
        .missing_bytes = m->missing,
        .converted = m->converted,
        .staged = m->staged_last - m->staged_first,
        .asked = HR_FORM_AUTO,
    };
}

static uint64_t free_of(const struct worth_model *m)
{
    return m->budget - m->settled - m->staged_bytes - m->reserved;
}

static void admit(struct worth_model *m, uint64_t length)
{
    struct hr__worth_space space = space_of(m, 0);
    enum hr_form form = hr__worth_choose(&m->worth, length, &space, &m->moment);
    uint64_t reserve = 0;
    if (form != HR_FORM_ENCODED)
        reserve = hr__worth_reserve(&m->worth, form, length, &space, &m->moment);
    reserve = reserve > length ? reserve - length : 0;
    if (length + reserve > free_of(m))
        return;
    m->missing -= length;
    if (form == HR_FORM_ENCODED) {
        m->settled += length;
        m->items[form]++;
        return;
    }
    m->staged_bytes += length;
    m->reserved += reserve;
    m->staged[m->staged_last].length = length;
    m->staged[m->staged_last++].reserve = reserve;
}

/* Returns 0 if there is nothing to convert. */
static int convert(struct worth_model *m)
{
    struct hr__worth_space space = space_of(m, 1);
    uint64_t length = m->staged[m->staged_first].length;
    enum hr_form form = hr__worth_choose(&m->worth, length, &space, &m->moment);
    if (m->staged_first == m->staged_last)
        return 0;
    uint64_t own = length + m->staged[m->staged_first++].reserve;
    uint64_t free = free_of(m), becomes = (uint64_t)((double)length * m->growth[form]);
    uint64_t leave = hr__worth_leave_free(&m->worth, form, &space, &m->moment);
    m->staged_bytes -= length;
    m->reserved -= own - length;
    if (becomes > own + (free > leave ? free - leave : 0)) {
        form = HR_FORM_ENCODED;
        becomes = length;
    }
    m->converted += form != HR_FORM_ENCODED;
    m->settled += becomes;
    m->items[form]++;
    return 1;
}

/* Runs three epochs; items are converted once `lag` of them wait. Idle workers convert the rest
 * after the first epoch. */
static void fill(struct worth_model *m, size_t lag)
{
    static unsigned char cached[COUNT];
    for (int i = 0; i < COUNT; i++)
        cached[i] = 0;
    m->missing = m->total;
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int n = 0; n < COUNT; n++) {
            int i = (int)((unsigned)n * 1237u % COUNT);
            uint64_t before = m->missing;
            if (!cached[i])
                admit(m, m->sizes[i]);
            cached[i] |= m->missing < before;
            if (m->staged_last - m->staged_first > lag)
                convert(m);
        }
        while (epoch && convert(m))
            continue;
    }
}

/* Returns the CPU time of all samples for a mix, by the model; numbers of items may be
 * fractions. */
static double epoch_ns(const struct worth_model *m, const double items[HR_FORMS])
{
    double ns = 0, missing = COUNT;
    for (int form = 0; form < IMAGE_FORMS; form++) {
        double each = m->worth.prepare_ns[form].value;
        if (form && m->moment.uses_known && m->moment.uses != HR__WORTH_FOREVER)
            each += m->worth.convert_ns[form].value / (double)m->moment.uses;
        ns += items[form] * each;
        missing -= items[form];
    }
    return ns + missing * (m->worth.prepare_ns[0].value + m->worth.read_ns.value);
}

/* Returns the time of the best mix of two forms, in steps of a 200th. More than two are never
 * better, because only their number and their bytes are limited. */
static double best_ns(const struct worth_model *m)
{
    const int steps = 200;
    double best = 1e300, mean = (double)m->total / COUNT;
    for (int a = 0; a < IMAGE_FORMS; a++) {
        for (int b = 0; b < IMAGE_FORMS; b++) {
            for (int n = 0; a != b && n <= steps; n++) {
                double items[HR_FORMS] = {0};
                items[a] = (double)n * COUNT / steps;
                double left = ((double)m->budget - mean * items[a] * m->growth[a]) / mean;
                if (left < 0)
                    break;
                items[b] = left / m->growth[b];
                if (items[b] > COUNT - items[a])
                    items[b] = COUNT - items[a];
                double ns = epoch_ns(m, items);
                best = ns < best ? ns : best;
            }
        }
    }
    return best;
}

static void test_mixes(void **state)
{
    static struct worth_model m;
    static const double prepare[][HR_FORMS] = {{600e3, 150e3, 90e3, 600e3},
                                               {600e3, 400e3, 60e3, 450e3},
                                               {300e3, 290e3, 200e3, 240e3},
                                               {900e3, 200e3, 950e3, 700e3},
                                               {400e3, 110e3, 70e3, 300e3}};
    static const double growth[][HR_FORMS] = {
        {1, 1.35, 4, 1.02}, {1, 1.2, 2, 1.01}, {1, 1.05, 3, 1.1}};
    static const double convert[HR_FORMS] = {0, 3e6, 1.5e6, 0.2e6};
    static const double reads[] = {0, 20e3, 150e3, 700e3, 6e6};
    static const uint64_t uses[] = {HR__WORTH_FOREVER, 100, 12};
    static const double budgets[] = {0.1, 0.35, 0.5, 0.8, 0.95, 1.02, 1.2, 1.34, 1.6, 2.5, 3.9, 5};
    double worst = 0;
    for (int k = 0; k < 5 * 3 * 5 * 3 * 12 * 3; k += test_is_slow() ? 7 : 1) {
        int b = k % 12, g = k / 12 % 3, r = k / 36 % 5, u = k / 180 % 3, p = k / 540 % 5;
        m = (struct worth_model){.moment = {.uses_known = 1, .uses = uses[u]}};
        for (int f = 0; f < IMAGE_FORMS; f++) {
            m.growth[f] = growth[g][f];
            put(&m.worth.prepare_ns[f], prepare[p][f]);
            put(&m.worth.growth[f], m.growth[f]);
            put(&m.worth.convert_ns[f], convert[f]);
        }
        put(&m.worth.read_ns, reads[r]);
        for (int i = 0; i < COUNT; i++)
            m.total += m.sizes[i] = 20000 + (unsigned)i * 2654435761u % 180000;
        m.budget = (uint64_t)(budgets[b] * (double)m.total);
        fill(&m, (size_t)(k / 2700) * 300);
        assert_true(m.settled + m.staged_bytes + m.reserved <= m.budget);
        double items[HR_FORMS];
        for (int f = 0; f < IMAGE_FORMS; f++)
            items[f] = (double)m.items[f];
        double ns = epoch_ns(&m, items), best = best_ns(&m);
        worst = ns / best > worst ? ns / best : worst;
        if (ns > 1.02 * best)
            fail_msg("costs %d, growth %d, reads %d, uses %d, budget %d, lag %d: %d/%d/%d/%d "
                     "items: %.3f of the best",
                     p, g, r, u, b, k / 2700, (int)m.items[0], (int)m.items[1], (int)m.items[2],
                     (int)m.items[3], ns / best);
    }
    print_message("at worst %.4f of the best mix\n", worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_repays),
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_before_measuring),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_of_an_index),
        cmocka_unit_test(test_against_all_choices),
        cmocka_unit_test(test_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
