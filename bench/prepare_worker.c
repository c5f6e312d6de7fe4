/*
 * Our side of bench/decode.py: a worker of bench/harness.py that prepares images in memory, on one
 * thread, through the public API.
 *
 *   prepare_worker LIST recipe FORM    runs the recipe on items of that form
 *   prepare_worker LIST first          does the same on files, and makes an indexed item of
 *                                      each in passing, in parts, as the loader does
 *   prepare_worker LIST full           the baseline: libjpeg-turbo's full decode,
 *                                      then a plain float resize of the crop
 *   prepare_worker LIST pixels FORM N  compares N random regions of each image with a
 *                                      full decode by libjpeg-turbo, cropped: prints
 *                                      how many pixels differ
 */
#include "float_pass.h"
#include "item_version.h"

#include <headrace/headrace.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <jpeglib.h>

enum { SIZE = 224, BATCH = 64 };

struct blob {
    unsigned char *bytes;
    size_t length;
};

/* The result of converting a set of images. */
struct conversion {
    double seconds;
    uint64_t bytes_before, bytes_after;
    size_t kept; /* images that stay encoded */
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

static enum hr_form form_of(const char *name)
{
    for (int form = HR_FORM_ENCODED; form < HR_FORMS; form++)
        if (!strcmp(name, hr_form_name((enum hr_form)form)))
            return (enum hr_form)form;
    die(name, "is no form");
}

/* Converts every image to a form, if possible. */
static struct conversion convert(struct blob *blobs, size_t n, enum hr_form form, int trust)
{
    struct conversion c = {0};
    struct hr_converter_options options;
    struct hr_converter *converter;
    struct hr_error error;
    hr_converter_options_default(&options);
    options.trust = trust;
    if (hr_converter_create(&converter, &options, &error))
        die("converter", error.message);
    for (size_t i = 0; i < n && form != HR_FORM_ENCODED; i++) {
        struct hr_item item;
        double start = seconds(CLOCK_MONOTONIC);
        int r = hr_converter_run(converter, form, blobs[i].bytes, blobs[i].length, &item, &error);
        c.seconds += seconds(CLOCK_MONOTONIC) - start;
        c.bytes_before += blobs[i].length;
        if (r == -ENOTSUP) {
            c.kept++;
            c.bytes_after += blobs[i].length;
            continue;
        }
        if (r)
            die("convert", error.message);
        unsigned char *copy = malloc(item.length + 64);
        if (!copy)
            die("convert", "out of memory");
        memcpy(copy, item.bytes, item.length);
        free(blobs[i].bytes);
        copy = item_in_version(copy, &item.length);
        blobs[i] = (struct blob){copy, item.length};
        c.bytes_after += item.length;
    }
    hr_converter_destroy(&converter);
    return c;
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

/* An image decoded by libjpeg-turbo. */
struct full {
    unsigned char *pixels; /* interleaved, `channels` bytes a pixel */
    size_t capacity;
    int width, height, channels;
};

/* Decodes the whole image with libjpeg-turbo, as RGB or RGBX. */
static void full_decode(const struct blob *b, J_COLOR_SPACE space, struct full *full)
{
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr e;
    d.err = jpeg_std_error(&e);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, b->bytes, b->length);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = space;
    jpeg_start_decompress(&d);
    full->width = (int)d.output_width;
    full->height = (int)d.output_height;
    full->channels = d.output_components;
    size_t row = d.output_width * (size_t)d.output_components, need = row * d.output_height;
    if (need > full->capacity) {
        full->pixels = realloc(full->pixels, need);
        full->capacity = need;
    }
    while (d.output_scanline < d.output_height) {
        JSAMPROW at = full->pixels + row * d.output_scanline;
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

/* Compares the pixels of the same images as files and as items. */
static void count_pixels(const struct blob *files, const struct blob *items, size_t n, int regions)
{
    struct hr_preparer *p;
    struct hr_error error;
    struct full full = {0};
    uint64_t compared = 0, differing = 0;
    if (hr_preparer_create(&p, &error))
        die("preparer", error.message);
    for (size_t i = 0; i < n; i++) {
        full_decode(&files[i], JCS_RGB, &full);
        size_t bytes = (size_t)full.width * (size_t)full.height * 3;
        unsigned char *part = malloc(bytes);
        for (int k = 0; k < regions; k++) {
            struct hr_region r = {0, 0, full.width, full.height};
            if (k) {
                r.width = 1 + below(full.width);
                r.height = 1 + below(full.height);
                r.x = below(full.width - r.width + 1);
                r.y = below(full.height - r.height + 1);
            }
            if (hr_preparer_decode(p, items[i].bytes, items[i].length, &r, part, bytes, &error))
                die("decode", error.message);
            for (int y = 0; y < r.height; y++) {
                const unsigned char *a = part + (size_t)y * (size_t)r.width * 3;
                const unsigned char *b =
                    full.pixels + ((size_t)(r.y + y) * (size_t)full.width + (size_t)r.x) * 3;
                for (int x = 0; x < r.width; x++)
                    differing += memcmp(a + x * 3, b + x * 3, 3) != 0;
            }
            compared += (uint64_t)r.width * (uint64_t)r.height;
        }
        free(part);
    }
    hr_preparer_destroy(&p);
    free(full.pixels);
    printf("{\"compared\": %llu, \"differing\": %llu, ", (unsigned long long)compared,
           (unsigned long long)differing);
}

struct prepare_worker_state {
    struct blob *blobs;
    size_t count;
    float *batch;
    struct hr_preparer *preparer;
    struct hr_recipe *recipe;
    struct full full;
    struct float_pass pass;
    uint64_t epoch;
    int making;    /* items of the form indexed */
    uint64_t made; /* their bytes */
};

static float *place(const struct prepare_worker_state *s, size_t i)
{
    return s->batch + i % BATCH * 3 * SIZE * SIZE;
}

static void recipe_pass(struct prepare_worker_state *s)
{
    struct hr_error error;
    struct hr_draw_key key = {.seed = 1, .epoch = s->epoch++};
    struct hr_item_part parts[HR_ITEM_PARTS];
    for (size_t i = 0; i < s->count; i++) {
        key.index = i;
        if (hr_preparer_run(s->preparer, s->recipe, s->blobs[i].bytes, s->blobs[i].length, &key,
                            place(s, i), &error))
            die("prepare", error.message);
        if (s->making && !hr_preparer_item_parts(s->preparer, parts))
            for (int k = 0; k < HR_ITEM_PARTS; k++)
                s->made += parts[k].length;
    }
}

/* Draws a random-resized crop as torchvision does: area 0.08..1, ratio 3/4..4/3. */
static void draw_crop(struct float_pass *p, int width, int height)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (0.08 + 0.92 * below(1 << 20) / (1 << 20)) * width * height;
        double ratio = exp(log(0.75) + log(16.0 / 9) * below(1 << 20) / (1 << 20));
        int w = (int)lround(sqrt(area * ratio)), h = (int)lround(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        p->crop_width = w;
        p->crop_height = h;
        p->crop_x = below(width - w + 1);
        p->crop_y = below(height - h + 1);
        return;
    }
    p->crop_x = p->crop_y = 0;
    p->crop_width = width;
    p->crop_height = height;
}

static void full_pass(struct prepare_worker_state *s)
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    s->pass.size = SIZE;
    memcpy(s->pass.mean, mean, sizeof mean);
    memcpy(s->pass.std, std, sizeof std);
    for (size_t i = 0; i < s->count; i++) {
        full_decode(&s->blobs[i], JCS_EXT_RGBX, &s->full);
        draw_crop(&s->pass, s->full.width, s->full.height);
        s->pass.flip = below(2);
        float_pass_run(&s->pass, s->full.pixels, (size_t)s->full.width * 4, place(s, i));
    }
}

/* Answers requests for passes over the samples until there are no more. */
static void serve(struct prepare_worker_state *s, void (*pass)(struct prepare_worker_state *s))
{
    char line[16];
    const size_t bytes = BATCH * 3 * SIZE * SIZE * sizeof(float);
    if (posix_memalign((void **)&s->batch, 1 << 21, bytes))
        die("batch", "out of memory");
    /* as the loader does with its batches, and NumPy with large arrays */
    (void)madvise(s->batch, bytes, MADV_HUGEPAGE);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && !strcmp(line, "pass\n")) {
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        pass(s);
        printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"samples\": %zu}\n",
               seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, s->count);
        fflush(stdout);
    }
}

