/* client_deaths.c: the queue of deaths that this process asked to hear of. */
#include <stdlib.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "core/net/clock.h"

void trpi_deaths_push(trp_runtime *rt, uint64_t actor) {
    trpi_data *data = &rt->data;
    trpi_death_notice *notice = trpi_alloc(sizeof(*notice));
    if (!trpi_caller_get_death(data->caller, actor, &notice->death)) {
        free(notice);
        return;
    }
    if (data->last_death != NULL) {
        data->last_death->next = notice;
    } else {
        data->first_death = notice;
        trpi_wake(data->deaths_fd);
    }
    data->last_death = notice;
    pthread_cond_broadcast(&data->changed);
}

static trpi_death_notice *pop(trpi_data *data) {
    trpi_death_notice *notice = data->first_death;
    data->first_death = notice->next;
    if (data->first_death == NULL) {
        data->last_death = NULL;
        trpi_wake_clear(data->deaths_fd);
    }
    return notice;
}

void trpi_deaths_drop(trp_runtime *rt) {
    while (rt->data.first_death != NULL) {
        free(pop(&rt->data));
    }
}

trp_code trp_monitor(trp_runtime *rt, trp_actor actor, trp_error *err) {
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "monitor: the actor is 0, which is none");
    }
    trpi_data_enter(rt);
    trpi_caller_monitor(rt->data.caller, actor.id, &rt->data.actions);
    trpi_data_perform(rt);
    trpi_data_leave(rt);
    return TRP_OK;
}

void trp_demonitor(trp_runtime *rt, trp_actor actor) {
    trpi_data_lock(rt);
    trpi_caller_demonitor(rt->data.caller, actor.id);
    trpi_data_leave(rt);
}

trp_code trp_next_death(trp_runtime *rt, uint64_t timeout_ms, trp_death *ret_death,
                        trp_error *err) {
    trpi_data *data = &rt->data;
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trpi_data_lock(rt);
    while (data->first_death == NULL && trpi_data_wait_changed(rt, deadline_ns)) {
    }
    trpi_death_notice *notice = data->first_death != NULL ? pop(data) : NULL;
    trpi_data_leave(rt);
    if (notice == NULL) {
        return trpi_fail(err, TRP_ETIMEOUT, "no monitored actor died within %llu ms",
                         (unsigned long long)timeout_ms);
    }
    *ret_death = notice->death;
    free(notice);
    return TRP_OK;
}

int trp_deaths_fd(trp_runtime *rt) {
    return rt->data.deaths_fd;
}
