/*
 * Helpers for tests of segments and stores: a temporary folder in shared memory, items whose bytes
 * identify their key, and checks of the totals that must hold in a segment whatever happened to its
 * users.
 */
#ifndef SEGMENT_FIXTURE_H
#define SEGMENT_FIXTURE_H

#include "../test.h"

#include "cache/segment_inside.h"
#include "cache/store.h"

/* Makes the folder and makes it HEADRACE_SHM; for cmocka's group setup. */
int fixture_make(void **state);
/* Removes it; nothing may be left in it. */
int fixture_remove(void **state);

/* A store on segment "t+NUMBER", made where it is not there. `items`: that it expects. */
struct hr__store *fixture_open(int number, uint64_t budget, uint64_t items);
void fixture_close(struct hr__store **store);
/* Removes the file. */
void fixture_drop(int number);
/* The same as open, for segments alone; NULL and the error in *code. */
struct hr__segment *fixture_attach(int number, int use, int *code);
char *fixture_path(int number);

struct hr__key fixture_key(uint64_t item);
size_t fixture_length(uint64_t item);
/* Fills `length` bytes with what the item has in that form. */
void fixture_fill(uint64_t item, enum hr_form form, uint8_t *bytes, size_t length);

/* Offers an item; `convert` stages it with room for twice its bytes. */
int fixture_offer(struct hr__store *store, uint64_t item, int convert);
/* 1: found, and the bytes are right; 0: not found; fails the test where they are wrong. */
int fixture_find(struct hr__store *store, uint64_t item);
/* Converts what waits longest, to twice its bytes: -1: nothing waits; else what settle said. */
int fixture_convert(struct hr__store *store);

/* Fails the test unless the books agree with the index: no byte of the arena is nobody's or
 * two items', every promise has its item. No transaction is open. */
void fixture_audit(struct hr__segment *segment);

#endif
