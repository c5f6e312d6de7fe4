/*
 * The style sheet and the charting library of all report pages, embedded at build time by embed.py.
 * Zero-terminated. Each kind of page embeds its own scripts, and the content security policy that
 * allows them, in the same way.
 */
#ifndef HR_REPORT_ASSETS_H
#define HR_REPORT_ASSETS_H

extern const char hr__page_style[];
extern const char hr__page_library[]; /* Chart.js; "": built without it, tables only */
extern const char hr__page_licence[]; /* its licence text */

#endif
