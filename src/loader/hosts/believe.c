/*
 * Decides whether an item from a server was made from the file as it is now.
 *
 * Every request for an item first looks at its file, which costs a statx. Size and modification
 * time are part of the item's key. They may be equal for different bytes: if a tool restores times,
 * in container images and archives with normalized times, or with mtime=no. So an item also carries
 * its file's inode number and ctime. If these are equal here, because the hosts share storage, it
 * is the same file. Otherwise the content decides: a digest of parts of the file (dataset/stamp.h),
 * which a process computes once for each file, as long as the file's stamp stays the same.
 */
#include "dataset/pair.h"
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
    int64_t bytes = is_exact || (origin->catalog->ranges && !l->dataset->masks)
                        ? hr__dataset_kept_bytes(l->dataset, index)
                        : stamp->bytes;
    item->source_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    return HR__ASK;
}

/* Digest of a file's content; 0 if it cannot be read. */
static uint64_t content_of(const struct hr_loader *l, struct hr__cluster *cluster, uint64_t index,
                           const struct hr__stamp *stamp)
{
    struct hr__content *c = &cluster->contents[index];
    uint64_t of = hr__stamp_digest(stamp);
    uint64_t digest = atomic_load_explicit(&c->digest, memory_order_relaxed);
    /* Two threads may write both fields at once; if the two do not match, the digest is computed
     * again. */
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

static int is_of_containers(struct hr_dataset *dataset)
{
    return hr__dataset_origin(dataset)->catalog->ranges != NULL;
}

/* Digest of the file's stamp as the scan saw it; 0: not known. */
static uint64_t believed(const struct hr_loader *l, uint64_t index)
{
    struct hr__stamp stamp;
    return hr__stamp_believed(&stamp, l->dataset, index) ? hr__stamp_digest(&stamp) : 0;
}

int hr__hosting_seal(const struct hr_loader *l, const struct hr__cluster *cluster,
                     const struct hr__pending_store *store, struct hr__peer_item *item)
{
    struct hr__stamp stamp;
    struct hr__pair pair;
    enum hr__asking asking = hr__hosting_look(l, cluster, store->index, &stamp, item);
    uint64_t seen = store->seen ? store->seen : believed(l, store->index);
    item->bytes = store->bytes;
    item->length = store->length;
    item->form = hr_form_of(store->bytes, store->length);
    if (asking != HR__ASK)
        return asking == HR__ASK_NEVER ? -ENAMETOOLONG : -ESTALE;
    if (item->source_bytes != store->length ||
        hr__pair_split(&pair, l->dataset, store->bytes, store->length))
        return -ESTALE;
    item->content = hr__content_of_pair(
        hr__content_digest(pair.image.bytes, pair.image.length),
        pair.mask.bytes ? hr__content_digest(pair.mask.bytes, pair.mask.length) : 0);
    if (hr__host_key_is_exact(l->dataset, store->index))
        return 0;
    /* The scan keeps no stamps of containers; they were checked when they were opened. */
    int is_piece =
        is_of_containers(l->dataset) && (!l->dataset->masks || is_of_containers(l->dataset->masks));
    if ((seen || !is_piece) && (seen != hr__stamp_digest(&stamp) || hr__stamp_is_fresh(&stamp)))
        return -ESTALE;
    item->change = stamp.change;
    return 0;
}
