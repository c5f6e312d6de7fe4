/*
 * What all report pages share: page.css and the charting library, embedded at build time
 * (embed.py). Zero-terminated texts. The scripts of a kind of page, and the content security
 * policy that allows them, are made the same way where that page is.
 */
#ifndef HR_REPORT_ASSETS_H
#define HR_REPORT_ASSETS_H

extern const char hr__page_style[];
extern const char hr__page_library[]; /* Chart.js; "": built without one, pages have tables only */
extern const char hr__page_licence[]; /* its notice, as its package has it */

#endif
