/*
 * Tags equal the published test vectors. Key files that others can read are refused. With a key
 * file, items that others put into a segment or on a server are not used.
 */
#include "../test.h"

#include "cache/secret.h"
#include "cluster/peer_item.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char place[64], logged[4096];

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", message);
}

static int set_up(void **state)
{
    strcpy(place, "/dev/shm/headrace-secret-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    setenv("HEADRACE_SHM", place, 1);
    hr_log_set(log_line, NULL);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    return system(command);
}

static uint64_t tag_of(const struct hr__secret *secret, const uint8_t *bytes, size_t length,
                       size_t step)
{
    struct hr__mac mac;
    hr__mac_begin(&mac, secret);
    for (size_t at = 0; at < length; at += step)
        hr__mac_add(&mac, bytes + at, length - at < step ? length - at : step);
    return hr__mac_end(&mac);
}

/* Of the paper's appendix A (15 bytes), and of the reference implementation's table. */
static void test_vectors(void **state)
{
    static const uint64_t known[] = {
        UINT64_C(0x726fdb47dd0e0e31), UINT64_C(0x74f839c593dc67fd), UINT64_C(0x0d6c8009d9a94f5a),
        UINT64_C(0x85676696d7fb7e2d), UINT64_C(0xcf2794e0277187b7), UINT64_C(0x18765564cd99a68d),
        UINT64_C(0xcbc9466e58fee3ce), UINT64_C(0xab0200f58b01d137), UINT64_C(0x93f5f5799a932462),
    };
    struct hr__secret secret = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}, 1};
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    for (size_t length = 0; length < sizeof known / sizeof *known; length++)
        assert_true(tag_of(&secret, bytes, length, 100) == known[length]);
    assert_true(tag_of(&secret, bytes, 15, 100) == UINT64_C(0xa129ca6149be45e5));
    /* In pieces of any size. */
    for (size_t step = 1; step < 40; step++)
        for (size_t length = 0; length < sizeof bytes; length += 7)
            assert_true(tag_of(&secret, bytes, length, step) ==
                        tag_of(&secret, bytes, length, sizeof bytes));
}

