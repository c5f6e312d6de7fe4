/* A loader's statistics: sums its counters, and asks ring, cache and attachment for theirs. */
#include "base/versioned.h"
#include "loader/inside.h"

#include <stddef.h>

/* `offset`: of the histogram in struct hr__counters. */
static void sum_histogram(struct hr_histogram *out, const struct hr_loader *l, size_t offset)
{
    const struct hr__counters *sets = l->counters;
    out->count = hr__counters_sum(sets, offset + offsetof(struct hr__histogram, count));
    out->sum_ns = hr__counters_sum(sets, offset + offsetof(struct hr__histogram, sum_ns));
    for (size_t i = 0; i < HR_HISTOGRAM_BUCKETS; i++)
        out->buckets[i] = hr__counters_sum(sets, offset + offsetof(struct hr__histogram, buckets) +
                                                     i * sizeof out->buckets[0]);
}

void hr_loader_get_stats(const struct hr_loader *loader, struct hr_loader_stats *stats)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    struct hr__ring_counts ring = {0};
    struct hr__cache_counts cache = {0}, disk = {0};
    struct hr__http_counts http = {0};
    struct hr_loader_stats s = {
        .samples = HR__COUNTED(l, samples),
        .batches = HR__COUNTED(l, batches),
        .bad_samples = HR__COUNTED(l, bad_samples),
        .damaged_samples = HR__COUNTED(l, damaged_samples),
        .scaled_samples = HR__COUNTED(l, scaled_samples),
        .padded_samples = HR__COUNTED(l, padded_samples),
        .bytes_read = HR__COUNTED(l, bytes_read),
        .wait_ns = HR__COUNTED(l, wait_ns),
        .staged_bytes = HR__COUNTED(l, staged_bytes),
        .threads = l->workers_wanted,
        .workers_now = l->workers_wanted,
        .cache_hits = HR__COUNTED(l, cache_hits),
        .converted = HR__COUNTED(l, converted),
        .conversion_ns = HR__COUNTED(l, conversion_ns),
        .own_hits = HR__COUNTED(l, own_hits),
        .own_bytes = HR__COUNTED(l, own_bytes),
        .peer_hits = HR__COUNTED(l, peer_hits),
        .peer_bytes = HR__COUNTED(l, peer_bytes),
        .stored = HR__COUNTED(l, stored),
        .stored_bytes = HR__COUNTED(l, stored_bytes),
        .refused = HR__COUNTED(l, refused),
        .read_ahead = HR__COUNTED(l, read_ahead),
        .step_ns = HR__COUNTED(l, step_ns),
        .disk_hits = HR__COUNTED(l, disk_hits),
        .disk_bytes = HR__COUNTED(l, disk_bytes),
    };
    if (!hr__in_child(l)) {
        if (l->cache) {
            hr__cache_get_counts(l->cache, &cache);
            hr__cache_get_disk_counts(l->cache, &disk);
        }
        if (l->ring)
            hr__ring_counts(l->ring, &ring);
        pthread_mutex_lock(&l->lock);
        s.ready_batches = l->complete;
        s.io_uring = l->reader_state == 1;
        pthread_mutex_unlock(&l->lock);
    }
    if (hr__dataset_origin(l->dataset)->http)
        hr__http_count(hr__dataset_origin(l->dataset)->http, &http);
    s.batches_ahead = l->options.batches_ahead;
    s.object_requests = http.requests;
    s.object_lists = http.lists;
    s.object_retries = http.retries;
    s.object_hedges = http.hedges;
    s.object_refusals = http.refusals;
    s.object_bytes = http.bytes;
    s.object_cost_usd = http.cost_usd;
    s.slots = ring.slots;
    s.grown_slots = ring.grown;
    s.slot_bytes = ring.slot_bytes;
    s.cache_bytes = cache.bytes;
    s.cache_source_bytes = cache.source_bytes;
    s.cache_encoded = cache.items[HR_FORM_ENCODED];
    s.cache_coefficients = cache.items[HR_FORM_COEFFICIENTS];
    s.cache_planes = cache.items[HR_FORM_PLANES];
    s.cache_indexed = cache.items[HR_FORM_INDEXED];
    s.cache_waveforms = cache.items[HR_FORM_WAVEFORM] + cache.items[HR_FORM_WAVEFORM16];
    s.cache_waiting = cache.staged;
    s.disk_items = hr__all_items(disk.items);
    s.disk_used_bytes = disk.bytes;
    sum_histogram(&s.fetch, l, offsetof(struct hr__counters, fetch));
    sum_histogram(&s.prepare, l, offsetof(struct hr__counters, prepare));
    sum_histogram(&s.wait, l, offsetof(struct hr__counters, wait));
    if (l->attachment->get_stats && !hr__in_child(l))
        l->attachment->get_stats(l, &s);
    hr__versioned_give(stats, &s, sizeof s);
}
