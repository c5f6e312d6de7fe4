/*
 * A small reader of XML, for the answers of object stores: elements and text, one event at a time,
 * without memory of its own.
 *
 * It knows the five entities of XML and numeric ones, and skips comments, processing instructions
 * and attributes. A document type, whose entities could grow without bound, is refused.
 */
#ifndef HR_STORAGE_XML_H
#define HR_STORAGE_XML_H

#include <stddef.h>

#define HR__XML_DEPTH 32

enum hr__xml_event {
    HR__XML_END = 0, /* the document is over, with all elements closed */
    HR__XML_OPEN,    /* an element begins; `name` */
    HR__XML_CLOSE,   /* it ends; `name`, and its `text`, if it held nothing else */
    HR__XML_WRONG,   /* no document as above */
};

struct hr__xml {
    char *at, *end; /* what was not read yet */
    char *name;     /* of the element, 0-terminated, without a prefix */
    char *text;     /* on CLOSE: the element's text, without entities, 0-terminated; "" */
    char *names[HR__XML_DEPTH];
    unsigned depth; /* open elements, with that of OPEN and without that of CLOSE */
    char *pending;  /* where the text of the current element begins; NULL: it has elements */
    int closes;     /* the element that was opened last is empty ("<a/>") */
};

/* Begins with a document, which is written to while it is read: names and texts become
 * 0-terminated. text[length] must be writable. */
void hr__xml_begin(struct hr__xml *xml, char *text, size_t length);

enum hr__xml_event hr__xml_next(struct hr__xml *xml);

#endif
