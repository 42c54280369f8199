/* Output of actors on its way to who reads it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void output_finds_its_driver_and_its_reader(void **state) {
    machine_node(NODE_A, 2, 0);
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = TROUPE_VERSION,
                                       .kind = "driver",
                                       .host_id = "there",
                                       .job = "p",
                                       .namespace_name = "",
                                       .exe = "",
                                       .cwd = "",
                                       .wants_logs = true}};
    machine_tell(DRIVER, &hello);
    trpi_msg lines = {.type = TRPI_MSG_LOG_LINES,
                      .log_lines = {.job = 1, .label = "x", .text = {"line\n", 5}}};
    machine_tell(NODE_A, &lines);
    assert_memory_equal(machine_must_hear(DRIVER, TRPI_MSG_LOG_LINES)->log_lines.text.data,
                        "line\n", 5);
    trpi_msg query = {.type = TRPI_MSG_LOGS_QUERY,
                      .logs_query = {.request = ++machine.last_request, .actor = 7, .stream = ""}};
    machine_tell(DRIVER, &query);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_LOGS_DATA)->logs_data.code, TRP_ENOTFOUND);
    trpi_msg msg = machine_spawn(1, 0, 0);
    query.logs_query.actor = machine_spawned(DRIVER, &msg);
    machine_tell(DRIVER, &query);
    uint64_t asker = machine_must_hear(NODE_A, TRPI_MSG_LOGS_QUERY)->logs_query.client;
    trpi_msg data = {
        .type = TRPI_MSG_LOGS_DATA,
        .logs_data = {.request = query.logs_query.request, .client = asker, .message = ""}};
    machine_tell(NODE_A, &data);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_LOGS_DATA)->logs_data.request,
                     query.logs_query.request);
}

static uint64_t actor_on_a_node(void) {
    machine_node(NODE_A, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    return machine_spawned(DRIVER, &msg);
}

static trpi_msg query_of(uint64_t actor) {
    return (trpi_msg){
        .type = TRPI_MSG_LOGS_QUERY,
        .logs_query = {.request = ++machine.last_request, .actor = actor, .stream = ""}};
}

static void a_query_is_answered_when_its_node_dies_before_it_could(void **state) {
    trpi_msg query = query_of(actor_on_a_node());
    machine_tell(DRIVER, &query);
    (void)machine_must_hear(NODE_A, TRPI_MSG_LOGS_QUERY);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    const trpi_msg_logs_data *answer = &machine_must_hear(DRIVER, TRPI_MSG_LOGS_DATA)->logs_data;
    assert_int_equal(answer->request, query.logs_query.request);
    assert_int_equal(answer->code, TRP_ENODE_DIED);
    assert_string_equal(answer->message,
                        "the output is on node n1 (uuid-1), which died: its process ended");
}

static void a_query_is_answered_once(void **state) {
    trpi_msg query = query_of(actor_on_a_node());
    machine_tell(DRIVER, &query);
    trpi_msg data = {
        .type = TRPI_MSG_LOGS_DATA,
        .logs_data = {.request = query.logs_query.request, .client = 1, .message = ""}};
    machine_tell(NODE_A, &data);
    (void)machine_must_hear(DRIVER, TRPI_MSG_LOGS_DATA);
    machine_tell(NODE_A, &data);
    assert_null(machine_heard(DRIVER, TRPI_MSG_LOGS_DATA));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(output_finds_its_driver_and_its_reader),
        MACHINE_TEST(a_query_is_answered_when_its_node_dies_before_it_could),
        MACHINE_TEST(a_query_is_answered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
