/* URLs of objects: what is taken, what is refused and why, and that no secret gets into a message.
 */
#include "../test.h"
#include "storage/url.h"

#include <errno.h>
#include <string.h>

static void takes(const char *text, enum hr__url_scheme scheme, const char *host, const char *path)
{
    struct hr__url url;
    struct hr_error error = {0};
    if (hr__url_parse(&url, text, &error))
        fail_msg("%s: %s", text, error.message);
    assert_int_equal(url.scheme, scheme);
    assert_int_equal(url.host_length, strlen(host));
    assert_memory_equal(url.host, host, strlen(host));
    assert_string_equal(url.path, path);
}

static void refuses(const char *text, const char *because)
{
    struct hr__url url;
    struct hr_error error = {0};
    assert_int_equal(hr__url_parse(&url, text, &error), -EINVAL);
    if (!strstr(error.message, because))
        fail_msg("%s: the message does not say \"%s\": %s", text, because, error.message);
    if (strstr(error.message, "geheim"))
        fail_msg("a secret in %s", error.message);
}

static void test_taken(void **state)
{
    takes("s3://bucket", HR__URL_S3, "bucket", "");
    takes("s3://bucket/", HR__URL_S3, "bucket", "");
    takes("s3://my.bucket-1/a/b c?d#e=f@g", HR__URL_S3, "my.bucket-1", "a/b c?d#e=f@g");
    takes("S3://bucket/a", HR__URL_S3, "bucket", "a");
    takes("gs://bucket//a", HR__URL_GS, "bucket", "/a");
    takes("https://host.example/a/b.tar", HR__URL_HTTPS, "host.example", "a/b.tar");
    takes("http://127.0.0.1:9000/a%20b", HR__URL_HTTP, "127.0.0.1:9000", "a%20b");
    takes("http://[::1]:80/", HR__URL_HTTP, "[::1]:80", "");
}

static void test_refused(void **state)
{
    refuses("https://me:geheim@host/x", "password before an @");
    refuses("s3://AKIA:geheim@bucket/x", "password before an @");
    refuses("s3://AKIA:ge/geheim@bucket/x", "password before an @");
    refuses("https://me:ge/geheim@host/x", "password before an @");
    refuses("https://host/x?X-Amz-Signature=geheim", "query");
    refuses("https://host/x#geheim", "fragment");
    refuses("https://host/a b", "blank");
    refuses("https:///x", "names no host");
    refuses("http://host:123456/x", "names no host");
    refuses("http://host:/x", "names no host");
    refuses("http://[::1/x", "names no host");
    refuses("s3://", "names no bucket");
    refuses("s3://a/x", "names no bucket");
    refuses("s3://a..b/x", "names no bucket");
    refuses("s3://buck%et/x", "names no bucket");
    refuses("hdfs://host/x", "s3://");
    refuses("file:///x", "s3://");
}

static void test_form(void **state)
{
    assert_true(hr__url_is("s3://bucket/a"));
    assert_true(hr__url_is("hdfs://x"));
    assert_false(hr__url_is("/data/s3://bucket"));
    assert_false(hr__url_is("data/a"));
    assert_false(hr__url_is("c:/x"));
    assert_false(hr__url_is("://x"));
    assert_false(hr__url_is(""));
    assert_int_equal(hr__url_root_length("s3://bucket/a/b"), 11);
    assert_int_equal(hr__url_root_length("s3://bucket"), 11);
    assert_int_equal(hr__url_root_length("/a"), 0);
}

static void test_escapes(void **state)
{
    char all[256], back[1024];
    struct hr__draft text = {0};
    hr__url_escape(&text, "a b/c=d+e~\xc3\xa9", 12, true);
    assert_string_equal(text.text, "a%20b/c%3Dd%2Be~%C3%A9");
    hr__draft_clear(&text);
    hr__url_escape(&text, "a/b", 3, false);
    assert_string_equal(text.text, "a%2Fb");
    hr__draft_clear(&text);
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    hr__url_escape(&text, all, 255, false);
    memcpy(back, text.text, text.length + 1);
    assert_int_equal(hr__url_unescape(back), 255);
    assert_memory_equal(back, all, 255);
    hr__draft_clear(&text);
    strcpy(back, "%zz%4%%41%00%");
    hr__url_unescape(back);
    assert_string_equal(back, "%zz%4%A%00%");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
