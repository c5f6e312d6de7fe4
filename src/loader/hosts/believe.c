/*
 * Whether an item of a server is that of the file as it is now.
 *
 * Each item is asked for by what its file is like at that moment, which costs a statx. Size and
 * modification time are part of its key. They may be the same for other bytes: after a tool
 * that puts times back, in images and archives with times made equal, with mtime=no. So an item
 * also says what its file's inode number and ctime were. Where they are the same here, because
 * the hosts share storage, it is the same file. Elsewhere the content decides: a digest of
 * samples of it (dataset/stamp.h), which a process reads once of each file, as long as its
 * stamp stays the same.
 */
#include "loader/hosts/inside.h"

#include <errno.h>

enum hr__asking hr__hosting_look(const struct hr_loader *l, const struct hr__cluster *cluster,
                                 uint64_t index, struct hr__stamp *stamp,
                                 struct hr__peer_item *item)
{
    int is_exact = hr__host_key_is_exact(l->dataset, index);
    *stamp = (struct hr__stamp){.bytes = 0};
    *item = (struct hr__peer_item){.bytes = NULL};
    if (!is_exact && hr__stamp_now(stamp, l->dataset, index))
        return HR__ASK_NOT;
    if (hr__host_key(item->key, &cluster->digest, l->dataset, index, stamp))
        return HR__ASK_NEVER;
    const struct hr_dataset *origin = hr__dataset_origin(l->dataset);
    int64_t bytes =
        origin->catalog->ranges ? hr_dataset_sample_bytes(l->dataset, index) : stamp->bytes;
    item->source_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    return HR__ASK;
}

/* The digest of a file's content: 0 where it cannot be read. */
static uint64_t content_of(const struct hr_loader *l, struct hr__cluster *cluster, uint64_t index,
                           const struct hr__stamp *stamp)
{
    struct hr__content *c = &cluster->contents[index];
    uint64_t of = hr__stamp_digest(stamp);
    uint64_t digest = atomic_load_explicit(&c->digest, memory_order_relaxed);
    /* Threads may write both at once: what does not fit together is looked at again. */
    if (digest && (atomic_load_explicit(&c->of, memory_order_relaxed) ^ digest) == of)
        return digest;
    if (hr__content_look(&digest, l->dataset, index))
        return 0;
    atomic_store_explicit(&c->digest, digest, memory_order_relaxed);
    atomic_store_explicit(&c->of, of ^ digest, memory_order_relaxed);
    return digest;
}

int hr__hosting_is_believed(const struct hr_loader *l, struct hr__cluster *cluster, uint64_t index,
                            const struct hr__stamp *stamp, const struct hr__peer_item *item)
{
    if (hr__host_key_is_exact(l->dataset, index) ||
        (stamp->change && stamp->change == item->change))
        return 1;
    uint64_t content = content_of(l, cluster, index, stamp);
    return content && content == item->content;
}

/* Digest of what the scan saw of a file; 0: not known. */
static uint64_t believed(const struct hr_loader *l, uint64_t index)
{
    struct hr__stamp stamp;
    return hr__stamp_believed(&stamp, l->dataset, index) ? hr__stamp_digest(&stamp) : 0;
}

int hr__hosting_seal(const struct hr_loader *l, const struct hr__cluster *cluster,
                     const struct hr__pending_store *store, struct hr__peer_item *item)
{
    struct hr__stamp stamp;
    enum hr__asking asking = hr__hosting_look(l, cluster, store->index, &stamp, item);
    uint64_t seen = store->seen ? store->seen : believed(l, store->index);
    item->bytes = store->bytes;
    item->length = store->length;
    item->form = hr_form_of(store->bytes, store->length);
    if (asking != HR__ASK)
        return asking == HR__ASK_NEVER ? -ENAMETOOLONG : -ESTALE;
    if (item->source_bytes != store->length)
        return -ESTALE;
    item->content = hr__content_digest(store->bytes, store->length);
    if (hr__host_key_is_exact(l->dataset, store->index))
        return 0;
    /* The scan keeps no stamps of containers, which were checked when they were opened. */
    int is_piece = hr__dataset_origin(l->dataset)->catalog->ranges != NULL;
    if ((seen || !is_piece) && (seen != hr__stamp_digest(&stamp) || hr__stamp_is_fresh(&stamp)))
        return -ESTALE;
    item->change = stamp.change;
    return 0;
}
