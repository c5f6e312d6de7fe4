/* headrace version: prints the library's version and what it found on this machine. */
#include "cli.h"
#include "options.h"

#include <jansson.h>
#include <stdio.h>

int cmd_version(int argc, char **argv)
{
    int json = 0;
    const struct cli_option options[] = {
        {.name = "json", .target = &json, .help = "print JSON"},
    };
    const struct cli_syntax syntax = {
        .verb = "version",
        .arguments = "[options]",
        .text = "Prints the version of Headrace and the instruction set that its fast paths\n"
                "use on this machine (results do not depend on it).",
        .options = options,
        .option_count = 1,
        .example = "  headrace version --json",
    };
    int r = cli_parse(&syntax, argc, argv, NULL);
    if (r >= 0)
        return r;
    if (json)
        return cli_print_json(
            "version",
            json_pack("{s:s, s:s}", "version", hr_version(), "instructions", hr_isa_name()), 0,
            CLI_OK);
    printf("headrace %s\ninstructions  %s\n", hr_version(), hr_isa_name());
    return cli_finish("version", CLI_OK);
}
