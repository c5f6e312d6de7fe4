/* Samples with masks: pairs of bytes, and stamps, digests and sizes of both files. */
#include "../dataset/tree.h"

#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/pair.h"
#include "dataset/stamp.h"

#include <headrace/masks.h>

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#define IMAGE_BYTES 100000
#define MASK_BYTES  300

/* A dataset of one image and its mask. */
static struct hr_dataset *open_pair(struct tree *t)
{
    char image[4096], mask[4096];
    const int64_t label = 0;
    struct hr_dataset *images, *masks, *d;
    tree_make(t);
    tree_file(t, "image", IMAGE_BYTES);
    tree_file(t, "mask", MASK_BYTES);
    snprintf(image, sizeof image, "%s", tree_path(t, "image"));
    snprintf(mask, sizeof mask, "%s", tree_path(t, "mask"));
    const char *const of_images[] = {image}, *const of_masks[] = {mask};
    assert_int_equal(hr_dataset_from_paths(&images, of_images, &label, 1, NULL), 0);
    assert_int_equal(hr_dataset_from_paths(&masks, of_masks, &label, 1, NULL), 0);
    assert_int_equal(hr_dataset_with_masks(&d, images, masks, NULL), 0);
    hr_dataset_unref(&images);
    hr_dataset_unref(&masks);
    return d;
}

static void what_is_joined_is_split(void **state)
{
    struct tree t;
    struct hr_dataset *d = open_pair(&t);
    const struct hr_item_part parts[3] = {{"im", 2}, {NULL, 0}, {"age", 3}}, mask = {"msk", 3};
    struct hr__pair pair;
    size_t length;
    uint8_t *bytes = hr__pair_join(parts, 3, &mask, &length);
    assert_int_equal(length, 8 + HR__PAIR_TAIL);
    assert_int_equal(hr__pair_split(&pair, d, bytes, length), 0);
    assert_int_equal(pair.image.length, 5);
    assert_memory_equal(pair.image.bytes, "image", 5);
    assert_int_equal(pair.mask.length, 3);
    assert_memory_equal(pair.mask.bytes, "msk", 3);
    for (size_t cut = 0; cut < length; cut++)
        assert_int_equal(hr__pair_split(&pair, d, bytes, cut), -EBADMSG);
    bytes[8] = 9; /* a mask of more bytes than there are */
    assert_int_equal(hr__pair_split(&pair, d, bytes, length), -EBADMSG);
    hr__free(bytes);
    bytes = hr__pair_join(parts, 3, &(struct hr_item_part){NULL, 0}, &length);
    assert_int_equal(length, 5);
    assert_int_equal(hr__pair_split(&pair, d->parent, bytes, length), 0);
    assert_int_equal(pair.image.length, 5);
    assert_null(pair.mask.bytes);
    hr__free(bytes);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

static void sizes_are_of_both(void **state)
{
    struct tree t;
    struct hr_dataset *d = open_pair(&t);
    const int64_t both = IMAGE_BYTES + MASK_BYTES + HR__PAIR_TAIL;
    assert_int_equal(hr__dataset_total_bytes(d), HR_SIZE_UNKNOWN);
    assert_int_equal(hr_dataset_wait_sizes(d), 0);
    assert_int_equal(hr__dataset_kept_bytes(d, 0), both);
    assert_int_equal(hr__dataset_total_bytes(d), both);
    assert_int_equal(hr_dataset_sample_bytes(d, 0), IMAGE_BYTES);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

static void a_stamp_is_of_both(void **state)
{
    struct tree t;
    struct hr_dataset *d = open_pair(&t);
    struct hr__stamp first, then, believed;
    uint64_t content, changed;
    assert_int_equal(hr_dataset_wait_sizes(d), 0);
    assert_int_equal(hr__stamp_now(&first, d, 0), 0);
    assert_int_equal(first.bytes, IMAGE_BYTES + MASK_BYTES + HR__PAIR_TAIL);
    assert_true(hr__stamp_believed(&believed, d, 0));
    assert_int_equal(hr__stamp_digest(&believed), hr__stamp_digest(&first));
    assert_int_equal(hr__content_look(&content, d, 0), 0);
    const char *const names[2] = {"mask", "image"};
    for (int i = 0; i < 2; i++) { /* the same length, other times: the files are not the same */
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000 + i}};
        assert_int_equal(utimensat(AT_FDCWD, tree_path(&t, names[i]), times, 0), 0);
        assert_int_equal(hr__stamp_now(&then, d, 0), 0);
        assert_int_not_equal(hr__stamp_digest(&then), hr__stamp_digest(&first));
        assert_int_equal(then.bytes, first.bytes);
        first = then;
    }
    FILE *f = fopen(tree_path(&t, "mask"), "r+b");
    assert_int_equal(fputc('y', f), 'y');
    assert_int_equal(fclose(f), 0);
    assert_int_equal(hr__content_look(&changed, d, 0), 0);
    assert_int_not_equal(changed, content);
    assert_int_equal(remove(tree_path(&t, "mask")), 0);
    assert_int_equal(hr__stamp_now(&then, d, 0), -ENOENT);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

static void a_content_is_that_of_the_bytes(void **state)
{
    struct tree t;
    struct hr_dataset *d = open_pair(&t);
    uint64_t content;
    void *image, *mask;
    size_t image_bytes, mask_bytes;
    assert_int_equal(hr_dataset_read(d, 0, &image, &image_bytes, NULL), 0);
    assert_int_equal(hr_dataset_read(d->masks, 0, &mask, &mask_bytes, NULL), 0);
    assert_int_equal(hr__content_look(&content, d, 0), 0);
    assert_int_equal(content, hr__content_of_pair(hr__content_digest(image, image_bytes),
                                                  hr__content_digest(mask, mask_bytes)));
    hr_bytes_free(image);
    hr_bytes_free(mask);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_joined_is_split),
        cmocka_unit_test(sizes_are_of_both),
        cmocka_unit_test(a_stamp_is_of_both),
        cmocka_unit_test(a_content_is_that_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
