/*
 * Messages between an agent and its jobs: one datagram each over a SOCK_SEQPACKET Unix socket,
 * with file descriptors attached to some. Large texts are sent as sealed anonymous files.
 *
 * Both ends run on one machine, so numbers are in its byte order. A message that is too short,
 * too long, of unknown type, or out of turn ends its own connection and affects nothing else.
 * Strings have a maximum length and end with a zero byte.
 *
 *   from    message           the other end answers
 *   job     HELLO             WELCOME | REFUSED
 *   job     ATTACH + text     ATTACHED | REFUSED
 *   job     SEEK              (WAITING) PLACED + files | REFUSED
 *   job     LEAVE             nothing
 *   agent   BAD, HALT         nothing; the agent may send them at any time
 *   agent   EXPELLED          SEEK; likewise at any time
 *   producer HELLO            WELCOME | REFUSED
 *   producer PRODUCE + files  PRODUCING | REFUSED
 *   agent   MAKE              MADE, in any order
 *   producer LEAVE            nothing: it makes no more samples
 *   viewer  HELLO             WELCOME | REFUSED
 *   viewer  STATUS | TRACE    TEXT + file | REFUSED
 *   viewer  END               the agent ends and closes the connection
 */
#ifndef HR_AGENT_WIRE_H
#define HR_AGENT_WIRE_H

#include <headrace/loader.h>

#include <stddef.h>
#include <stdint.h>

#define HR__WIRE_MAGIC     0x47415248u /* "HRAG" */
#define HR__WIRE_VERSION   7u
#define HR__WIRE_SLOTS_MIN 2u /* of a producer's memory */
#define HR__WIRE_SLOTS_MAX 64u
#define HR__WIRE_FILES     4 /* file descriptors attached to one message, at most */
/* Largest text in a file: a dataset and recipe, a status, or a trace. */
#define HR__WIRE_TEXT_BYTES_MAX (UINT64_C(1) << 30)
/* Largest block of rows in a file. */
#define HR__WIRE_ROWS_BYTES_MAX (UINT64_C(1) << 36)

enum hr__wire_type {
    HR__WIRE_HELLO = 1,
    HR__WIRE_WELCOME,
    HR__WIRE_REFUSED,
    HR__WIRE_ATTACH,
    HR__WIRE_ATTACHED,
    HR__WIRE_SEEK,
    HR__WIRE_WAITING,
    HR__WIRE_PLACED,
    HR__WIRE_EXPELLED,
    HR__WIRE_LEAVE,
    HR__WIRE_BAD,
    HR__WIRE_HALT,
    HR__WIRE_STATUS,
    HR__WIRE_TRACE,
    HR__WIRE_END,
    HR__WIRE_TEXT,
    HR__WIRE_PRODUCE,
    HR__WIRE_PRODUCING,
    HR__WIRE_MAKE,
    HR__WIRE_MADE,
    HR__WIRE_TYPES
};

struct hr__wire_hello {
    int32_t pid;
    uint32_t is_viewer;
    char program[64]; /* name of the program, for status reports */
};

struct hr__wire_welcome {
    int32_t pid;
    uint32_t threads;
};

struct hr__wire_refused {
    int32_t code; /* -errno */
    char message[HR_ERROR_MESSAGE_BYTES];
};

/* Describes one loader of one job. Files: the text of dataset and recipe (agent/statement.h); the
 * block of the dataset's rows (dataset/row_block.h), if it has some. */
struct hr__wire_attach {
    uint64_t text_bytes;
    uint64_t rows_bytes; /* 0: the dataset has no rows, and no such file comes */
    uint64_t seed;
    uint64_t epochs;
    uint64_t staging_bytes;
    int32_t batch_size, batches_ahead, window;
    int32_t rank, world_size;
    int32_t shuffle, on_error, join, lag, cache_form, direct_io, no_io_uring;
    int32_t node;           /* NUMA node where the job is at home; -1: none */
    int32_t external_order; /* the job pushes its batches (agent/share.h) */
    char stream[128];       /* name; "": a stream of its own */
    char cache[512];        /* "": none */
};

struct hr__wire_attached {
    uint64_t samples; /* in the dataset */
    struct hr_tensor_spec spec;
    char notice[512]; /* a warning about the agent for the job's user; "": none */
};

/* Asks for the position where the job goes on. */
struct hr__wire_seek {
    uint64_t epoch;
    uint64_t position; /* in the epoch's order of all ranks: samples before the next one */
    uint32_t is_first; /* the job is not in the stream yet: the agent may choose another epoch and
                          position (option `join`) */
    uint32_t number;   /* of the request; the answer repeats it */
};

/* The job joins at the stream's next epoch, which has not begun. */
struct hr__wire_waiting {
    uint64_t epoch, position; /* of the other jobs */
};

/* Files, if is_new: header, data, control block, and the eventfd to signal when mark advances while
 * the header's wants_room is set. */
