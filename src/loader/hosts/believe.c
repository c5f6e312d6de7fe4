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
#include "base/error.h"
#include "dataset/pair.h"
#include "loader/hosts/inside.h"

#include <errno.h>

/* Returns non-zero if the sample is an object of a list, whose stamp its read or its item tells.
 * One item does not tell those of an image and a mask. */
static int is_learned(const struct hr_loader *l, uint64_t index)
{
    return !l->dataset->masks && hr__dataset_is_unlisted(l->dataset, index);
}

void hr__hosting_learn(struct hr_loader *l, const struct hr__job *job, uint64_t index)
{
    const struct hr__read *read = &job->sample.read;
    char name[256];
    if (!is_learned(l, index) || hr__sample_learn(&job->sample, l->dataset, index) ||
        read->version || atomic_exchange(&l->hosting->is_warned, 1))
        return;
    hr__printable(name, sizeof name, read->path ? read->path : "an object");
    hr__log(
        HR_LOG_WARNING,
        "%s is not kept on hosts, nor are others like it, and each epoch asks for them again: "
        "its server sends no strong ETag, so nothing tells whether an object has changed. Use a "
        "bucket, a pack, or a server that sends ETags",
        name);
}

enum hr__asking hr__hosting_look(const struct hr_loader *l, const struct hr__cluster *cluster,
                                 uint64_t index, struct hr__stamp *stamp,
                                 struct hr__peer_item *item)
{
    int is_exact = hr__host_key_is_exact(l->dataset, index);
    *stamp = (struct hr__stamp){.bytes = 0};
    *item = (struct hr__peer_item){.bytes = NULL};
    int r = is_exact ? 0 : hr__stamp_now(stamp, l->dataset, index);
    if (r == -ENODATA && is_learned(l, index))
        *stamp = (struct hr__stamp){.bytes = 0}; /* the item tells the stamp */
    else if (r)
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
    /* the first of the run to read it told its version, which holds from then on */
    if (is_learned(l, index) && !stamp->change) {
        (void)hr__dataset_learn(l->dataset, index, (int64_t)item->source_bytes, item->change);
        return hr__dataset_change(l->dataset, index) == item->change;
    }
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
