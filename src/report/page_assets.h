/*
 * The parts of a page that are the same in all of them: made of page.css, page.js and the
 * charting library at build time (embed.py). Zero-terminated texts.
 */
#ifndef HR_REPORT_PAGE_ASSETS_H
#define HR_REPORT_PAGE_ASSETS_H

extern const char hr__page_style[];
extern const char hr__page_script[];
extern const char hr__page_library[]; /* Chart.js; "": built without one, pages have tables only */
extern const char hr__page_licence[]; /* its notice, as its package has it */
extern const char hr__page_policy[];  /* the content security policy that allows just these */

#endif
