/* Reports of headrace predict: text, and the JSON described in headrace-predict(1). */
#ifndef HR_CLI_PREDICT_REPORT_H
#define HR_CLI_PREDICT_REPORT_H

#include <headrace/stalls.h>

#define PREDICT_MOST_SUGGESTIONS 8

/* One change and its prediction. */
struct predict_point {
    char label[32]; /* of the varied value; "": none is varied */
    struct hr_stalls_change change;
    struct hr_stalls_prediction prediction;
};

struct predict_report {
    const char *path;
    const char *what;   /* the changes in words; "": none */
    const char *varied; /* name of the varied option, e.g. "cores"; NULL: none */
    double stall;       /* share of waiting that a suggestion may leave */
    struct predict_point now;
    struct predict_point *points; /* none if nothing is changed */
    int count;
    struct hr_stalls_suggestion suggestions[PREDICT_MOST_SUGGESTIONS];
    int suggestion_count;
    char unknown[1024]; /* why nothing can be suggested, "not known: ..."; "": suggestions exist */
};

void predict_report_print(const struct predict_report *report);

/* Returns the JSON described in headrace-predict(1); NULL: out of memory. */
struct json_t *predict_report_json(const struct predict_report *report);

#endif