static void print_conversion(const struct conversion *c, size_t count)
{
    printf("\"bytes_ratio\": %.5f, \"convert_ms\": %.5f, \"kept_encoded\": %zu",
           c->bytes_before ? (double)c->bytes_after / (double)c->bytes_before : 1.0,
           c->seconds * 1e3 / (double)count, c->kept);
}

int main(int argc, char **argv)
{
    static struct prepare_worker_state s;
    struct hr_error error;
    const char *mode = argc > 2 ? argv[2] : "";
    int first = !strcmp(mode, "first") && argc == 3;
    int recipe = first || (!strcmp(mode, "recipe") && argc == 4);
    int pixels = !strcmp(mode, "pixels") && argc == 5;
    if (!recipe && !pixels && (strcmp(mode, "full") || argc != 3)) {
        fprintf(stderr, "usage: prepare_worker LIST recipe FORM | LIST first | LIST full | "
                        "LIST pixels FORM N\n");
        return 2;
    }
    s.count = read_list(argv[1], &s.blobs);
    if (pixels) {
        struct blob *items = NULL;
        read_list(argv[1], &items);
        /* with `trust`: an item that the verification would refuse must show as differing pixels */
        struct conversion c = convert(items, s.count, form_of(argv[3]), 1);
        count_pixels(s.blobs, items, s.count, atoi(argv[4]));
        print_conversion(&c, s.count);
        printf("}\n");
        return 0;
    }
    if (!recipe) {
        printf("{\"name\": \"libjpeg-turbo full + float resize\", \"version\": \"%d\"}\n",
               LIBJPEG_TURBO_VERSION_NUMBER);
        serve(&s, full_pass);
        return 0;
    }
    const char *form = first ? hr_form_name(HR_FORM_ENCODED) : argv[3];
    struct conversion c = convert(s.blobs, s.count, form_of(form), 0);
    s.making = first;
    s.recipe = training_recipe();
    if (hr_preparer_create(&s.preparer, &error))
        die("preparer", error.message);
    hr_preparer_make_items(s.preparer, first ? HR_ITEMS_IN_PARTS : 0);
    printf("{\"name\": \"Headrace %s\", \"version\": \"%s\", \"isa\": \"%s\", ", form, hr_version(),
           hr_isa_name());
    print_conversion(&c, s.count);
    printf("}\n");
    serve(&s, recipe_pass);
    return 0;
}
