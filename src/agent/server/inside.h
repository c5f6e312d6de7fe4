/*
 * The agent inside: what its files share.
 *
 *   agent.c    the public functions, the loop, the listener, the end
 *   job.c      a connection: its messages, its cursors, its process
 *   source.c   datasets and recipes that jobs named, opened once; caches that are kept
 *   stream.c   streams, and who is where: seek, join, expelled, alone
 *   queue.c     a queue: a loader over a memory of its own
 *   place.c    that memory (place_ring.c: its places)
 *   recording.c  traces that viewers ask for
 *   task.c   what takes long, on threads of their own
 *   status.c   what is going on, as JSON
 *
 * All of it is the loop's thread's alone, but the memory of queues (place.h) and what tasks
 * have in hand. A job is a connection: one loader of one process.
 *
 * What is ended in a turn of the loop is freed at the turn's end, because events of it may
 * still be in hand.
 */
#ifndef HR_AGENT_SERVER_INSIDE_H
#define HR_AGENT_SERVER_INSIDE_H

#include "agent/server/metrics.h"
#include "agent/server/place.h"
#include "agent/server/task.h"
#include "agent/server/trace.h"
#include "agent/wire.h"
#include "loader/crew.h"

#include <headrace/agent.h>
#include <headrace/dataset.h>
#include <headrace/recipe.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/types.h>

/* Messages of one job that a turn of the loop handles. */
#define HR__JOB_MESSAGES 4
/* Messages that may wait for a job to read: then it is given up. */
#define HR__JOB_UNREAD 16384

/* Something that epoll watches. */
struct hr__watched {
    void (*ready)(struct hr__watched *self, uint32_t events);
};

#define HR__OF(type, member, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* A dataset and a recipe, as one text says. */
struct hr__source {
    struct hr__source *next;
    struct hr_agent *agent;
    struct hr__task task; /* opens it */
    uint64_t digest[2];   /* of the text */
    size_t length;
    char *text; /* until it is open */
    int refs;   /* jobs and streams */
    bool is_open;
    int failed; /* code, with `error` */
    struct hr_error error;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    char name[256]; /* of the dataset, for people */
};

/* An unnamed cache of the agent's, kept while it lives. */
struct hr__kept {
    struct hr__kept *next;
    uint64_t digest[2]; /* of the source it was made for */
    struct hr__cache *cache;
};

enum hr__queue_state {
    HR__QUEUE_MAKING, /* a background task makes it */
    HR__QUEUE_READY,
    HR__QUEUE_STARTING, /* a background task starts an epoch */
    HR__QUEUE_ENDING,   /* a background task ends it, or will when it is back */
};

struct hr__queue {
    struct hr__queue *next;
    struct hr__stream *stream;
    struct hr__watched room; /* its eventfd */
    struct hr__task task;
    int outcome; /* of the task, which alone writes it while it is out */
    uint64_t number;
    int rank;
    bool is_main; /* of its rank; else alone */
    enum hr__queue_state state;
    int failed; /* what the last task came to, with `error` */
    struct hr_error error;
    struct hr__places *places;
    struct hr_loader *loader;
    uint64_t epoch, position, first, samples; /* that it is being started for */
    int refs;                                 /* jobs' cursors, and jobs that await it */
    uint64_t progress, progress_ns; /* of those that take, and since when it has been that */
    bool is_out;                    /* the task is under way */
    struct hr__kept *kept;          /* what its making opened, until it is back */
    /* Of an order of the job's own: */
    bool is_fresh;            /* nothing was pushed since it was started */
    uint64_t pushed;          /* number of the chunk that is pushed next */
    uint64_t pushed_samples;  /* since it was started */
    int64_t *indices;         /* of one batch, while it is taken over */
    _Atomic bool is_notified; /* the loop shall look */
};

/* One (dataset, recipe, order); see stream.c. */
struct hr__stream {
    struct hr__stream *next;
    struct hr_agent *agent;
    struct hr__source *source; /* a reference */
    struct hr__wire_attach as; /* of the first job */
    bool has_name;
    bool is_waiting; /* some job of it wants that nobody is expelled */
    struct hr__queue *queues;
    struct hr__party *parties;
    int jobs;
};

