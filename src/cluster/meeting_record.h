/*
 * The texts that ranks write on servers for each other: a record for each rank, and a text of its
 * inputs. A text is stored under its own digest, so ranks that agree share it. Both are untrusted
 * when they are read: every length and number is checked. Pure.
 */
#ifndef HR_CLUSTER_MEETING_RECORD_H
#define HR_CLUSTER_MEETING_RECORD_H

#include "cluster/hosts.h"
#include "cluster/meeting.h"

#define HR__MEETING_KEY    41 /* size of a key, with its terminator */
#define HR__MEETING_RECORD 512
#define HR__MEETING_TEXT   8000

/* The record of one rank; one line of text. */
struct hr__meeting_record {
    int world_size;
    int host;                  /* index in its list; -1: not in it */
    uint32_t run;              /* grows by one with each meeting of the rank */
    uint32_t writing;          /* counts the writes of this record in the meeting, from 0 */
    uint64_t number;           /* random; new for each meeting of the rank */
    uint64_t inputs;           /* digest of their text */
    uint64_t agreed;           /* digest of the numbers of all ranks; 0: some are missing */
    uint64_t before_number;    /* number of the rank's previous meeting; 0: there was none */
    uint64_t before_inputs;    /* inputs of that meeting */
    uint64_t before_agreed;    /* agreed of that meeting */
    char place[HR__HOST_NAME]; /* its host for messages: the name in the list, or the machine's */
};

/* Returns 0, or -E2BIG. */
int hr__meeting_record_write(char out[HR__MEETING_RECORD], const struct hr__meeting_record *record);

/* Returns 0, or -EBADMSG: not a record, or damaged. */
int hr__meeting_record_read(struct hr__meeting_record *out, const char *text);

/* The checksum that a record starts with, of the text after it. It matters because a rank that
 * misread one number would plan differently from the others. */
uint32_t hr__meeting_record_check(const char *rest);

/* The keys of a rank's record and of a text of inputs. */
void hr__meeting_rank_key(char out[HR__MEETING_KEY], const char *job, int rank);
void hr__meeting_inputs_key(char out[HR__MEETING_KEY], const char *job, uint64_t digest);

/* Writes the inputs as text, a line "name TAB value" for each. Control characters become blanks;
 * values that are too long are cut and get a digest. `count` is HR__MEETING_INPUTS at most. Returns
 * the text's digest. */
uint64_t hr__meeting_inputs_write(char out[HR__MEETING_TEXT],
                                  const struct hr__meeting_input *inputs, int count);

uint64_t hr__meeting_inputs_digest(const char *text);

/* One input in such a text; name and value are not terminated. */
struct hr__meeting_value {
    const char *name, *value;
    size_t name_length, value_length;
};

/* Reads the next input at *at and advances *at. Returns 1, or 0 if there are no more. */
int hr__meeting_inputs_next(const char **at, struct hr__meeting_value *out);

/* Finds an input by name. Returns 1, or 0 if there is none. */
int hr__meeting_inputs_find(const char *text, const char *name, size_t name_length,
                            struct hr__meeting_value *out);

#endif
