/*
 * The parts of a page that are the same in all of them: made of page.css, the scripts and the
 * charting library at build time (embed.py). Zero-terminated texts.
 */
#ifndef HR_REPORT_ASSETS_H
#define HR_REPORT_ASSETS_H

extern const char hr__page_style[];
extern const char hr__page_script[];        /* of pages about stalls: base.js, page.js */
extern const char hr__page_memory_script[]; /* about memory: base.js, its own */
extern const char hr__page_library[]; /* Chart.js; "": built without one, pages have tables only */
extern const char hr__page_licence[]; /* its notice, as its package has it */
/* The content security policies that allow just these. */
extern const char hr__page_policy[];
extern const char hr__page_memory_policy[];

#endif
