/* Checks a pack: its index, and the items against their checksums. Verifying works as for every
 * dataset: a sample with a wrong checksum is a bad one. */
#include "base/error.h"
#include "base/versioned.h"
#include "bulk/pack_file.h"
#include "dataset/dataset.h"
#include "dataset/names.h"
#include "dataset/pack.h"

#include <headrace/pack.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int hr_pack_inspect(const char *path, struct hr_pack_result *result, struct hr_error *error)
{
    struct hr__catalog *catalog = NULL;
    struct hr__pack_superblock super;
    struct hr_pack_result now = {0};
    struct hr__byte_source source;
    int r = hr__pack_open(&source, path, error);
    if (r)
        return r;
    r = hr__pack_read(&catalog, &super, &source, error);
    if (!r) {
        hr__pack_count(catalog, catalog->header->samples, &now);
        now.pack_bytes = super.bytes;
        now.rows_bytes = super.rows_bytes;
        now.masks = super.masks ? catalog->header->samples / 2 : 0;
        now.head = (struct hr_sound_head){super.mono != 0, (int)super.rate};
        const char *first =
            catalog->header->samples ? hr__catalog_at(catalog, catalog->names[0]) : "";
        now.media = hr__name_is_sound(first, strlen(first)) ? HR_MEDIA_SOUNDS : HR_MEDIA_IMAGES;
        hr__versioned_give(result, &now, sizeof now);
    }
    hr__catalog_destroy(&catalog);
    hr__source_close(&source);
    return r;
}

int hr_pack_verify(const char *path, int threads, hr_progress_fn progress, void *progress_arg,
                   struct hr_verify_report **out, struct hr_error *error)
{
    struct hr_dataset *dataset;
    *out = NULL;
    int r = hr_dataset_open_pack(&dataset, path, NULL, error);
    if (r)
        return r;
    r = hr_dataset_verify(dataset, threads, progress, progress_arg, out, error);
    hr_dataset_unref(&dataset);
    return r;
}
