/*
 * Records of failed samples and of damaged ones that were used, and the limit on bad samples. The
 * newest records are kept in detail, in the order of batches and places, so that the list does not
 * depend on threads.
 */
#include "loader/bad.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Before the epoch's end, the share of bad samples is judged only from so many samples on. */
#define JUDGED_FROM 100

struct hr__bad *hr__bad_make(const struct hr_loader *l, const struct hr_batch *batch, size_t place,
                             uint64_t index, const char *reason)
{
    size_t path_length = hr_dataset_path(l->dataset, index, NULL, 0);
    size_t reason_length = strlen(reason);
    struct hr__bad *bad =
        hr__alloc(HR__TAG_LOADER, 1, sizeof *bad + path_length + 1 + reason_length + 1);
    if (!bad)
        return NULL;
    hr_dataset_path(l->dataset, index, bad->path, path_length + 1);
    bad->reason = memcpy(bad->path + path_length + 1, reason, reason_length + 1);
    bad->place = place;
    bad->epoch = batch->epoch;
    bad->index = index;
    return bad;
}

void hr__bad_free_list(struct hr__bad *list)
{
    while (list) {
        struct hr__bad *next = list->next;
        hr__free(list);
        list = next;
    }
}

void hr__bad_insert(struct hr__bad **list, struct hr__bad *bad)
{
    while (*list && (*list)->place < bad->place)
        list = &(*list)->next;
    bad->next = *list;
    *list = bad;
}

/* Makes room for one more record, by dropping the oldest if there are enough. */
static int make_room_locked(struct hr__bad_list *l)
{
    if (l->kept < HR__BAD_KEPT)
        return hr__reserve(HR__TAG_LOADER, &l->at, l->kept + 1);
    hr__free(l->at[l->first]);
    l->first = (l->first + 1) % HR__BAD_KEPT;
    l->kept--;
    return 0;
}

void hr__bad_keep_locked(struct hr_loader *l, struct hr_batch *batch)
{
    while (batch->skipped) {
        struct hr__bad *bad = batch->skipped;
        struct hr__bad_list *list = bad->taken ? &l->damaged : &l->bad;
        batch->skipped = bad->next;
        bad->next = NULL;
        list->total++;
        if (bad->taken)
            hr__count(&hr__counters_here(l)->damaged_samples, 1);
        if (make_room_locked(list)) {
            hr__free(bad);
            continue;
        }
        list->at[(list->first + list->kept++) % HR__BAD_KEPT] = bad;
    }
}

int hr__bad_judge_locked(const struct hr_loader *l, uint64_t epoch, int at_end,
                         struct hr_error *error)
{
    double share = l->options.max_bad_share;
    if (!l->epoch_bad || (!at_end && l->epoch_seen < JUDGED_FROM) ||
        (double)l->epoch_bad <= share * (double)l->epoch_seen)
        return 0;
    char text[HR_ERROR_MESSAGE_BYTES];
    int used = snprintf(text, sizeof text,
                        "%" PRIu64 " of %" PRIu64 " samples of epoch %" PRIu64
                        " are bad, more than max_bad_share = %g: repair the dataset or raise it;",
                        l->epoch_bad, l->epoch_seen, epoch, share);
    for (size_t i = 0; i < l->bad.kept; i++) {
        const struct hr__bad *bad = l->bad.at[(l->bad.first + i) % HR__BAD_KEPT];
        if (bad->epoch != epoch)
            continue;
        char path[256];
        hr__printable(path, sizeof path, bad->path);
        size_t left = sizeof text - (size_t)used;
        int n = snprintf(text + used, left, " sample %" PRIu64 " (%s): %.200s;", bad->index, path,
                         bad->reason);
        if (n < 0 || (size_t)n >= left - 8) {
            snprintf(text + used, left, " ...");
            break;
        }
        used += n;
    }
    return hr__fail(error, -EOVERFLOW, "%s", text);
}

static void free_details(struct hr__bad_list *list)
{
    for (size_t i = 0; i < list->kept; i++)
        hr__free(list->at[(list->first + i) % HR__BAD_KEPT]);
    hr__free(list->at);
    *list = (struct hr__bad_list){0};
}

void hr__bad_destroy(struct hr_loader *l)
{
    free_details(&l->bad);
    free_details(&l->damaged);
    hr__free(l->failed);
    l->failed = NULL;
}

static void describe(const struct hr__bad *bad, struct hr_skipped_sample *out)
{
    memset(out, 0, sizeof *out);
    out->epoch = bad->epoch;
    out->index = bad->index;
    snprintf(out->path, sizeof out->path, "%s", bad->path);
    snprintf(out->reason, sizeof out->reason, "%s", bad->reason);
}

static uint64_t count_of(struct hr_loader *l, const struct hr__bad_list *list)
{
    if (hr__in_child(l))
        return 0;
    pthread_mutex_lock(&l->lock);
    uint64_t count = list->total;
    pthread_mutex_unlock(&l->lock);
    return count;
}

static int get_one(struct hr_loader *l, const struct hr__bad_list *list, uint64_t i,
                   struct hr_skipped_sample *out)
{
    int r = -ERANGE;
    if (hr__in_child(l))
        return r;
    pthread_mutex_lock(&l->lock);
    if (i < list->kept) {
        describe(list->at[(list->first + i) % HR__BAD_KEPT], out);
        r = 0;
    }
    pthread_mutex_unlock(&l->lock);
    return r;
}

uint64_t hr_loader_skipped_count(const struct hr_loader *loader)
{
    return count_of((struct hr_loader *)loader, &loader->bad);
}

int hr_loader_skipped_get(const struct hr_loader *loader, uint64_t i, struct hr_skipped_sample *out)
{
    return get_one((struct hr_loader *)loader, &loader->bad, i, out);
}

uint64_t hr_loader_damaged_count(const struct hr_loader *loader)
{
    return count_of((struct hr_loader *)loader, &loader->damaged);
}

int hr_loader_damaged_get(const struct hr_loader *loader, uint64_t i, struct hr_skipped_sample *out)
{
    return get_one((struct hr_loader *)loader, &loader->damaged, i, out);
}

int hr_loader_failed_get(const struct hr_loader *loader, struct hr_skipped_sample *out)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    int r = -ENOENT;
    if (hr__in_child(l))
        return r;
    pthread_mutex_lock(&l->lock);
    if (l->failed) {
        describe(l->failed, out);
        r = 0;
    }
    pthread_mutex_unlock(&l->lock);
    return r;
}
