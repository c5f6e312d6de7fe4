/* The reader of COCO's annotations: any bytes give a dataset or an error. */
#include "dataset/coco.h"

#include <headrace/rows.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__json_reader *stream;
    struct hr_dataset *d;
    struct hr_error error;
    struct hr_coco_options options;
    size_t n, rows = 0;
    hr_coco_options_default(&options);
    if (size) {
        options.contiguous_labels = data[0] & 1;
        options.keypoints = data[0] >> 1 & 1;
        options.skip_crowds = data[0] >> 2 & 1;
        options.skip_empty = data[0] >> 3 & 1;
        data++;
        size--;
    }
    /* an exact copy: the parser must not read past the end */
    char *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (!hr__json_reader_of(&stream, text, size, "fuzz", &error)) {
        if (!hr__dataset_of_coco(&d, "root", stream, &options, &error)) {
            for (size_t i = 0; i < hr_dataset_count(d); i++) {
                const float *box = hr_dataset_rows(d, i, 0, &n);
                for (size_t k = 0; k < n; k++)
                    if (!(box[4 * k] <= box[4 * k + 2] && box[4 * k + 1] <= box[4 * k + 3]))
                        abort();
                rows += n;
            }
            if (options.skip_empty && rows < hr_dataset_count(d))
                abort();
            hr_dataset_unref(&d);
        }
        hr__json_reader_close(&stream);
    }
    free(text);
    return 0;
}
