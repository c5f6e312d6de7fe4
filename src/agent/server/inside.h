/*
 * The agent's data structures, and the functions that its files call in each other.
 *
 *   agent.c      the public functions, the event loop, the listener, the agent's end
 *   loop.c       files in epoll, waking the loop
 *   job.c        one connection: the messages it sends, its cursors and process
 *   send.c       messages to a job
 *   source.c     datasets and recipes, opened once for all jobs that name them; kept caches
 *   stream.c     assigns jobs to queues and positions: seek, join, expelled, alone
 *   producers.c  the processes that make the samples of a produced dataset (producers.h)
 *   queue.c      a queue: a loader that publishes into shared memory
 *   place.c      that memory (place_ring.c: the places of its ring)
 *   recording.c  traces that viewers ask for
 *   task.c       background tasks: slow work on threads of their own
 *   status.c     the status as JSON
 *
 * Only the loop's thread uses these structures, except the memory of queues (place.h) and what a
 * background task works on. A job is a connection: one loader of one process.
 *
 * Objects that end during a turn of the loop are freed at the end of the turn, because epoll may
 * already have returned events for them.
 */
#ifndef HR_AGENT_SERVER_INSIDE_H
#define HR_AGENT_SERVER_INSIDE_H

#include "agent/server/metrics.h"
#include "agent/server/place.h"
#include "agent/server/producers.h"
#include "agent/server/task.h"
#include "agent/server/trace.h"
#include "agent/wire.h"
#include "loader/crew.h"
#include "metrics/endpoint.h"

#include <headrace/agent.h>
#include <headrace/dataset.h>
#include <headrace/recipe.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/types.h>

/* Messages of one job that one turn of the loop handles. */
#define HR__JOB_MESSAGES 4
/* Messages kept for a job that does not read them. One more, and its connection is closed. */
#define HR__JOB_UNREAD 16384

/* A file descriptor in epoll. */
struct hr__watched {
    void (*ready)(struct hr__watched *self, uint32_t events);
};

#define HR__OF(type, member, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* A dataset and a recipe, opened from a statement (agent/statement.h). */
struct hr__source {
    struct hr__source *next;
    struct hr_agent *agent;
    struct hr__task task; /* opens the dataset */
    uint64_t digest[2];   /* of the text */
    size_t length;
    char *text;    /* NULL once it is open */
    int rows_file; /* the block of its rows, until it is open; -1: none */
    uint64_t rows_bytes;
    int refs; /* jobs and streams */
    bool is_open;
    int failed; /* 0, or the error code of opening; then `error` is set */
    struct hr_error error;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    struct hr__producers *producers; /* NULL: its samples are files */
    char name[256];                  /* of the dataset, for status reports */
};

/* An unnamed cache of the agent, kept as long as the agent runs. */
struct hr__kept {
    struct hr__kept *next;
    uint64_t digest[2]; /* of the source it was made for */
    struct hr__cache *cache;
};

enum hr__queue_state {
    HR__QUEUE_MAKING, /* a background task creates it */
    HR__QUEUE_READY,
    HR__QUEUE_STARTING, /* a background task starts an epoch */
    HR__QUEUE_ENDING,   /* a background task destroys it, or will once the present one is done */
};

struct hr__queue {
    struct hr__queue *next;
    struct hr__stream *stream;
    struct hr__watched room; /* the eventfd of its places */
    struct hr__task task;
    int outcome; /* of the background task, which alone writes it while is_out */
    uint64_t number;
    int rank;
    int node;     /* NUMA node where its first job is at home; -1: none */
    bool is_main; /* the main queue of its rank; else it serves one job alone */
    enum hr__queue_state state;
    int failed; /* 0, or the error code of the last background task; then `error` is set */
    struct hr_error error;
    struct hr__places *places;
    struct hr_loader *loader;
    uint64_t epoch, position, first, samples; /* of its last start */
    int refs;                                 /* cursors of jobs, and jobs that await it */
    uint64_t progress, progress_ns; /* of its active cursors, and when that was first seen */
    bool is_out;                    /* the background task is running */
    struct hr__kept *kept; /* cache opened by the task that creates the queue, until it is done */
    /* With external order: */
    bool is_fresh;            /* nothing was pushed since the last start */
    uint64_t pushed;          /* number of the next chunk to push */
    uint64_t pushed_samples;  /* since the last start */
    int64_t *indices;         /* of one batch, while it is copied from the control block */
    _Atomic bool is_notified; /* the loop has to call hr__queues_look */
};

/* The jobs that share one dataset, recipe and order; see stream.c. */
struct hr__stream {
    struct hr__stream *next;
    struct hr_agent *agent;
    struct hr__source *source; /* a reference */
    struct hr__wire_attach as; /* as the first job described it */
    bool has_name;
    bool is_waiting; /* some job has lag="wait": nobody is expelled */
    struct hr__queue *queues;
    struct hr__party *parties;
    int jobs;
    bool has_changed; /* the loop has to call hr__streams_settle */
};

