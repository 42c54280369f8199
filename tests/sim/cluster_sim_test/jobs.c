/* jobs.c: submitted drivers on nodes: they begin, call, end by themselves, and are ended. */
#include "tests/sim/cluster_sim_test/world.h"

static sim_job *job_of(sim_world *w, const sim_event *event) {
    sim_node *node = &w->nodes[event->index];
    sim_job *job = &node->jobs[event->slot];
    return node->running && job->used && job->life == event->life ? job : NULL;
}

static void after_in_job(sim_world *w, int index, int slot, uint64_t ms, sim_run run) {
    sim_event *event = sim_after(w, ms, run);
    event->index = index;
    event->slot = slot;
    event->life = w->nodes[index].jobs[slot].life;
}

static void say_exited(sim_world *w, int index, uint64_t job, int64_t exit_code) {
    trpi_msg msg = {.type = TRPI_MSG_JOB_EXITED, .job_exited = {job, exit_code, 0, "as simulated"}};
    sim_to_head(w, w->nodes[index].peer, &msg);
}

static void drop(sim_world *w, sim_job *job) {
    if (job->driver >= 0) {
        sim_client_end(w, job->driver);
    }
    *job = (sim_job){.driver = -1};
}

static void exits(sim_world *w, sim_event *event) {
    sim_job *job = job_of(w, event);
    if (job) {
        uint64_t id = job->job;
        drop(w, job);
        say_exited(w, event->index, id, (int64_t)sim_draw(w, 2));
    }
}

static int slot_of(const sim_node *node, uint64_t job) {
    for (int i = 0; i < SIM_JOBS; i++) {
        if (node->jobs[i].used == (job != 0) && (!job || node->jobs[i].job == job)) {
            return i;
        }
    }
    return -1;
}

void sim_job_start(sim_world *w, int index, const trpi_msg_job_start *msg) {
    sim_node *node = &w->nodes[index];
    int slot = slot_of(node, 0);
    if (slot_of(node, msg->job) >= 0) {
        sim_fail(w, "job j%llu is started twice", (unsigned long long)msg->job);
        return;
    }
    if (slot < 0) {
        say_exited(w, index, msg->job, 126);
        return;
    }
    node->jobs[slot] = (sim_job){.used = true, .job = msg->job, .life = ++w->last_life};
    node->jobs[slot].driver = sim_client_start(w, NULL, msg->job);
    trpi_msg started = {.type = TRPI_MSG_JOB_STARTED, .job_started = {msg->job, ++w->last_pid}};
    sim_to_head(w, node->peer, &started);
    after_in_job(w, index, slot, sim_draw(w, 4000), exits);
}

void sim_job_end(sim_world *w, int index, const trpi_msg_job_end *msg) {
    int slot = slot_of(&w->nodes[index], msg->job);
    if (slot < 0) {
        say_exited(w, index, msg->job, 0);
    } else {
        after_in_job(w, index, slot, sim_draw(w, msg->grace_ms + 1), exits);
    }
}

void sim_jobs_clear(sim_world *w, int index) {
    for (int i = 0; i < SIM_JOBS; i++) {
        drop(w, &w->nodes[index].jobs[i]);
    }
}
