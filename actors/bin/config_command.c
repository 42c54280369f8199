/* config_command.c: troupe config: every setting, its value and where that comes from. */
#include <inttypes.h>
#include <stdio.h>

#include "actors/bin/command.h"
#include "actors/bin/rows.h"
#include "core/base/config.h"

static json_t *rows_of_settings(void) {
    json_t *rows = json_array();
    for (int i = 0; i < TRPI_CONFIG_COUNT; i++) {
        trpi_setting setting = (trpi_setting)i;
        char name[96];
        trpi_format(name, sizeof(name), "TROUPE_%s", trpi_config_name(setting));
        json_array_append_new(rows, json_pack("{s:s, s:I, s:s, s:s}", "name", name, "value",
                                              (json_int_t)trpi_config(setting), "origin",
                                              trpi_config_origin(setting), "meaning",
                                              trpi_config_text(setting)));
    }
    return rows;
}

int trpi_command_config(int argc, char **argv) {
    static const trpi_column columns[] = {{"NAME", "name", NULL},
                                          {"VALUE", "value", NULL},
                                          {"ORIGIN", "origin", NULL},
                                          {"MEANING", "meaning", NULL}};
    const char *format = "table";
    const trpi_option options[] = {TRPI_OPTION_FORMAT(format)};
    const trpi_usage usage = {.command = "config",
                              .arguments = "",
                              .summary = "Prints every setting, its value and where it comes from.",
                              .details =
                                  "A setting is changed by the environment variable of its "
                                  "name, in the process that reads it.\n"
                                  "Not numbers, so not listed: TROUPE_ADDRESS (HOST:PORT of the "
                                  "head), TROUPE_SESSION_ROOT\n(where processes keep their files "
                                  "on a host), TROUPE_LOG (debug, info, warn or error).",
                              .example = "TROUPE_LOG_FILES=20 troupe config",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options)};
    int exit_code = TRPI_EXIT_OK;
    bool is_json;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (!trpi_parse_format(usage.command, format, &is_json)) {
        return TRPI_EXIT_USAGE;
    }
    json_t *rows = rows_of_settings();
    if (is_json) {
        trpi_json_print(stdout, rows);
    } else {
        trpi_rows_print(stdout, rows, columns, TRPI_COUNTOF(columns));
    }
    json_decref(rows);
    return TRPI_EXIT_OK;
}
