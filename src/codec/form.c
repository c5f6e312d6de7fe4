/* The forms by name and by first bytes. */
#include "codec/item.h"

const char *hr_form_name(enum hr_form form)
{
    static const char *const name[] = {"encoded", "coefficients", "planes"};
    return (unsigned)form < sizeof name / sizeof name[0] ? name[form] : NULL;
}

enum hr_form hr_form_of(const void *bytes, size_t length)
{
    if (!hr__item_recognise(bytes, length))
        return HR_FORM_ENCODED;
    const uint8_t *form = (const uint8_t *)bytes + offsetof(struct hr__item_header, form);
    return *form == HR_FORM_PLANES ? HR_FORM_PLANES : HR_FORM_COEFFICIENTS;
}
