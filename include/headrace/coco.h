/* Datasets of images with boxes, from COCO's annotation files. */
#ifndef HEADRACE_COCO_H
#define HEADRACE_COCO_H

#include <headrace/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_coco_options {
    size_t size;             /* sizeof(struct hr_coco_options) */
    int contiguous_labels;   /* 0 (default): labels are the file's category ids, as in torchvision;
                                non-zero: they count the categories from 0, in the order of their
                                ids */
    int keypoints;           /* non-zero: add the column "keypoints" */
    int skip_crowds;         /* non-zero: leave annotations with iscrowd out */
    int skip_empty;          /* non-zero: leave images without annotations out */
    hr_progress_fn progress; /* may be NULL; counts bytes of the file */
    void *progress_arg;
};

/* Sets the defaults of a struct of `size` bytes, of any version. Meant for bindings
 * of other languages; C programs call the next function. */
HR_API void hr_coco_options_init(struct hr_coco_options *options, size_t size);

static inline void hr_coco_options_default(struct hr_coco_options *options)
{
    hr_coco_options_init(options, sizeof *options);
}

/*
 * Opens the images that a COCO file describes, below the folder `images`, in the order of their
 * ids, with these columns of rows (headrace/rows.h), a row for each annotation:
 *
 *     boxes      box, float32 {4}: x1, y1, x2, y2, as torchvision converts the file's bbox
 *     labels     int64: category ids, or numbers of categories
 *     area       float32; the box's area if the file has none
 *     iscrowd    int64: 0 or 1
 *     image_id   sample, int64
 *     keypoints  points, float32 {K, 3}: x, y, visibility; zeros for annotations without any
 *
 * Classes of the dataset are the file's categories: hr_dataset_class_name(label) is a category's
 * name, or "" for a label without one. With category ids above 65535 it has no classes. The file is
 * read as a stream: memory grows with the number of annotations, not with their segmentations,
 * which are skipped.
 *
 * Errors: those of open; -EBADMSG: no or damaged JSON, with the place; -EINVAL names the annotation
 * and its image: a bbox that is missing, inverted or not finite, ids that are texts or above 2^53,
 * that are given twice or that no image or category has, annotations without a bbox (such as
 * captions); -ENODATA: no image; -EFBIG: values nested more than 64 deep, texts above 4 KiB;
 * -ECANCELED; -ENOMEM. Missing image files are bad samples when they are read. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_coco(struct hr_dataset **out, const char *images,
                                             const char *annotations,
                                             const struct hr_coco_options *options,
                                             struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
