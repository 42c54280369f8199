/* caller_actions.c: what the machine wants done. */
#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_parts.h"

void trpi_caller_actions_clear(trpi_caller_actions *actions) {
    actions->count = 0;
    if (actions->texts.first != NULL) {
        trpi_arena_reset(&actions->texts);
    }
}

void trpi_caller_actions_release(trpi_caller_actions *actions) {
    free(actions->items);
    trpi_arena_release(&actions->texts);
    *actions = (trpi_caller_actions){0};
}

trpi_caller_action *trpi_caller_emit(trpi_caller_actions *actions, trpi_caller_action_kind kind,
                                     uint64_t actor, uint64_t incarnation) {
    if (actions->count == actions->capacity) {
        actions->capacity = TRPI_MAX((size_t)16, actions->capacity * 2);
        actions->items = trpi_realloc(actions->items, actions->capacity * sizeof(*actions->items));
    }
    trpi_caller_action *action = &actions->items[actions->count++];
    *action = (trpi_caller_action){.kind = kind, .actor = actor, .incarnation = incarnation};
    return action;
}

const char *trpi_caller_keep(trpi_caller_actions *actions, const char *text) {
    const char *kept = trpi_arena_text(&actions->texts, text, strlen(text));
    return kept ? kept : "out of memory for the reason";
}
