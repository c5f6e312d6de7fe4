/*
 * Parses the values of options such as --cores 1..16, --cache 64GiB or --storage 100MB/s..2GB/s:
 * one value, a list (1,2,4), or a range, which becomes a series of values.
 */
#ifndef HR_CLI_PREDICT_VALUES_H
#define HR_CLI_PREDICT_VALUES_H

#define PREDICT_MOST_VALUES 33

enum predict_kind {
    PREDICT_COUNT, /* 1, 2, 3 */
    PREDICT_SHARE, /* 0..1 */
    PREDICT_SIZE,  /* bytes with a unit */
    PREDICT_SPEED, /* bytes/s with a unit, or a factor: x2 */
    PREDICT_TIMES, /* a factor: 0.5, 2, x4 */
};

struct predict_values {
    double value[PREDICT_MOST_VALUES];
    int times[PREDICT_MOST_VALUES]; /* PREDICT_SPEED: the value is a factor, not bytes/s */
    int count;
};

/* Returns 0, or -1 if the text is invalid; *problem then says what is valid. */
int predict_values_parse(struct predict_values *values, enum predict_kind kind, const char *text,
                         const char **problem);

/* Takes the one value of an option of `verb`: a size or a speed, no factor. Leaves *value where
 * there is no text. Returns 0, or -1 after a complaint; `valid` says what is: "a size (40GiB)". */
int predict_value_take(const char *verb, const char *option, enum predict_kind kind,
                       const char *text, const char *valid, double *value);

/* Writes a value as text: "16", "50 %", "64.0 GiB", "2 GB/s", "x2". */
void predict_value_print(char out[32], enum predict_kind kind, double value, int times);

#endif
