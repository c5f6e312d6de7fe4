/*
 * The interface that the reader's backends (io_uring, and those of sample sources) implement.
 */
#ifndef HR_STORAGE_BACKEND_H
#define HR_STORAGE_BACKEND_H

#include "storage/transfer.h"

/* Completed requests, oldest first, linked by `next`. */
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
    /* The caller keeps fewer than `depth` requests in flight. Errors: see reader.h. */
    int (*submit)(void *self, struct hr__read *read);
    /* Advances the requests. If the list of completed requests is empty, waits for the first
     * completion as hr__reader_wait describes. Returns 0 or a negative errno. */
    int (*progress)(void *self, int64_t timeout_ns);
    /* Ends the requests in flight. Afterwards every request is in the list of completed
     * requests. */
    void (*destroy)(void *self);
};

/* Creates an io_uring backend with room for `depth` requests. It appends completed requests to
 * `done`. `done` and `rules` must outlive the backend. Errors: the negative errno with which the
 * kernel refuses io_uring, or -ENOMEM. */
int hr__uring_create(void **self, unsigned depth, const struct hr__transfer_rules *rules,
                     struct hr__read_list *done);
extern const struct hr__reader_backend hr__uring_backend;

#endif
