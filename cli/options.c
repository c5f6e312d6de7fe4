/* Option tables: parses command lines, suggests corrections, and prints the help. */
#include "options.h"

#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 32

static void print_option(const char *name, const char *value, const char *help)
{
    char left[96];
    snprintf(left, sizeof left, "--%s%s%s", name, value ? " " : "", value ? value : "");
    printf("  %-22s", left);
    if (strlen(left) > 21)
        printf("\n%24s", "");
    for (;;) {
        size_t length = strcspn(help, "\n");
        fwrite(help, 1, length, stdout);
        putchar('\n');
        if (!help[length])
            return;
        help += length + 1;
        printf("%24s", "");
    }
}

static void print_help(const struct cli_syntax *s)
{
    printf("Usage: headrace %s %s\n\n%s\n\nOptions:\n", s->verb, s->arguments, s->text);
    for (int i = 0; i < s->option_count; i++)
        print_option(s->options[i].name, s->options[i].value, s->options[i].help);
    print_option("help", NULL, "print this help and exit");
    printf("\nExample:\n%s\n\n"
           "Exit status: 0 success, 1 a problem was found, 2 usage, 3 failed,\n"
           "130 interrupted.\n",
           s->example);
}

static const struct cli_option *find(const struct cli_syntax *s, const char *name, size_t length)
{
    for (int i = 0; i < s->option_count; i++)
        if (strlen(s->options[i].name) == length && !memcmp(s->options[i].name, name, length))
            return &s->options[i];
    return NULL;
}

static int unknown(const struct cli_syntax *s, const char *word)
{
    const char *names[MAX_OPTIONS + 1];
    char name[64];
    int count = 0;
    for (; count < s->option_count && count < MAX_OPTIONS; count++)
        names[count] = s->options[count].name;
    names[count++] = "help";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *near = cli_nearest(name + strspn(name, "-"), names, count);
    cli_complain(s->verb, "unknown option %s%s%s; see headrace %s --help", name,
                 near ? "; did you mean --" : "", near ? near : "", s->verb);
    return CLI_USAGE;
}

static int set_number(const struct cli_syntax *s, const struct cli_option *o, const char *value)
{
    char *end;
    long number = strtol(value, &end, 10);
    if (!*value || *end || number < o->least || number > o->most) {
        cli_complain(s->verb, "--%s %s: it must be a number from %d to %d", o->name, value,
                     o->least, o->most);
        return CLI_USAGE;
    }
    *o->target = (int)number;
    return -1;
}

static int set_real(const struct cli_syntax *s, const struct cli_option *o, const char *value)
{
    char *end;
    double number = strtod(value, &end);
    if (!*value || *end || !(number >= o->least) || number > 1e9) {
        cli_complain(s->verb, "--%s %s: it must be a number, %d or more", o->name, value, o->least);
        return CLI_USAGE;
    }
    *o->real = number;
    return -1;
}

static int set_choice(const struct cli_syntax *s, const struct cli_option *o, const char *value)
{
    for (int i = 0; o->choices[i]; i++)
        if (!strcmp(o->choices[i], value)) {
            *o->target = i;
            return -1;
        }
    cli_complain(s->verb, "--%s %s: it must be one of %s", o->name, value, o->value);
    return CLI_USAGE;
}

/* Parses the option at argv[*i], whose value is in the same or the next argument. */
static int take_option(const struct cli_syntax *s, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    const struct cli_option *o = find(s, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o)
        return unknown(s, argv[*i]);
    if (o->kind == CLI_FLAG) {
        if (equals) {
            cli_complain(s->verb, "--%s takes no value", o->name);
            return CLI_USAGE;
        }
        *o->target = 1;
        return -1;
    }
    if (!equals && *i + 1 >= argc) {
        cli_complain(s->verb, "--%s needs a value: --%s %s", o->name, o->name, o->value);
        return CLI_USAGE;
    }
    const char *value = equals ? equals + 1 : argv[++*i];
    if (o->kind == CLI_TEXT) {
        *o->text = value;
        return -1;
    }
    if (o->kind == CLI_REAL)
        return set_real(s, o, value);
    return o->kind == CLI_NUMBER ? set_number(s, o, value) : set_choice(s, o, value);
}

static int check_count(const struct cli_syntax *s, int found, const char *extra)
{
    if (extra)
        cli_complain(s->verb, "one argument too many: %s; see headrace %s --help", extra, s->verb);
    else if (found < s->positional)
        cli_complain(s->verb, "an argument is missing; usage: headrace %s %s", s->verb,
                     s->arguments);
    else
        return -1;
    return CLI_USAGE;
}

int cli_parse(const struct cli_syntax *syntax, int argc, char **argv, const char **positional)
{
    int found = 0, only_arguments = 0, r = -1;
    const char *extra = NULL;
    if (syntax->rest)
        *syntax->rest = argc;
    for (int i = 1; i < argc && r < 0; i++) {
        const char *word = argv[i];
        if (syntax->rest && (only_arguments || word[0] != '-')) {
            *syntax->rest = i;
            break;
        }
        if (only_arguments || word[0] != '-' || !word[1]) {
            if (found < syntax->positional + syntax->optional)
                positional[found++] = word;
            else if (!extra)
                extra = word;
        } else if (!strcmp(word, "--")) {
            only_arguments = 1;
        } else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help(syntax);
            return cli_finish(syntax->verb, CLI_OK);
        } else if (word[1] != '-') {
            r = unknown(syntax, word);
        } else {
            r = take_option(syntax, argc, argv, &i);
        }
    }
    return r < 0 ? check_count(syntax, found, extra) : r;
}
