/*
 * What kind of file system an open file lies in, as far as it matters to who wants its
 * bytes out of memory, or in it. Private to the storage room.
 */
#ifndef HR_STORAGE_FILESYSTEM_H
#define HR_STORAGE_FILESYSTEM_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct hr__filesystem {
    char name[32];  /* as the kernel's list of mounts has it: "ext4", "fuse.sshfs"; "" unknown */
    bool in_memory; /* no storage below */
    bool network;   /* a server, or another process, has memory of its own in between */
    bool layered;   /* open files have no pages of their own: those of the file below count,
                       which mappings show and cachestat(2) does not */
    bool own_cache; /* keeps files in memory of which the page cache knows nothing */
};

/* Of the open file `fd` on the device `device`. Never fails: what cannot be found out is
 * unknown and ordinary. Reads the list of mounts. */
void hr__filesystem_look(struct hr__filesystem *filesystem, int fd, dev_t device);

/* From a statfs(2) magic number alone, with the magic's own name. */
void hr__filesystem_of_magic(struct hr__filesystem *filesystem, long magic);

/* Finds the type of the mount with `device` in a list like /proc/self/mountinfo; the last one
 * counts. Non-zero, and `name` is set, where there is one. */
int hr__filesystem_from_mounts(FILE *mounts, dev_t device, char *name, size_t capacity);

#endif
