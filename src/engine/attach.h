/*
 * Loaders whose batches an agent prepares: what the engine knows of them.
 *
 * The room above (agent/attach.c) implements hr__attachment; hr_loader_create finds it
 * through a weak symbol, so that this room and its tests link without it. Such a loader has
 * no threads. Its dataset, recipe, options, spec and counters are those of struct hr_loader.
 */
#ifndef HR_ENGINE_ATTACH_H
#define HR_ENGINE_ATTACH_H

#include <headrace/loader.h>

struct hr_batch;

/* What a loader with options.agent calls; `loader->attached` is the implementation's. Each as
 * the public function of the name says. */
struct hr__attachment {
    int (*create)(struct hr_loader *loader, struct hr_error *error);
    void (*destroy)(struct hr_loader *loader);
    /* In a forked child: takes no lock, waits for nothing, tells the agent nothing. */
    void (*abandon)(struct hr_loader *loader);
    /* start_epoch (is_restored = 0, position 0) and restore. */
    int (*start)(struct hr_loader *loader, const struct hr_loader_state *from, int is_restored,
                 struct hr_error *error);
    int (*next)(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error);
    int (*get_state)(const struct hr_loader *loader, struct hr_loader_state *state,
                     struct hr_error *error);
    void (*get_stats)(const struct hr_loader *loader, struct hr_loader_stats *stats);
};

/* NULL where the agent's room is not linked. */
extern const struct hr__attachment hr__attachment_agent __attribute__((weak));

/* Who gives a batch's memory back, where that is not a ring: hr_batch_release calls it for the
 * last reference, on any thread, also in a forked child, where it frees memory only. */
struct hr__batch_owner {
    void (*release)(struct hr_batch *batch);
};

#endif
