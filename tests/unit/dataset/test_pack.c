/* Packs: the reader with hand-made files, valid and damaged in every way. */
#include "packs.h"

#include "dataset/list.h"

#include <headrace/masks.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

enum { SAMPLES = 9 };

struct pack_fixture {
    struct tree tree;
    struct hr_dataset *source;
    uint8_t *items[SAMPLES];
    size_t lengths[SAMPLES];
    struct pack_image image;
    char path[300];
};

static int setup(void **state)
{
    struct pack_fixture *f = calloc(1, sizeof *f);
    const char *paths[SAMPLES];
    int64_t labels[SAMPLES];
    char text[SAMPLES][40];
    tree_make(&f->tree);
    for (int i = 0; i < SAMPLES; i++) {
        f->lengths[i] = (size_t)i * 37 % 200;
        f->items[i] = malloc(f->lengths[i] + 1);
        memset(f->items[i], 'a' + i, f->lengths[i]);
        snprintf(text[i], sizeof text[i], i % 2 ? "/%d.jpg" : "../%d image.jpg", i);
        paths[i] = text[i];
        labels[i] = i * 1000000000000 - 5;
    }
    assert_int_equal(hr_dataset_from_paths(&f->source, paths, labels, SAMPLES, NULL), 0);
    pack_make(&f->image, f->source, (const uint8_t *const *)f->items, f->lengths, HR_FORM_ENCODED);
    snprintf(f->path, sizeof f->path, "%s/made.hrpack", f->tree.root);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct pack_fixture *f = *state;
    for (int i = 0; i < SAMPLES; i++)
        free(f->items[i]);
    free(f->image.bytes);
    hr_dataset_unref(&f->source);
    tree_remove(&f->tree);
    free(f);
    return hr__allocated(HR__TAG_DATASET) != 0;
}

static int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Writes the first `length` bytes of the image and opens that file. */
static int open_cut(struct pack_fixture *f, size_t length, struct hr_error *error)
{
    struct hr_dataset *d = NULL;
    struct hr_error unused = {0};
    pack_write(&f->image, length, f->path);
    int before = open_files();
    int r = hr__pack_dataset(&d, f->path, error ? error : &unused);
    assert_true(r ? !d : d != NULL);
    hr_dataset_unref(&d);
    assert_int_equal(open_files(), before);
    return r;
}

static int open_it(struct pack_fixture *f, struct hr_error *error)
{
    return open_cut(f, f->image.length, error);
}

static void refused(struct pack_fixture *f, int code, const char *words)
{
    struct hr_error error = {0};
    assert_int_equal(open_it(f, &error), code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" has no \"%s\"", error.message, words);
}

