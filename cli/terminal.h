/*
 * A terminal as a screen: the alternate one, keys without Enter, and the former state again
 * however the command ends (a key, Ctrl-C, kill, Ctrl-Z). One at a time.
 */
#ifndef HR_CLI_TERMINAL_H
#define HR_CLI_TERMINAL_H

#include <stddef.h>

enum terminal_event {
    TERMINAL_TIME, /* the time is over */
    TERMINAL_KEY,  /* *key was pressed */
    TERMINAL_SIZE, /* the window's size changed, or the screen was lost: draw again */
    TERMINAL_END,  /* a signal asks to end; or the terminal is gone */
};

/* Whether standard input and output are a terminal that can be a screen. */
int terminal_can_be_screen(void);

/* Takes the screen and the signals SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH. Returns 0, or -1
 * with errno. */
int terminal_begin(void);

/* Gives the screen back; nothing where it was not taken. */
void terminal_end(void);

/* Waits for so many seconds at most. */
enum terminal_event terminal_wait(double seconds, char *key);

/* The signal that asked to end; 0: none. */
int terminal_signal(void);

/* Of the window; 80 x 24 where nobody knows. */
void terminal_size(size_t *columns, size_t *rows);

/* Writes all of it, however long the terminal takes. Returns 0, -1: it is gone. */
int terminal_write(const char *text, size_t length);

#endif
