/*
 * One sample on its way into a pack: its file's bytes, the form it gets, and why.
 *
 * A maker is one thread's tools. What it makes of a sample depends on the sample's
 * bytes and the options only. Private to this room.
 */
#ifndef HR_BULK_PACK_CONVERT_H
#define HR_BULK_PACK_CONVERT_H

#include "base/memory.h"
#include "bulk/pack_file.h"

struct hr__pack_maker;

/* What became of one sample. */
struct hr__made {
    struct hr__pack_entry entry; /* entry.bytes is `bytes` */
    void *bytes;                 /* hr__free */
    /* why it is kept or bad, or what ends the run; "" where nothing is to be said */
    char reason[400];
    int result; /* 0; the error of a bad sample, which `entry` then keeps; or, with
                   `fatal`, of the machine */
    int fatal;
};

/* `options` are checked and stay in place; items are allocated from `pool`, which
 * outlives them. On success *out is the caller's. Errors: -ENOMEM, -EINVAL. */
int hr__pack_maker_create(struct hr__pack_maker **out, const struct hr_pack_options *options,
                          struct hr__blocks *pool, struct hr_error *error);
void hr__pack_maker_destroy(struct hr__pack_maker **maker);

/* Reads and converts sample `index`. `made` needs no preparation. Blocks on I/O. */
void hr__pack_make(struct hr__pack_maker *maker, struct hr_dataset *dataset, uint64_t index,
                   struct hr__made *made);

/*
 * pack_worth.c: the form that is worth its bytes (HR_FORM_AUTO), a pure function of
 * an image's size in pixels and its bytes in each form (index enum hr_form; 0: it
 * cannot have that form).
 */
enum hr_form hr__pack_worth(uint64_t pixels, const uint64_t bytes[3]);

/* One number for the options that decide about the bytes of items. */
uint64_t hr__pack_options_digest(const struct hr_pack_options *options);

#endif
