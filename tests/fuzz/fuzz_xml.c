/*
 * XML and the answers that are written in it: any bytes end, without a byte outside; the reader's
 * names and texts are terminated within the document.
 */
#include "storage/xml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__xml xml;
    enum hr__xml_event event;
    size_t opened = 0, closed = 0, steps = 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    hr__xml_begin(&xml, text, size);
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        opened += event == HR__XML_OPEN;
        closed += event == HR__XML_CLOSE;
        if (xml.name < text || xml.name + strlen(xml.name) > text + size || xml.text < text ||
            xml.text + strlen(xml.text) > text + size || closed > opened || ++steps > 2 * size)
            abort();
    }
    if (event == HR__XML_END && (!opened || opened != closed))
        abort();
    free(text);
    return 0;
}
