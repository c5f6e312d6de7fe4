/*
 * Full-screen mode of the terminal: the alternate screen, keys without Enter. The former state is
 * restored however the command ends (a key, Ctrl-C, kill, Ctrl-Z). Only one can be active.
 */
#ifndef HR_CLI_TERMINAL_H
#define HR_CLI_TERMINAL_H

#include <stddef.h>

enum terminal_event {
    TERMINAL_TIME, /* the time has passed */
    TERMINAL_KEY,  /* *key was pressed */
    TERMINAL_SIZE, /* the window's size changed, or the screen was lost: draw again */
    TERMINAL_END,  /* a signal asks us to end, or the terminal is gone */
};

/* Returns non-zero if standard input and output are a terminal that supports this. */
int terminal_can_be_screen(void);

/* Enters full-screen mode and handles SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH. Returns 0, or
 * -1 with errno. */
int terminal_begin(void);

/* Leaves full-screen mode; does nothing if it is not active. */
void terminal_end(void);

/* Waits for an event, at most for `seconds`. */
enum terminal_event terminal_wait(double seconds, char *key);

/* Returns the signal that asked us to end; 0: none. */
int terminal_signal(void);

/* Returns the window's size; 80 x 24 if it is unknown. */
void terminal_size(size_t *columns, size_t *rows);

/* Writes the whole text, blocking as long as necessary. Returns 0; -1: the terminal is gone. */
int terminal_write(const char *text, size_t length);

#endif
