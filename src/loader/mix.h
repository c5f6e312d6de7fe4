/*
 * MixUp and CutMix: mix each sample of a complete batch with the one before it.
 */
#ifndef HR_LOADER_MIX_H
#define HR_LOADER_MIX_H

#include "loader/inside.h"

/* Refuses mixing options that are wrong, or that do not suit the loader's samples. Errors:
 * -EINVAL. */
int hr__mix_check(const struct hr_loader *l, struct hr_error *error);

static inline int hr__mix_is_on(const struct hr_loader_options *options)
{
    return options->mixup_alpha > 0 || options->cutmix_alpha > 0;
}

/* How to mix a batch: a pure function of seed, epoch and the position of its first sample. */
struct hr__mix {
    double own;         /* share of a sample's own label; 1: the batch is not mixed */
    int is_cut;         /* CutMix: the box comes from the sample before */
    int x1, y1, x2, y2; /* the box, in pixels */
};

void hr__mix_draw(const struct hr_loader_options *options, const struct hr_tensor_spec *spec,
                  uint64_t seed, uint64_t epoch, uint64_t position, struct hr__mix *mix);

/* Mixes `count` samples in place. The sample before the first is the last. */
void hr__mix_images(const struct hr__mix *mix, const struct hr_tensor_spec *spec, void *images,
                    size_t count);

/* Draws for the batch, mixes its images, and notes the share. All its samples are done, and no
 * other thread uses it. */
void hr__mix_batch(const struct hr_loader *l, struct hr_batch *batch);

#endif
