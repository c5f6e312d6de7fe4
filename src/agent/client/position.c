/* The position of a loader in the stream of an agent (see attached.h). */
#include "agent/client/attached.h"

uint64_t hr__attached_index(const struct hr__attached *a)
{
    return a->delivered * a->cut.batch_size + a->filled;
}

uint64_t hr__attached_position(const struct hr__attached *a)
{
    if (hr__attached_is_pushed(a))
        return a->cut.start + a->taken;
    return a->cut.start + hr__attached_index(a) * a->cut.ranks;
}

void hr__attached_begin(struct hr__attached *a, uint64_t epoch, uint64_t position)
{
    const struct hr_loader_options *o = &a->loader->options;
    int is_pushed = hr__attached_is_pushed(a);
    a->epoch = epoch;
    a->cut = (struct hr__cut){
        .samples = hr_dataset_count(a->loader->dataset),
        .start = position,
        .batch_size = (uint64_t)o->batch_size,
        .ranks = is_pushed ? 1 : (uint64_t)o->world_size,
        .rank = is_pushed ? 0 : (uint64_t)o->rank,
        .drop_last = o->drop_last,
    };
    uint64_t left = is_pushed ? 0 : a->cut.samples - position;
    a->batches = is_pushed ? UINT64_MAX : hr__cut_batches(&a->cut);
    a->first_number = position / (a->cut.batch_size * a->cut.ranks);
    a->samples = left / a->cut.ranks + (left % a->cut.ranks != 0);
    a->delivered = 0;
    a->filled = 0;
    a->asked = UINT64_MAX;
    a->is_known = 1;
}

void hr__attached_drop_partial(struct hr__attached *a)
{
    if (!a->partial)
        return;
    a->partial->next = NULL;
    hr__return_slots(a->partial);
    a->partial = NULL;
    a->filled = 0;
}

int hr__attached_is_pushed(const struct hr__attached *a)
{
    return a->loader->options.external_order != 0;
}