/* The ranks of one training job: those that one process started. They join at the same place. */
struct hr__party {
    struct hr__party *next;
    uint64_t key;
    uint64_t place[2]; /* epoch, position */
    int jobs;
};

/* One cursor of a job. */
struct hr__job_cursor {
    struct hr__job_cursor *next;
    struct hr__queue *queue; /* a reference */
    struct hr__place_cursor *place;
    uint32_t number; /* in the job's connection */
    bool is_known;   /* the job has its files */
};

/* A message that the job's socket did not take yet. */
struct hr__unread {
    struct hr__unread *next;
    struct hr__wire_message message; /* owns its files */
};

enum hr__job_state {
    HR__JOB_NEW,     /* connected */
    HR__JOB_GREETED, /* HELLO came */
    HR__JOB_OPENING, /* ATTACH came; its text is being read, or its source is being opened */
    HR__JOB_ATTACHED,
    HR__JOB_PRODUCING, /* it is a producer */
    HR__JOB_ENDED,
};

struct hr__agent_job {
    struct hr__agent_job *next;
    struct hr_agent *agent;
    struct hr__watched socket_ready, process_ready;
    struct hr__task task; /* reads the text of ATTACH */
    int socket, process;  /* process: a pidfd, or -1 */
    pid_t pid;
    uint64_t party_key; /* identifies the process that started it */
    enum hr__job_state state;
    bool is_viewer;
    bool is_producer;
    bool is_served; /* producers of its source know of it */
    bool is_out;    /* the background task is running */
    char program[64];
    struct hr__wire_attach attach;
    struct hr__wire_produce produce;
    struct hr__producer *producer; /* of the source; NULL: it is none, or not yet */
    int memory_file;               /* of a producer, until it has joined; -1 */
    int text_file, rows_file;      /* of ATTACH, until they are read or handed over; -1 */
    char *text;
    uint64_t text_bytes;
    uint64_t digest[2];
    int failed; /* 0, or the error code of the background task; then `error` is set */
    struct hr_error error;
    struct hr__source *source; /* a reference */
    struct hr__stream *stream; /* a reference, from ATTACHED on */
    struct hr__party *party;   /* of the stream; a reference; NULL with one rank */
    struct hr__job_cursor *cursors;
    struct hr__job_cursor *cursor; /* the one it takes from; NULL: none */
    uint32_t next_cursor;
    uint64_t epochs_ahead; /* the stream's epoch number minus the job's own */
    uint64_t asked_ns;     /* when it connected, or sent its last request */
    bool is_seeking;       /* `seek` is not answered yet */
    bool was_notified;     /* WAITING was sent for it */
    struct hr__wire_seek seek;
    struct hr__queue *awaited; /* the queue that it waits for; a reference */
    bool awaits_behind;        /* it waits for what follows the queue's present span */
    struct hr__unread *unread, *unread_last;
    int unread_count;
    bool is_lost; /* its connection is closed at the turn's end */
};

/* The recording of a trace; see recording.h. */
struct hr__recording {
    struct hr__trace *trace;
    struct hr__agent_job *viewer; /* the viewer that asked; NULL: none, or gone */
    uint64_t look_ns, end_ns;     /* when to read the cursors next; when to end */
    struct hr__task task;         /* writes the trace as text */
    bool is_out;                  /* the background task is running */
    char *json;
    size_t bytes;
    int file, failed; /* results of the task: the text's file; 0 or an error code with `error` */
    struct hr_error error;
};

struct hr_agent {
    struct hr_agent_options options;
    char *socket_path, *cache;
    uint64_t socket_device, socket_inode; /* identify our socket file: we remove no other */
    int epoll, listener, wake;            /* wake: eventfd */
    int spare; /* a descriptor closed to accept and refuse one connection beyond the limit; -1 */
    struct hr__watched listener_ready, wake_ready;
    struct hr__tasks tasks;
    struct hr__crew *crew;
    struct hr__recording recording;
    struct hr__endpoint *metrics; /* NULL: not requested */
    int threads;
    uint64_t started_ns, idle_since_ns; /* idle_since_ns: 0 while it has jobs */
    uint64_t watch_ns; /* when to check again jobs that others wait for; UINT64_MAX: not needed */
    uint64_t accept_again_ns; /* when to accept again after an error; 0: it accepts */
    uint64_t net_ns;          /* when to check again queues that wait for room */
    struct hr__agent_job *jobs, *ended_jobs;
    struct hr__queue *ended_queues;
    struct hr__stream *streams;
    struct hr__source *sources;
    struct hr__kept *kept;
    uint64_t next_queue;
    uint64_t expelled, refused;
    _Atomic uint64_t reading_bytes; /* memory used by the statements being read now */
    bool was_run;
    _Atomic bool is_stopping;
};

/* loop.c */

int hr__agent_watch(struct hr_agent *agent, int file, struct hr__watched *watched, uint32_t events);

