/*
 * Converts one sample for a pack: reads its file, chooses its form, and gives the reason.
 *
 * A maker belongs to one thread. Its result depends only on the sample's bytes and the options.
 * Private to this room.
 */
#ifndef HR_BULK_PACK_CONVERT_H
#define HR_BULK_PACK_CONVERT_H

#include "base/memory.h"
#include "bulk/pack_file.h"

#include <headrace/prepare.h>

struct hr__ahead;
struct hr__pack_maker;

/* The result for one sample. */
struct hr__made {
    struct hr__pack_entry entry; /* entry.bytes points at `bytes` */
    void *bytes;                 /* free with hr__free */
    /* why it was kept as it is, or rewritten, is bad, or ends the run; "" if there is nothing to
     * say */
    char reason[400];
    int result; /* 0; the error of a bad sample, which is then kept in `entry`; or, with `fatal`, an
                   error of the machine */
    int fatal;
};

/* `options` are checked and must outlive the maker. Items are allocated from `pool`, which must
 * outlive them. Samples come from `ahead`, if it has them; NULL: they are read when they are made.
 * On success *out is the caller's. Errors: -ENOMEM, -EINVAL. */
int hr__pack_maker_create(struct hr__pack_maker **out, const struct hr_pack_options *options,
                          struct hr__blocks *pool, struct hr__ahead *ahead, struct hr_error *error);
void hr__pack_maker_destroy(struct hr__pack_maker **maker);

/* Reads and converts sample `index`. `made` need not be initialized. Blocks on I/O. */
void hr__pack_make(struct hr__pack_maker *maker, struct hr_dataset *dataset, uint64_t index,
                   struct hr__made *made);

/*
 * pack_worth.c: chooses the form that is worth its bytes (HR_FORM_AUTO). A pure function of the
 * image's format and size in pixels and its bytes in each form (indexed by enum hr_form; 0: the
 * image cannot have that form).
 */
enum hr_form hr__pack_worth(enum hr_image_format format, uint64_t pixels,
                            const uint64_t bytes[HR_FORMS]);

/* Digest of the options that affect the bytes of items. */
uint64_t hr__pack_options_digest(const struct hr_pack_options *options);

#endif