static void tells_what_the_source_does(void **state)
{
    struct pack_fixture *f = *state;
    struct hr_dataset *d, *subset;
    struct hr_error error;
    const int64_t picks[] = {7, 7, 0};
    pack_write(&f->image, f->image.length, f->path);
    int before = open_files();
    assert_int_equal(hr__pack_dataset(&d, f->path, &error), 0);
    assert_int_equal(open_files(), before + 1);
    assert_int_equal(hr_dataset_count(d), SAMPLES);
    assert_int_equal(hr_dataset_class_count(d), 0);
    assert_int_equal(unlink(f->path), 0); /* an open pack stays readable */
    assert_int_equal(hr_dataset_subset(&subset, d, picks, 3, NULL), 0);
    hr_dataset_unref(&d);
    d = subset;
    for (size_t i = 0; i < 3; i++) {
        size_t k = (size_t)picks[i];
        char key[100], expected[100], path[500], joined[500];
        uint8_t bytes[200];
        struct hr__range range;
        hr_dataset_key(d, i, key, sizeof key);
        hr_dataset_key(f->source, k, expected, sizeof expected);
        assert_string_equal(key, expected);
        hr_dataset_path(d, i, path, sizeof path);
        snprintf(joined, sizeof joined, "%s:%s", f->path, key);
        assert_string_equal(path, joined);
        assert_int_equal(hr_dataset_label(d, i), hr_dataset_label(f->source, k));
        assert_int_equal(hr_dataset_sample_bytes(d, i), f->lengths[k]);
        assert_int_equal(hr__dataset_range(d, i, 0, &range, &error), 1);
        assert_int_equal(range.bytes, f->lengths[k]);
        assert_int_equal(range.source_bytes, f->lengths[k]);
        assert_int_equal(range.form, HR_FORM_ENCODED);
        assert_true(range.fd >= 0);
        assert_true(fcntl(range.fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(pread(range.fd, bytes, range.bytes, (off_t)range.offset), range.bytes);
        assert_memory_equal(bytes, f->items[k], range.bytes);
        assert_true(hr__range_check(&range, bytes, range.bytes));
        assert_false(hr__range_check(&range, bytes, range.bytes + 1));
        if (range.bytes) {
            bytes[range.bytes / 2] ^= 1;
            assert_false(hr__range_check(&range, bytes, range.bytes));
        }
    }
    hr_dataset_unref(&d);
    assert_int_equal(open_files(), before);
}

static void folders_and_subsets_keep_their_order(void **state)
{
    struct pack_fixture *f = *state;
    struct hr_error error = {0};
    static const char class_name[] = "cat";
    /* a folder's catalog by hand: two classes, with a directory and a name in each */
    struct hr__catalog_shape shape = {
        .classes = 2, .directories = 2, .samples = 2, .arena_bytes = 64};
    struct hr__catalog *c;
    struct hr_dataset *folder, *subset, *d;
    assert_int_equal(hr__catalog_create(&c, &shape), 0);
    c->header->root = hr__catalog_text(c, "", 0);
    c->class_names[0] = c->directories[0].path = hr__catalog_text(c, class_name, 3);
    c->class_names[1] = hr__catalog_text(c, "dog", 3);
    c->directories[1] = (struct hr__catalog_directory){
        .path = hr__catalog_text(c, "dog/deep", 8), .label = 1, .first = 1, .count = 1};
    c->directories[0].count = 1;
    c->names[0] = hr__catalog_text(c, "a.jpg", 5);
    c->names[1] = hr__catalog_text(c, "b.jpg", 5);
    c->sample_directory[1] = 1;
    c->mtimes_ns[0] = 77;
    assert_int_equal(hr__dataset_create(&folder, c, "/root", "/root", NULL), 0);
    assert_int_equal(hr_dataset_subset(&subset, folder, (const int64_t[]){1, 0, 1}, 3, NULL), 0);
    struct pack_image image;
    const uint8_t *items[] = {(const uint8_t *)"x", (const uint8_t *)"yy", (const uint8_t *)"z"};
    pack_make(&image, subset, items, (const size_t[]){1, 2, 1}, HR_FORM_PLANES);
    pack_write(&image, image.length, f->path);
    assert_int_equal(hr__pack_dataset(&d, f->path, &error), 0);
    static const char *const keys[] = {"dog/deep/b.jpg", "cat/a.jpg", "dog/deep/b.jpg"};
    assert_int_equal(hr_dataset_class_count(d), 2);
    assert_string_equal(hr_dataset_class_name(d, 0), "cat");
    assert_string_equal(hr_dataset_class_name(d, 1), "dog");
    for (size_t i = 0; i < 3; i++) {
        char key[50];
        hr_dataset_key(d, i, key, sizeof key);
        assert_string_equal(key, keys[i]);
        assert_int_equal(hr_dataset_label(d, i), i != 1);
    }
    assert_int_equal(hr__dataset_mtime_ns(d, 1), 77);
    assert_string_equal(hr_dataset_root(d), "");
    assert_int_equal(hr_dataset_sample_bytes(d, 1), 2);
    hr_dataset_unref(&d);
    hr_dataset_unref(&subset);
    hr_dataset_unref(&folder);
    free(image.bytes);
}

static void every_byte_of_the_front_matters(void **state)
{
    struct pack_fixture *f = *state;
    size_t front = HR__PACK_SUPERBLOCK_BYTES + pack_catalog(&f->image)->bytes;
    assert_int_equal(open_it(f, NULL), 0);
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < front; i++) {
        struct hr__catalog *c = NULL;
        struct hr_error error = {0};
        uint8_t changed = f->image.bytes[i] ^ (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
        struct hr__byte_source source;
        assert_int_equal(hr__source_of_file(&source, "P", fd), 0);
        int r = hr__pack_read(&c, NULL, &source, &error);
        if (r != -EBADMSG && r != -ENOTSUP)
            fail_msg("a change of byte %zu gives %d", i, r);
        assert_null(c);
        assert_int_equal(error.code, r);
        assert_int_equal(error.message[0], 'P');
        assert_int_equal(pwrite(fd, &f->image.bytes[i], 1, (off_t)i), 1);
    }
    close(fd);
}

static void cut_anywhere(void **state)
{
    struct pack_fixture *f = *state;
    for (size_t length = 0; length < f->image.length; length += length < 100 ? 1 : 61)
        assert_int_equal(open_cut(f, length, NULL), -EBADMSG);
    assert_int_equal(open_cut(f, f->image.length - 1, NULL), -EBADMSG);
    assert_int_equal(open_it(f, NULL), 0);
}

static void states_and_versions(void **state)
{
    struct pack_fixture *f = *state;
    struct hr__pack_superblock *s = pack_super(&f->image);
    struct hr_dataset *d;
    struct hr_error error;
    s->state = HR__PACK_WRITING;
    pack_seal(&f->image);
    refused(f, -EINPROGRESS, "has not been finished: run the same `headrace pack` again");
    s->state = 3;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "what cannot be");
    s->state = HR__PACK_COMPLETE;
    s->version = HR__PACK_VERSION + 1;
    pack_seal(&f->image);
    refused(f, -ENOTSUP, "version 5");
    s->version = 4;
    s->masks = 1;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged"); /* an odd number of samples */
    s->masks = 2;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "what cannot be");
    s->version = 3;
    s->masks = 1; /* which are of version 4 */
    pack_seal(&f->image);
    refused(f, -EBADMSG, "what cannot be");
    s->masks = 0;
    s->version = 2;
    s->rows_bytes = 8; /* which are of version 3 */
    pack_seal(&f->image);
    refused(f, -EBADMSG, "what cannot be");
    s->rows_bytes = 0;
    /* of waveforms: none but rates that are decoded, and of nothing else */
    static const struct {
        int32_t form;
        uint32_t mono, rate;
    } heads[] = {{HR_FORM_WAVEFORM, 0, 1},        {HR_FORM_WAVEFORM, 1, 7999},
                 {HR_FORM_WAVEFORM16, 0, 192001}, {HR_FORM_WAVEFORM, 2, 0},
                 {HR_FORM_ENCODED, 0, 16000},     {HR_FORM_AUTO, 1, 0}};
    int32_t form = s->form;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        s->form = heads[i].form;
        s->mono = heads[i].mono;
        s->rate = heads[i].rate;
        pack_seal(&f->image);
        refused(f, -EBADMSG, "what cannot be");
    }
    s->form = form;
    s->mono = s->rate = 0;
    s->version = 1;
    s->byte_order = 0x04030201;
    pack_seal(&f->image);
    refused(f, -ENOTSUP, "another byte order");
    s->byte_order = 0x01020304;
    s->magic[0] = 'x';
    refused(f, -EBADMSG, "is not a pack");
    char partial[320];
    snprintf(partial, sizeof partial, "%s.partial", f->path);
    assert_int_equal(rename(f->path, partial), 0);
    assert_int_equal(hr__pack_dataset(&d, f->path, &error), -ENOENT);
    assert_non_null(strstr(error.message, "only the unfinished"));
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(hr__pack_dataset(&d, f->path, &error), -ESPIPE);
    assert_int_equal(hr__pack_dataset(&d, f->tree.root, &error), -EISDIR);
}

