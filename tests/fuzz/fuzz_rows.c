/*
 * Blocks of rows, as packs and jobs of an agent bring them. The first byte chooses what is
 * corrected first, so that the checks after it are reached: 1 the beginning, 2 the length, 4 the
 * checksum. The second byte is the number of samples that the dataset has.
 */
#include "base/memory.h"
#include "dataset/row_block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD_BYTES 48

/* Writes the numbers of a block's head; see row_block.c. */
static void repair(char *block, size_t size, int what, uint64_t samples)
{
    const uint32_t order = 0x01020304;
    const uint64_t bytes = size;
    if (size < HEAD_BYTES)
        return;
    if (what & 1) {
        memcpy(block, "HRROWS1\n", 8);
        memcpy(block + 8, &order, sizeof order);
        memcpy(block + 16, &samples, sizeof samples);
    }
    if (what & 2)
        memcpy(block + 32, &bytes, sizeof bytes);
    if (what & 4) {
        uint64_t checksum = XXH3_64bits(block + HEAD_BYTES, size - HEAD_BYTES);
        memcpy(block + 40, &checksum, sizeof checksum);
    }
}

/* What was read can be written, and is the same again. */
static void check(struct hr__row_table *table, size_t size, uint64_t samples)
{
    struct hr_dataset *plain, *with;
    const char **paths = calloc(samples + 1, sizeof *paths);
    void *again;
    uint64_t bytes;
    for (uint64_t i = 0; i < samples; i++)
        paths[i] = "x";
    if (!paths || hr_dataset_from_paths(&plain, paths, NULL, samples, NULL) ||
        hr__dataset_create_alike(&with, plain, table, NULL) ||
        hr__row_block_make(&again, &bytes, with, NULL))
        abort();
    if (bytes != size)
        abort();
    struct hr__row_table *same;
    if (hr__row_block_read(&same, again, bytes, samples, NULL))
        abort();
    hr__row_table_unref(&same);
    hr__free(again);
    hr_dataset_unref(&with);
    hr_dataset_unref(&plain);
    free(paths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_error error = {0};
    struct hr__row_table *table;
    if (size < 2)
        return 0;
    uint64_t samples = data[1];
    char *block = malloc(size - 2 ? size - 2 : 1);
    if (!block)
        abort();
    memcpy(block, data + 2, size - 2);
    repair(block, size - 2, data[0], samples);
    int r = hr__row_block_read(&table, block, size - 2, samples, &error);
    if (r ? table != NULL || !error.message[0] || error.code != r ||
                (r != -EBADMSG && r != -ENOTSUP && r != -ENOMEM)
          : table == NULL)
        abort();
    if (!r)
        check(table, size - 2, samples);
    hr__row_table_unref(&table);
    free(block);
    return 0;
}
