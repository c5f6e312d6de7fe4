/*
 * What a reader is underneath: the table that the io_uring and the pread
 * backend fill in. Private to the storage room.
 */
#ifndef HR_STORAGE_BACKEND_H
#define HR_STORAGE_BACKEND_H

#include "storage/transfer.h"

/* Requests that have come to an end, oldest first, linked by `next`. */
struct hr__read_list {
    struct hr__read *first, *last;
};

static inline void hr__read_list_append(struct hr__read_list *list, struct hr__read *read)
{
    read->next = NULL;
    if (list->last)
        list->last->next = read;
    else
        list->first = read;
    list->last = read;
}

static inline struct hr__read *hr__read_list_take(struct hr__read_list *list)
{
    struct hr__read *read = list->first;
    if (read) {
        list->first = read->next;
        if (!list->first)
            list->last = NULL;
        read->next = NULL;
    }
    return read;
}

struct hr__reader_backend {
    /* The caller keeps the number of requests below depth. Errors: see reader.h. */
    int (*submit)(void *self, struct hr__read *read);
    /* Moves work on; waits for the first completion as hr__reader_wait says,
     * unless the list has one. Negative errno or 0. */
    int (*progress)(void *self, int64_t timeout_ns);
    /* Ends what is in flight; every request is in the list afterwards. */
    void (*destroy)(void *self);
};

/* io_uring with room for `depth` requests. Completed ones go to `done`; it and
 * the rules outlive the backend. Errors: the negative errno with
 * which the kernel refuses, -ENOMEM. */
int hr__uring_create(void **self, unsigned depth, const struct hr__transfer_rules *rules,
                     struct hr__read_list *done);
extern const struct hr__reader_backend hr__uring_backend;

#endif
