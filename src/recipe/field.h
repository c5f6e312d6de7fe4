/*
 * The parameters of an operation, by name: their types and places in struct hr_operation. Each
 * operation lists its own. Bindings and the agent's statements read and write parameters by these
 * lists.
 */
#ifndef HR_RECIPE_FIELD_H
#define HR_RECIPE_FIELD_H

#include <headrace/recipe.h>

#include <stddef.h>
#include <string.h>

enum hr__parameter_type {
    HR__PARAMETER_INTEGER,
    HR__PARAMETER_FLAG,
    HR__PARAMETER_SHORT_FLAG,
    HR__PARAMETER_REAL,
    HR__PARAMETER_WORD
};

struct hr__parameter {
    const char *name;
    enum hr__parameter_type type; /* REAL: a double; SHORT_FLAG: a short; else an int */
    size_t offset;                /* in struct hr_operation */
    size_t count;                 /* of values */
    const char *const *words;     /* WORD: by value, ended by NULL */
};

/* The type, offset, count and words of a member of struct hr_operation's union. */
#define HR__AT(member) offsetof(struct hr_operation, u.member)
#define HR__AT_ALL(member, type)                                                                   \
    HR__AT(member), sizeof((struct hr_operation *)0)->u.member / sizeof(type)
#define HR__INTEGER(member)     HR__PARAMETER_INTEGER, HR__AT(member), 1, NULL
#define HR__INTEGERS(member)    HR__PARAMETER_INTEGER, HR__AT_ALL(member, int), NULL
#define HR__FLAG(member)        HR__PARAMETER_FLAG, HR__AT(member), 1, NULL
#define HR__SHORT_FLAG(member)  HR__PARAMETER_SHORT_FLAG, HR__AT(member), 1, NULL
#define HR__REAL(member)        HR__PARAMETER_REAL, HR__AT(member), 1, NULL
#define HR__REALS(member)       HR__PARAMETER_REAL, HR__AT_ALL(member, double), NULL
#define HR__WORD(member, words) HR__PARAMETER_WORD, HR__AT(member), 1, words

/* Reads and writes a parameter that is no REAL. */
static inline int hr__parameter_whole(const struct hr__parameter *parameter, const char *at)
{
    short flag;
    int whole;
    if (parameter->type == HR__PARAMETER_SHORT_FLAG) {
        memcpy(&flag, at, sizeof flag);
        return flag;
    }
    memcpy(&whole, at, sizeof whole);
    return whole;
}

static inline void hr__parameter_set_whole(const struct hr__parameter *parameter, char *at,
                                           int whole)
{
    short flag = whole != 0;
    if (parameter->type == HR__PARAMETER_SHORT_FLAG)
        memcpy(at, &flag, sizeof flag);
    else
        memcpy(at, &whole, sizeof whole);
}

/* Words that several operations use. */
extern const char *const hr__interpolation_words[];
extern const char *const hr__padding_words[];
extern const char *const hr__dtype_words[];

/* Returns the parameters of a kind, ended by a NULL name; NULL for an unknown kind. */
const struct hr__parameter *hr__operation_fields(enum hr_operation_kind kind);

#endif
