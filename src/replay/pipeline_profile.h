/*
 * Profiles of networks: for each layer its times and bytes at one or several sizes of a microbatch.
 * docs/pipelines.md describes the JSON.
 */
#ifndef HR_REPLAY_PIPELINE_PROFILE_H
#define HR_REPLAY_PIPELINE_PROFILE_H

#include <headrace/base.h>

#include <stddef.h>

#define HR__PROFILE_MOST_LAYERS 2048
#define HR__PROFILE_MOST_SIZES  64
#define HR__PROFILE_NAME_BYTES  96

/* One entry of the JSON: `repeat` equal layers one after another. Arrays have an element for each
 * size of a microbatch. */
struct hr__profile_layer {
    char name[HR__PROFILE_NAME_BYTES];
    int repeat;
    double weight_bytes;
    double update_s;      /* of its weights by the optimizer */
    double *forward_s;    /* of a microbatch */
    double *backward_s;   /* likewise, without recomputation */
    double *held_bytes;   /* kept from the forward to the backward pass */
    double *output_bytes; /* to all later layers: what a cut behind this layer sends */
};

struct hr__profile {
    char name[HR__PROFILE_NAME_BYTES];
    int size_count;
    double *sizes;       /* samples of a microbatch, rising */
    double *input_bytes; /* of the network's input, by size */
    int entry_count;
    struct hr__profile_layer *entries;
    int layer_count;
    int *layers; /* index of each layer's entry, in the order of the network */
};

/* Reads a profile from JSON; `where` names it in messages. On success the caller clears it. Errors:
 * -EINVAL: no JSON, or a value that is missing, zero or out of range, named; -ENOTSUP: another
 * version; -ENOMEM. */
HR_NODISCARD int hr__profile_read(struct hr__profile *out, const char *text, size_t length,
                                  const char *where, struct hr_error *error);
void hr__profile_clear(struct hr__profile *profile);

#endif
