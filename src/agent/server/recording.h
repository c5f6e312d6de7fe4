/*
 * The loop's part in recording a trace: keeps the viewer and the end time, reads control blocks at
 * intervals, and has the text written by a background task. Used by the loop's thread only, unless
 * noted.
 */
#ifndef HR_AGENT_SERVER_RECORDING_H
#define HR_AGENT_SERVER_RECORDING_H

#include "agent/server/inside.h"

/* Creates the recorder and attaches it to the crew's workers. Call it before any loader joins the
 * crew. Errors: -ENOMEM. */
int hr__recording_create(struct hr_agent *agent, struct hr_error *error);

/* Call it after the crew was destroyed. */
void hr__recording_destroy(struct hr_agent *agent);

/* Begins to record for a viewer. It gets the trace after `seconds`, or is refused at once. */
void hr__recording_begin(struct hr__agent_job *viewer, double seconds);

/* A job is gone: if it is the viewer, cancels the recording. */
void hr__recording_forget(struct hr__agent_job *job);

/* Reads cursors and ends the recording, when these are due. */
void hr__recording_turn(struct hr_agent *agent);

/* Returns when the next of these is due; UINT64_MAX: nothing is recorded. */
uint64_t hr__recording_due_ns(const struct hr_agent *agent);

/* Tells the recorder the name of a new queue. */
void hr__recording_queue(struct hr__queue *queue);

/* Records that a queue published a chunk. Called on the crew's workers. */
void hr__recording_published(struct hr__queue *queue, const struct hr__chunk_done *done);

#endif
