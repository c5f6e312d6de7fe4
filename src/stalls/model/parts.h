/*
 * Reads and writes the parts that a record and stalls.json have in common, from and into the
 * structs of result.h: loader, training, dataset, phases, machine, storage, Headrace's cost, and
 * the data of a rank. docs/stalls-format.md describes them.
 *
 * One field table per part (fields.h) reads, writes, copies and frees it. Readers allocate into a
 * result that the caller destroys with hr_stalls_destroy, on failure too.
 */
#ifndef HR_STALLS_MODEL_PARTS_H
#define HR_STALLS_MODEL_PARTS_H

#include "stalls/model/fields.h"
#include "stalls/model/result.h"

/* Bounds beyond any real run, so that a damaged file cannot request much memory. */
#define HR__MAX_SEGMENTS 8192
#define HR__MAX_BATCHES  1000000 /* per segment */
#define HR__MAX_PREPARES 100000
#define HR__MAX_SIZES    100000
#define HR__MAX_TEXTS    10000 /* notes, files written */
#define HR__MAX_SECONDS  1e9
#define HR__MAX_AMOUNT   1e18 /* bytes, samples, rates */

extern const char *const hr__phase_names[HR_STALLS_PHASES + 1];
extern const char *const hr__ended_names[]; /* best end first */

/* Read and write the members of the whole run, from and into the object that holds them. */
void hr__read_run(struct hr__json *reader, const json_t *object, struct hr_stalls *stalls);
bool hr__write_run(json_t *object, const struct hr_stalls *stalls);
/* Like hr__fields_own and hr__fields_clear, for sizes, notes and files written. */
bool hr__own_run(struct hr_stalls *stalls);
void hr__clear_run(struct hr_stalls *stalls);

/* `suggestions`: text and change of each. */
extern const struct hr__field hr__suggestions_fields[];
/* `machine`, `storage`, `headrace` of a host: struct hr__host_record. */
extern const struct hr__field hr__host_fields[];
/* `rank` ... `segments`, `drains`, `preparation`: struct hr__rank_record. */
extern const struct hr__field hr__rank_fields[];

#endif
