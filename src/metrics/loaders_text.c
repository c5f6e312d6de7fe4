/* The metrics of a process's loaders: a table of families over the keys of their status (meter.h).
 */
#include "metrics/meter.h"

#include "base/draft.h"
#include "metrics/text.h"

#include <errno.h>
#include <jansson.h>

struct loader_family {
    const char *name, *help;
    const char *key; /* a number or a boolean of the loader's status */
};

static const struct loader_family families[] = {
    {"headrace_loader_uptime_seconds", "Since its first epoch.", "uptime_s"},
    {"headrace_loader_running", "1: an epoch is going on.", "running"},
    {"headrace_loader_waiting", "1: training waits for a batch now.", "waiting"},
    {"headrace_loader_epoch", "Epoch that it is in.", "epoch"},
    {"headrace_loader_position_samples", "Samples of the epoch's order that are behind, all ranks.",
     "position"},
    {"headrace_loader_epoch_samples", "Samples of an epoch's order, all ranks.", "epoch_samples"},
    {"headrace_loader_threads", "Threads that prepare samples, or worker processes.", "threads"},
    {"headrace_loader_batch_samples", "Samples of a batch.", "batch_samples"},
    {"headrace_loader_batches_total", "Batches that training took.", "batches"},
    {"headrace_loader_prepared_samples_total", "Samples that were prepared.", "prepared"},
    {"headrace_loader_padded_samples_total", "Samples handed out only to pad a rank's share.",
     "padded_samples"},
    {"headrace_loader_bad_samples_total", "Samples that could not be read or decoded.",
     "bad_samples"},
    {"headrace_loader_damaged_samples_total", "Damaged samples that were accepted.",
     "damaged_samples"},
    {"headrace_loader_scaled_samples_total",
     "Samples that were decoded at 1/2, 1/4 or 1/8 of their size (exact=False).", "scaled_samples"},
    {"headrace_loader_wait_seconds_total", "Time that training waited for a batch.", "wait_s"},
    {"headrace_loader_step_seconds_total",
     "Time that training did something else than wait for a batch, within epochs.", "step_s"},
    {"headrace_loader_fetch_seconds_total",
     "Time from asking for a sample to having its bytes, summed over samples.", "fetch_s"},
    {"headrace_loader_prepare_seconds_total",
     "Time that threads decoded and transformed, summed over samples.", "prepare_s"},
    {"headrace_loader_read_bytes_total", "Bytes that were read from files.", "bytes_read"},
    {"headrace_loader_cache_hits_total", "Samples whose bytes came from a cache.", "cache_hits"},
    {"headrace_loader_own_hits_total", "Of them, those from this host's server.", "own_hits"},
    {"headrace_loader_own_bytes_total", "Their bytes.", "own_bytes"},
    {"headrace_loader_peer_hits_total", "Of the hits, those from other hosts' servers.",
     "peer_hits"},
    {"headrace_loader_peer_bytes_total", "Their bytes.", "peer_bytes"},
    {"headrace_loader_stored_bytes_total", "Bytes of items that it stored on servers.",
     "stored_bytes"},
    {"headrace_loader_cache_bytes", "Bytes of the cached items.", "cache_bytes"},
    {"headrace_loader_staged_bytes", "Encoded bytes that are fetched and not yet prepared.",
     "staged_bytes"},
    {"headrace_loader_memory_bytes", "Memory of batches.", "memory_bytes"},
    {"headrace_loader_ready_batches", "Batches that are ready and not yet taken.", "ready_batches"},
    {"headrace_loader_ahead_batches", "Batches that it prepares ahead.", "ahead_batches"},
    {"headrace_loader_reattached_total", "Times that it moved to a new agent.", "reattached"},
};

/* Writes the labels that every sample has; the caller closes. */
static void put_labels(struct hr__draft *o, const void *loader)
{
    hr__metrics_label(o, '{', "rank", json_object_get(loader, "rank"));
    hr__metrics_label(o, ',', "loader", json_object_get(loader, "loader"));
}

static void put_family(struct hr__draft *o, const struct loader_family *f, const json_t *loaders)
{
    size_t i;
    json_t *loader;
    hr__metrics_family(o, f->name, f->help);
    json_array_foreach(loaders, i, loader)
    {
        const json_t *value = json_object_get(loader, f->key);
        if (!hr__metrics_is_value(value))
            continue;
        hr__draft_put(o, f->name);
        put_labels(o, loader);
        hr__draft_put(o, "} ");
        hr__metrics_value(o, value);
        hr__draft_put(o, "\n");
    }
}

static void put_info(struct hr__draft *o, const json_t *loaders)
{
    static const char name[] = "headrace_loader_info";
    static const char *const labels[] = {"dataset", "program", "prepared_by"};
    size_t i;
    json_t *loader;
    hr__metrics_family(o, name, "A loader: what it reads, and who prepares its batches.");
    json_array_foreach(loaders, i, loader)
    {
        hr__draft_put(o, name);
        put_labels(o, loader);
        for (size_t k = 0; k < sizeof labels / sizeof *labels; k++)
            hr__metrics_label(o, ',', labels[k], json_object_get(loader, labels[k]));
        hr__draft_put(o, "} 1\n");
    }
}

static void put_waits(struct hr__draft *o, const json_t *loaders)
{
    static const char name[] = "headrace_loader_waits_for";
    size_t i;
    json_t *loader;
    hr__metrics_family(o, name,
                       "1 for what the loader waits for: room (training is slower), fetch "
                       "(storage), prepare (threads), sampler (it has given no more indices).");
    json_array_foreach(loaders, i, loader)
        hr__metrics_waits(o, name, json_object_get(loader, "waits_for"), put_labels, loader);
}

int hr__loaders_text(char **text, const char *status, struct hr_error *error)
{
    struct hr__draft o = {.text = NULL};
    json_t *root = hr__metrics_status(status, "the status of loaders", error);
    if (!root)
        return -EPROTO;
    const json_t *loaders = json_object_get(root, "loaders");
    put_info(&o, loaders);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        put_family(&o, &families[i], loaders);
    put_waits(&o, loaders);
    json_decref(root);
    return hr__draft_finish(&o, text, error);
}
