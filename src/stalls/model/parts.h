/*
 * The parts that a record and stalls.json have in common, read into and written from the
 * structs of result.h: loader, training, dataset, phases, machine, storage, Headrace's
 * cost, and what a rank saw. docs/stalls-format.md describes them.
 *
 * Readers allocate into what the caller destroys with hr__stalls_destroy, on failure too.
 */
#ifndef HR_STALLS_MODEL_PARTS_H
#define HR_STALLS_MODEL_PARTS_H

#include "stalls/model/json.h"
#include "stalls/model/result.h"

/* Bounds: beyond what any run has, so that a damaged file does not ask for much. */
#define HR__MAX_SEGMENTS 8192
#define HR__MAX_BATCHES  1000000 /* of a segment */
#define HR__MAX_PREPARES 100000
#define HR__MAX_SIZES    100000
#define HR__MAX_TEXTS    10000 /* notes, files written */
#define HR__MAX_SECONDS  1e9
#define HR__MAX_AMOUNT   1e18 /* bytes, samples, rates */

extern const char *const hr__phase_names[HR_STALLS_PHASES + 1];
extern const char *const hr__ended_names[]; /* by how well it ended: the first is best */
extern const char *const hr__loader_names[];

/* Members of the whole run, out of the object that holds them. */
void hr__read_run(struct hr__json *reader, const json_t *object, struct hr_stalls *stalls);
/* `machine`, `storage`, `headrace` of a host out of the object that holds them. */
void hr__read_host(struct hr__json *reader, const json_t *object, struct hr__host_record *host);
/* `rank` ... `segments`, `drains`, `preparation`. */
void hr__read_rank(struct hr__json *reader, const json_t *object, struct hr__rank_record *rank);

/* Adds the same to an object; false: out of memory. */
bool hr__write_run(json_t *object, const struct hr_stalls *stalls);
bool hr__write_host(json_t *object, const struct hr__host_record *host);
bool hr__write_rank(json_t *object, const struct hr__rank_record *rank);

/* Sets a member, taking the reference; false where value is NULL or memory is out. */
bool hr__json_set(json_t *object, const char *name, json_t *value);

#endif
