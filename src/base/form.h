/* The forms by name, as a list. */
#ifndef HR_BASE_FORM_H
#define HR_BASE_FORM_H

#include <headrace/form.h>

/* By enum hr_form; NULL at the end. */
extern const char *const hr__form_names[];

#endif
