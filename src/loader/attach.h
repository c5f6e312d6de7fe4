/*
 * The interface to loaders whose batches an agent prepares.
 *
 * The agent room (agent/client/attach.c) implements struct hr__attachment. hr_loader_create gets
 * the implementation from hr__library_attachment, so that this room links without that one.
 *
 * What an implementation finds in struct hr_loader (loader/inside.h):
 *   dataset, recipe, spec, options   constant from create on and already checked;
 *              options.agent, stream, agent_command and cache are the loader's own copies, NULL
 *              if "" or unset
 *   attached   a pointer for the implementation's own use; NULL at create
 *   pid        the process that made the loader; set before create
 *   ring       for batches that have to be copied: hr__ring_acquire with grow = 1, fill,
 *              hr__ring_deliver. It has batches_ahead + 2 slots (two more if pinned), made when
 *              they are first needed
 *   lock       guards epoch_seen, epoch_bad, bad*, failed; like the ring's lock, no other lock is
 *              taken under it
 *   epoch_seen, epoch_bad   the implementation adds a batch's samples and bad samples when the
 *              batch is due, then calls hr__bad_keep_locked (which takes batch->skipped, sorted by
 *              place; see hr__bad_make, hr__bad_insert) and hr__bad_judge_locked, as
 *              take_complete_locked in loader.c does; at the end of the epoch it judges with
 *              at_end. The loader resets both to 0, and `failed` to NULL, after a successful start
 *   failed     the record of the sample that ended the epoch (hr_loader_failed_get): the
 *              implementation frees the old record and stores the new one
 *   counters   the implementation counts samples (handed out), batches, padded_samples and
 *              bad_samples; the loader counts wait_ns and the histogram of waits around next
 *   seed, shuffle   from the state that was restored last; the loader sets them after start
 *   pushed*    unused: pushed batches belong to the implementation
 *
 * Such a loader uses nothing else of the schedule: no threads, no window, no plan, no cache.
 */
#ifndef HR_LOADER_ATTACH_H
#define HR_LOADER_ATTACH_H

#include <headrace/loader.h>

struct hr_batch;
struct hr__push;

/*
 * The functions that a loader with options.agent calls. Each does what the public function of the
 * same name does. Only `abandon` is called in a forked child. Only get_state and get_stats are
 * called from threads other than the consumer's.
 */
struct hr__attachment {
    /* Called last by hr_loader_create. On failure it has freed what it made. */
    int (*create)(struct hr_loader *loader, struct hr_error *error);
    /* Batches that the consumer still holds stay valid. */
    void (*destroy)(struct hr_loader *loader);
    /* Called in a forked child: takes no lock, does not wait, sends nothing to the agent. */
    void (*abandon)(struct hr_loader *loader);
    /* Implements start_epoch (is_restored = 0, position 0) and restore. `from` is checked, and
     * holds seed and shuffle in both cases. */
    int (*start)(struct hr_loader *loader, const struct hr_loader_state *from, int is_restored,
                 struct hr_error *error);
    /* *out is NULL on entry. The batch returned has refs = 1 and its view fields filled in. */
    int (*next)(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error);
    /* push and push_end, for external_order. `push` is checked; on success the implementation owns
     * it and frees it with hr__free. Neither waits for the agent. */
    int (*push)(struct hr_loader *loader, struct hr__push *push, struct hr_error *error);
    int (*push_end)(struct hr_loader *loader, struct hr_error *error);
    int (*get_state)(const struct hr_loader *loader, struct hr_loader_state *state,
                     struct hr_error *error);
    /* Adds the implementation's figures to *stats, which has the library's own size and already
     * holds the counters and the ring's figures. Any thread. */
    void (*get_stats)(const struct hr_loader *loader, struct hr_loader_stats *stats);
};

/* Returns the attachment to use, or NULL if the program was built without agents. src/library.c
 * defines it. A program that links this room alone gets the one in alone.c, unless it defines its
 * own. */
const struct hr__attachment *hr__library_attachment(void);

/*
 * Takes back a batch's memory. hr_batch_release calls `release` when the last reference is gone: on
 * any thread, possibly after the loader was destroyed, possibly in a forked child, where it only
 * frees memory. A batch that is no ring slot is allocated and freed by its owner; all its fields
 * are zero except owner, spec, refs, images, labels, indices, extents, count, padding, replaced,
 * epoch and number (loader/ring.h).
 */
struct hr__batch_owner {
    void (*release)(struct hr_batch *batch);
    /* Takes back a batch that was never handed out. NULL if batches are always handed out at
     * once. */
    void (*give_back)(struct hr_batch *batch);
};

#endif
