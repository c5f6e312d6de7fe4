/* Determines the form of an item from its first bytes; the names of forms are in base/form.c. */
#include "codec/item.h"

enum hr_form hr_form_of(const void *bytes, size_t length)
{
    if (!hr__item_recognise(bytes, length))
        return HR_FORM_ENCODED;
    const uint8_t *form = (const uint8_t *)bytes + offsetof(struct hr__item_header, form);
    return *form > HR_FORM_ENCODED && *form < HR_FORMS ? (enum hr_form) * form
                                                       : HR_FORM_COEFFICIENTS;
}
