/*
 * The record file: what every block of memory did and when. docs/memory-format.md is the
 * document for readers in other languages; this is the same in C.
 *
 *   header   4096 bytes
 *   extent   HR__EXTENT_BYTES, as many as there are: one of one thread's events, or of texts
 *
 * Append-only and mapped: what a thread writes is in the file's pages at once, so that a
 * process which is killed at any moment leaves all of it. An extent that was ended has a
 * checksum; one that was open is read as far as its `used` says. Numbers are those of the
 * machine that recorded (little-endian; the header says so and others are refused).
 */
#ifndef HR_MEMORY_RECORD_FORMAT_H
#define HR_MEMORY_RECORD_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define HR__RECORD_VERSION 1u
#define HR__RECORD_HEADER  4096u
#define HR__EXTENT_BYTES   (256u << 10)

#define HR__RECORD_MAGIC "HRMEMORY"
#define HR__EXTENT_MAGIC UINT64_C(0x544e455458455248) /* "HREXTENT" */
#define HR__ENDIAN_MARK  UINT32_C(0x01020304)

struct hr__record_header {
    char magic[8];
    uint32_t version, endian_mark;
    uint32_t header_bytes, extent_bytes;
    uint64_t start_ns;      /* of the monotonic clock: what event times count from */
    uint64_t start_unix_ns; /* the same moment since 1970 */
    int64_t pid;
    uint64_t checksum; /* of all before it */
    /* Changed while recording. */
    uint64_t lost;     /* events that could not be written */
    uint64_t is_ended; /* 1: the recorder was closed */
    int64_t problem;   /* negative errno of what ended the recording early; 0: nothing */
};

enum hr__extent_kind {
    HR__EXTENT_EVENTS = 1,
    HR__EXTENT_TEXTS = 2,
    HR__EXTENT_RAN = 3, /* struct hr_memory_ran */
};

struct hr__extent_header {
    uint64_t magic;
    uint32_t kind;
    uint32_t thread;   /* number of the recording's threads, from 0 */
    uint64_t first_ns; /* time of the first event; 0: none */
    uint64_t used;     /* bytes behind this header; grows */
    uint64_t is_ended; /* 1: `checksum` holds */
    uint64_t checksum; /* xxh3 of `used` bytes behind this header */
    uint64_t reserved[2];
};

#define HR__EXTENT_ROOM        (HR__EXTENT_BYTES - sizeof(struct hr__extent_header))
#define HR__EXTENT_EVENTS_MOST (HR__EXTENT_ROOM / sizeof(struct hr_memory_event))
#define HR__EXTENT_RAN_MOST    (HR__EXTENT_ROOM / sizeof(struct hr_memory_ran))

/* A text or a stack in an extent of texts; the next begins at a multiple of 8. */
struct hr__text_header {
    uint32_t id;   /* of its kind, from 1, ascending */
    uint16_t kind; /* enum hr__text_kind */
    uint16_t zero;
    uint32_t length; /* bytes that follow */
    uint32_t check;  /* low half of their xxh3, of an extent that was never ended */
};

/* What is longer is cut when it is recorded. */
#define HR__TEXT_MOST         4096u /* bytes of a name or fact */
#define HR__STACK_FRAMES_MOST 64u

enum hr__text_kind {
    HR__TEXT_NAME = 1,  /* UTF-8: of an operator, a shape, a phase, a file */
    HR__TEXT_STACK = 2, /* struct hr_memory_frame, the innermost first */
    HR__TEXT_FACT = 3,  /* UTF-8 "name=value": of the run, the devices, the batch size */
};

#endif