/* Catalogs with a correct checksum that place items where none can be. */
static void items_out_of_place(void **state)
{
    struct pack_fixture *f = *state;
    struct hr__catalog c;
    struct hr__catalog_range *r;
    uint64_t front = pack_super(&f->image)->items_offset;
    assert_int_equal(hr__catalog_map(&c, pack_catalog(&f->image), pack_catalog(&f->image)->bytes),
                     0);
    r = &c.ranges[4];
    const struct hr__catalog_range good = *r;
    int64_t size = c.sizes[4];
    static const struct {
        int64_t offset, size; /* to the end of the file */
        int code;
    } cases[] = {{-64, 64, 0},
                 {-64, 65, -EBADMSG},
                 {0, 0, 0},
                 {64, 0, -EBADMSG},
                 {-63, 5, -EBADMSG},
                 {-64, -1, -EBADMSG},
                 {-64, -2, -EBADMSG},
                 {INT64_MAX, 0, -EBADMSG},
                 {-64, INT64_MAX, -EBADMSG},
                 {INT64_MIN, 0, -EBADMSG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r->offset = f->image.length + (uint64_t)cases[i].offset;
        c.sizes[4] = cases[i].size;
        pack_seal(&f->image);
        if (open_it(f, NULL) != cases[i].code)
            fail_msg("case %zu", i);
    }
    *r = good;
    c.sizes[4] = size;
    for (uint64_t offset = 0; offset < front; offset += 64) {
        r->offset = offset;
        pack_seal(&f->image);
        assert_int_equal(open_it(f, NULL), -EBADMSG);
    }
    *r = good;
    r->container = 1;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
    *r = good;
    r->form = HR_FORMS;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
    *r = good;
    r->flags = 2;
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
    *r = good;
    r->flags = HR__RANGE_KEPT_MASK; /* no reason to keep an item has this number */
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
    *r = good;
    c.containers[0].path = c.names[0]; /* a file that the pack's author chose */
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
    c.containers[0].path = c.header->root;
    c.names[3] = c.header->root; /* an empty key */
    pack_seal(&f->image);
    refused(f, -EBADMSG, "catalog is damaged");
}

/* Returns the bytes that this program has read, except through mappings. */
static uint64_t bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *io = fopen("/proc/self/io", "re");
    assert_non_null(io);
    assert_int_equal(fscanf(io, "rchar: %llu", &bytes), 1);
    fclose(io);
    return bytes;
}

