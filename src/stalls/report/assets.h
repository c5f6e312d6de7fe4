/* The scripts of pages about stalls, embedded at build time, and the content security policy that
 * allows only these scripts and the shared ones of src/report. Zero-terminated texts. */
#ifndef HR_STALLS_REPORT_ASSETS_H
#define HR_STALLS_REPORT_ASSETS_H

extern const char hr__stalls_page_script[];
extern const char hr__stalls_page_policy[];

#endif
