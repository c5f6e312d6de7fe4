/*
 * What the agent's loop does for a trace, and for the metrics endpoint: who asked, until when,
 * looks at control blocks, and the text of it made in a background task. All of it is the loop's
 * thread's alone.
 */
#ifndef HR_AGENT_SERVER_RECORDING_H
#define HR_AGENT_SERVER_RECORDING_H

#include "agent/server/inside.h"

/* Makes the recorder, which the crew's workers tell what they do. No loader has joined yet.
 * Errors: -ENOMEM. */
int hr__recording_create(struct hr_agent *agent, struct hr_error *error);

/* The crew is gone. */
void hr__recording_destroy(struct hr_agent *agent);

/* A viewer asks for so many seconds; it is answered when they are over, or refused. */
void hr__recording_begin(struct hr__agent_job *viewer, double seconds);

/* The viewer, if it is one that waits for a trace, is gone. */
void hr__recording_forget(struct hr__agent_job *job);

/* Looks at cursors, and ends the recording, where it is time. */
void hr__recording_turn(struct hr_agent *agent);

/* When it is time; UINT64_MAX: nobody records. */
uint64_t hr__recording_due_ns(const struct hr_agent *agent);

/* A queue was made. */
void hr__recording_queue(struct hr__queue *queue);

/* A queue published. On the crew's workers. */
void hr__recording_published(struct hr__queue *queue, const struct hr__chunk_done *done);

#endif
