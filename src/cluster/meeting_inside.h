/*
 * One rank's meeting, while it goes on: what it has seen of the others and of the servers.
 * Used by one thread.
 */
#ifndef HR_CLUSTER_MEETING_INSIDE_H
#define HR_CLUSTER_MEETING_INSIDE_H

#include "cluster/meeting.h"
#include "cluster/meeting_record.h"

/* What is known of one rank. */
struct hr__meeting_seen {
    struct hr__meeting_record record; /* the newest */
    int has_record;
    int advances; /* times that a server which was asked before had a newer one of it */
    int is_live;  /* non-zero: its record was written while this rank looked */
};

struct hr__meeting {
    struct hr__peers *peers;
    const struct hr__hosts *hosts;
    const struct hr__meeting_wish *wish;
    struct hr__meeting_record mine;
    struct hr__meeting_seen *seen; /* world_size; this rank's is not used */
    uint64_t *numbers;             /* world_size: by which `mine.agreed` was made; 0: absent */
    int *host_of_rank; /* world_size: of those of `numbers`, in this meeting; borrowed */
    char *answers;     /* hosts->count; non-zero: the last writing there went well */
    char *was_read;    /* hosts->count; non-zero: records were read from there */
    struct hr__peer_record *wanted; /* world_size: what is asked of a server */
    int *wanted_rank;               /* world_size: whose that is */
    char (*keys)[HR__MEETING_KEY];  /* world_size: where each rank's record is kept */
    char inputs[HR__MEETING_TEXT];  /* of this rank */
    char inputs_key[HR__MEETING_KEY];
    uint64_t began_ns, until_ns, wrote_ns, told_ns;
    int retry;      /* the next server that is tried again, of those that do not answer */
    int turn;       /* the next server that is read beside the first */
    int is_written; /* non-zero: a server took `mine` when it was written last */
};

/* Whether a rank's record agrees to what this rank has: its own, or what it tells of its
 * meeting before. *inputs: of that. */
int hr__meeting_agrees(const struct hr__meeting *m, int rank, uint64_t *inputs);

/* ---- what is said (meeting_words.c) ---- */

/* The ranks that did not come, for the log and for an error: "rank 3, ranks 5-7 of 8"; and the
 * servers that do not answer; into out[room]. */
void hr__meeting_absent_text(const struct hr__meeting *m, char *out, size_t room);

int hr__meeting_fail_late(const struct hr__meeting *m, struct hr_error *error);

/* All are there, and not all have this rank's inputs. Asks servers for the texts. */
int hr__meeting_fail_different(const struct hr__meeting *m, struct hr_error *error);

int hr__meeting_fail_world(const struct hr__meeting *m, int rank, struct hr_error *error);
int hr__meeting_fail_twice(const struct hr__meeting *m, const struct hr__meeting_record *other,
                           struct hr_error *error);

#endif
