/* Tar files of any bytes, with each way to name labels; see shard_index.h. */
#include "dataset/tar.h"

#include "shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct hr__shard_source names[] = {
        {.label = NULL}, {.label = "json:class_id"}, {.label = "none"}};
    struct shard_input file = shard_input_make(data, size);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        shard_input_index(&file, hr__tar_index, names[i], 1);
    close(file.fd);
    return 0;
}