/* The ranks of one job: those that one process started. They join at one place. */
struct hr__party {
    struct hr__party *next;
    uint64_t key;
    uint64_t place[2]; /* epoch, position */
    int jobs;
};

/* A cursor of a job. */
struct hr__job_cursor {
    struct hr__job_cursor *next;
    struct hr__queue *queue; /* a reference */
    struct hr__place_cursor *place;
    uint32_t number; /* in the job */
    bool is_known;   /* the job has its files */
};

/* A message that could not be sent yet. */
struct hr__unread {
    struct hr__unread *next;
    struct hr__wire_message message; /* its files are ours */
};

enum hr__job_state {
    HR__JOB_NEW,     /* connected */
    HR__JOB_GREETED, /* HELLO came */
    HR__JOB_OPENING, /* ATTACH came; a background task reads its text, or its source is being opened
                      */
    HR__JOB_ATTACHED,
    HR__JOB_ENDED,
};

struct hr__agent_job {
    struct hr__agent_job *next;
    struct hr_agent *agent;
    struct hr__watched socket_ready, process_ready;
    struct hr__task task; /* reads its text */
    int socket, process;  /* process: a pidfd, or -1 */
    pid_t pid;
    uint64_t party_key; /* which process started it */
    enum hr__job_state state;
    bool is_viewer;
    bool is_out; /* the task is under way */
    char program[64];
    struct hr__wire_attach attach;
    int text_file;
    char *text;
    uint64_t digest[2];
    int failed; /* of the task, with `error` */
    struct hr_error error;
    struct hr__source *source; /* a reference */
    struct hr__stream *stream; /* a reference, from ATTACHED on */
    struct hr__party *party;   /* of the stream; a reference */
    struct hr__job_cursor *cursors;
    struct hr__job_cursor *cursor; /* where it takes; NULL: nowhere */
    uint32_t next_cursor;
    uint64_t epochs_ahead; /* of the stream's epochs before the job's own */
    uint64_t asked_ns;     /* when it connected, or asked last for what it waits for */
    bool is_seeking;       /* `seek` is not answered */
    bool was_notified;     /* WAITING was sent for it */
    struct hr__wire_seek seek;
    struct hr__queue *awaited; /* queue that it waits for, a reference */
    bool awaits_behind;        /* what comes behind the queue's present span */
    struct hr__unread *unread, *unread_last;
    int unread_count;
    bool is_lost; /* to be ended at the turn's end */
};

/* A trace; see recording.h. */
struct hr__recording {
    struct hr__trace *trace;
    struct hr__agent_job *viewer; /* who asked; NULL: nobody, or gone */
    uint64_t look_ns, end_ns;     /* the next look at cursors; the end */
    struct hr__task task;         /* makes the text */
    bool is_out;                  /* the task is under way */
    char *json;
    size_t bytes;
    int file, failed; /* what the task came to, with `error` */
    struct hr_error error;
};

struct hr_agent {
    struct hr_agent_options options;
    char *socket_path, *cache;
    uint64_t socket_device, socket_inode; /* of the path, to remove only our own */
    int epoll, listener, wake;            /* wake: eventfd */
    int spare;                            /* given up for a moment to refuse one too many; -1 */
    struct hr__watched listener_ready, wake_ready;
    struct hr__tasks tasks;
    struct hr__crew *crew;
    struct hr__recording recording;
    struct hr__metrics *metrics; /* NULL: none asked for */
    int threads;
    uint64_t started_ns, idle_since_ns; /* idle: 0: it has jobs */
    uint64_t
        watch_ns; /* when it is looked at those that others wait for; UINT64_MAX: nobody does */
    uint64_t accept_again_ns; /* after an error; 0: it accepts */
    uint64_t net_ns;          /* when queues that want room are looked at again */
    struct hr__agent_job *jobs, *ended_jobs;
    struct hr__queue *ended_queues;
    struct hr__stream *streams;
    struct hr__source *sources;
    struct hr__kept *kept;
    uint64_t next_queue;
    uint64_t expelled, refused;
    _Atomic uint64_t reading_bytes; /* memory that texts take that are being read now */
    bool was_run;
    _Atomic bool is_stopping;
    bool has_unread; /* of some job, that is to be sent again */
};

/* agent.c */

int hr__agent_watch(struct hr_agent *agent, int file, struct hr__watched *watched, uint32_t events);

