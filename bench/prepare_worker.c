/*
 * Our side of bench/decode.py: a worker of bench/harness.py that runs a recipe
 * on encoded images in memory, on one thread, through the public API.
 *
 *   prepare_worker LIST recipe   decode the region and run the recipe
 *   prepare_worker LIST pixels N N random regions of each image against a full
 *                                decode by libjpeg-turbo, cropped: prints how
 *                                many pixels differ
 */
#include <headrace/headrace.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { SIZE = 224, BATCH = 64 };

struct blob {
    unsigned char *bytes;
    size_t length;
};

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void die(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(3);
}

static struct blob read_blob(const char *path)
{
    struct blob b = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die(path, strerror(errno));
    long n = ftell(f);
    rewind(f);
    b.bytes = malloc((size_t)n + 64);
    b.length = (size_t)n;
    if (!b.bytes || fread(b.bytes, 1, b.length, f) != b.length)
        die(path, "cannot be read");
    fclose(f);
    return b;
}

static size_t read_list(const char *list, struct blob **out)
{
    FILE *f = fopen(list, "r");
    char path[4096];
    size_t n = 0;
    if (!f)
        die(list, strerror(errno));
    while (fgets(path, sizeof path, f)) {
        path[strcspn(path, "\n")] = 0;
        *out = realloc(*out, (n + 1) * sizeof **out);
        if (!*out)
            die(list, "out of memory");
        (*out)[n++] = read_blob(path);
    }
    fclose(f);
    return n;
}

static struct hr_recipe *training_recipe(void)
{
    struct hr_operation ops[4];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&ops[0], HR_RANDOM_RESIZED_CROP);
    ops[0].u.random_resized_crop.height = ops[0].u.random_resized_crop.width = SIZE;
    hr_operation_default(&ops[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&ops[2], HR_TO_DTYPE);
    ops[2].u.to_dtype.dtype = HR_FLOAT32;
    ops[2].u.to_dtype.scale = 1;
    hr_operation_default(&ops[3], HR_NORMALIZE);
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    memcpy(ops[3].u.normalize.mean, mean, sizeof mean);
    memcpy(ops[3].u.normalize.std, std, sizeof std);
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    if (hr_recipe_create(&recipe, ops, 4, &options, &error))
        die("recipe", error.message);
    return recipe;
}

/* The whole image by libjpeg-turbo as interleaved RGB. */
static void full_decode(const struct blob *b, unsigned char **rgb, size_t *capacity, int *width,
                        int *height)
{
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr e;
    d.err = jpeg_std_error(&e);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, b->bytes, b->length);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    *width = (int)d.output_width;
    *height = (int)d.output_height;
    size_t row = (size_t)*width * 3, need = row * (size_t)*height;
    if (need > *capacity) {
        *rgb = realloc(*rgb, need);
        *capacity = need;
    }
    while (d.output_scanline < d.output_height) {
        JSAMPROW at = *rgb + row * d.output_scanline;
        jpeg_read_scanlines(&d, &at, 1);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
}

static uint64_t random_state = 88172645463325252u;
static int below(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)n);
}

static void count_pixels(const struct blob *blobs, size_t n, int regions)
{
    struct hr_preparer *p;
    struct hr_error error;
    unsigned char *full = NULL;
    size_t capacity = 0;
    uint64_t compared = 0, differing = 0;
    if (hr_preparer_create(&p, &error))
        die("preparer", error.message);
    for (size_t i = 0; i < n; i++) {
        int width, height;
        full_decode(&blobs[i], &full, &capacity, &width, &height);
        unsigned char *part = malloc((size_t)width * (size_t)height * 3);
        for (int k = 0; k < regions; k++) {
            struct hr_region r = {0, 0, width, height};
            if (k) {
                r.width = 1 + below(width);
                r.height = 1 + below(height);
                r.x = below(width - r.width + 1);
                r.y = below(height - r.height + 1);
            }
            if (hr_preparer_decode(p, blobs[i].bytes, blobs[i].length, &r, part,
                                   (size_t)width * (size_t)height * 3, &error))
                die("decode", error.message);
            for (int y = 0; y < r.height; y++) {
                const unsigned char *a = part + (size_t)y * (size_t)r.width * 3;
                const unsigned char *b =
                    full + ((size_t)(r.y + y) * (size_t)width + (size_t)r.x) * 3;
                for (int x = 0; x < r.width; x++)
                    differing += memcmp(a + x * 3, b + x * 3, 3) != 0;
            }
            compared += (uint64_t)r.width * (uint64_t)r.height;
        }
        free(part);
    }
    hr_preparer_destroy(&p);
    free(full);
    printf("{\"compared\": %llu, \"differing\": %llu}\n", (unsigned long long)compared,
           (unsigned long long)differing);
}

struct state {
    struct blob *blobs;
    size_t count;
    float *batch;
    struct hr_preparer *preparer;
    struct hr_recipe *recipe;
    uint64_t epoch;
};

static void recipe_pass(struct state *s)
{
    struct hr_error error;
    struct hr_draw_key key = {.seed = 1, .epoch = s->epoch++};
    for (size_t i = 0; i < s->count; i++) {
        key.index = i;
        if (hr_preparer_run(s->preparer, s->recipe, s->blobs[i].bytes, s->blobs[i].length, &key,
                            s->batch + i % BATCH * 3 * SIZE * SIZE, &error))
            die("prepare", error.message);
    }
}

int main(int argc, char **argv)
{
    static struct state s;
    char line[16];
    if (argc < 3 || (strcmp(argv[2], "recipe") && (strcmp(argv[2], "pixels") || argc != 4))) {
        fprintf(stderr, "usage: prepare_worker LIST recipe | prepare_worker LIST pixels N\n");
        return 2;
    }
    s.count = read_list(argv[1], &s.blobs);
    if (!strcmp(argv[2], "pixels")) {
        count_pixels(s.blobs, s.count, atoi(argv[3]));
        return 0;
    }
    struct hr_error error;
    s.recipe = training_recipe();
    if (hr_preparer_create(&s.preparer, &error))
        die("preparer", error.message);
    if (posix_memalign((void **)&s.batch, 4096, BATCH * 3 * SIZE * SIZE * sizeof(float)))
        die("batch", "out of memory");
    printf("{\"name\": \"Headrace\", \"version\": \"%s\", \"isa\": \"%s\"}\n", hr_version(),
           hr_isa_name());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && !strcmp(line, "pass\n")) {
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        recipe_pass(&s);
        printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"samples\": %zu}\n",
               seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, s.count);
        fflush(stdout);
    }
    return 0;
}
