/* Submitted jobs, from PENDING to their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

enum { TOOL = OTHER };

static uint64_t submit(void) {
    trpi_text argv[] = {{"/bin/finetune"}, {"--fast"}};
    trpi_text env[] = {{"EPOCHS=3"}};
    trpi_msg msg = {.type = TRPI_MSG_JOB_SUBMIT,
                    .job_submit = {.request = ++machine.last_request,
                                   .name = "night",
                                   .argv = argv,
                                   .argv_count = 2,
                                   .env = env,
                                   .env_count = 1,
                                   .cwd = "/home",
                                   .package = "abc"}};
    machine_tell(TOOL, &msg);
    const trpi_msg_jobbed *answer = &machine_must_hear(TOOL, TRPI_MSG_JOBBED)->jobbed;
    assert_int_equal(answer->code, TRP_OK);
    return answer->job;
}

static trpi_job_view job_view(uint64_t job) {
    trpi_job_view view;
    uint64_t id = job - 1;
    assert_true(trpi_cluster_next_job(machine.cluster, &id, &view));
    assert_int_equal(id, job);
    return view;
}

static void is_in(uint64_t job, trpi_job_state state, const char *reason) {
    trpi_job_view view = job_view(job);
    assert_string_equal(trpi_job_state_name(view.state), trpi_job_state_name(state));
    if (!strstr(view.reason, reason)) {
        fail_msg("\"%s\" does not say \"%s\"", view.reason, reason);
    }
}

static void exited(uint64_t job, int64_t exit_code, int64_t signal, const char *message) {
    trpi_msg msg = {.type = TRPI_MSG_JOB_EXITED, .job_exited = {job, exit_code, signal, message}};
    machine_tell(NODE_A, &msg);
}

static void a_job_runs_where_a_node_is_and_ends_as_its_process_does(void **state) {
    machine_client(TOOL, "tool", 0, 0);
    uint64_t job = submit();
    is_in(job, TRPI_JOB_PENDING, "");
    machine_node(NODE_A, 4, 0);
    const trpi_msg_job_start *start = &machine_must_hear(NODE_A, TRPI_MSG_JOB_START)->job_start;
    assert_int_equal(start->job, job);
    assert_int_equal(start->argv_count, 2);
    assert_string_equal(start->argv[1].value, "--fast");
    assert_string_equal(start->env[0].value, "EPOCHS=3");
    assert_string_equal(start->package, "abc");
    trpi_msg started = {.type = TRPI_MSG_JOB_STARTED, .job_started = {job, 4711}};
    machine_tell(NODE_A, &started);
    assert_int_equal(job_view(job).pid, 4711);
    is_in(job, TRPI_JOB_RUNNING, "");
    exited(job, 0, 0, "");
    is_in(job, TRPI_JOB_SUCCEEDED, "exit code 0");
    uint64_t second = submit(), third = submit();
    exited(second, 3, 0, "exit code 3");
    is_in(second, TRPI_JOB_FAILED, "exit code 3");
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    is_in(third, TRPI_JOB_FAILED, "node n1 (uuid-1) died: its process ended");
}

static uint64_t driver_of(uint64_t peer, uint64_t job) {
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = TROUPE_VERSION,
                                       .kind = "driver",
                                       .host_id = "here",
                                       .pid = 4712,
                                       .job = "finetune",
                                       .exe = "/bin/finetune",
                                       .cwd = "/home",
                                       .submission = job}};
    machine_tell(peer, &hello);
    return machine_must_hear(peer, TRPI_MSG_CLIENT_WELCOME)->client_welcome.job;
}

static void its_driver_belongs_to_it_and_what_that_owns_ends_with_it(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(TOOL, "tool", 0, 0);
    uint64_t job = submit();
    assert_int_equal(driver_of(DRIVER, job), job);
    assert_int_not_equal(driver_of(THIRD, job), job); /* one at a time */
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    assert_string_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.job, "night");
    exited(job, 0, 0, "");
    assert_false(trpi_cluster_knows(machine.cluster, DRIVER));
    machine_exited(NODE_A, actor, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    trpi_actor_view view = machine_view(actor);
    machine_says(&view, TRP_CAUSE_OWNER_DIED, "is gone: its job has ended");
    assert_int_not_equal(driver_of(DRIVER, job), job); /* too late */
}

