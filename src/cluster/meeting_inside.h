/*
 * The state of one rank's meeting in progress: what it has seen of the other ranks and of the
 * servers. Used by one thread.
 */
#ifndef HR_CLUSTER_MEETING_INSIDE_H
#define HR_CLUSTER_MEETING_INSIDE_H

#include "cluster/meeting.h"
#include "cluster/meeting_record.h"

/* What is known of one rank. */
struct hr__meeting_seen {
    struct hr__meeting_record record; /* its newest record */
    int has_record;
    int advances; /* how often a server had a newer record of it than at an earlier request */
    int is_live;  /* non-zero: its record was written during this meeting */
};

struct hr__meeting {
    struct hr__peers *peers;
    const struct hr__hosts *hosts;
    const struct hr__meeting_wish *wish;
    struct hr__meeting_record mine;
    struct hr__meeting_seen *seen;  /* world_size; this rank's entry is unused */
    uint64_t *numbers;              /* world_size: the numbers that `mine.agreed` is the digest of;
                                       0: rank absent */
    int *host_of_rank;              /* world_size: hosts of the ranks in `numbers`; borrowed */
    char *answers;                  /* hosts->count; non-zero: the last write to it succeeded */
    char *was_read;                 /* hosts->count; non-zero: records were read from it */
    struct hr__peer_record *wanted; /* world_size: the records to request from a server */
    int *wanted_rank;               /* world_size: ranks of the requested records */
    char (*keys)[HR__MEETING_KEY];  /* world_size: keys of the ranks' records */
    char inputs[HR__MEETING_TEXT];  /* of this rank, as text */
    char inputs_key[HR__MEETING_KEY];
    uint64_t began_ns, until_ns, wrote_ns, logged_ns;
    int retry;      /* the next server to retry, of those that do not answer */
    int turn;       /* the next server to read in addition to the first */
    int is_written; /* non-zero: a server took the last write of `mine` */
};

/* Returns non-zero if a rank's record agrees with this rank's: either in its current meeting or in
 * the previous one that it repeats. *inputs is the digest of inputs of that meeting. */
static inline int hr__meeting_agrees(const struct hr__meeting *m, int rank, uint64_t *inputs)
{
    const struct hr__meeting_seen *seen = &m->seen[rank];
    const struct hr__meeting_record *r = &seen->record;
    if (!seen->has_record || !m->mine.agreed || r->world_size != m->wish->world_size)
        return 0;
    /* The rank is already in its next meeting. */
    int is_before = r->before_agreed == m->mine.agreed && r->before_number == m->numbers[rank];
    *inputs = is_before ? r->before_inputs : r->inputs;
    return is_before || r->agreed == m->mine.agreed;
}

/* ---- messages (meeting_words.c) ---- */

/* Writes the missing ranks, for the log and for an error, into out[room]: "rank 3, ranks 5-7 of 8";
 * and the servers that do not answer. */
void hr__meeting_absent_text(const struct hr__meeting *m, char *out, size_t room);

int hr__meeting_fail_late(const struct hr__meeting *m, struct hr_error *error);

/* For when all ranks are there, but not all have this rank's inputs. Asks servers for the texts. */
int hr__meeting_fail_different(const struct hr__meeting *m, struct hr_error *error);

int hr__meeting_fail_world(const struct hr__meeting *m, int rank, struct hr_error *error);
int hr__meeting_fail_twice(const struct hr__meeting *m, const struct hr__meeting_record *other,
                           struct hr_error *error);

#endif