struct hr__wire_placed {
    uint32_t number;   /* of the request */
    uint32_t cursor;   /* number of the cursor in this connection */
    uint32_t is_new;   /* the job does not have this cursor's files yet */
    uint32_t is_alone; /* the other jobs are elsewhere, so this queue serves this job only */
    uint64_t epoch;    /* of the stream */
    uint64_t position; /* of the sample at `sequence`, in the order of all ranks */
    uint64_t sequence; /* of the next sample to take */
    uint64_t samples;  /* of this rank, from there to the epoch's end */
    uint64_t missed;   /* samples of the epoch before `position` that the job misses, if is_first */
};

/* The job was too slow: the samples that it has not taken from the cursor are lost. */
struct hr__wire_expelled {
    uint32_t cursor;
};

/* The job holds nothing of the cursor any more. */
struct hr__wire_leave {
    uint32_t cursor;
};

/* The sample at `sequence` replaces a bad one, or is damaged itself. */
struct hr__wire_bad {
    uint32_t cursor;
    uint64_t sequence;
    uint64_t index;
    char reason[256];
};

/* An error ended the queue at `sequence`. */
struct hr__wire_halt {
    uint32_t cursor;
    uint32_t has_sample; /* a sample caused it: index, path and reason are set */
    uint64_t sequence;
    uint64_t index;
    struct hr_error error;
    char path[1024];
    char reason[256];
};

struct hr__wire_trace {
    double seconds;
};

/* A process that makes the samples of a produced dataset (headrace/producer.h). Files: the text of
 * the dataset, as with ATTACH, and the memory of its slots. */
struct hr__wire_produce {
    uint64_t text_bytes;
    uint32_t slots;
    int32_t job; /* id of the process whose loader started it */
};

/* Asks for a sample. */
struct hr__wire_make {
    uint64_t request; /* a number that the answer repeats */
    uint64_t index, epoch, seed;
    uint32_t slot;
};

/* The sample is in its slot, or cannot be made. */
struct hr__wire_made {
    uint64_t request;
    int64_t label;
    uint32_t slot;
    uint32_t is_bad; /* it cannot be made, for this reason */
    char reason[256];
};

/* File: the text. */
struct hr__wire_text {
    uint64_t bytes;
};

struct hr__wire_message {
    enum hr__wire_type type;
    union {
        struct hr__wire_hello hello;
        struct hr__wire_welcome welcome;
        struct hr__wire_refused refused;
        struct hr__wire_attach attach;
        struct hr__wire_attached attached;
        struct hr__wire_seek seek;
        struct hr__wire_waiting waiting;
        struct hr__wire_placed placed;
        struct hr__wire_expelled expelled;
        struct hr__wire_leave leave;
        struct hr__wire_bad bad;
        struct hr__wire_halt halt;
        struct hr__wire_trace trace;
        struct hr__wire_text text;
        struct hr__wire_produce produce;
        struct hr__wire_make make;
        struct hr__wire_made made;
    };
    int files[HR__WIRE_FILES];
    int file_count;
};

/* Size of the largest message on the wire. */
#define HR__WIRE_BYTES_MAX (sizeof(struct hr__wire_message) + 64)

/* Writes *message without its files to `bytes`, a buffer of HR__WIRE_BYTES_MAX. Returns the length.
 * Pure. */
size_t hr__wire_pack(const struct hr__wire_message *message, void *bytes);

/* Reads a message from an untrusted sender. Returns 0; -EPROTO with an error message;
 * -EPROTONOSUPPORT if the sender is of another version. On success every field is in range: enums,
 * counts, zero-terminated strings. Pure. */
int hr__wire_unpack(struct hr__wire_message *message, const void *bytes, size_t length,
                    struct hr_error *error);

/* Sends a message with its files, which stay the caller's. Returns 0; -EAGAIN if the socket is
 * non-blocking and full; -EPIPE or -ECONNRESET if the other end has gone. Retries on EINTR. */
int hr__wire_send(int socket, const struct hr__wire_message *message);

/*
 * Receives one message. Returns 1, with files (close-on-exec) that become the caller's; 0 if the
 * other end has closed; -EAGAIN; -EINTR; -EPROTO and the other errors of hr__wire_unpack, with an
 * error message and no files left open. `flags`: MSG_DONTWAIT or 0.
 */
int hr__wire_receive(int socket, int flags, struct hr__wire_message *message,
                     struct hr_error *error);

void hr__wire_close_files(struct hr__wire_message *message);

/* Creates a sealed anonymous file with a text, or with other bytes. Returns the descriptor or a
 * negative errno. */
int hr__wire_text_file(const char *text, size_t length);

/* Reads such a file of `bytes` bytes, which were checked, from an untrusted sender. *text,
 * zero-terminated, is the caller's, freed with hr__free. Returns 0; -EPROTO: it has another length;
 * -ENOMEM; errors of read. */
int hr__wire_text_read(int file, uint64_t bytes, char **text, struct hr_error *error);

#endif