static void a_stop_is_answered_when_the_processes_are_gone_and_said_until_then(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(TOOL, "tool", 0, 0);
    uint64_t job = submit();
    trpi_msg stop = {.type = TRPI_MSG_JOB_STOP, .job_stop = {++machine.last_request, job, 60000}};
    machine_tell(TOOL, &stop);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_JOB_END)->job_end.grace_ms, 60001);
    assert_null(machine_heard(TOOL, TRPI_MSG_DONE));
    bool again = false;
    for (uint64_t ms = 0; ms < 3000; ms += 50) {
        machine_pass(50);
        again |= machine_heard(NODE_A, TRPI_MSG_JOB_END) != NULL;
    }
    assert_true(again);
    exited(job, 0, 15, "");
    assert_int_equal(machine_must_hear(TOOL, TRPI_MSG_DONE)->done.code, TRP_OK);
    is_in(job, TRPI_JOB_STOPPED, "signal 15");
    machine_tell(TOOL, &stop);
    assert_int_equal(machine_must_hear(TOOL, TRPI_MSG_DONE)->done.code, TRP_OK);
    stop.job_stop.job = 77;
    machine_tell(TOOL, &stop);
    assert_int_equal(machine_must_hear(TOOL, TRPI_MSG_DONE)->done.code, TRP_ENOTFOUND);
}

static void a_job_that_has_not_begun_is_stopped_at_once(void **state) {
    machine_client(TOOL, "tool", 0, 0);
    uint64_t job = submit();
    trpi_msg stop = {.type = TRPI_MSG_JOB_STOP, .job_stop = {++machine.last_request, job, 0}};
    machine_tell(TOOL, &stop);
    assert_int_equal(machine_must_hear(TOOL, TRPI_MSG_DONE)->done.code, TRP_OK);
    is_in(job, TRPI_JOB_STOPPED, "stopped before it began");
    machine_node(NODE_A, 4, 0);
    assert_null(machine_heard(NODE_A, TRPI_MSG_JOB_START));
}

static void the_node_beside_the_head_is_taken_else_the_least_used(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    machine_node(NODE_A, 4, 0);
    machine_node(NODE_B, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(TOOL, "tool", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    (void)machine_spawned(DRIVER, &msg); /* on A */
    uint64_t job = submit();
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_JOB_START)->job_start.job, job);
    trpi_cluster_free(machine.cluster);
    config.host_id = "here"; /* as all nodes of these tests: the first */
    machine.cluster = trpi_cluster_new(&config);
    machine_node(NODE_A, 4, 0);
    machine_node(NODE_B, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(TOOL, "tool", 0, 0);
    msg = machine_spawn(1, 0, 0);
    (void)machine_spawned(DRIVER, &msg);
    job = submit();
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_JOB_START)->job_start.job, job);
}

static void what_cannot_be_run_is_refused(void **state) {
    trpi_text empty[] = {{""}}, word[] = {{"word"}}, bad[] = {{"no value"}};
    trpi_msg msgs[] = {
        {.type = TRPI_MSG_JOB_SUBMIT, .job_submit = {.request = 1}},
        {.type = TRPI_MSG_JOB_SUBMIT, .job_submit = {.request = 2, .argv = empty, .argv_count = 1}},
        {.type = TRPI_MSG_JOB_SUBMIT,
         .job_submit = {.request = 3, .argv = word, .argv_count = 1, .env = bad, .env_count = 1}},
    };
    machine_client(TOOL, "tool", 0, 0);
    for (size_t i = 0; i < TRPI_COUNTOF(msgs); i++) {
        machine_tell(TOOL, &msgs[i]);
        assert_int_equal(machine_must_hear(TOOL, TRPI_MSG_JOBBED)->jobbed.code, TRP_EINVALID);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(a_job_runs_where_a_node_is_and_ends_as_its_process_does),
        MACHINE_TEST(its_driver_belongs_to_it_and_what_that_owns_ends_with_it),
        MACHINE_TEST(a_stop_is_answered_when_the_processes_are_gone_and_said_until_then),
        MACHINE_TEST(a_job_that_has_not_begun_is_stopped_at_once),
        MACHINE_TEST(the_node_beside_the_head_is_taken_else_the_least_used),
        MACHINE_TEST(what_cannot_be_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
