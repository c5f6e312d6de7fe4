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

/* Makes the folder and sets HEADRACE_SHM to it; for cmocka's group setup. */
int fixture_make(void **state);
/* Removes the folder, which must be empty. */
int fixture_remove(void **state);

/* Opens a store on segment "t+NUMBER", which is made if it does not exist. `items`: the expected
 * number. */
struct hr__store *fixture_open(int number, uint64_t budget, uint64_t items);
void fixture_close(struct hr__store **store);
/* Removes the file. */
void fixture_drop(int number);
/* Opens a segment alone; returns NULL and the error in *code. */
struct hr__segment *fixture_attach(int number, int use, int *code);
char *fixture_path(int number);

struct hr__key fixture_key(uint64_t item);
size_t fixture_length(uint64_t item);
/* Fills `length` bytes with the item's contents in that form. */
void fixture_fill(uint64_t item, enum hr_form form, uint8_t *bytes, size_t length);

/* Offers an item; `convert` stages it with room for twice its bytes. */
int fixture_offer(struct hr__store *store, uint64_t item, int convert);
/* Returns 1 if the item was found, 0 if not. Fails the test if its bytes are wrong. */
int fixture_find(struct hr__store *store, uint64_t item);
/* Converts the item that has waited longest, to twice its bytes. Returns -1 if none waits, else the
 * result of settle. */
int fixture_convert(struct hr__store *store);

/* Fails the test unless the books agree with the index: every byte of the arena belongs to exactly
 * one item or is free, every promise has its item, and no transaction is open. */
void fixture_audit(struct hr__segment *segment);

#endif