int hr__agent_rewatch(struct hr_agent *agent, int file, struct hr__watched *watched,
                      uint32_t events);

/* Removes a file from epoll. Needed before closing a file that another process shares: it would
 * stay in epoll as long as that process has it. */
void hr__agent_unwatch(struct hr_agent *agent, int file);

/* Wakes the loop. Any thread; safe in a signal handler. */
void hr__agent_wake(struct hr_agent *agent);

/* job.c */

/* Creates a job for an accepted connection. Takes over the socket. */
void hr__job_create(struct hr_agent *agent, int socket);

/* Ends a job whose process is gone or that broke the protocol, and releases what it holds. */
void hr__job_end(struct hr__agent_job *job);

/* Frees the jobs that have ended. Called at the end of a turn. */
void hr__jobs_reap(struct hr_agent *agent);

/* Answers ATTACH of the jobs whose source has opened or failed. */
void hr__jobs_attach(struct hr_agent *agent);

/* send.c */

/* Sends a message, or keeps it, with duplicates of its files, until the socket takes it. */
void hr__job_send(struct hr__agent_job *job, const struct hr__wire_message *message);

void hr__job_refuse(struct hr__agent_job *job, const struct hr_error *error);

/* Sends what was kept, as far as the socket takes it. */
void hr__job_send_unread(struct hr__agent_job *job);
void hr__job_drop_unread(struct hr__agent_job *job);

/* Ends the job at the turn's end: it broke the protocol, or we cannot write to it and it would wait
 * for ever. */
void hr__job_lose(struct hr__agent_job *job);

/* source.c */

/* Returns a reference to the source of the job's text, and takes the text over. NULL: out of
 * memory. */
struct hr__source *hr__source_get(struct hr_agent *agent, struct hr__agent_job *job);
void hr__source_unref(struct hr__source **source);
void hr__text_digest(uint64_t out[2], const char *text, size_t length);

/* Returns the cache of a stream: the agent's, or the one its first job asked for; "": none. */
const char *hr__stream_cache(const struct hr__stream *stream);
uint64_t hr__stream_cache_budget(const struct hr__stream *stream);

/*
 * Opens the stream's cache if it is unnamed, to keep it while the agent runs: otherwise it would
 * end with its last queue. Runs in a background task, before a queue that uses the cache is made.
 * *out stays NULL if there is nothing to keep. Errors: those of hr__cache_create_shared.
 */
int hr__kept_open(struct hr__kept **out, const struct hr__stream *stream, struct hr_error *error);

/* Keeps the cache, or frees it if one of the same source is kept already. */
void hr__kept_add(struct hr_agent *agent, struct hr__kept **kept);
void hr__kept_free(struct hr__kept **kept);

/* stream.c */

/* Adds the job to its stream, which is created if necessary: job->stream gets a reference. Returns
 * 0. Errors: -EINVAL: the stream of that name prepares something else; -ENOMEM. */
int hr__stream_enter(struct hr__agent_job *job, struct hr_error *error);

/* Removes the job from its stream: ends its cursors and its request. */
void hr__stream_leave(struct hr__agent_job *job);

/* For each stream that has changed, answers all requests of its jobs that can be answered now, and
 * stops or ends queues that nobody needs. */
void hr__streams_settle(struct hr_agent *agent);

void hr__stream_seek(struct hr__agent_job *job);

/* Checks, when it is due, whether the jobs that a joining job waits for still advance. */
void hr__streams_watch(struct hr_agent *agent, uint64_t now_ns);

/* Ends a cursor and releases what it holds. */
void hr__job_cursor_end(struct hr__agent_job *job, struct hr__job_cursor *cursor);

/* queue.c */

/* Creates a queue, in a background task. NULL: out of memory. */
struct hr__queue *hr__queue_make(const struct hr__agent_job *job, bool is_main);

/* Starts the queue, which is READY, at a position of an epoch, in a background task. */
void hr__queue_set_out(struct hr__queue *queue, uint64_t epoch, uint64_t position);

/* Ends a queue that nobody needs, in a background task that removes it from its stream. */
void hr__queue_end(struct hr__queue *queue);

/* Lets the queue prepare chunks, or stops it. */
void hr__queue_run(struct hr__queue *queue, bool is_running);

/* Handles what the memory of queues has notified the loop of. */
void hr__queues_look(struct hr_agent *agent);

/* Frees the queues that have ended. Called at the end of a turn. */
void hr__queues_reap(struct hr_agent *agent);

/* Sends the job the records published from `sequence` to the span's end before it was placed. */
void hr__queue_recall(struct hr__queue *queue, struct hr__agent_job *job,
                      const struct hr__span *span, uint64_t sequence);

/* status.c */

/* *json is the caller's, freed with hr__free. Errors: -ENOMEM. */
int hr__status_write(struct hr_agent *agent, char **json, struct hr_error *error);

#endif
