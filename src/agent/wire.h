/*
 * Messages between an agent and its jobs: one datagram each over a SOCK_SEQPACKET Unix socket,
 * with files beside it. Large texts go in sealed anonymous files.
 *
 * Both ends are on one machine: numbers are in its byte order. A message that is too short,
 * too long, unknown, or not in its turn ends the connection that it came over, and nothing
 * else. Strings are bounded and end with zero.
 *
 *   job     HELLO             agent  WELCOME | REFUSED
 *   job     ATTACH + text     agent  ATTACHED | REFUSED
 *   job     SEEK              agent  (WAITING) PLACED + files | REFUSED
 *   agent   EXPELLED, BAD, HALT at any time; the job answers EXPELLED with SEEK
 *   job     LEAVE             no answer
 *   viewer  HELLO, STATUS | TRACE | END; agent TEXT + file | REFUSED
 */
#ifndef HR_AGENT_WIRE_H
#define HR_AGENT_WIRE_H

#include <headrace/loader.h>

#include <stddef.h>
#include <stdint.h>

#define HR__WIRE_MAGIC   0x47415248u /* "HRAG" */
#define HR__WIRE_VERSION 3u
#define HR__WIRE_FILES   4 /* beside one message, at most */
/* Texts in files: of a dataset and a recipe, or of a status. */
#define HR__WIRE_TEXT_BYTES_MAX (UINT64_C(1) << 30)

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
    HR__WIRE_TYPES
};

struct hr__wire_hello {
    int32_t pid;
    uint32_t is_viewer;
    char program[64]; /* for people: what runs there */
};

struct hr__wire_welcome {
    int32_t pid;
    uint32_t threads;
};

struct hr__wire_refused {
    int32_t code; /* -errno */
    char message[HR_ERROR_MESSAGE_BYTES];
};

/* One loader of one job. File: the text of dataset and recipe, see agent/statement.h. */
struct hr__wire_attach {
    uint64_t text_bytes;
    uint64_t seed;
    uint64_t epochs;
    uint64_t staging_bytes;
    int32_t batch_size, batches_ahead, window;
    int32_t rank, world_size;
    int32_t shuffle, on_error, join, lag, cache_form, direct_io, no_io_uring;
    int32_t external_order; /* the job pushes its batches: see agent/share.h */
    char stream[128];       /* "": of its own */
    char cache[512];        /* "": none */
};

struct hr__wire_attached {
    uint64_t samples; /* of the dataset */
    struct hr_tensor_spec spec;
    char notice[512]; /* what the job's user should know of the agent; "": nothing */
};

/* Where the job wants to go on. */
struct hr__wire_seek {
    uint64_t epoch;
    uint64_t position; /* samples of the order that are behind, of all ranks */
    uint32_t is_first; /* the job has no place in the stream yet: the stream may give another epoch
                          and position (join) */
    uint32_t number;   /* of the request: its answer says it again */
};

/* The stream's next epoch is waited for. */
struct hr__wire_waiting {
    uint64_t epoch, position; /* where the others are */
};

/* Files, where is_new: header, data, control, and an eventfd to ring when mark moves on and the
 * header wants room. */
struct hr__wire_placed {
    uint32_t number;   /* of the request */
    uint32_t cursor;   /* in this connection */
    uint32_t is_new;   /* the job has no files of this cursor yet */
    uint32_t is_alone; /* nobody else uses this queue, because the others are elsewhere */
    uint64_t epoch;    /* of the stream */
    uint64_t position; /* at `sequence`, of the order, all ranks */
    uint64_t sequence; /* of the first sample that is to be taken */
    uint64_t samples;  /* of this rank from there to the epoch's end */
    uint64_t missed;   /* of the order, before `position`, where is_first */
};

/* The job was too slow: what it has not taken from the cursor is gone. */
struct hr__wire_expelled {
    uint32_t cursor;
};

/* Nothing is held of the cursor any more. */
struct hr__wire_leave {
    uint32_t cursor;
};

/* The sample at `sequence` stands in for a bad one. */
struct hr__wire_bad {
    uint32_t cursor;
    uint64_t sequence;
    uint64_t index;
    char reason[256];
};

/* The queue ended at `sequence`. */
struct hr__wire_halt {
    uint32_t cursor;
    uint32_t has_sample; /* index, path and reason say which */
    uint64_t sequence;
    uint64_t index;
    struct hr_error error;
    char path[1024];
    char reason[256];
};

struct hr__wire_trace {
    double seconds;
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
    };
    int files[HR__WIRE_FILES];
    int file_count;
};

/* Bytes of the largest message on the wire. */
#define HR__WIRE_BYTES_MAX (sizeof(struct hr__wire_message) + 64)

/* Writes *message (not its files) into `bytes`, HR__WIRE_BYTES_MAX of them; returns the length.
 * Pure. */
size_t hr__wire_pack(const struct hr__wire_message *message, void *bytes);

/* The opposite, of what anybody may have sent: 0, or -EPROTO (-EPROTONOSUPPORT: of another
 * version) with a message. Every field is in range afterwards: enums, counts, zero-ended
 * strings. Pure. */
int hr__wire_unpack(struct hr__wire_message *message, const void *bytes, size_t length,
                    struct hr_error *error);

/* Sends a message with its files, which stay the caller's. 0; -EAGAIN where the socket does not
 * block; -EPIPE, -ECONNRESET: the other end is gone. Retries EINTR. */
int hr__wire_send(int socket, const struct hr__wire_message *message);

/*
 * Receives one: 1, with files (close-on-exec) that are the caller's; 0: the other end has
 * closed; -EAGAIN; -EINTR; -EPROTO and others of unpack, with a message, after which no files
 * are left open. `flags`: MSG_DONTWAIT or 0.
 */
int hr__wire_receive(int socket, int flags, struct hr__wire_message *message,
                     struct hr_error *error);

void hr__wire_close_files(struct hr__wire_message *message);

/* A sealed anonymous file with a text; returns the descriptor or a negative errno. */
int hr__wire_text_file(const char *text, size_t length);

/* Reads such a file of `bytes`, whoever made it: *text, zero-ended, is the caller's, freed with
 * hr__free. 0, -EPROTO: it has another length, or is too long; -ENOMEM; those of read. */
int hr__wire_text_read(int file, uint64_t bytes, char **text, struct hr_error *error);

#endif
