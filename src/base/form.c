/* The forms by name: every room above may speak of them. */
#include <headrace/form.h>

const char *hr_form_name(enum hr_form form)
{
    static const char *const name[] = {"encoded", "coefficients", "planes"};
    return (unsigned)form < sizeof name / sizeof name[0] ? name[form] : NULL;
}
