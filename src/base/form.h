/* The names of the sample forms (enum hr_form). */
#ifndef HR_BASE_FORM_H
#define HR_BASE_FORM_H

#include <headrace/form.h>

/* Indexed by enum hr_form and terminated by NULL. */
extern const char *const hr__form_names[];

#endif
