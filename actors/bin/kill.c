/* kill.c: troupe kill. */
#include <inttypes.h>
#include <stdio.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"

int trpi_command_kill(int argc, char **argv) {
    const char *address = NULL, *words[2];
    bool may_restart = false;
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        {"--may-restart", NULL, "let the actor's restart limits decide what follows", NULL,
         &may_restart},
    };
    const trpi_usage usage = {.command = "kill",
                              .arguments = "ACTOR",
                              .summary = "Ends an actor: 7, a7 or its name.",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_min = 1,
                              .arguments_max = 1};
    trp_runtime *rt = NULL;
    trp_actor actor = {0};
    trp_actor_info before = {0};
    trp_error err;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    trp_code code = trpi_connect(address, &rt, &err);
    if (code == TRP_OK) {
        code = trpi_find_actor(rt, words[0], &actor, &err);
    }
    if (code == TRP_OK) {
        code = trp_actor_get_info(rt, actor, &before, &err);
    }
    if (code == TRP_OK && before.phase != TRP_ACTOR_DEAD) {
        code = trp_kill(rt, actor, may_restart, &err);
    }
    trpi_client_close(&rt, true);
    if (code != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    printf("%s a%" PRIu64 "\n", before.phase == TRP_ACTOR_DEAD ? "dead already:" : "killed",
           actor.id);
    return TRPI_EXIT_OK;
}
