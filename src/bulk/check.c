/* A checker (check.h): a preparer, and memory for the decoded pixels, which are not used. */
#include "bulk/check.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"

#include <headrace/recipe.h>

#include <errno.h>

struct hr__checker {
    struct hr_preparer *preparer;
    uint64_t max_pixels;
    void *pixels;
    size_t capacity; /* of the pixel memory, in bytes */
};

int hr__checker_create(struct hr__checker **out, struct hr_error *error)
{
    struct hr_recipe_options limits;
    struct hr__checker *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    *out = NULL;
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    hr_recipe_options_default(&limits);
    c->max_pixels = limits.max_pixels;
    int r = hr_preparer_create(&c->preparer, error);
    if (r)
        hr__checker_destroy(&c);
    *out = c;
    return r;
}

void hr__checker_destroy(struct hr__checker **checker)
{
    struct hr__checker *c = *checker;
    *checker = NULL;
    if (!c)
        return;
    hr_preparer_destroy(&c->preparer);
    hr__free(c->pixels);
    hr__free(c);
}

int hr__checker_info(struct hr__checker *checker, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error)
{
    int r = hr_preparer_info(checker->preparer, bytes, length, info, error);
    return r ? r : hr__check_pixels(info, checker->max_pixels, error);
}

int hr__checker_decode(struct hr__checker *checker, const void *bytes, size_t length,
                       struct hr_error *error)
{
    struct hr__checker *c = checker;
    struct hr_image_info info;
    int r = hr__checker_info(c, bytes, length, &info, error);
    if (r)
        return r;
    size_t needed = (size_t)info.width * (size_t)info.height * 3;
    if (needed > c->capacity) {
        hr__free(c->pixels);
        c->capacity = 0;
        c->pixels = hr__alloc_aligned(HR__TAG_LOADER, needed, 0);
        if (!c->pixels)
            return hr__fail(error, -ENOMEM, "out of memory for %d x %d pixels", info.width,
                            info.height);
        c->capacity = needed;
    }
    return hr_preparer_decode(c->preparer, bytes, length, NULL, c->pixels, c->capacity, error);
}
