/*
 * What --cores 1..16, --cache 64GiB or --storage 100MB/s..2GB/s mean: one value, some
 * (1,2,4) or a range, which becomes a series of values.
 */
#ifndef HR_CLI_PREDICT_VALUES_H
#define HR_CLI_PREDICT_VALUES_H

#define PREDICT_MOST_VALUES 33

enum predict_kind {
    PREDICT_COUNT, /* 1, 2, 3 */
    PREDICT_SHARE, /* 0..1 */
    PREDICT_SIZE,  /* bytes with a unit */
    PREDICT_SPEED, /* bytes/s with a unit, or x2 */
    PREDICT_TIMES, /* 0.5, 2, x4 */
};

struct predict_values {
    double value[PREDICT_MOST_VALUES];
    int times[PREDICT_MOST_VALUES]; /* of PREDICT_SPEED: it is x2, not bytes/s */
    int count;
};

/* 0, or -1 where the text is none; `problem` then says what it must be. */
int predict_values_parse(struct predict_values *values, enum predict_kind kind, const char *text,
                         const char **problem);

/* One of them as text: "16", "50 %", "64.0 GiB", "2 GB/s", "x2". `out`: 32 bytes. */
void predict_value_print(char out[32], enum predict_kind kind, double value, int times);

#endif