/* Many samples: opening reads the catalog but no item. */
static void opens_at_once(void **state)
{
    enum { MANY = 40000 };
    struct pack_fixture *f = *state;
    const char **paths = calloc(MANY, sizeof *paths);
    const uint8_t **items = calloc(MANY, sizeof *items);
    size_t *lengths = calloc(MANY, sizeof *lengths);
    char(*text)[40] = calloc(MANY, sizeof *text);
    struct hr_dataset *source, *d;
    struct pack_image image;
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], "n%08d/n%08d_%d.jpg", i / 1300, i / 1300, i);
        paths[i] = text[i];
        items[i] = f->items[i % SAMPLES];
        lengths[i] = f->lengths[i % SAMPLES];
    }
    assert_int_equal(hr_dataset_from_paths(&source, paths, NULL, MANY, NULL), 0);
    pack_make(&image, source, items, lengths, HR_FORM_ENCODED);
    pack_write(&image, image.length, f->path);
    struct hr__range range;
    uint8_t bytes[200];
    uint64_t before = bytes_read();
    assert_int_equal(hr__pack_dataset(&d, f->path, NULL), 0);
    assert_int_equal(hr__dataset_range(d, MANY / 2, 0, &range, NULL), 1);
    uint64_t read = bytes_read() - before;
    uint64_t catalog_bytes = pack_catalog(&image)->bytes;
    assert_true(image.length > catalog_bytes + (1 << 20));
    assert_true(read <= catalog_bytes + 16384);
    assert_int_equal(pread(range.fd, bytes, range.bytes, (off_t)range.offset), range.bytes);
    assert_memory_equal(bytes, items[MANY / 2], range.bytes);
    hr_dataset_unref(&d);
    hr_dataset_unref(&source);
    free(image.bytes);
    free(paths);
    free(items);
    free(lengths);
    free(text);
}

