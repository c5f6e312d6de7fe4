/* See private_entry.h. */
#include "cache/private_entry.h"

#include <string.h>

uint64_t hr__private_look(const struct hr_dataset *dataset, uint64_t index, struct hr__stamp *stamp)
{
    if (!dataset)
        return 1;
    return hr__stamp_now(stamp, dataset, index) ? 0 : hr__stamp_digest(stamp);
}

void hr__private_claim(struct hr__private_entry *entry, const struct hr_dataset *dataset,
                       uint64_t index, struct hr__cache_ticket *ticket)
{
    struct hr__stamp stamp;
    uint64_t seen = atomic_load_explicit(&entry->of, memory_order_relaxed);
    if (!seen && dataset)
        seen = hr__stamp_believed(&stamp, dataset, index)
                   ? hr__stamp_digest(&stamp)
                   : hr__private_look(dataset, index, &stamp);
    ticket->key[0] = seen;
}

int hr__private_take(struct hr__private_entry *entry, const struct hr_dataset *dataset,
                     const struct hr__cache_offer *given, uint64_t busy)
{
    struct hr__stamp stamp = {.bytes = 0};
    uint64_t none = 0, now = hr__private_look(dataset, given->index, &stamp);
    if (!atomic_compare_exchange_strong(&entry->word, &none, busy))
        return 0;
    atomic_store_explicit(&entry->of, now, memory_order_release);
    if (!dataset ||
        (now && given->ticket && now == given->ticket->key[0] && !hr__stamp_is_fresh(&stamp)))
        return 1;
    atomic_store(&entry->word, 0);
    return 0;
}

void hr__private_copy(uint8_t *to, const struct hr__cache_offer *given)
{
    if (!given->parts)
        memcpy(to, given->bytes, given->length);
    for (int i = 0; given->parts && i < HR_ITEM_PARTS; to += given->parts[i++].length)
        memcpy(to, given->parts[i].bytes, given->parts[i].length);
}
