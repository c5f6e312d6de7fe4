/*
 * What ranks write on servers for each other: a record of one rank, and a text of inputs,
 * which is kept under its own digest, so that ranks that agree share it. Both come from
 * outside when they are read; every length and number is checked. Pure.
 */
#ifndef HR_CLUSTER_MEETING_RECORD_H
#define HR_CLUSTER_MEETING_RECORD_H

#include "cluster/hosts.h"
#include "cluster/meeting.h"

#define HR__MEETING_KEY    41 /* characters of a key, its end included */
#define HR__MEETING_RECORD 512
#define HR__MEETING_TEXT   8000

/* Of one rank; one line of text. */
struct hr__meeting_record {
    int world_size;
    int host;                  /* in its list; -1: in none */
    uint32_t run;              /* grows by one with each meeting of the rank */
    uint32_t writing;          /* of this record in the meeting, from 0 */
    uint64_t number;           /* random, of this meeting of the rank */
    uint64_t inputs;           /* digest of their text */
    uint64_t agreed;           /* digest of the numbers of all ranks; 0: not all are there */
    uint64_t before_number;    /* of the meeting before: its number; 0: there was none */
    uint64_t before_inputs;    /* its inputs */
    uint64_t before_agreed;    /* what it agreed to */
    char place[HR__HOST_NAME]; /* its host for people: the name in the list, or the machine's */
};

/* 0, or -E2BIG. */
int hr__meeting_record_write(char out[HR__MEETING_RECORD], const struct hr__meeting_record *record);

/* 0, or -EBADMSG: not one, or damaged. */
int hr__meeting_record_read(struct hr__meeting_record *out, const char *text);

/* What a record has before all that comes behind it: ranks that read one number of it
 * differently would plan differently. */
uint32_t hr__meeting_record_check(const char *rest);

/* Under which a rank's record is kept, and a text of inputs. */
void hr__meeting_rank_key(char out[HR__MEETING_KEY], const char *job, int rank);
void hr__meeting_inputs_key(char out[HR__MEETING_KEY], const char *job, uint64_t digest);

/* The inputs, a line "name TAB value" each, control characters as blanks, and values that are
 * too long cut, with a digest. `count` is HR__MEETING_INPUTS at most. Returns its digest. */
uint64_t hr__meeting_inputs_write(char out[HR__MEETING_TEXT],
                                  const struct hr__meeting_input *inputs, int count);

uint64_t hr__meeting_inputs_digest(const char *text);

/* An input in a text of them: not terminated. */
struct hr__meeting_value {
    const char *name, *value;
    size_t name_length, value_length;
};

/* The next one behind *at, which is moved on: 1; 0: there are no more. */
int hr__meeting_inputs_next(const char **at, struct hr__meeting_value *out);

/* The value of a name: 1; 0: there is none. */
int hr__meeting_inputs_find(const char *text, const char *name, size_t name_length,
                            struct hr__meeting_value *out);

#endif
