/*
 * Decides when converting a cached item pays off: pure functions of measured costs. No clock, no
 * allocation, no threads.
 *
 * Costs are nanoseconds of one thread's CPU time, as moving means: of preparing a sample from an
 * item of a form, of converting an item to a form, and of reading a sample that is not cached.
 * Until a form has enough measurements, its costs are estimated in proportion to those of encoded
 * items.
 *
 * The rules: a conversion must save more time over the remaining uses than it takes. Busy workers
 * spend at most a tenth of their time on conversions; idle workers convert whenever an item will be
 * used again. A form's saving never outweighs the fetches that its extra bytes would displace.
 */
#ifndef HR_CACHE_WORTH_H
#define HR_CACHE_WORTH_H

#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

/* The cost of an index that is made while its file is decoded, relative to the decoding. */
#define HR__WORTH_PASSING 0.1

/* From this many values on a mean is used. */
#define HR__WORTH_ENOUGH 16

/* The share of their time that busy workers may convert. */
#define HR__WORTH_SHARE 0.1

/* Number of uses of an item in a cache that outlives the run. */
#define HR__WORTH_FOREVER UINT64_MAX

struct hr__mean {
    double value;
    uint64_t count; /* number of values */
};

void hr__mean_add(struct hr__mean *mean, double value);

/* The measurements. All zero: none yet. */
struct hr__worth {
    struct hr__mean prepare_ns[HR_FORMS]; /* per sample, by the form of its item */
    struct hr__mean convert_ns[HR_FORMS]; /* per item, by its new form */
    struct hr__mean growth[HR_FORMS];     /* bytes after / bytes before, by its new form */
    struct hr__mean read_ns;              /* per sample that is not cached */
    struct hr__mean read_bytes;           /* per sample that is not cached */
};

/* The cost of a conversion, and bytes after / bytes before, as measured or estimated. */
double hr__worth_convert_ns(const struct hr__worth *worth, enum hr_form form);
double hr__worth_growth(const struct hr__worth *worth, enum hr_form form);

/* The circumstances of a decision. */
struct hr__worth_moment {
    int uses_known;
    uint64_t uses;          /* of each item, after this epoch; or HR__WORTH_FOREVER */
    int idle;               /* the worker that asks has nothing else to do */
    uint64_t working_ns;    /* of all workers so far, with conversions */
    uint64_t converting_ns; /* the part of it spent on conversions */
    int in_passing;         /* the sample is being decoded, so that an index costs little more */
};

/* Returns non-zero if an item should be converted to `form` now. For HR_FORM_ENCODED: settled
 * unconverted. */
int hr__worth_convert(const struct hr__worth *worth, enum hr_form form,
                      const struct hr__worth_moment *moment);

/* Returns non-zero if the conversion takes less time than `uses` of its result save. */
int hr__worth_repays(const struct hr__worth *worth, enum hr_form form, uint64_t uses);

/* Returns non-zero if the remaining uses repay an index that is made in passing. */
int hr__worth_index_repays(const struct hr__worth *worth, const struct hr__worth_moment *moment);

/* The state of the cache when deciding what an item may take. Bytes are those of items, except
 * missing_bytes, which are sizes on storage. */
struct hr__worth_space {
    uint64_t budget_bytes;
    uint64_t settled_bytes; /* of the budget: used or kept for items already decided */
    uint64_t staged_bytes;  /* of items that wait for a conversion and may be decided anew */
    uint64_t missing_bytes; /* of the samples that are not cached */
    uint64_t converted;     /* items converted so far, without indexed ones */
    uint64_t staged;        /* items that wait for a conversion */
    int asked;              /* HR_FORM_AUTO, or the only form allowed besides encoded */
    int fetch_bound;        /* storage is the bottleneck: no form is worth a fetch */
};

/*
 * Returns the form for the next item, of `length` bytes now, such that an epoch is as short as
 * possible once all items are decided. Undecided are the missing and the staged samples, which
 * share what the others leave of the budget. Each form has a size and a saving. The best mix uses
 * forms on the upper convex hull of these points: one form, or two neighbours whose mean size fits
 * the space per sample (Sinha and Zoltners, "The multiple-choice knapsack problem", 1979). The
 * larger of the two is given first, until the space left is just enough for the smaller one.
 */
enum hr_form hr__worth_choose(const struct hr__worth *worth, size_t length,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment);

/* Returns the bytes of budget to reserve for an item of `length` bytes that is to be converted to
 * `form`: its expected size if a conversion is likely to come, else 0. */
size_t hr__worth_reserve(const struct hr__worth *worth, enum hr_form form, size_t length,
                         const struct hr__worth_space *space,
                         const struct hr__worth_moment *moment);

/* Returns the bytes of budget that conversions to `form` must leave free for samples yet to come:
 * what those need in the next smaller form of the hull. */
uint64_t hr__worth_leave_free(const struct hr__worth *worth, enum hr_form form,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment);

#endif
