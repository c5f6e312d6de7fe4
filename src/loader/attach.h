/*
 * Loaders whose batches an agent prepares: what the loader knows of them.
 *
 * The room above (agent/client/attach.c) implements hr__attachment; hr_loader_create finds it
 * through a weak symbol, so that this room and its tests link without it. (A weak symbol takes
 * no member out of a static library: a test of the room above names hr__attachment_agent itself.)
 *
 * What an implementation finds, in struct hr_loader (loader/loader.h):
 *   dataset, recipe, spec, options  constant from create on; options.agent, stream, agent_command
 *       and cache are the loader's own copies, NULL where "" or unset; options are checked
 *   attached   the implementation's own; NULL at create
 *   pid        of the process that made the loader: set before create
 *   ring       for copies: hr__ring_acquire with grow = 1, fill, hr__ring_deliver; of
 *              batches_ahead + 2 slots (two more if pinned), made as they are needed
 *   lock       guards epoch_seen, epoch_bad, bad*, failed; a leaf beside the ring's own
 *   epoch_seen, epoch_bad   it adds a batch's count and bad samples at the batch's turn, then
 *              hr__bad_keep_locked (which takes batch->skipped, in order of place:
 *              hr__bad_make, hr__bad_insert) and hr__bad_judge_locked, as loader.c's
 *              take_complete_locked does; at the epoch's end judge with at_end. After a start
 *              that succeeded they are 0 and `failed` is NULL: the loader does that
 *   failed     the record of the sample that ended the epoch (hr_loader_failed_get): it puts
 *              it there, freeing what was there
 *   counters   the implementation's are samples (handed out), batches, padded_samples and
 *              bad_samples; the loader counts wait_ns and the histogram of waits around next
 *   seed, shuffle   of the state that was restored last; the loader sets them after start
 *   pushed*    unused: what a caller pushes is the implementation's
 *
 * Nothing else of the loader's schedule is in use: no threads, no window, no plan, no cache.
 */
#ifndef HR_LOADER_ATTACH_H
#define HR_LOADER_ATTACH_H

#include <headrace/loader.h>

struct hr_batch;
struct hr__push;

/*
 * What a loader with options.agent calls; each as the public function of the name says, never
 * in a forked child but `abandon`, and but get_state and get_stats from the consumer's thread
 * alone.
 */
struct hr__attachment {
    /* From hr_loader_create, last. On failure it has freed what it made. */
    int (*create)(struct hr_loader *loader, struct hr_error *error);
    /* Batches that are held live on. */
    void (*destroy)(struct hr_loader *loader);
    /* In a forked child: takes no lock, waits for nothing, tells the agent nothing. */
    void (*abandon)(struct hr_loader *loader);
    /* start_epoch (is_restored = 0, position 0) and restore: `from` is checked, and holds seed
     * and shuffle in both cases. */
    int (*start)(struct hr_loader *loader, const struct hr_loader_state *from, int is_restored,
                 struct hr_error *error);
    /* *out is NULL before. A batch has refs = 1, and view fields filled in. */
    int (*next)(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error);
    /* push and push_end, with external_order. `push` is checked; on success the implementation
     * frees it, with hr__free. Neither waits for the agent. */
    int (*push)(struct hr_loader *loader, struct hr__push *push, struct hr_error *error);
    int (*push_end)(struct hr_loader *loader, struct hr_error *error);
    int (*get_state)(const struct hr_loader *loader, struct hr_loader_state *state,
                     struct hr_error *error);
    /* Adds what it knows to *stats, which is of the library's own size and holds the counters
     * and the ring's figures already. Any thread. */
    void (*get_stats)(const struct hr_loader *loader, struct hr_loader_stats *stats);
};

/* NULL where the agent's room is not linked. */
extern const struct hr__attachment hr__attachment_agent __attribute__((weak));

/*
 * Who gives a batch's memory back: hr_batch_release calls it for the last reference, on any
 * thread, also after the loader is gone, and also in a forked child, where it frees memory only.
 * A batch that is no slot is allocated and freed by its owner: all zero but owner, spec, refs,
 * images, labels, indices, count, padding, replaced, epoch and number (loader/ring.h).
 */
struct hr__batch_owner {
    void (*release)(struct hr_batch *batch);
};

#endif
