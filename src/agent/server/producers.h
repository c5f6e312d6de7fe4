/*
 * The producers of one source (headrace/producer.h): the processes that make its samples, and the
 * requests for samples.
 *
 * Queues request samples through a struct hr__sample_source. Each request goes to a producer that
 * has little to do: producers are used in the order in which they came, and only as many as the job
 * with the most of them has, because so many processes a user wanted to work at a time. The others
 * stand by. A producer has two requests at least, so that it need not wait for the next, and as
 * many as it answers in OWED_NS, if its memory has the slots. A worker that waits for one sample,
 * in place of a bad one, goes first, and one slot of each producer is kept free for it.
 *
 * What a producer owes when it ends, others make. Each of these samples may be the reason, so from
 * then on each is made by a producer that has nothing else to make. A sample over which producers
 * ended DEATHS_MAX times, while their jobs lived on, is bad. A producer that does not answer for
 * long (SIGSTOP, a hanging file system) gets no more requests until it does, and what it owes is
 * requested from another, too: the first answer counts. Without any producer, requests wait for
 * LONELY_NS, then fail.
 *
 * A sample stays in its producer's memory until it was copied to its place. The agent maps that
 * memory for reading; its size is sealed, so that no access can fail. A producer that ended keeps
 * its memory as long as samples in it are needed.
 *
 * The loop's thread calls the functions below; fetchers and workers use the sample source. One lock
 * guards all of it; it is a leaf lock, held for a message's send at most.
 */
#ifndef HR_AGENT_SERVER_PRODUCERS_H
#define HR_AGENT_SERVER_PRODUCERS_H

#include "agent/wire.h"
#include "storage/reader.h"

#include <headrace/base.h>

struct hr__producers;
struct hr__producer; /* one of them */

/* Errors: -ENOMEM. */
int hr__producers_create(struct hr__producers **out, uint64_t sample_bytes, struct hr_error *error);

/* All producers have left, and no sample is in use. Accepts NULL. */
void hr__producers_destroy(struct hr__producers **producers);

/* Where queues get samples from. Owned by `producers`. */
struct hr__sample_source *hr__producers_source(struct hr__producers *producers);

/* Notes that the job of this process needs samples; exit: no more. Without jobs and producers,
 * requests fail at once. Errors: -ENOMEM. */
int hr__producers_enter(struct hr__producers *producers, int32_t pid, struct hr_error *error);
void hr__producers_exit(struct hr__producers *producers, int32_t pid);

int hr__producers_count(struct hr__producers *producers);

/* Adds a producer, which gets requests from now on through `socket`; that stays the caller's.
 * Neither is the file `memory`. Errors: -EINVAL: the memory is not what PRODUCE says, or not
 * sealed; -ENOMEM. */
int hr__producers_join(struct hr__producers *producers, struct hr__producer **out,
                       const struct hr__wire_produce *produce, int socket, int memory,
                       struct hr_error *error);

/* The producer said that it leaves: what it owes is not its fault. */
void hr__producers_excuse(struct hr__producers *producers, struct hr__producer *producer);

/* Removes a producer, and frees it. Call it before its socket is closed. */
void hr__producers_leave(struct hr__producers *producers, struct hr__producer **producer);

/* Takes a sample. Returns false if the producer was not asked for it. */
int hr__producers_made(struct hr__producers *producers, struct hr__producer *producer,
                       const struct hr__wire_made *made);

#endif
