/* What filters of colours on bytes share. */
#ifndef HR_RECIPE_COLOR_BYTES_H
#define HR_RECIPE_COLOR_BYTES_H

#include "recipe/filter.h"

/* Replaces each byte v of channel c by table[v]. */
void hr__table_run(const struct hr__window *w, int c, const uint8_t table[256]);

/* Finds the smallest and the largest byte of channel c. */
void hr__extremes(const struct hr__window *w, int c, uint8_t *low, uint8_t *high);

#endif
