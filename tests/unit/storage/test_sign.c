/*
 * SHA-256 and HMAC against the examples of FIPS 180-4 and RFC 4231, and signatures against the
 * examples that AWS publishes for version 4 (Amazon S3 API Reference, "Examples: Signature
 * Calculations" and "Signature Calculations for the Authorization Header: Transferring Payload in
 * Multiple Chunks").
 */
#include "../test.h"
#include "storage/md5.h"
#include "storage/sign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void hash(const char *text, const char *expected)
{
    uint8_t digest[HR__SHA256_BYTES];
    char out[HR__SIGN_TEXT];
    hr__sha256_of(text, strlen(text), digest);
    hr__sha256_text(digest, out);
    assert_string_equal(out, expected);
}

static void test_sha256(void **state)
{
    uint8_t digest[HR__SHA256_BYTES], again[HR__SHA256_BYTES], bytes[300];
    char out[HR__SIGN_TEXT];
    struct hr__sha256 h;
    hash("", HR__SIGN_EMPTY);
    hash("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000001);
    memset(million, 'a', 1000000);
    million[1000000] = 0;
    hash(million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
    /* RFC 4231, test cases 2 and 6 (a key longer than a block) */
    hr__hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, digest);
    hr__sha256_text(digest, out);
    assert_string_equal(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(bytes, 0xaa, 131);
    hr__hmac_sha256(bytes, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                    digest);
    hr__sha256_text(digest, out);
    assert_string_equal(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    /* the same in pieces of any length */
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t length = 0; length < sizeof bytes; length++) {
        hr__sha256_of(bytes, length, digest);
        hr__sha256_begin(&h);
        for (size_t at = 0, n; at < length; at += n) {
            n = 1 + at % 67;
            n = n < length - at ? n : length - at;
            hr__sha256_add(&h, bytes + at, n);
        }
        hr__sha256_end(&h, again);
        assert_memory_equal(digest, again, sizeof digest);
    }
}

/* The key and time of all examples: 24 May 2013, 00:00:00. */
static const struct hr__sign_scope scope = {.key_id = "AKIAIOSFODNN7EXAMPLE",
                                            .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                            .region = "us-east-1",
                                            .service = "s3",
                                            .now = 1369353600};

static void sign(const struct hr__sign_request *request, const char *expected)
{
    struct hr__sign_key key;
    struct hr__draft header = {0};
    char signature[HR__SIGN_TEXT];
    assert_int_equal(hr__sign_begin(&key, &scope), 0);
    assert_string_equal(key.time, "20130524T000000Z");
    assert_int_equal(hr__sign(&header, signature, &key, request), 0);
    assert_string_equal(signature, expected);
    assert_non_null(strstr(header.text, "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
                                        "aws4_request, SignedHeaders=host;"));
    assert_non_null(strstr(header.text, expected));
    assert_null(strstr(header.text, "wJalr"));
    hr__draft_clear(&header);
}

static void test_get_object(void **state)
{
    const struct hr__sign_pair headers[] = {
        {"range", "bytes=0-9"},
        {"x-amz-date", "20130524T000000Z"},
        {"host", "examplebucket.s3.amazonaws.com"},
        {"x-amz-content-sha256", HR__SIGN_EMPTY},
    };
    const struct hr__sign_request request = {.method = "GET",
                                             .path = "/test.txt",
                                             .headers = headers,
                                             .header_count = 4,
                                             .payload = HR__SIGN_EMPTY};
    sign(&request, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void test_put_object(void **state)
{
    static const char payload[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const struct hr__sign_pair headers[] = {
        {"date", "Fri, 24 May 2013 00:00:00 GMT"},
        {"host", "examplebucket.s3.amazonaws.com"},
        {"x-amz-content-sha256", payload},
        {"x-amz-date", "20130524T000000Z"},
        {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
    };
    const struct hr__sign_request request = {.method = "PUT",
                                             .path = "/test%24file.text",
                                             .headers = headers,
                                             .header_count = 5,
                                             .payload = payload};
    struct hr__sign_key key;
    struct hr__draft header = {0};
    char signature[HR__SIGN_TEXT];
    assert_int_equal(hr__sign_begin(&key, &scope), 0);
    assert_int_equal(hr__sign(&header, signature, &key, &request), 0);
    assert_string_equal(signature,
                        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    hr__draft_clear(&header);
}

static void test_query(void **state)
{
    const struct hr__sign_pair headers[] = {
        {"host", "examplebucket.s3.amazonaws.com"},
        {"x-amz-content-sha256", HR__SIGN_EMPTY},
        {"x-amz-date", "20130524T000000Z"},
    };
    struct hr__sign_pair lifecycle[] = {{"lifecycle", ""}};
    struct hr__sign_pair list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    struct hr__sign_request request = {.method = "GET",
                                       .path = "/",
                                       .query = lifecycle,
                                       .query_count = 1,
                                       .headers = headers,
                                       .header_count = 3,
                                       .payload = HR__SIGN_EMPTY};
    struct hr__draft text = {0};
    sign(&request, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    hr__sign_query(&text, list, 2);
    assert_string_equal(text.text, "max-keys=2&prefix=J");
    hr__draft_clear(&text);
    request.query = list;
    request.query_count = 2;
    sign(&request, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

/* The examples of RFC 1321, and RFC 2616's form of a digest. */
static void test_md5(void **state)
{
    static const struct {
        const char *text, *digest, *base64;
    } examples[] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e", "1B2M2Y8AsgTpgAmY7PhCfg=="},
        {"abc", "900150983cd24fb0d6963f7d28e17f72", "kAFQmDzST7DWlj99KOF/cg=="},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b", NULL},
        {"1234567890123456789012345678901234567890123456789012345678901234567890123456789"
         "0",
         "57edf4a22be3c955ac49da2e2107b67a", NULL},
    };
    char text[HR__MD5_TEXT], base64[HR__MD5_64];
    uint8_t digest[HR__MD5_BYTES], back[HR__MD5_BYTES];
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        hr__md5_of(examples[i].text, strlen(examples[i].text), digest);
        hr__md5_text(digest, text);
        assert_string_equal(text, examples[i].digest);
        hr__md5_base64(digest, base64);
        if (examples[i].base64)
            assert_string_equal(base64, examples[i].base64);
        assert_int_equal(hr__md5_of_text(text, back), 0);
        assert_memory_equal(back, digest, sizeof back);
    }
    assert_int_equal(hr__md5_of_text("57edf4a22be3c955ac49da2e2107b67", back), -EINVAL);
    assert_int_equal(hr__md5_of_text("57edf4a22be3c955ac49da2e2107b67a-2", back), -EINVAL);
    assert_int_equal(hr__md5_of_text("57edf4a22be3c955ac49da2e2107b67g", back), -EINVAL);
}

static void test_scope(void **state)
{
    struct hr__sign_key key;
    struct hr__sign_scope other = scope;
    char longest[300];
    assert_int_equal(hr__sign_begin(&key, &scope), 0);
    assert_true(hr__sign_again(&key, scope.now + 86399));
    assert_string_equal(key.time, "20130524T235959Z");
    assert_false(hr__sign_again(&key, scope.now + 86400));
    assert_string_equal(key.time, "20130524T235959Z");
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    other.region = longest;
    assert_int_equal(hr__sign_begin(&key, &other), -ENAMETOOLONG);
    other = scope;
    other.secret = longest;
    assert_int_equal(hr__sign_begin(&key, &other), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),     cmocka_unit_test(test_get_object),
        cmocka_unit_test(test_put_object), cmocka_unit_test(test_query),
        cmocka_unit_test(test_md5),        cmocka_unit_test(test_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
