/* What headrace predict says: text, and the JSON of headrace-predict(1). */
#ifndef HR_CLI_PREDICT_REPORT_H
#define HR_CLI_PREDICT_REPORT_H

#include <headrace/stalls.h>

#define PREDICT_MOST_SUGGESTIONS 8

/* One change and what comes of it. */
struct predict_point {
    char label[32]; /* of the value that is varied; "" where none is */
    struct hr_stalls_change change;
    struct hr_stalls_prediction prediction;
};

struct predict_report {
    const char *path;
    const char *what;   /* the changes in words; "" where there is none */
    const char *varied; /* the option that is varied, "cores"; NULL: none */
    double stall;       /* that suggestions may leave */
    struct predict_point now;
    struct predict_point *points; /* none where nothing is changed */
    int count;
    struct hr_stalls_suggestion suggestions[PREDICT_MOST_SUGGESTIONS];
    int suggestion_count;
    char unknown[1024]; /* why nothing can be suggested, "not known: ..."; "" it can */
};

void predict_report_print(const struct predict_report *report);

/* Returns 0 or -1. */
int predict_report_print_json(const struct predict_report *report);

#endif
