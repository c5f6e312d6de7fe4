/*
 * The reader of packs. The first byte chooses what is corrected first, so that the checks after
 * each checksum are reached: 1 the superblock, 2 the header of the catalog, 4 the catalog's
 * checksum. Then follow the superblock's first bytes, without the zeros that fill it up, and the
 * rest of the file.
 */
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/pack.h"

#include <headrace/rows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SUPER_HEAD offsetof(struct hr__pack_superblock, reserved)

static void repair(char *bytes, size_t size, int what)
{
    struct hr__pack_superblock *s = (struct hr__pack_superblock *)bytes;
    struct hr__catalog_header *h = (struct hr__catalog_header *)(bytes + sizeof *s);
    if (size < sizeof *s + sizeof *h)
        return;
    if (what & 2) {
        memcpy(h->magic, HR__CATALOG_MAGIC, sizeof h->magic);
        h->version = HR__CATALOG_VERSION;
        h->byte_order = 0x01020304;
        h->flags = HR__CATALOG_SIZES | HR__CATALOG_LABELS | HR__CATALOG_RANGES;
        h->containers = h->directories = 1;
    }
    if (what & 1) {
        uint64_t catalog_bytes = h->bytes, rows_bytes = s->rows_bytes;
        hr__pack_begin(s, catalog_bytes < size ? catalog_bytes : size - sizeof *s,
                       rows_bytes < size ? rows_bytes : 0, 0, 0);
        s->state = HR__PACK_COMPLETE;
        s->bytes = size;
        hr__pack_seal(s);
    }
    if (what & 4 && h->bytes >= sizeof *h && h->bytes <= size - sizeof *s)
        h->checksum = hr__catalog_checksum(h);
}

/* Reads the rows of every sample. */
static void use_rows(struct hr_dataset *d)
{
    struct hr_column column;
    uint64_t sum = 0;
    for (size_t c = 0; c < hr_dataset_column_count(d); c++) {
        hr_dataset_column(d, c, &column);
        size_t bytes = hr_dtype_bytes(column.dtype), count;
        for (int i = 0; i < column.dims; i++)
            bytes *= (size_t)column.shape[i];
        for (size_t i = 0; i < hr_dataset_count(d); i++) {
            const unsigned char *values = hr_dataset_rows(d, i, c, &count);
            for (size_t b = 0; b < count * bytes; b++)
                sum += values[b];
            if (column.role != HR_COLUMN_SAMPLE && count > hr_dataset_most_rows(d))
                abort();
        }
    }
    if (sum == UINT64_MAX)
        abort();
}

/* Checks that everything a sample refers to is in the file. */
static void use(struct hr_dataset *d, size_t size)
{
    for (size_t i = 0; i < hr_dataset_count(d); i++) {
        struct hr__range range;
        char text[64];
        if (hr__dataset_range(d, i, 0, &range, NULL) != 1 || range.offset > size ||
            range.bytes > size - range.offset || range.offset % HR__PACK_ITEM_ALIGNMENT ||
            range.offset < HR__PACK_SUPERBLOCK_BYTES || range.form >= HR_FORMS)
            abort();
        if (!hr_dataset_key(d, i, text, sizeof text) ||
            hr_dataset_path(d, i, text, sizeof text) < sizeof "/proc/self/fd/")
            abort();
        hr_dataset_label(d, i);
    }
    for (size_t i = 0; i < hr_dataset_class_count(d); i++)
        if (strlen(hr_dataset_class_name(d, i)) >= size)
            abort();
    use_rows(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_dataset *d;
    char path[64];
    if (size < 1)
        return 0;
    int what = *data++;
    size--;
    size_t head = size < SUPER_HEAD ? size : SUPER_HEAD, rest = size - head;
    size = rest ? HR__PACK_SUPERBLOCK_BYTES + rest : head;
    char *bytes = calloc(size ? size : 1, 1);
    int fd = memfd_create("pack", MFD_CLOEXEC);
    if (!bytes || fd < 0)
        abort();
    memcpy(bytes, data, head);
    if (rest)
        memcpy(bytes + HR__PACK_SUPERBLOCK_BYTES, data + head, rest);
    repair(bytes, size, what);
    if (write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!hr__pack_dataset(&d, path, NULL)) {
        use(d, size);
        hr_dataset_unref(&d);
    }
    close(fd);
    free(bytes);
    return 0;
}
