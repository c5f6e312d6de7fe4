/*
 * libcurl, found while the program runs: for packages that go to machines with and without it.
 *
 * Included after curl/curl.h by web_curl.c alone, in builds with curl_at_runtime=true. The names of
 * libcurl's functions then stand for entries of a table, which hr__curl_load fills once. The
 * library of the system brings its own certificates and gets its fixes; only functions and options
 * of libcurl 7.61 (RHEL 8) are needed.
 */
#ifndef HR_STORAGE_CURL_LATE_H
#define HR_STORAGE_CURL_LATE_H

struct hr_error;

#define HR__CURL_FUNCTIONS(f)                                                                      \
    f(easy_cleanup) f(easy_getinfo) f(easy_init) f(easy_setopt) f(easy_strerror) f(global_init)    \
        f(multi_add_handle) f(multi_assign) f(multi_cleanup) f(multi_info_read) f(multi_init)      \
            f(multi_remove_handle) f(multi_setopt) f(multi_socket_action) f(slist_append)          \
                f(slist_free_all) f(version_info)

#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

#define HR__CURL_ENTRY(name) __typeof__(&curl_##name) name;
/* Of a process, as libcurl is: constant once hr__curl_load was called, before the first use. It is
 * not a part of each user because the names below have to mean it, as those of a linked library. */
struct hr__curl {
    HR__CURL_FUNCTIONS(HR__CURL_ENTRY)
};
extern struct hr__curl hr__curl;

/* Opens the system's libcurl. The caller does so once, before anything else of libcurl's. Errors:
 * -ENOTSUP: this machine has none; the message says what to do. */
int hr__curl_load(struct hr_error *error);

#define curl_easy_cleanup        hr__curl.easy_cleanup
#define curl_easy_getinfo        hr__curl.easy_getinfo
#define curl_easy_init           hr__curl.easy_init
#define curl_easy_setopt         hr__curl.easy_setopt
#define curl_easy_strerror       hr__curl.easy_strerror
#define curl_global_init         hr__curl.global_init
#define curl_multi_add_handle    hr__curl.multi_add_handle
#define curl_multi_assign        hr__curl.multi_assign
#define curl_multi_cleanup       hr__curl.multi_cleanup
#define curl_multi_info_read     hr__curl.multi_info_read
#define curl_multi_init          hr__curl.multi_init
#define curl_multi_remove_handle hr__curl.multi_remove_handle
#define curl_multi_setopt        hr__curl.multi_setopt
#define curl_multi_socket_action hr__curl.multi_socket_action
#define curl_slist_append        hr__curl.slist_append
#define curl_slist_free_all      hr__curl.slist_free_all
#define curl_version_info        hr__curl.version_info

#endif
