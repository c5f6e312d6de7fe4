/* Includes of every unit test: cmocka, and before it the headers that cmocka needs. */
#ifndef HR_TEST_H
#define HR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
