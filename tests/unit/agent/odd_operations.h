/* Every parameter of every operation, each different from its default. */
#ifndef HR_TEST_ODD_OPERATIONS_H
#define HR_TEST_ODD_OPERATIONS_H

#include <headrace/recipe.h>

struct hr_operation odd(enum hr_operation_kind kind);

/* Fails the test if a parameter has its default value, so that comparing it would mean nothing. */
void check_odd_parameters(void);

#endif
