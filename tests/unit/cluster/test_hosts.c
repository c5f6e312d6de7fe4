/*
 * Lists of hosts: parsing, messages for invalid lists, and finding the host that this machine is.
 */
#include "../test.h"

#include "base/memory.h"
#include "cache/spec.h"
#include "cluster/hosts.h"

#include <headrace/form.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static int teardown(void **state)
{
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    unsetenv("HEADRACE_HOST");
    return 0;
}

static void parse(struct hr__hosts *hosts, const char *text)
{
    struct hr_error error = {0};
    if (hr__hosts_parse(hosts, text, &error))
        fail_msg("%s: %s", text, error.message);
}

static void test_is(void **state)
{
    assert_true(hr__hosts_is("memcached:a?size=1GiB"));
    assert_true(hr__hosts_is(" \tmemcached:"));
    assert_false(hr__hosts_is("memcached"));
    assert_false(hr__hosts_is("64GiB"));
    assert_false(hr__hosts_is("shm:memcached:?size=1GiB"));
    assert_false(hr__hosts_is(""));
}

static void test_entries(void **state)
{
    const struct {
        const char *text, *name, *address;
        int port;
        uint64_t budget;
    } cases[] = {
        {"memcached:node1?size=64GiB", "node1:11211", "node1", 11211, 64 * GIB},
        {"memcached:node1:1?size=64GiB", "node1:1", "node1", 1, 64 * GIB},
        {"memcached:node1:65535?size=64GiB", "node1:65535", "node1", 65535, 64 * GIB},
        {"memcached:node-1.rack_2.example.org=2GiB", "node-1.rack_2.example.org:11211",
         "node-1.rack_2.example.org", 11211, 2 * GIB},
        {"memcached:3com:11212=1 KB", "3com:11212", "3com", 11212, 1000},
        {"memcached:10.0.0.1:11300=0.5GiB?size=64GiB", "10.0.0.1:11300", "10.0.0.1", 11300,
         GIB / 2},
        {"memcached:[fd00::1]:11300?size=1B", "[fd00::1]:11300", "fd00::1", 11300, 1},
        {"memcached:[::1]?size=1B", "[::1]:11211", "::1", 11211, 1},
        {"memcached:[fe80::1%eth0]:7?size=1B", "[fe80::1%eth0]:7", "fe80::1%eth0", 7, 1},
        {"memcached:/run/mc.sock=1GiB", "/run/mc.sock", "/run/mc.sock", 0, GIB},
        {" memcached: node1 : 11211 ? size = 1 GiB ", NULL, NULL, 0, 0},
        {" memcached: node1:11211 = 1 GiB ? mtime = no ", "node1:11211", "node1", 11211, GIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__hosts hosts;
        if (!cases[i].name) {
            assert_int_equal(hr__hosts_parse(&hosts, cases[i].text, NULL), -EINVAL);
            continue;
        }
        parse(&hosts, cases[i].text);
        assert_int_equal(hosts.count, 1);
        assert_string_equal(hosts.hosts[0].name, cases[i].name);
        assert_string_equal(hosts.hosts[0].address, cases[i].address);
        assert_int_equal(hosts.hosts[0].port, cases[i].port);
        assert_int_equal(hosts.hosts[0].budget_bytes, cases[i].budget);
        hr__hosts_clear(&hosts);
        assert_int_equal(hosts.count, 0);
    }
}

static void test_options(void **state)
{
    struct hr__hosts hosts;
    parse(&hosts, "memcached:a,b=1GiB,[fd00::2]:5?size=2GiB");
    assert_int_equal(hosts.count, 3);
    assert_int_equal(hosts.self, -1);
    assert_string_equal(hosts.socket, "");
    assert_string_equal(hosts.user, "");
    assert_string_equal(hosts.password_file, "");
    assert_int_equal(hosts.form, HR_FORM_ENCODED);
    assert_int_equal(hosts.with_mtime, 1);
    assert_int_equal(hosts.timeout_ms, 1000);
    assert_int_equal(hosts.meet_s, 300);
    assert_int_equal(hosts.hosts[0].budget_bytes, 2 * GIB);
    assert_int_equal(hosts.hosts[1].budget_bytes, GIB);
    assert_int_equal(hosts.hosts[2].budget_bytes, 2 * GIB);
    hr__hosts_clear(&hosts);
    parse(&hosts, "memcached:a,b,c?timeout=250ms&meet=2min&self=2&socket=/run/mc.sock&size=2GiB"
                  "&user=trainer&password-file=/etc/hr pass&form=coefficients&mtime=no&");
    assert_int_equal(hosts.self, 2);
    assert_string_equal(hosts.socket, "/run/mc.sock");
    assert_string_equal(hosts.user, "trainer");
    assert_string_equal(hosts.password_file, "/etc/hr pass");
    assert_int_equal(hosts.form, HR_FORM_COEFFICIENTS);
    assert_int_equal(hosts.with_mtime, 0);
    assert_int_equal(hosts.timeout_ms, 250);
    assert_int_equal(hosts.meet_s, 120);
    hr__hosts_clear(&hosts);
    parse(&hosts, "memcached:a,b:7,c=1GiB?self=b:7&form=indexed&mtime=yes&timeout=1.5s&size=1GiB");
    assert_int_equal(hosts.self, 1);
    assert_int_equal(hosts.form, HR_FORM_INDEXED);
    assert_int_equal(hosts.timeout_ms, 1500);
    hr__hosts_clear(&hosts);
}

/* Each message begins with the text and says what to write. */
static void test_wrong(void **state)
{
#define A50  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A250 A50 A50 A50 A50 A50
    const struct {
        const char *text, *expected;
    } cases[] = {
        {"64GiB", "is not a list of hosts: write memcached:NAME:PORT"},
        {"memcached:", "a host is missing: write memcached:NAME:PORT,NAME:PORT?size=64GiB"},
        {"memcached:?size=1GiB", "a host is missing"},
        {"memcached:a,,b?size=1GiB", "a host is missing"},
        {"memcached:a,?size=1GiB", "a host is missing"},
        {"memcached:=1GiB", "a host is missing"},
        {"memcached:a", "host a:11211 needs a size: write ?size=64GiB for all hosts, or a:11211="},
        {"memcached:a=1GiB,b", "host b:11211 needs a size"},
        {"memcached:a=0,b?size=1GiB", "a size of 0 keeps nothing"},
        {"memcached:a=1G", "the size of a host, 1G has no unit: write 1GiB"},
        {"memcached:a=?size=1GiB", "the size of a host, \"\" is none"},
        {"memcached:a?size=1T", "size 1T has no unit: write 1TiB"},
        {"memcached:a?size=1024TiB", "more memory than any machine has"},
        {"memcached:a:0?size=1GiB", "host \"a:0\" has an invalid port: write NAME:PORT"},
        {"memcached:a:65536?size=1GiB", "has an invalid port"},
        {"memcached:a:99999999999?size=1GiB", "has an invalid port"},
        {"memcached:a:-1?size=1GiB", "has an invalid port"},
        {"memcached:a:1x?size=1GiB", "has an invalid port"},
        {"memcached:a:?size=1GiB", "has an invalid port"},
        {"memcached:[::1]:?size=1GiB", "has an invalid port"},
        {"memcached:fd00::1?size=1GiB", "several colons: write an IPv6 address as [ADDRESS]:PORT"},
        {"memcached:[fd00::1?size=1GiB", "is not an IPv6 address"},
        {"memcached:[fd00::1]x?size=1GiB", "is not an IPv6 address"},
        {"memcached:[fd00::g]:1?size=1GiB",
         "is not an IPv6 address: write [ADDRESS]:PORT, such as"},
        {"memcached:[]:1?size=1GiB", "is not an IPv6 address"},
        {"memcached:[10.0.0.1]:1?size=1GiB", "is not an IPv6 address"},
        {"memcached:10.1?size=1GiB", "is neither a name nor an address"},
        {"memcached:10.0.0.256:1?size=1GiB", "is neither a name nor an address"},
        {"memcached:.?size=1GiB", "is neither a name nor an address"},
        {"memcached::11211?size=1GiB", "is neither a name nor an address"},
        {"memcached:-a?size=1GiB", "is neither a name nor an address"},
        {"memcached:a/b?size=1GiB", "is neither a name nor an address"},
        {"memcached:a b?size=1GiB", "is neither a name nor an address"},
        {"memcached:" A250 "aaaa?size=1GiB", "is neither a name nor an address"},
        {"memcached:/" A50 A50 "aaaaaaa?size=1GiB", "longer than the path of a Unix socket"},
        {"memcached:/a,b?size=1GiB", "other machines cannot reach the path of a Unix socket"},
        {"memcached:a:1,b,a:1?size=1GiB", "host a:1 is there twice: write it once"},
        {"memcached:a,b,A:11211=2GiB?size=1GiB", "is there twice"},
        {"memcached:a?size=1GiB&size=1GiB", "size is there twice: write it once"},
        {"memcached:a?size=1GiB&self=0&self=0", "self is there twice"},
        {"memcached:a?sise=1GiB", "option \"sise\" is unknown: there are size=, self="},
        {"memcached:a?1GiB", "option \"1GiB\" is unknown"},
        {"memcached:a?size=1GiB&&mtime=no", "option \"\" is unknown"},
        {"memcached:a?size=1GiB&share=0.5", "option \"share\" is unknown"},
        {"memcached:a,b?size=1GiB&self=2", "self=2 is none of its 2 hosts: write an index from 0"},
        {"memcached:a?size=1GiB&self=-1", "self=-1 is none"},
        {"memcached:a?size=1GiB&self=", "self= is none"},
        {"memcached:a:1,a:2?size=1GiB&self=a", "self=a is none"},
        {"memcached:a?size=1GiB&self=99999999999999999999", "is none"},
        {"memcached:a?size=1GiB&socket=mc.sock", "socket \"mc.sock\" must be the absolute path"},
        {"memcached:a?size=1GiB&socket=", "must be the absolute path"},
        {"memcached:a?size=1GiB&socket=/" A50 A50 "aaaaaaa", "of at most 107 bytes"},
        {"memcached:a?size=1GiB&user=x", "a user needs the file of a password"},
        {"memcached:a?size=1GiB&password-file=/x", "a password needs its user"},
        {"memcached:a?size=1GiB&user=&password-file=/x", "user \"\" must be a name"},
        {"memcached:a?size=1GiB&user=x y&password-file=/x", "without blanks and colons"},
        {"memcached:a?size=1GiB&user=x:y&password-file=/x", "without blanks and colons"},
        {"memcached:a?size=1GiB&user=x&password-file=", "password-file \"\" must be a path"},
        {"memcached:a?size=1GiB&form=auto", "form \"auto\" must be one that all hosts keep"},
        {"memcached:a?size=1GiB&mtime=never", "mtime \"never\" must be yes, or no"},
        {"memcached:a?size=1GiB&timeout=9ms", "timeout \"9ms\" must be a time from 10ms to 60s"},
        {"memcached:a?size=1GiB&timeout=61s", "must be a time from 10ms to 60s"},
        {"memcached:a?size=1GiB&timeout=1", "must be a time from"},
        {"memcached:a?size=1GiB&timeout=s", "must be a time from"},
        {"memcached:a?size=1GiB&timeout=99999999999999999999h", "must be a time from"},
        {"memcached:a?size=1GiB&meet=0s", "meet \"0s\" must be a time from 1s to 86400s"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__hosts hosts;
        struct hr_error error = {0};
        char begins[64];
        if (hr__hosts_parse(&hosts, cases[i].text, &error) != -EINVAL)
            fail_msg("%s was accepted", cases[i].text);
        assert_int_equal(error.code, -EINVAL);
        snprintf(begins, sizeof begins, "cache \"%.50s", cases[i].text);
        if (!strstr(error.message, cases[i].expected) ||
            strncmp(error.message, begins, strlen(begins)))
            fail_msg("%s: %s", cases[i].text, error.message);
        assert_int_equal(hr__hosts_parse(&hosts, cases[i].text, NULL), -EINVAL);
        assert_null(hosts.hosts);
    }
    struct hr__hosts hosts;
    struct hr_error error;
    assert_int_equal(hr__hosts_parse(&hosts, "memcached:a?size=1GiB&tls=yes", &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "stunnel"));
    static const char *const options[] = {"protocol=binary", "sasl=PLAIN"};
    for (int i = 0; i < 2; i++) {
        char text[128], expected[32];
        snprintf(text, sizeof text, "memcached:a?size=1GiB&user=me&%s", options[i]);
        snprintf(expected, sizeof expected, "%.*s= is not supported", (int)strcspn(options[i], "="),
                 options[i]);
        assert_int_equal(hr__hosts_parse(&hosts, text, &error), -ENOTSUP);
        assert_non_null(strstr(error.message, expected));
        assert_non_null(strstr(error.message, "-Y FILE"));
    }
    /* Where hosts are not supported, the message says so. */
    struct hr__cache_spec spec;
    assert_int_equal(hr__cache_spec_parse(&spec, "memcached:a?size=1GiB", &error), -EINVAL);
    assert_non_null(strstr(error.message, "several hosts are for loaders"));
}

/* Paths: servers of this machine only. */
static void test_paths(void **state)
{
    struct hr__hosts hosts;
    struct hr_error error;
    parse(&hosts, "memcached:/run/a,/run/b=2GiB?size=1GiB&self=/run/b");
    assert_int_equal(hosts.count, 2);
    assert_int_equal(hosts.self, 1);
    hosts.self = -1;
    assert_int_equal(hr__hosts_find_self(&hosts, &error), -EEXIST);
    assert_non_null(strstr(error.message, "hosts /run/a and /run/b are both this machine"));
    assert_non_null(strstr(error.message, "HEADRACE_HOST=0"));
    assert_int_equal(hosts.self, -1);
    hr__hosts_clear(&hosts);
}

static void test_most_hosts(void **state)
{
    size_t room = 4200 * 20, length = 0;
    char *text = malloc(room);
    struct hr__hosts hosts;
    struct hr_error error;
    for (int count = 4096; count <= 4097; count++) {
        length = (size_t)snprintf(text, room, "memcached:");
        for (int i = 0; i < count; i++)
            length += (size_t)snprintf(text + length, room - length, "%snode%d", i ? "," : "", i);
        snprintf(text + length, room - length, "?size=1023TiB");
        if (count == 4097) {
            assert_int_equal(hr__hosts_parse(&hosts, text, &error), -EINVAL);
            assert_non_null(strstr(error.message, "4097 hosts are more than the 4096"));
            continue;
        }
        parse(&hosts, text);
        assert_int_equal(hosts.count, 4096);
        assert_string_equal(hosts.hosts[4095].name, "node4095:11211");
        assert_int_equal(hr__hosts_index(&hosts, "4095"), 4095);
        assert_int_equal(hr__hosts_index(&hosts, "4096"), -1);
        assert_int_equal(hr__hosts_index(&hosts, "NODE7"), 7);
        hr__hosts_clear(&hosts);
    }
    free(text);
}

static void text_of(char *out, size_t room, const char *text)
{
    struct hr__hosts hosts;
    parse(&hosts, text);
    hr__hosts_text(&hosts, out, room);
    hr__hosts_clear(&hosts);
}

/* The compared texts: equal texts are equal lists, also if they are truncated. */
static void test_texts(void **state)
{
    char a[512], b[512];
    text_of(a, sizeof a, "memcached:a=1536MiB,[::1]:5=1000B,10.0.0.1?size=2TiB");
    assert_string_equal(a, "a:11211=1536MiB, [::1]:5=1000B, 10.0.0.1:11211=2TiB");
    text_of(a, 64, "memcached:node1,node2,node3,node4?size=2TiB");
    text_of(b, 64, "memcached:node1,node2,node3,node5?size=2TiB");
    assert_true(strlen(a) < 64);
    assert_non_null(strstr(a, "node1:11211=2TiB, ... ("));
    assert_string_not_equal(a, b);
    assert_memory_equal(a, b, strlen("node1:11211=2TiB, ... ("));
    text_of(b, 64, "memcached:node1,node2,node3,node4?size=2048GiB&mtime=no");
    assert_string_equal(a, b);
}

static void test_ids(void **state)
{
    struct hr__hosts hosts;
    parse(&hosts, "memcached:a,a:11212,b?size=1GiB");
    assert_int_not_equal(hr__host_id(&hosts.hosts[0]), hr__host_id(&hosts.hosts[1]));
    assert_int_not_equal(hr__host_id(&hosts.hosts[0]), hr__host_id(&hosts.hosts[2]));
    uint64_t first = hr__host_id(&hosts.hosts[0]);
    hr__hosts_clear(&hosts);
    /* Ids depend on neither size nor position: if a list grows, the other hosts keep theirs. */
    parse(&hosts, "memcached:c,a=3GiB?size=1GiB");
    assert_int_equal(hr__host_id(&hosts.hosts[1]), first);
    hr__hosts_clear(&hosts);
}

static int self_of(const char *text, struct hr_error *error)
{
    struct hr__hosts hosts;
    parse(&hosts, text);
    int r = hr__hosts_find_self(&hosts, error), self = hosts.self;
    hr__hosts_clear(&hosts);
    return r ? r : self;
}

static void test_self(void **state)
{
    struct hr_error error;
    unsetenv("HEADRACE_HOST");
    /* 192.0.2.0/24 and 2001:db8::/32 are reserved for documentation, so no machine has them. */
    assert_int_equal(self_of("memcached:192.0.2.1,[2001:db8::1]?size=1GiB", &error), -1);
    assert_int_equal(self_of("memcached:192.0.2.1,127.0.0.1:5?size=1GiB", &error), 1);
    assert_int_equal(self_of("memcached:192.0.2.1,127.0.0.2:5?size=1GiB", &error), 1);
    assert_int_equal(self_of("memcached:[::1],192.0.2.1?size=1GiB", &error), 0);
    assert_int_equal(self_of("memcached:[::ffff:127.0.0.1],192.0.2.1?size=1GiB", &error), 0);
    assert_int_equal(self_of("memcached:/run/mc?size=1GiB", &error), 0);
    assert_int_equal(self_of("memcached:192.0.2.1,127.0.0.1?size=1GiB&self=0", &error), 0);
    assert_int_equal(self_of("memcached:127.0.0.1:1,[::1]:1?size=1GiB", &error), -EEXIST);
    setenv("HEADRACE_HOST", "1", 1);
    assert_int_equal(self_of("memcached:127.0.0.1:1,[::1]:1?size=1GiB", &error), 1);
    setenv("HEADRACE_HOST", "192.0.2.1", 1);
    assert_int_equal(self_of("memcached:127.0.0.1:1,192.0.2.1?size=1GiB", &error), 1);
    /* The text takes precedence over the environment. */
    assert_int_equal(self_of("memcached:127.0.0.1:1,192.0.2.1?size=1GiB&self=0", &error), 0);
    setenv("HEADRACE_HOST", "node9", 1);
    assert_int_equal(self_of("memcached:127.0.0.1:1?size=1GiB", &error), -EINVAL);
    assert_non_null(
        strstr(error.message, "HEADRACE_HOST=node9 is none of the 1 hosts 127.0.0.1:1"));
    setenv("HEADRACE_HOST", "", 1);
    assert_int_equal(self_of("memcached:127.0.0.1:1?size=1GiB", &error), 0);
    unsetenv("HEADRACE_HOST");
}

/* Each address of an interface of this machine is this machine. */
static void test_self_by_interface(void **state)
{
    struct ifaddrs *list;
    struct hr_error error;
    char address[INET6_ADDRSTRLEN], text[256];
    int seen = 0;
    unsetenv("HEADRACE_HOST");
    assert_int_equal(getifaddrs(&list), 0);
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        if (family == AF_INET) {
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr, address,
                      sizeof address);
            snprintf(text, sizeof text, "memcached:192.0.2.1,%s?size=1GiB", address);
        } else if (family == AF_INET6) {
            inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr, address,
                      sizeof address);
            snprintf(text, sizeof text, "memcached:192.0.2.1,[%s]?size=1GiB", address);
        } else {
            continue;
        }
        if (self_of(text, &error) != 1)
            fail_msg("%s was not found: %s", address, error.message);
        seen++;
    }
    freeifaddrs(list);
    assert_true(seen > 0);
}

static void test_no_memory(void **state)
{
    struct hr__hosts hosts;
    struct hr_error error;
    for (int n = 1; n <= 2; n++) {
        hr__alloc_fail_at((uint64_t)n, 0);
        assert_int_equal(hr__hosts_parse(&hosts, "memcached:a,b?size=1GiB", &error), -ENOMEM);
        assert_null(hosts.hosts);
        hr__alloc_fail_at(0, 0);
        assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is),        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_options),   cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_paths),     cmocka_unit_test(test_most_hosts),
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_ids),
        cmocka_unit_test(test_self),      cmocka_unit_test(test_self_by_interface),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
