/* completion.c: troupe completion bash, from the tables that parse the commands. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/kinds.h"

/* ---- One command ---- */

/* "out|err" as the words "out err". */
static void print_words(const char *text) {
    for (; *text != '\0'; text++) {
        putchar(strchr("|[]", *text) != NULL ? ' ' : *text);
    }
}

/* What follows an option that takes a value: one of a few words, a directory, or what nobody can
 * guess. */
static void print_values(const trpi_usage *usage, void *arg) {
    (void)arg;
    for (size_t i = 0; i < usage->option_count; i++) {
        const trpi_option *option = &usage->options[i];
        if (option->value == NULL) {
            continue;
        }
        printf("            %s:%s) ", usage->command, option->name);
        if (strchr(option->value, '|') != NULL) {
            printf("words=\"");
            print_words(option->value);
            printf("\" ;;\n");
        } else if (strcmp(option->value, "DIR") == 0) {
            printf("COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n");
        } else {
            printf("return ;;\n");
        }
    }
}

/* Whose value is no argument. */
static void print_takers(const trpi_usage *usage, void *arg) {
    (void)arg;
    for (size_t i = 0; i < usage->option_count; i++) {
        if (usage->options[i].value != NULL) {
            printf("            %s:%s) continue ;;\n", usage->command, usage->options[i].name);
        }
    }
}

/* What the name that the help has for an argument stands for. */
static void print_argument(const trpi_usage *usage) {
    const char *arguments = usage->arguments;
    if (strcmp(arguments, "ACTOR") == 0 || strcmp(arguments, "NODE") == 0) {
        printf("            [ $at -eq 0 ] && words=$(_troupe_ids %s)\n",
               arguments[0] == 'A' ? "actors" : "nodes");
    } else if (strcmp(arguments, TRPI_KIND_TEXT " ID") == 0) {
        printf("            [ $at -eq 0 ] && words=\"");
        print_words(TRPI_KIND_TEXT);
        printf("\"\n            [ $at -eq 1 ] && words=$(_troupe_ids \"$first\")\n");
    } else if (strstr(arguments, " JOB]") != NULL) {
        printf("            [ $at -eq 0 ] && words=\"get logs stop\"\n"
               "            [ $at -eq 1 ] && words=$(_troupe_ids jobs)\n");
    } else if (strcmp(arguments, "[COMMAND]") == 0) {
        printf("            [ $at -eq 0 ] && words=$commands\n");
    } else if (usage->ends_at_argument) {
        printf("            if [[ $cur != -* || $at -gt 0 ]]; then\n"
               "                COMPREPLY=($(compgen -f -- \"$cur\"))\n"
               "                return\n"
               "            fi\n");
    } else if (islower((unsigned char)arguments[strspn(arguments, "[")])) {
        printf("            [ $at -eq 0 ] && words=\"");
        print_words(arguments);
        printf("\"\n");
    }
}

static void print_command(const trpi_usage *usage, void *arg) {
    (void)arg;
    printf("        %s)\n            options=\"", usage->command);
    for (size_t i = 0; i < usage->option_count; i++) {
        printf("%s ", usage->options[i].name);
    }
    printf("--help\"\n");
    print_argument(usage);
    printf("            ;;\n");
}

/* ---- The script ---- */

/* Runs each subcommand as far as its table of options. */
static void each_usage(trpi_usage_reader *reader) {
    trpi_options_read(reader, NULL);
    for (size_t i = 0; i < trpi_subcommand_count; i++) {
        if (trpi_subcommands[i].summary != NULL) {
            (void)trpi_subcommands[i].run(0, NULL);
        }
    }
    trpi_options_read(NULL, NULL);
}

static void print_script(void) {
    printf("# bash completion for troupe, made by `troupe completion bash`\n"
           "_troupe_ids() {\n"
           "    \"$troupe\" complete-ids \"$1\" 2>/dev/null\n"
           "}\n\n"
           "_troupe() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local troupe=${COMP_WORDS[0]} command=${COMP_WORDS[1]}\n"
           "    local options='' words='' first='' at=0 i\n"
           "    local commands=\"");
    for (size_t i = 0; i < trpi_subcommand_count; i++) {
        if (trpi_subcommands[i].summary != NULL) {
            printf("%s ", trpi_subcommands[i].name);
        }
    }
    printf("\"\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    if [[ $prev == --* ]]; then\n"
           "        case $command:$prev in\n");
    each_usage(print_values);
    printf("        esac\n"
           "        if [ -n \"$words\" ]; then\n"
           "            COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "            return\n"
           "        fi\n"
           "    fi\n"
           "    # How many arguments stand before this word: what is no option, and no option's "
           "value.\n"
           "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
           "        [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
           "        case $command:${COMP_WORDS[i-1]} in\n");
    each_usage(print_takers);
    printf("        esac\n"
           "        [ $at -eq 0 ] && first=${COMP_WORDS[i]}\n"
           "        at=$((at + 1))\n"
           "    done\n"
           "    case $command in\n");
    each_usage(print_command);
    printf("    esac\n"
           "    [[ $cur == -* ]] && words=$options\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           "complete -F _troupe troupe\n");
}

int trpi_command_completion(int argc, char **argv) {
    const char *words[2];
    const trpi_usage usage = {
        .command = "completion",
        .arguments = "bash",
        .summary = "Prints a script that completes commands, options and ids in bash.",
        .example = "source <(troupe completion bash)",
        .arguments_min = 1,
        .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    if (strcmp(words[0], "bash") != 0) {
        return trpi_usage_error(usage.command, "%s is not completed; bash is", words[0]);
    }
    print_script();
    return TRPI_EXIT_OK;
}

/* ---- Ids, asked for by the script while somebody types ---- */

int trpi_command_complete_ids(int argc, char **argv) {
    json_t *rows, *row;
    size_t i;
    trp_error err;
    const trpi_kind *kind = argc == 1 ? trpi_kind_find("complete-ids", argv[0]) : NULL;
    if (kind == NULL) {
        return TRPI_EXIT_USAGE;
    }
    if (trpi_query_quickly(kind->many, &rows, &err) != TRP_OK) {
        return trpi_failed("complete-ids", &err);
    }
    json_array_foreach(rows, i, row) {
        char text[128];
        const char *state = json_string_value(json_object_get(row, "state"));
        bool is_dead = state != NULL && strcmp(state, "dead") == 0;
        const char *key = kind->prefix != NULL ? "id" : "name";
        trpi_value_text(json_object_get(row, key), kind->prefix, text, sizeof(text));
        if (!is_dead) {
            puts(text);
        }
    }
    json_decref(rows);
    return TRPI_EXIT_OK;
}
