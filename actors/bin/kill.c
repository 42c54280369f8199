/* kill.c: troupe kill. */
#include <inttypes.h>
#include <stdio.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"

typedef struct kill_flags {
    const char *address, *grace;
    bool may_restart;
    uint64_t grace_ms;
} kill_flags;

static trp_code end(trp_runtime *rt, trp_actor actor, const kill_flags *flags, trp_error *err) {
    return flags->grace != NULL && flags->grace_ms > 0
               ? trp_stop(rt, actor, flags->grace_ms, err)
               : trp_kill(rt, actor, flags->may_restart, err);
}

static int run(const char *word, const kill_flags *flags) {
    trp_runtime *rt = NULL;
    trp_actor actor = {0};
    trp_actor_info before = {0};
    trp_error err;
    trp_code code = trpi_connect(flags->address, &rt, &err);
    if (code == TRP_OK) {
        code = trpi_find_actor(rt, word, &actor, &err);
    }
    if (code == TRP_OK) {
        code = trp_actor_get_info(rt, actor, &before, &err);
    }
    if (code == TRP_OK && before.phase != TRP_ACTOR_DEAD) {
        code = end(rt, actor, flags, &err);
    }
    trpi_client_close(&rt, true);
    if (code != TRP_OK) {
        return trpi_failed("kill", &err);
    }
    printf("%s a%" PRIu64 "\n",
           before.phase == TRP_ACTOR_DEAD ? "dead already:"
           : flags->grace != NULL         ? "stopped"
                                          : "killed",
           actor.id);
    return TRPI_EXIT_OK;
}

int trpi_command_kill(int argc, char **argv) {
    kill_flags flags = {0};
    const char *words[2];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        {"--grace", "SECONDS", "first let it answer what it has got and stop (default: 0, SIGKILL)",
         &flags.grace, NULL, NULL},
        {"--restart", NULL, "let the actor's restart limits decide what follows", NULL,
         &flags.may_restart, NULL},
    };
    const trpi_usage usage = {.command = "kill",
                              .arguments = "ACTOR",
                              .summary = "Ends an actor: 7, a7 or its name.",
                              .details = "With --grace: fails when it had to be killed after all.",
                              .example = "troupe kill a7 --grace 10",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_min = 1,
                              .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    if (!trpi_option_seconds("kill", "--grace", flags.grace, &flags.grace_ms)) {
        return TRPI_EXIT_USAGE;
    }
    if (flags.grace != NULL && flags.may_restart) {
        return trpi_usage_error("kill", "--grace is an orderly end, which is final: no --restart");
    }
    return run(words[0], &flags);
}
