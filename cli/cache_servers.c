/*
 * See cache_servers.h. A server has at most one problem of each kind: it does not answer; it
 * evicts items; the budget exceeds its memory; it refuses items of the size of most samples.
 */
#include "cache_servers.h"

#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* The share of a server's memory that items may be planned to fill. Keys, headers and slabs of
 * other sizes need the rest (docs/hosts.md). */
#define SHARE_MAX 0.75

#define MEBI          (UINT64_C(1) << 20)
#define PROBLEMS      4
#define PROBLEM_BYTES 512

struct problems {
    int count;
    char texts[PROBLEMS][PROBLEM_BYTES];
};

static double share_of(const struct hr_cache_server *s)
{
    return s->limit_bytes ? (double)s->budget_bytes / (double)s->limit_bytes : 0;
}

static void find_problems(struct problems *p, const struct hr_cache_server *s)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    p->count = 0;
    if (!s->is_up) {
        snprintf(p->texts[p->count++], PROBLEM_BYTES, "%s", s->problem);
        return;
    }
    if (s->evicts)
        snprintf(p->texts[p->count++], PROBLEM_BYTES,
                 "%s evicts items when it is full%s: start it with -M", s->name,
                 s->evictions ? ", and has done so" : "");
    if (share_of(s) > SHARE_MAX)
        snprintf(p->texts[p->count++], PROBLEM_BYTES,
                 "%s has %s, and at most three quarters of it should be planned for items, "
                 "not %s (%.0f %%): give it a size of %" PRIu64 "MiB, or start it with -m %" PRIu64,
                 s->name, text_bytes(a, s->limit_bytes), text_bytes(b, s->budget_bytes),
                 100 * share_of(s), (uint64_t)((double)s->limit_bytes * SHARE_MAX) / MEBI,
                 (uint64_t)((double)s->budget_bytes / SHARE_MAX) / MEBI + 1);
    if (s->item_max_bytes < MEBI)
        snprintf(p->texts[p->count++], PROBLEM_BYTES,
                 "%s refuses items of more than %s: start it with -I 8m", s->name,
                 text_bytes(a, s->item_max_bytes));
}

static struct hr_cache_server get(const struct hr_cache_servers *servers, size_t i)
{
    struct hr_cache_server s = {.size = sizeof s};
    hr_cache_servers_get(servers, i, &s);
    return s;
}

/* ---- text ---- */

/* Prints untrusted text, escaped. */
static void put(const char *text)
{
    char *escaped = text_escape(text);
    fputs(escaped ? escaped : "?", stdout);
    free(escaped);
}

static void print_line(const struct hr_cache_server *s)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER];
    char *name = text_escape(s->name);
    printf("%c ", s->is_self ? '*' : ' ');
    text_print_cell(name ? name : "?", 22);
    free(name);
    if (!s->is_up) {
        printf(" %9s  does not answer\n", text_bytes(a, s->budget_bytes));
        return;
    }
    printf(" %9s %9s %4.0f %% %9s %9s %9s\n", text_bytes(a, s->budget_bytes),
           text_bytes(b, s->limit_bytes), 100 * share_of(s), text_bytes(c, s->used_bytes),
           text_count(d, s->items), s->version);
}

/* Prints the totals of all servers and what they have in common. */
static void print_sum(const struct hr_cache_servers *servers)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    uint64_t budget = 0, limit = 0, item_max = UINT64_MAX;
    size_t count = hr_cache_servers_count(servers), up = 0, own = 0;
    for (size_t i = 0; i < count; i++) {
        struct hr_cache_server s = get(servers, i);
        own += s.is_self != 0;
        budget += s.budget_bytes;
        limit += s.limit_bytes;
        up += s.is_up != 0;
        if (s.is_up && s.item_max_bytes < item_max)
            item_max = s.item_max_bytes;
    }
    printf("\n%zu of %zu %s; %s of items planned in %s of memory", up, count,
           count == 1 ? "server answers" : "servers answer", text_bytes(a, budget),
           text_bytes(b, limit));
    if (up)
        printf("; items up to %s", text_bytes(c, item_max));
    const char *problem = hr_cache_servers_self_problem(servers);
    printf("\n");
    if (own) {
        printf("* this machine's own\n");
    } else if (!*problem) {
        printf("none is this machine's own: this machine would only fetch\n");
    } else {
        put(problem);
        printf("\n");
    }
}

int cache_servers_print(const struct hr_cache_servers *servers)
{
    struct problems problems;
    int count = 0;
    printf("  %-22s %9s %9s %6s %9s %9s %9s\n", "SERVER", "PLANNED", "MEMORY", "SHARE", "USED",
           "ITEMS", "VERSION");
    for (size_t i = 0; i < hr_cache_servers_count(servers); i++) {
        struct hr_cache_server s = get(servers, i);
        print_line(&s);
    }
    print_sum(servers);
    for (size_t i = 0; i < hr_cache_servers_count(servers); i++) {
        struct hr_cache_server s = get(servers, i);
        find_problems(&problems, &s);
        for (int p = 0; p < problems.count; p++) {
            printf("%sproblem: ", count++ ? "" : "\n");
            put(problems.texts[p]);
            printf("\n");
        }
    }
    return count;
}

/* ---- JSON ---- */

static json_t *problems_json(const struct problems *problems)
{
    json_t *array = json_array();
    for (int p = 0; array && p < problems->count; p++) {
        char *escaped = text_escape(problems->texts[p]);
        json_array_append_new(array, json_string(escaped ? escaped : "?"));
        free(escaped);
    }
    return array;
}

static json_t *json_of(const struct hr_cache_server *s, const struct problems *problems)
{
    char *name = text_escape(s->name), *version = text_escape(s->version);
    json_t *object = json_pack("{s:s?, s:b, s:b, s:I, s:o}", "name", name, "is_self", s->is_self,
                               "is_up", s->is_up, "budget_bytes", (json_int_t)s->budget_bytes,
                               "problems", problems_json(problems));
    if (object && s->is_up)
        json_object_update_new(
            object, json_pack("{s:s?, s:I, s:I, s:I, s:f, s:b, s:I, s:I, s:I}", "version", version,
                              "limit_bytes", (json_int_t)s->limit_bytes, "used_bytes",
                              (json_int_t)s->used_bytes, "items", (json_int_t)s->items, "share",
                              share_of(s), "evicts", s->evicts, "evictions",
                              (json_int_t)s->evictions, "item_max_bytes",
                              (json_int_t)s->item_max_bytes, "uptime_s", (json_int_t)s->uptime_s));
    free(name);
    free(version);
    return object;
}

json_t *cache_servers_json(const struct hr_cache_servers *servers, int *count)
{
    struct problems problems;
    json_t *array = json_array(), *root = NULL;
    *count = 0;
    for (size_t i = 0; array && i < hr_cache_servers_count(servers); i++) {
        struct hr_cache_server s = get(servers, i);
        find_problems(&problems, &s);
        *count += problems.count;
        json_array_append_new(array, json_of(&s, &problems));
    }
    char *self = text_escape(hr_cache_servers_self_problem(servers));
    if (array)
        root = json_pack("{s:i, s:s?, s:o}", "layout", 1, "self_problem",
                         self && *self ? self : NULL, "servers", array);
    free(self);
    return root;
}
