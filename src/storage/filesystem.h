/*
 * Identifies the file system of an open file and the properties that matter for page-cache
 * residency. Private to the storage room.
 */
#ifndef HR_STORAGE_FILESYSTEM_H
#define HR_STORAGE_FILESYSTEM_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct hr__filesystem {
    char name[32];  /* type as in the kernel's mount list: "ext4", "fuse.sshfs"; "" if unknown */
    bool in_memory; /* no storage below */
    bool network;   /* a server or another process in between caches data too */
    bool layered;   /* open files have no pages of their own: the pages belong to the file below,
                     * which mappings show and cachestat(2) does not */
    bool own_cache; /* keeps file data in memory outside the page cache */
};

/* Describes the file system of the open file `fd` on `device`. Never fails: properties it cannot
 * determine are set as for an unknown, ordinary file system. Reads the mount list. */
void hr__filesystem_look(struct hr__filesystem *filesystem, int fd, dev_t device);

/* Describes a file system from its statfs(2) magic number alone; `name` is the magic's own. */
void hr__filesystem_of_magic(struct hr__filesystem *filesystem, long magic);

/* Finds the type of the mount with `device` in a list in the format of /proc/self/mountinfo. The
 * last match counts. Returns non-zero and sets `name` if there is one. */
int hr__filesystem_from_mounts(FILE *mounts, dev_t device, char *name, size_t capacity);

#endif
