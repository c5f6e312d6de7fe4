/*
 * A user's program, built against the installed library: opens an image folder and prepares one
 * sample. See tools/check_install.sh.
 */
#include <headrace/headrace.h>

#include <stdio.h>
#include <stdlib.h>

static int prepare_one(struct hr_dataset *dataset, struct hr_error *error)
{
    struct hr_preparer *preparer = NULL;
    struct hr_image_info info;
    char path[4096];
    static unsigned char bytes[1 << 20];
    if (hr_dataset_path(dataset, 0, path, sizeof path) >= sizeof path)
        return -1;
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    int rc = hr_preparer_create(&preparer, error);
    if (!rc)
        rc = hr_preparer_info(preparer, bytes, length, &info, error);
    if (!rc) {
        size_t size = (size_t)info.width * (size_t)info.height * 3;
        unsigned char *pixels = malloc(size);
        rc = pixels ? hr_preparer_decode(preparer, bytes, length, NULL, pixels, size, error) : -1;
        free(pixels);
    }
    hr_preparer_destroy(&preparer);
    return rc;
}

int main(int argc, char **argv)
{
    struct hr_dataset *dataset = NULL;
    struct hr_dataset_options options;
    struct hr_error error = {0, ""};
    if (argc != 2)
        return 2;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    int rc = hr_dataset_open(&dataset, argv[1], &options, &error);
    if (!rc)
        rc = prepare_one(dataset, &error);
    if (rc) {
        fprintf(stderr, "error %d: %s\n", rc, error.message);
        hr_dataset_unref(&dataset);
        return 3;
    }
    printf("headrace %s, %zu samples in %zu classes\n", hr_version(), hr_dataset_count(dataset),
           hr_dataset_class_count(dataset));
    hr_dataset_unref(&dataset);
    return 0;
}
