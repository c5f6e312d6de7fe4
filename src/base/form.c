/* The names of the sample forms, here because every room uses them. */
#include "base/form.h"

#include <stddef.h>

const char *const hr__form_names[] = {"encoded",  "coefficients", "planes", "indexed",
                                      "waveform", "waveform16",   NULL};

const char *hr_form_name(enum hr_form form)
{
    return (unsigned)form < sizeof hr__form_names / sizeof *hr__form_names - 1
               ? hr__form_names[form]
               : NULL;
}
