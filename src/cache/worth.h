/*
 * When converting a cached item repays: pure functions of measured costs. No
 * clock, no memory, no threads.
 *
 * Costs are nanoseconds of CPU time of one thread, as moving means: of preparing a sample
 * whose item has a form, of converting to a form, of reading a sample that is not
 * cached. Until a form has been seen often enough its costs are taken in
 * proportion to those of encoded items.
 *
 * The rules: a conversion must save more time over the uses that remain than it
 * takes; workers that have work convert on at most a tenth of their time; idle
 * ones whenever an item will be used again. And a form is never worth more than the
 * fetches that its bytes displace.
 */
#ifndef HR_CACHE_WORTH_H
#define HR_CACHE_WORTH_H

#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

#define HR__FORMS 3

/* Share of their time that busy workers may convert. */
#define HR__WORTH_SHARE 0.1

/* Uses of an item of a cache that outlives the run. */
#define HR__WORTH_FOREVER UINT64_MAX

struct hr__mean {
    double value;
    uint64_t count; /* values that went in */
};

void hr__mean_add(struct hr__mean *mean, double value);

/* What was measured. All zero: nothing yet. */
struct hr__worth {
    struct hr__mean prepare_ns[HR__FORMS]; /* one sample, by the form of its bytes */
    struct hr__mean convert_ns[HR__FORMS]; /* one item, by the form that it got */
    struct hr__mean growth[HR__FORMS];     /* bytes after over bytes before, likewise */
    struct hr__mean read_ns;               /* one sample that is not cached */
    struct hr__mean read_bytes;            /* likewise */
};

/* What a conversion takes, and bytes after over bytes before, as far as is known. */
double hr__worth_convert_ns(const struct hr__worth *worth, enum hr_form form);
double hr__worth_growth(const struct hr__worth *worth, enum hr_form form);

/* What is asked about a conversion. */
struct hr__worth_moment {
    int uses_known;
    uint64_t uses;          /* of each item, after this epoch; HR__WORTH_FOREVER */
    int idle;               /* the worker that asks has nothing else to do */
    uint64_t working_ns;    /* of all workers so far, conversions included */
    uint64_t converting_ns; /* of them, converting */
};

/* Non-zero where an item should be converted to `form` now; encoded: settled as it is. */
int hr__worth_convert(const struct hr__worth *worth, enum hr_form form,
                      const struct hr__worth_moment *moment);

/* Non-zero where conversion takes less time than `uses` of the result save. */
int hr__worth_repays(const struct hr__worth *worth, enum hr_form form, uint64_t uses);

/* The cache, when it is asked what an item may take. Bytes are of items, but for missing
 * ones, which are as on storage. */
struct hr__worth_space {
    uint64_t budget_bytes;
    uint64_t settled_bytes; /* of the budget: taken by what is decided, or kept for it */
    uint64_t staged_bytes;  /* of items that wait for a conversion and may be decided anew */
    uint64_t missing_bytes; /* of the samples that are not cached */
    uint64_t converted;     /* items, so far */
    uint64_t staged;        /* items that wait for a conversion */
    int asked;              /* HR_FORM_AUTO, or the only form beside encoded */
    int fetch_bound;        /* storage is the slow side: nothing is worth a fetch */
};

/*
 * The form that the next item, of `length` bytes before, should get, so that an epoch is as short
 * as can be when everything is decided. Undecided are the samples that are missing or staged, and
 * what the others have left of the budget. Of each form is known what it saves and what it takes;
 * the most is saved by the forms on the upper convex hull of these points, and by one or two
 * neighbours on it, whose mean takes what there is for a sample (Sinha and Zoltners, "The
 * multiple-choice knapsack problem", 1979). The larger one comes first: that leaves less and less,
 * until it is just enough for the smaller one.
 */
enum hr_form hr__worth_choose(const struct hr__worth *worth, size_t length,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment);

/* Bytes of budget to keep for an item of `length` bytes that is to be converted to `form`:
 * what it will take where a conversion will come, else 0. */
size_t hr__worth_reserve(const struct hr__worth *worth, enum hr_form form, size_t length,
                         const struct hr__worth_space *space,
                         const struct hr__worth_moment *moment);

/* Bytes of budget that conversions to `form` must leave free for samples yet to come:
 * that they need in the next smaller form of the hull. */
uint64_t hr__worth_leave_free(const struct hr__worth *worth, enum hr_form form,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment);

#endif
