/* The reader of XML: elements and texts of answers as stores write them, and what it refuses. */
#include "../test.h"
#include "storage/xml.h"

#include <stdio.h>
#include <string.h>

/* Reads a document into "<a><b>text</b></a>" without what the reader skips. Returns the last event.
 */
static enum hr__xml_event read_all(const char *document, char *out, size_t capacity)
{
    char text[2048];
    struct hr__xml xml;
    enum hr__xml_event event;
    size_t length = 0;
    out[0] = 0;
    snprintf(text, sizeof text, "%s", document);
    hr__xml_begin(&xml, text, strlen(text));
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE)
        length += (size_t)snprintf(out + length, capacity - length, "%s%s%s>",
                                   event == HR__XML_CLOSE ? xml.text : "",
                                   event == HR__XML_CLOSE ? "</" : "<", xml.name);
    return event;
}

static void reads(const char *document, const char *expected)
{
    char out[2048];
    assert_int_equal(read_all(document, out, sizeof out), HR__XML_END);
    assert_string_equal(out, expected);
}

static void test_documents(void **state)
{
    reads("<?xml version=\"1.0\"?>\n<!-- c --><a xmlns=\"http://x/>\"><b>1</b><c/></a>\n",
          "<a><b>1</b><c></c></a>");
    reads("<s:a><s:b >x y</s:b ></s:a>", "<a><b>x y</b></a>");
    reads("<a>1 &lt; 2 &amp;&#233;&#x20AC;&quot;&apos;&gt;</a>",
          "<a>1 < 2 &\xc3\xa9\xe2\x82\xac\"'></a>");
    reads("<a at='>' b=\"/\"/>", "<a></a>");
    reads("<a>text<b>1</b>more</a>", "<a><b>1</b></a>");
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "text",
        "<a>",
        "<a></b>",
        "<a></a",
        "</a>",
        "<a><b></a></b>",
        "<a>&unknown;</a>",
        "<a>&#0;</a>",
        "<a>&#xD800;</a>",
        "<a>&#99999999999;</a>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
        "<a><!-- </a>",
        "<a b='></a>",
        "<a></a>rest",
        "<>x</>",
    };
    char out[2048];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (read_all(wrong[i], out, sizeof out) != HR__XML_WRONG)
            fail_msg("taken: %s", wrong[i]);
}

static void test_depth(void **state)
{
    char document[1024] = "", out[2048];
    for (int i = 0; i < HR__XML_DEPTH; i++)
        strcat(document, "<a>");
    for (int i = 0; i < HR__XML_DEPTH; i++)
        strcat(document, "</a>");
    assert_int_equal(read_all(document, out, sizeof out), HR__XML_END);
    memmove(document + 3, document, strlen(document) + 1);
    memcpy(document, "<a>", 3);
    assert_int_equal(read_all(document, out, sizeof out), HR__XML_WRONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