static void write_key(char path[128], const char *name, size_t bytes, mode_t mode)
{
    snprintf(path, 128, "%s/%s", place, name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(write(fd, i % 2 ? name : "k", 1), 1);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void refused(const char *path, int code, const char *expected)
{
    struct hr__secret secret;
    struct hr_error error;
    assert_int_equal(hr__secret_read(&secret, path, &error), code);
    assert_false(secret.is_set);
    if (!strstr(error.message, expected) || !strstr(error.message, path))
        fail_msg("%s", error.message);
}

static void test_files(void **state)
{
    char path[128], link[128];
    struct hr__secret a, b;
    write_key(path, "a", 16, 0600);
    assert_int_equal(hr__secret_read(&a, path, NULL), 0);
    assert_true(a.is_set && hr__secret_mark(&a));
    write_key(path, "a", 17, 0400);
    assert_int_equal(hr__secret_read(&b, path, NULL), 0);
    assert_true(hr__secret_mark(&a) != hr__secret_mark(&b));
    assert_int_equal(hr__secret_read(&b, "", NULL), 0);
    assert_false(b.is_set);
    assert_true(!hr__secret_mark(&b));
    write_key(path, "short", 15, 0600);
    refused(path, -EINVAL, "16 bytes or more");
    static const mode_t open_modes[] = {0640, 0604, 0660, 0601};
    for (int i = 0; i < 4; i++) {
        write_key(path, "open", 32, open_modes[i]);
        refused(path, -EACCES, "chmod 600");
    }
    if (!geteuid()) {
        write_key(path, "other", 32, 0600);
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(seteuid(65533), 0);
        struct hr_error error;
        int r = hr__secret_read(&b, path, &error);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(r, -EACCES);
    }
    refused(place, -EINVAL, "is no file");
    snprintf(link, sizeof link, "%s/none", place);
    refused(link, -ENOENT, "cannot open");
}

/* An item made without the secret, or put under another key, is refused. */
static void test_server_items(void **state)
{
    static uint8_t bytes[1000 + HR__PEER_TRAILER];
    const struct hr__secret ours = {{1, 2}, 1}, theirs = {{1, 3}, 1}, none = {.is_set = 0};
    const struct hr__secret *all[] = {&ours, &theirs, &none};
    const struct hr__peer_trailer trailer = {.length = 1000, .source_bytes = 1000, .content = 5};
    const uint64_t key[2] = {7, 8}, other[2] = {7, 9};
    struct hr__peer_trailer found;
    for (int made = 0; made < 3; made++)
        for (int read = 0; read < 3; read++) {
            hr__peer_item_seal(bytes + 1000, &trailer, key, bytes, all[made]);
            int r = hr__peer_item_check(&found, key, bytes, sizeof bytes, all[read]);
            assert_int_equal(r, made == read ? 0 : -EBADMSG);
            assert_int_equal(hr__peer_item_check(&found, other, bytes, sizeof bytes, all[read]),
                             -EBADMSG);
        }
    hr__peer_item_seal(bytes + 1000, &trailer, key, bytes, &ours);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 4;
        assert_int_equal(hr__peer_item_check(&found, key, bytes, sizeof bytes, &ours), -EBADMSG);
        bytes[i] ^= 4;
    }
}

static struct hr_cache *open_with(const char *key_file)
{
    char spec[256];
    struct hr_cache *cache;
    struct hr_error error;
    struct hr_cache_options options;
    snprintf(spec, sizeof spec, "shm:secret?size=24MiB&share=0.3%s%s",
             *key_file ? "&key_file=" : "", key_file);
    hr_cache_options_default(&options);
    options.spec = spec;
    options.identity = "numbers";
    options.items = 100;
    if (hr_cache_open(&cache, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

static void put(struct hr_cache *cache, int key, const char *text)
{
    const struct hr_cache_piece pieces[2] = {{text, 3}, {text + 3, strlen(text) - 3}};
    assert_int_equal(hr_cache_put(cache, &key, sizeof key, pieces, 2), 1);
}

static int holds(struct hr_cache *cache, int key, const char *text)
{
    struct hr_cache_value value;
    if (!hr_cache_get(cache, &key, sizeof key, 0, &value))
        return 0;
    int same = value.length == strlen(text) && !memcmp(value.bytes, text, value.length);
    assert_true(same);
    hr_cache_value_clear(&value);
    return 1;
}

/* Overwrites a text wherever it is in the segments. */
static void scribble(const char *text, const char *over)
{
    char command[400];
    snprintf(command, sizeof command,
             "python3 -c \"import glob,mmap,sys\n"
             "for p in glob.glob('%s/*/secret.*'):\n"
             "  with open(p,'r+b') as f, mmap.mmap(f.fileno(),0) as m:\n"
             "    at=m.find(b'%s')\n"
             "    if at>=0: m[at:at+%zu]=b'%s'\"",
             place, text, strlen(text), over);
    assert_int_equal(system(command), 0);
}

/* Returns how often users of a segment found an item with a wrong tag. */
static uint64_t foreign(struct hr_cache *cache)
{
    struct hr_cache_info info = {.size = sizeof info};
    hr_cache_get_info(cache, &info);
    return info.foreign;
}

static void test_segments(void **state)
{
    char path[128], second[128];
    write_key(path, "one", 32, 0600);
    write_key(second, "two", 32, 0600);
    struct hr_cache *cache = open_with(path), *other = open_with(second), *plain = open_with("");
    put(cache, 1, "the first value");
    put(cache, 2, "another value!!");
    put(plain, 1, "a plain value..");
    assert_true(holds(cache, 1, "the first value"));
    /* Users with another key file have segments of their own. */
    assert_false(holds(other, 1, ""));
    assert_true(holds(plain, 1, "a plain value.."));
    hr_cache_close(&other);
    hr_cache_close(&plain);
    hr_cache_close(&cache);
    cache = open_with(path);
    assert_true(holds(cache, 1, "the first value") && holds(cache, 2, "another value!!"));
    *logged = 0;
    scribble("the first value", "THE FIRST VALUE");
    for (int i = 0; i < 3; i++)
        assert_false(holds(cache, 1, ""));
    assert_non_null(strstr(logged, "was not made with this key file"));
    assert_null(strstr(strstr(logged, "not made with") + 1, "not made with"));
    const uint64_t met = foreign(cache);
    assert_true(met >= 3);
    /* The other items are unaffected. */
    assert_true(holds(cache, 2, "another value!!"));
    hr_cache_close(&cache);
    /* The count stays after the users that found them have left. */
    cache = open_with(path);
    assert_int_equal(foreign(cache), met);
    hr_cache_close(&cache);
    assert_int_equal(hr_cache_drop("secret", NULL, 0, NULL, NULL, NULL), 0);
}

/* No message contains anything from the file. */
static void test_texts(void **state)
{
    struct hr_cache *cache = NULL;
    struct hr_error error;
    struct hr_cache_options options;
    static const char *const bad[] = {
        "shm:x?size=1MiB&key_file=",
        "shm:x?size=1MiB&key_file=a&key_file=b",
        "shm:x?size=1MiB&key_file=nowhere.key",
    };
    hr_cache_options_default(&options);
    options.identity = "x";
    options.items = 1;
    for (int i = 0; i < 3; i++) {
        options.spec = bad[i];
        int r = hr_cache_open(&cache, &options, &error);
        assert_int_equal(r, i < 2 ? -EINVAL : -ENOENT);
        assert_non_null(strstr(error.message, "key_file"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_files),
        cmocka_unit_test(test_server_items), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
