/*
 * headrace stalls report and merge: prints a result again, and merges the results of several hosts
 * into one. If the records of all hosts are available they are analysed anew, because records
 * contain more than results.
 */
#include "stalls_result.h"

#include "cli.h"
#include "options.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORT "stalls report"
#define MERGE  "stalls merge"

enum { MOST_PARTS = 1024 };

static int is_directory(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* Returns DIRECTORY/name, owned by the caller. */
static char *below(const char *directory, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

int stalls_result_read(struct hr_stalls **out, const char *path, struct hr_error *error)
{
    char *file = is_directory(path) ? below(path, "stalls.json") : strdup(path);
    int r = file ? hr_stalls_read(out, file, error) : -ENOMEM;
    free(file);
    return r;
}

/* ---- report ---- */

struct stalls_report {
    const char *source, *page, *trace;
    int text, json;
};

static int write_report(const struct stalls_report *c, const struct hr_stalls *result,
                        struct hr_error *error)
{
    int r = 0;
    if (c->page)
        r = hr_stalls_write_page(result, c->page, error);
    if (!r && c->trace)
        r = hr_stalls_write_trace(result, c->trace, error);
    if (!r && c->json)
        r = hr_stalls_write(result, "-", error);
    if (!r && (c->text || !(c->page || c->trace || c->json)))
        r = hr_stalls_write_text(result, "-", text_width(), error);
    return r;
}

int stalls_report(int argc, char **argv)
{
    struct stalls_report c = {.source = NULL};
    struct hr_stalls *result = NULL;
    struct hr_error error = {0};
    const struct cli_option options[] = {
        {.name = "text",
         .target = &c.text,
         .help = "print the text (default without other outputs)"},
        {.name = "page",
         .kind = CLI_TEXT,
         .text = &c.page,
         .value = "FILE",
         .help = "write the page; - is standard output"},
        {.name = "trace",
         .kind = CLI_TEXT,
         .text = &c.trace,
         .value = "FILE",
         .help = "write the trace, for ui.perfetto.dev"},
        {.name = "json", .target = &c.json, .help = "print stalls.json"},
    };
    const struct cli_syntax syntax = {
        .verb = REPORT,
        .arguments = "STALLS.JSON [options]",
        .text = "Writes the outputs of a result again. STALLS.JSON is that file, or its folder.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace stalls report headrace-stalls\n"
                   "  headrace stalls report headrace-stalls/stalls.json --page report.html",
    };
    int r = cli_parse(&syntax, argc, argv, &c.source);
    if (r >= 0)
        return r;
    r = stalls_result_read(&result, c.source, &error);
    if (!r)
        r = write_report(&c, result, &error);
    hr_stalls_destroy(&result);
    return r ? cli_failed(REPORT, r, &error, "") : cli_finish(REPORT, CLI_OK);
}

/* ---- merge ---- */

/* Texts of records. The arrays grow together. */
struct records {
    char **texts;
    size_t *lengths;
    int count, capacity;
};

static void records_clear(struct records *all)
{
    for (int i = 0; i < all->count; i++)
        free(all->texts[i]);
    free(all->texts);
    free(all->lengths);
    *all = (struct records){.count = 0};
}

static int grow(struct records *all)
{
    int capacity = all->capacity ? 2 * all->capacity : 16;
    char **texts = realloc(all->texts, (size_t)capacity * sizeof *texts);
    if (texts)
        all->texts = texts;
    size_t *lengths = realloc(all->lengths, (size_t)capacity * sizeof *lengths);
    if (lengths)
        all->lengths = lengths;
    if (!texts || !lengths)
        return -ENOMEM;
    all->capacity = capacity;
    return 0;
}

static int add_record(struct records *all, const char *path, struct hr_error *error)
{
    if (all->count == all->capacity && grow(all))
        return -ENOMEM;
    char *text = text_read_file(path, &all->lengths[all->count]);
    if (!text) {
        int code = errno ? errno : ENOMEM;
        snprintf(error->message, sizeof error->message, "cannot read %s: %s", path, strerror(code));
        return -code;
    }
    all->texts[all->count++] = text;
    return 0;
}

static int is_record(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return !strncmp(entry->d_name, "rank-", 5) && length > 10 &&
           !strcmp(entry->d_name + length - 5, ".json");
}

/* Adds all records in `part`/records. Returns 1 if there are some, 0 if not, or an error. */
static int add_records(struct records *all, const char *part, struct hr_error *error)
{
    struct dirent **entries = NULL;
    char *folder = below(part, "records");
    int count = folder ? scandir(folder, &entries, is_record, versionsort) : -1, r = 0;
    for (int i = 0; i < count; i++) {
        char *path = r ? NULL : below(folder, entries[i]->d_name);
        if (!r)
            r = path ? add_record(all, path, error) : -ENOMEM;
        free(path);
        free(entries[i]);
    }
    free(entries);
    free(folder);
    return r ? r : count > 0;
}

static int check_parts(const char *const *parts, int count, struct hr_error *error)
{
    for (int i = 0; i < count; i++)
        if (access(parts[i], R_OK)) {
            int code = errno;
            snprintf(error->message, sizeof error->message, "cannot read %s: %s", parts[i],
                     strerror(code));
            return -code;
        }
    return 0;
}

/* Returns 1 if all parts have records, which *all then contains; 0 if some have none. */
static int gather_records(struct records *all, const char *const *parts, int count,
                          struct hr_error *error)
{
    int r = 1;
    for (int i = 0; i < count && r == 1; i++)
        r = is_directory(parts[i]) ? add_records(all, parts[i], error) : 0;
    return r;
}

static int merge_results(struct hr_stalls **out, const char *const *parts, int count,
                         struct hr_error *error)
{
    struct hr_stalls **results = calloc((size_t)count, sizeof *results);
    int r = results ? 0 : -ENOMEM;
    for (int i = 0; i < count && !r; i++)
        r = stalls_result_read(&results[i], parts[i], error);
    if (!r)
        r = hr_stalls_merge(out, (const struct hr_stalls *const *)results, count, error);
    for (int i = 0; results && i < count; i++)
        hr_stalls_destroy(&results[i]);
    free(results);
    return r;
}

static int merge_parts(struct hr_stalls **out, const char *const *parts, int count,
                       struct hr_error *error)
{
    struct records all = {.count = 0};
    int r = check_parts(parts, count, error);
    if (r)
        return r;
    r = gather_records(&all, parts, count, error);
    if (r == 1)
        r = hr_stalls_analyse(out, (const char *const *)all.texts, all.lengths, all.count, error);
    else if (!r)
        r = merge_results(out, parts, count, error);
    records_clear(&all);
    return r;
}

/* Checks that a result may be written to `folder`: it is new, empty, or has a result already. */
static int check_folder(const char *folder, struct hr_error *error)
{
    struct hr_stalls *earlier = NULL;
    struct dirent **entries = NULL;
    if (!mkdir(folder, 0777))
        return 0;
    int code = errno, others = 0;
    int count = code == EEXIST ? scandir(folder, &entries, NULL, NULL) : -1;
    if (count < 0) {
        code = code == EEXIST ? errno : code;
        snprintf(error->message, sizeof error->message, "cannot write to the folder %s: %s", folder,
                 strerror(code));
        return -code;
    }
    for (int i = 0; i < count; i++) {
        others |= strcmp(entries[i]->d_name, ".") && strcmp(entries[i]->d_name, "..");
        free(entries[i]);
    }
    free(entries);
    if (!others)
        return 0;
    int r = stalls_result_read(&earlier, folder, NULL);
    hr_stalls_destroy(&earlier);
    if (r)
        snprintf(error->message, sizeof error->message,
                 "the folder %s holds something other than a result: name another one", folder);
    return r ? -EEXIST : 0;
}

static int write_files(const struct hr_stalls *result, const char *folder, struct hr_error *error)
{
    static const struct {
        const char *name;
        int (*write)(const struct hr_stalls *result, const char *path, struct hr_error *error);
    } files[] = {
        {"stalls.json", hr_stalls_write},
        {"report.html", hr_stalls_write_page},
        {"trace.json", hr_stalls_write_trace},
    };
    int r = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && !r; i++) {
        char *path = below(folder, files[i].name);
        r = path ? files[i].write(result, path, error) : -ENOMEM;
        free(path);
    }
    return r;
}

static int merge(const char *const *words, int count, int json)
{
    struct hr_stalls *result = NULL;
    struct hr_error error = {0};
    int r = merge_parts(&result, words + 1, count - 1, &error);
    if (!r)
        r = check_folder(words[0], &error);
    if (!r)
        r = write_files(result, words[0], &error);
    if (!r)
        r = json ? hr_stalls_write(result, "-", &error)
                 : hr_stalls_write_text(result, "-", text_width(), &error);
    hr_stalls_destroy(&result);
    return r ? cli_failed(MERGE, r, &error, "") : cli_finish(MERGE, CLI_OK);
}

int stalls_merge(int argc, char **argv)
{
    const char *words[MOST_PARTS + 1] = {NULL};
    int json = 0, count = 0;
    const struct cli_option options[] = {
        {.name = "json", .target = &json, .help = "print stalls.json instead of text"},
    };
    const struct cli_syntax syntax = {
        .verb = MERGE,
        .arguments = "OUT PART... [options]",
        .text = "Joins the results of the hosts of one run into the folder OUT. A PART is a\n"
                "host's folder of results, or its stalls.json; if all are folders with records,\n"
                "the records are analysed again.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 2,
        .optional = MOST_PARTS - 1,
        .example = "  headrace stalls merge all host1/headrace-stalls host2/headrace-stalls",
    };
    int r = cli_parse(&syntax, argc, argv, words);
    if (r >= 0)
        return r;
    while (count <= MOST_PARTS && words[count])
        count++;
    return merge(words, count, json);
}
