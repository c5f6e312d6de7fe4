/*
 * Full-screen mode of the terminal; see terminal.h. Signal handlers only set flags. The signals are
 * blocked except while waiting (ppoll), so none is lost and none interrupts drawing. Escape
 * sequences: ECMA-48 and xterm's control sequences.
 */
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l"        /* alternate screen, hide the cursor */
#define LEAVE "\033[0m\033[?25h\033[?1049l" /* plain text, show the cursor, main screen */

static struct termios former;
static int is_taken;
static sigset_t unblocked; /* the signal mask of ppoll */
static volatile sig_atomic_t ended_by, resized, suspended;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
#define SIGNALS (sizeof signals / sizeof *signals)

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else if (number == SIGTSTP)
        suspended = 1;
    else
        ended_by = number;
}

int terminal_can_be_screen(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind && *kind &&
           strcmp(kind, "dumb") != 0;
}

static int take(void)
{
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &former))
        return -1;
    raw = former;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw))
        return -1;
    is_taken = 1;
    return terminal_write(ENTER, strlen(ENTER));
}

int terminal_begin(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaddset(&blocked, signals[i]);
    sigprocmask(SIG_BLOCK, &blocked, &unblocked);
    for (size_t i = 0; i < SIGNALS; i++) {
        sigdelset(&unblocked, signals[i]);
        sigaction(signals[i], &action, NULL);
    }
    return take();
}

void terminal_end(void)
{
    if (!is_taken)
        return;
    is_taken = 0;
    terminal_write(LEAVE, strlen(LEAVE));
    tcsetattr(STDIN_FILENO, TCSANOW, &former);
}

/* Ctrl-Z: restores the terminal for the shell, stops, and takes the screen again when continued. */
static void suspend(void)
{
    suspended = 0;
    terminal_end();
    raise(SIGSTOP);
    if (take())
        ended_by = SIGHUP;
}

enum terminal_event terminal_wait(double seconds, char *key)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    time_t whole = (time_t)seconds;
    struct timespec most = {.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
    int n = ppoll(&input, 1, &most, &unblocked);
    if (suspended) {
        suspend();
        return TERMINAL_SIZE;
    }
    if (ended_by)
        return TERMINAL_END;
    if (resized) {
        resized = 0;
        return TERMINAL_SIZE;
    }
    if (n <= 0)
        return TERMINAL_TIME;
    return read(STDIN_FILENO, key, 1) == 1 ? TERMINAL_KEY : TERMINAL_END;
}

int terminal_signal(void)
{
    return ended_by;
}

void terminal_size(size_t *columns, size_t *rows)
{
    struct winsize window;
    int is_known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) && window.ws_col && window.ws_row;
    *columns = is_known ? window.ws_col : 80;
    *rows = is_known ? window.ws_row : 24;
}

int terminal_write(const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(STDOUT_FILENO, text, length);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        }
    }
    return 0;
}
