/*
 * The record file: the lifetime and accesses of every memory block. docs/memory-format.md documents
 * the format for readers in other languages; this is the same in C.
 *
 *   header   4096 bytes
 *   extent   HR__EXTENT_BYTES, any number: each holds one thread's events, or texts
 *
 * The file is append-only and mapped: what a thread writes is in the page cache at once, so nothing
 * is lost if the process is killed at any moment. A finished extent has a checksum; an unfinished
 * one is valid up to `used`. Numbers have the byte order of the recording machine (little-endian;
 * the header says so, and others are rejected).
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
    uint64_t start_ns;      /* monotonic clock; event times count from it */
    uint64_t start_unix_ns; /* the same moment since 1970 */
    int64_t pid;
    uint64_t checksum; /* of all members before it */
    /* Updated while recording. */
    uint64_t lost;     /* events that could not be written */
    uint64_t is_ended; /* 1: the recorder was closed properly */
    int64_t problem;   /* negative errno that ended the recording early; 0: none */
};

enum hr__extent_kind {
    HR__EXTENT_EVENTS = 1,
    HR__EXTENT_TEXTS = 2,
    HR__EXTENT_RAN = 3, /* struct hr_memory_ran */
};

struct hr__extent_header {
    uint64_t magic;
    uint32_t kind;
    uint32_t thread;   /* index of the recording's threads, from 0 */
    uint64_t first_ns; /* time of the first event; 0: none */
    uint64_t used;     /* bytes after this header; grows */
    uint64_t is_ended; /* 1: `checksum` is valid */
    uint64_t checksum; /* xxh3 of the `used` bytes after this header */
    uint64_t reserved[2];
};

#define HR__EXTENT_ROOM        (HR__EXTENT_BYTES - sizeof(struct hr__extent_header))
#define HR__EXTENT_EVENTS_MOST (HR__EXTENT_ROOM / sizeof(struct hr_memory_event))
#define HR__EXTENT_RAN_MOST    (HR__EXTENT_ROOM / sizeof(struct hr_memory_ran))

/* Header of a text or a stack in an extent of texts; each starts at a multiple of 8. */
struct hr__text_header {
    uint32_t id;   /* per kind, ascending from 1 */
    uint16_t kind; /* enum hr__text_kind */
    uint16_t zero;
    uint32_t length; /* bytes after this header */
    uint32_t check;  /* low half of their xxh3, for unfinished extents */
};

/* The recorder cuts longer texts and stacks. */
#define HR__TEXT_MOST         4096u /* bytes of a name or fact */
#define HR__STACK_FRAMES_MOST 64u

enum hr__text_kind {
    HR__TEXT_NAME = 1,  /* UTF-8: an operator, shape, phase or file */
    HR__TEXT_STACK = 2, /* struct hr_memory_frame, innermost first */
    HR__TEXT_FACT = 3,  /* UTF-8 "name=value": about the run, devices, batch size */
};

#endif
