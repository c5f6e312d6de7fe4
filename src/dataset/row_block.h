/*
 * The rows of a dataset as one block of bytes: what a pack keeps, and what a job hands to an agent.
 *
 *   head | descriptions of the columns | offsets | the values of each column
 *
 * Offsets and values are as hr_dataset_with_rows takes them, in the order of the samples, each part
 * at a multiple of 8; bytes between them are zero. Everything is in native byte order, which the
 * head records. So equal rows are equal bytes.
 */
#ifndef HR_DATASET_ROW_BLOCK_H
#define HR_DATASET_ROW_BLOCK_H

#include "dataset/row_table.h"

/* Most bytes of a block. */
#define HR__ROW_BLOCK_BYTES_MAX (UINT64_C(1) << 36)

/* Makes the block of a dataset that has rows. *block is the caller's, freed with hr__free. Errors:
 * -ENOMEM; -EFBIG. */
int hr__row_block_make(void **block, uint64_t *bytes, const struct hr_dataset *dataset,
                       struct hr_error *error);

/* Makes a table, with one reference, of a block from outside, which must be of `samples` samples.
 * Checks everything. Errors: -EBADMSG: it is damaged; -ENOTSUP: of another machine or version;
 * -ENOMEM. */
int hr__row_block_read(struct hr__row_table **out, const void *block, uint64_t bytes,
                       uint64_t samples, struct hr_error *error);

/* If a dataset's rows are some of a larger table's, replaces it by one that has a table of just
 * these. So its records are laid out as those of whoever reads its block. Errors: -ENOMEM; -EFBIG.
 */
int hr__dataset_cut_rows(struct hr_dataset **dataset, struct hr_error *error);

#endif