static void no_memory(void **state)
{
    struct pack_fixture *f = *state;
    int r = -1;
    pack_write(&f->image, f->image.length, f->path);
    for (int n = 1; r; n++) {
        struct hr_dataset *d = NULL;
        struct hr_error error;
        int before = open_files();
        uint64_t allocated = hr__allocated(HR__TAG_DATASET);
        hr__alloc_fail_at((uint64_t)n, 0);
        r = hr__pack_dataset(&d, f->path, &error);
        hr__alloc_fail_at(0, 0);
        if (r) {
            assert_int_equal(r, -ENOMEM);
            assert_null(d);
        }
        hr_dataset_unref(&d);
        assert_int_equal(open_files(), before);
        assert_int_equal(hr__allocated(HR__TAG_DATASET), allocated);
        assert_in_range(n, 1, 20);
    }
}

/* A pack whose samples are images and their masks in turn, also where memory runs out. */
static void images_with_masks(void **state)
{
    struct pack_fixture *f = *state;
    static const int64_t even[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct hr_dataset *part, *d = NULL;
    struct hr_error error;
    char key[50];
    assert_int_equal(hr_dataset_subset(&part, f->source, even, 8, NULL), 0);
    free(f->image.bytes);
    pack_make(&f->image, part, (const uint8_t *const *)f->items, f->lengths, HR_FORM_ENCODED);
    hr__pack_pair(pack_super(&f->image));
    hr_dataset_unref(&part);
    pack_write(&f->image, f->image.length, f->path);
    size_t allocated = hr__allocated(HR__TAG_DATASET);
    int r = -ENOMEM;
    for (int n = 1; r; n++) {
        hr__alloc_fail_at((uint64_t)n, 0);
        r = hr__pack_dataset(&d, f->path, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(!r || (r == -ENOMEM && !d && hr__allocated(HR__TAG_DATASET) == allocated));
    }
    const struct hr_dataset *masks = hr_dataset_masks(d);
    assert_int_equal(hr_dataset_count(d), 4);
    assert_int_equal(hr_dataset_count(masks), 4);
    hr_dataset_key(d, 3, key, sizeof key);
    assert_string_equal(key, "../6 image.jpg");
    hr_dataset_key(masks, 3, key, sizeof key);
    assert_string_equal(key, "/7.jpg");
    assert_int_equal(hr_dataset_label(d, 1), 2 * 1000000000000 - 5);
    assert_int_equal(hr_dataset_sample_bytes(masks, 1), f->lengths[3]);
    hr_dataset_unref(&d);
}

/* A small file that says it has gigabytes of rows, and is as long as that. */
static void rows_of_holes(void **state)
{
    struct pack_fixture *f = *state;
    struct hr__pack_superblock super;
    struct hr_dataset *d;
    struct hr_error error;
    hr__pack_begin(&super, pack_catalog(&f->image)->bytes, UINT64_C(8) << 30, HR_FORM_ENCODED, 0);
    super.state = HR__PACK_COMPLETE;
    super.bytes = super.items_offset;
    memcpy(f->image.bytes, &super, sizeof super);
    pack_seal(&f->image);
    pack_write(&f->image, HR__PACK_SUPERBLOCK_BYTES + super.catalog_bytes, f->path);
    if (truncate(f->path, (off_t)super.bytes))
        skip(); /* the file system has no files of that length */
    assert_int_equal(hr__pack_dataset(&d, f->path, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "a file with holes"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tells_what_the_source_does),
        TEST(folders_and_subsets_keep_their_order),
        TEST(every_byte_of_the_front_matters),
        TEST(cut_anywhere),
        TEST(states_and_versions),
        TEST(items_out_of_place),
        TEST(images_with_masks),
        TEST(rows_of_holes),
        TEST(opens_at_once),
        TEST(no_memory),
    };
    return cmocka_run_group_tests_name("dataset-pack", tests, NULL, NULL);
}
