/*
 * Statements of what a loader prepares: any text is parsed, or refused with a reason. A recipe made
 * from it is the same, bit for bit, after it is written and read again. The test opens no dataset.
 */
#include "agent/statement_parse.h"

#include <headrace/producer.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int is_true)
{
    if (!is_true)
        abort();
}

static void check_dataset(const struct hr__stated_dataset *d)
{
    int depth = 0;
    for (; d->is_subset; d = d->of, depth++) {
        check(d->of && (d->indices || !d->index_count) && !d->paths);
        for (size_t i = 0; i < d->index_count; i++)
            check(d->indices[i] >= 0);
    }
    check(depth <= HR__STATEMENT_DEPTH_MAX && !d->of);
    check(d->kind >= HR__SOURCE_PATHS && d->kind <= HR__SOURCE_PRODUCED);
    if (d->kind == HR__SOURCE_PRODUCED)
        check(!d->path_count && *d->produced.name && d->produced.sample_bytes > 0 &&
              d->produced.sample_bytes <= HR_PRODUCED_BYTES_MAX);
    else
        check(d->kind == HR__SOURCE_PATHS ? d->labels != NULL : d->path_count > 0);
    check(d->index >= HR_INDEX_USER_CACHE && d->index <= HR_INDEX_NONE);
    for (size_t i = 0; i < d->path_count; i++)
        check(d->paths[i][0] == '/');
}

static void check_recipe(const struct hr__stated_recipe *stated)
{
    struct hr__json reader = {.where = "recipe"};
    struct hr__stated_recipe again;
    struct hr_recipe *recipe;
    check(stated->count <= HR__RECIPE_MAX_OPERATIONS);
    if (hr_recipe_create(&recipe, stated->operations, stated->count, &stated->options, NULL))
        return;
    json_t *object = hr__stated_recipe_write(recipe);
    char *text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_decref(object);
    object = json_loads(text, 0, NULL);
    free(text);
    hr__stated_recipe_read(&reader, object, &again);
    check(!reader.code && again.count == stated->count);
    check(!memcmp(again.operations, stated->operations, sizeof again.operations));
    check(!memcmp(&again.options, &stated->options, sizeof again.options));
    json_decref(object);
    hr_recipe_unref(&recipe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__statement stated;
    struct hr_error error = {0};
    int r = hr__statement_parse(&stated, (const char *)data, size, &error);
    if (r) {
        check(r == -EPROTO && error.code == r && error.message[0] && !stated.dataset);
        return 0;
    }
    check_dataset(stated.dataset);
    check_recipe(&stated.recipe);
    hr__statement_clear(&stated);
    return 0;
}
