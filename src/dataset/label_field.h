/*
 * Where the labels of WebDataset's shards are. A sample's members share their name up to its first
 * dot; the rest of the name is the field ("jpg", "cls", "json", "seg.png"). A label is a whole
 * number that is all of one field, or a member of the JSON object in one.
 *
 * Other targets of such samples, texts for example, would be described here, too.
 */
#ifndef HR_DATASET_LABEL_FIELD_H
#define HR_DATASET_LABEL_FIELD_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__label_field {
    char field[64];   /* "cls", "json"; "": samples have no labels, and get 0 */
    char member[192]; /* of the JSON object; "": the field is the number itself */
};

/* A larger field is refused, before memory for it is allocated. */
#define HR__LABEL_FIELD_BYTES ((size_t)1 << 20)

/* Parses hr_dataset_options.label: "FIELD", "FIELD:MEMBER" or "none". Errors: -EINVAL. */
int hr__label_field_parse(struct hr__label_field *out, const char *text, struct hr_error *error);

/* Reads the label from the field's bytes, which end with a zero byte at `text[length]`. Returns
 * NULL, or what is wrong, for a message that begins with the name of the member. */
const char *hr__label_field_read(const struct hr__label_field *field, const char *text,
                                 size_t length, int64_t *label);

#endif