int hr__agent_rewatch(struct hr_agent *agent, int file, struct hr__watched *watched,
                      uint32_t events);

/* Before closing a file that others may have, too: it would stay in epoll as long as they do. */
void hr__agent_unwatch(struct hr_agent *agent, int file);

/* Wakes the loop. Any thread, and in a signal handler. */
void hr__agent_wake(struct hr_agent *agent);

/* job.c */

/* A connection that was accepted, which it takes over. */
void hr__job_create(struct hr_agent *agent, int socket);

/* The process is gone, or talks nonsense: its leases end. */
void hr__job_end(struct hr__agent_job *job);

/* Frees those that have ended, at the end of a turn. */
void hr__jobs_reap(struct hr_agent *agent);

/* Sends, or keeps it until it can be sent. Copies the files that it keeps. */
void hr__job_send(struct hr__agent_job *job, const struct hr__wire_message *message);

void hr__job_refuse(struct hr__agent_job *job, const struct hr_error *error);

/* Its source is open, or is not going to be: answers ATTACH. */
void hr__job_attach(struct hr__agent_job *job);

/* source.c */

/* The source of a text that a job holds, which it takes, and a reference. NULL: no memory. */
struct hr__source *hr__source_get(struct hr_agent *agent, struct hr__agent_job *job);
void hr__source_unref(struct hr__source **source);
void hr__text_digest(uint64_t out[2], const char *text, size_t length);

/* The cache of a stream: the agent's, or what its first job asked for; "": none. */
const char *hr__stream_cache(const struct hr__stream *stream);
uint64_t hr__stream_cache_budget(const struct hr__stream *stream);

/*
 * Opens an unnamed cache of a stream, which is then to be kept while the agent lives, so that
 * it does not end with its last queue. On a background thread, before a queue with it is made. *out
 * stays NULL where there is nothing to keep. Errors: as of hr__cache_create_shared.
 */
int hr__kept_open(struct hr__kept **out, const struct hr__stream *stream, struct hr_error *error);

/* Keeps it, unless there is one of the same source. */
void hr__kept_add(struct hr_agent *agent, struct hr__kept **kept);
void hr__kept_free(struct hr__kept **kept);

/* stream.c */

/* The job's stream, made where there is none: 0, and a reference in job->stream. Errors:
 * -EINVAL: other jobs of that name prepare something else; -ENOMEM. */
int hr__stream_enter(struct hr__agent_job *job, struct hr_error *error);

/* The job's cursors and wishes end. */
void hr__stream_leave(struct hr__agent_job *job);

/* Takes a wish back, or its waiting for a queue. */
void hr__stream_forget(struct hr__agent_job *job);

/* Answers what can be answered of the jobs that seek, and stops queues that nobody needs. */
void hr__stream_settle(struct hr__stream *stream);

void hr__stream_seek(struct hr__agent_job *job);

/* Looks, when that is due, whether those for whom others wait with their joining get on. */
void hr__streams_watch(struct hr_agent *agent, uint64_t now_ns);

/* Nothing is held of a cursor any more. */
void hr__job_cursor_end(struct hr__agent_job *job, struct hr__job_cursor *cursor);

/* queue.c */

/* A queue that a background task makes. NULL: no memory. */
struct hr__queue *hr__queue_make(struct hr__stream *stream, int rank, bool is_main);

/* Starts an epoch at a position, in a background task. It is READY. */
void hr__queue_set_out(struct hr__queue *queue, uint64_t epoch, uint64_t position);

/* Nobody needs it: ends it, in a background task, out of its stream. */
void hr__queue_end(struct hr__queue *queue);

/* Opens chunks, or not. */
void hr__queue_run(struct hr__queue *queue, bool is_running);

/* What its memory noted for the loop. True where it did: queues may have ended since. */
bool hr__queue_look(struct hr__queue *queue);

/* Frees those that have ended, at the end of a turn. */
void hr__queues_reap(struct hr_agent *agent);

/* What was published before the job was placed. */
void hr__queue_recall(struct hr__queue *queue, struct hr__agent_job *job,
                      const struct hr__span *span, uint64_t sequence);

/* status.c */

/* *json is the caller's, freed with hr__free. Errors: -ENOMEM. */
int hr__status_write(struct hr_agent *agent, char **json, struct hr_error *error);

#endif
