/* command_table_test.c: each command of troupe with each kind of input, by table: exit code and
 * what is said. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/base/base.h"
#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

enum { TIMEOUT_MS = 60000, WORDS_MAX = 24 };

static test_cluster cluster;
static trp_runtime *rt;
static trp_buf output;

typedef struct table_row {
    const char *line; /* behind "troupe " */
    int code;
    const char *says; /* NULL: nothing is looked for */
} table_row;

static int troupe(const char *line) {
    char text[512];
    const char *argv[WORDS_MAX] = {getenv("TROUPE_BIN")};
    size_t count = 1;
    char *rest = text, *word;
    trpi_format(text, sizeof text, "%s", line);
    while ((word = strsep(&rest, " ")) != NULL && count + 1 < WORDS_MAX) {
        argv[count++] = word;
    }
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    return code;
}

static const char *said(void) {
    return (const char *)output.data;
}

static void check_row(const table_row *row) {
    int code = troupe(row->line);
    if (code != row->code) {
        fail_msg("troupe %s: exit code %d and not %d: %s", row->line, code, row->code, said());
    }
    if (row->says != NULL && strstr(said(), row->says) == NULL) {
        fail_msg("troupe %s does not say \"%s\" but \"%s\"", row->line, row->says, said());
    }
}

#define CHECK(rows)                                                                                \
    for (size_t i_ = 0; i_ < TRPI_COUNTOF(rows); i_++) {                                           \
        check_row(&(rows)[i_]);                                                                    \
    }

/* ---- Wrong usage: 2, in one line, before anybody is asked ---- */

static void what_is_wrong_is_said_in_one_line_with_what_is_allowed(void **state) {
    static const table_row rows[] = {
        {"list", 2, "is missing"},
        {"list actors nodes", 2, "what is \"nodes\"?"},
        {"list acters", 2, "did you mean actors?"},
        {"list zebras", 2, "nodes, actors, groups, gangs, jobs, runs"},
        {"list actors --limit -1", 2, "--limit: \"-1\" is no whole number"},
        {"list actors --limit many", 2, "--limit"},
        {"list actors --fliter a=b", 2, "did you mean --filter?"},
        {"list actors --format yaml", 2, "neither table nor json"},
        {"list actors --format", 2, "--format needs a value"},
        {"get", 2, "is missing"},
        {"get actor", 2, "is missing"},
        {"get actr a1", 2, "did you mean actor?"},
        {"get node a1", 2, "\"a1\" is one of the actors; nodes are called n1, n2, ..."},
        {"get node n0", 2, "\"n0\" is no node; they are called n1, n2, ..."},
        {"get node 1x", 2, "is no node"},
        {"get job n1", 2, "jobs are called j1"},
        {"get group j1", 2, "groups are called g1"},
        {"get gang g1", 2, "gangs are called x1"},
        {"get gang 99999999999999999999999", 2, "is no gang"},
        {"get run", 2, "is missing"},
        {"summary runs", 2, "actors, nodes or jobs"},
        {"summary actors jobs", 2, "what is \"jobs\"?"},
        {"status 5", 2, "--watch"},
        {"status --watch soon", 2, "no number of seconds"},
        {"status --watch 0", 2, "0.1 seconds"},
        {"status --format csv", 2, "json"},
        {"health now", 2, "what is \"now\"?"},
        {"drain", 2, "NODE is missing"},
        {"drain a7", 2, "\"a7\" is one of the actors; nodes are called n1"},
        {"drain vm", 2, "is no node"},
        {"drain n1 --deadline forever", 2, "--deadline: \"forever\" is no number of seconds"},
        {"drain n1 --deadline -1", 2, "from 0 to 1000000"},
        {"drain n1 --deadline 1e9", 2, "from 0 to 1000000"},
        {"drain n1 --reason", 2, "--reason needs a value"},
        {"kill a1 --grace x", 2, "--grace"},
        {"kill a1 --grace 1 --restart", 2, "no --restart"},
        {"kill a1 --restart=yes", 2, "--restart takes no value"},
        {"logs", 2, "ACTOR is missing"},
        {"logs a1 --stream stdout", 2, "neither out nor err"},
        {"logs a1 --tail some", 2, "neither a number of lines nor a size"},
        {"logs a1 --tail 5XB", 2, "--tail"},
        {"logs a1 --follow --previous", 2, "--previous"},
        {"jobs stopp j1", 2, "did you mean stop"},
        {"jobs stop", 2, "needs a job"},
        {"jobs stop n1", 2, "j1, j2"},
        {"jobs stop j1 --grace long", 2, "--grace"},
        {"jobs logs j1 --tail x", 2, "--tail"},
        {"submit", 2, "is missing"},
        {"submit --env nonsense -- true", 2, "NAME=VALUE"},
        {"completion", 2, "is missing"},
        {"completion fish", 2, "bash"},
        {"config --format ini", 2, "json"},
        {"version now", 2, "what is \"now\"?"},
        {"help stats", 2, "did you mean status?"},
        {"stop now", 2, "what is \"now\"?"},
        {"bench --rounds", 2, "no option"},
        {"list actors --address nowhere", 2, "nowhere"},
        {"list actors --address host:port", 2, "host:port"},
        {"helth", 2, "did you mean health?"},
        {"frobnicate", 2, "there is no command"},
    };
    setenv("TROUPE_ADDRESS", "127.0.0.1:1", 1); /* nobody is asked */
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        check_row(&rows[i]);
        const char *newline = strchr(said(), '\n');
        if (newline == NULL || newline[1] != '\0') {
            fail_msg("troupe %s: more than a line: %s", rows[i].line, said());
        }
    }
    setenv("TROUPE_ADDRESS", cluster.address, 1);
}

/* ---- Nobody there: 3 ---- */

static void who_asks_a_cluster_that_is_not_there_gets_3(void **state) {
    static const table_row rows[] = {
        {"status", 3, "no head answered at 127.0.0.1:1"},
        {"list nodes", 3, "no head answered"},
        {"get node n1", 3, "no head answered"},
        {"summary", 3, "no head answered"},
        {"health", 3, "no head answered"},
        {"logs a1", 3, "no head answered"},
        {"kill a1", 3, "no head answered"},
        {"drain n1", 3, "no head answered"},
        {"jobs", 3, "no head answered"},
        {"submit true", 3, "no head answered"},
        {"complete-ids nodes", 3, "within 300 ms"},
        {"completion bash", 0, "complete -F _troupe troupe"},
        {"version", 0, "troupe "},
        {"config", 0, "TROUPE_PORT"},
        {"help", 0, "3 the cluster is not reachable"},
        {"help drain", 0, "usage: troupe drain"},
    };
    setenv("TROUPE_ADDRESS", "127.0.0.1:1", 1);
    setenv("TROUPE_CONNECT_TIMEOUT_MS", "100", 1);
    CHECK(rows);
    unsetenv("TROUPE_CONNECT_TIMEOUT_MS");
    setenv("TROUPE_ADDRESS", cluster.address, 1);
}

/* ---- A cluster ---- */

static void what_is_not_there_fails_with_1(void **state) {
    static const table_row rows[] = {
        {"get node n77", 1, "there is no node n77"},
        {"get actor a777", 1, "there is no actor a777"},
        {"get actor nobody", 1, "no living actor is named nobody"},
        {"get group 7", 1, "there is no group g7"},
        {"get gang 7", 1, "there is no gang x7"},
        {"get job j77", 1, "there is no job j77"},
        {"get run nothing", 1, "there is no run nothing"},
        {"kill a777", 1, "a777"},
        {"kill nobody", 1, "nobody"},
        {"logs a777", 1, "a777"},
        {"drain n77", 1, "n77"},
        {"jobs get j77", 1, "j77"},
        {"jobs stop j77", 1, "j77"},
    };
    CHECK(rows);
}

static void each_way_to_look_is_0(void **state) {
    static const table_row rows[] = {
        {"status", 0, "2 alive"},
        {"status --format json", 0, "\"runs\""},
        {"list nodes", 0, "RESOURCES IN USE"},
        {"list node", 0, "n1"},
        {"list groups", 0, "GROUP"},
        {"list gangs", 0, "crew"},
        {"list gangs --filter name=CREW --format json", 0, "\"policy\":\"end\""},
        {"list jobs --filter state=running", 0, "command_table_test"},
        {"list runs", 0, "RUN"},
        {"list actors --filter name=alpha", 0, "alpha"},
        {"list actors --filter name!=alpha --sort -name --limit 1", 0, "gamma"},
        {"list actors --limit 2", 0, "2 of 3 rows; --limit 0 for all"},
        {"list actors --filter node=n1 --filter state=alive --format json", 0, "["},
        {"list nodes --filter labels=zone=a", 0, NULL},
        {"list nodes --filter total.cpu=3 --sort age_s", 0, "n2"},
        {"list nodes --filter pid=0", 0, "NODE"},
        {"list nodes --filter stat=alive", 2, "there is no key stat; did you mean state?"},
        {"list nodes --filter alive", 2, "neither KEY=VALUE nor KEY!=VALUE"},
        {"list nodes --filter =alive", 2, "neither KEY=VALUE nor KEY!=VALUE"},
        {"list nodes --sort nmae", 2, "did you mean name?"},
        {"get node n1", 0, "memory_total: "},
        {"get node 1 --format json", 0, "\"id\":1"},
        {"get actor alpha", 0, "state: alive\n"},
        {"get gang x1", 0, "id: x1\n"},
        {"get job 1", 0, "id: j1\n"},
        {"summary", 0, "subject  alive  3"},
        {"summary nodes", 0, "alive  "},
        {"summary jobs --format json", 0, "\"count\":1"},
        {"health", 0, "2 nodes are alive"},
        {"complete-ids nodes", 0, "n1\nn2\n"},
        {"complete-ids actor", 0, "a1\n"},
        {"logs alpha --tail 0", 0, NULL},
        {"logs alpha --previous", 1, "no incarnation of a1 has died"},
        {"jobs", 0, "JOB"},
    };
    CHECK(rows);
}

static void an_actor_is_stopped_restarted_and_killed(void **state) {
    static const table_row rows[] = {
        {"kill beta --grace 5", 0, "stopped a2"},
        {"get actor a2", 0, "cause: stopped"},
        {"kill a2", 0, "dead already: a2"},
        {"kill gamma --restart", 0, "killed a3"},
        {"logs gamma --previous", 1, "has written nothing"},
    };
    CHECK(rows);
    TEST_OK(trp_actor_wait_alive(rt, (trp_actor){3}, TIMEOUT_MS, err));
    check_row(&(table_row){"get actor gamma", 0, "restarts: 1\n"});
    check_row(&(table_row){"list actors --filter death.cause=killed", 0, "gamma"});
    check_row(&(table_row){"status", 0, "killed by"});
}

static void a_drained_node_is_empty_when_the_command_returns(void **state) {
    char line[64];
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, (trp_actor){3}, &info, err));
    trpi_format(line, sizeof line, "drain n%d --deadline 0.2 --reason spot --wait", (int)info.node);
    check_row(&(table_row){line, 0, "is empty\n"});
    check_row(&(table_row){"status", 0, "spot"});
    trpi_format(line, sizeof line, "get node n%d", (int)info.node);
    check_row(&(table_row){line, 0, "state: draining\n"});
    check_row(&(table_row){line, 0, "drain_reason: spot\n"});
    check_row(&(table_row){"list actors --filter death.cause=drained", 0, "gamma"});
}

static bool is_unhealthy(void *arg) {
    return troupe("health") == 1;
}

static void health_tells_of_a_node_that_was_lost(void **state) {
    pid_t nodes[4];
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 4), 2);
    assert_int_equal(kill(nodes[1], SIGKILL), 0);
    assert_true(test_until(is_unhealthy, NULL, TIMEOUT_MS));
    assert_non_null(strstr(said(), "node n2 ("));
    check_row(&(table_row){"status", 0, "1 dead"});
    check_row(&(table_row){"complete-ids nodes", 0, "n1\n"});
    assert_null(strstr(said(), "n2"));
    test_cluster_add(&cluster, &(test_node){.cpus = 1});
    check_row(&(table_row){"health", 0, "healthy"}); /* another one of its name is there */
}

/* ---- Completion, as bash would use it ---- */

static void completes(const char *words, const char *expected) {
    char script[2048];
    trpi_format(script, sizeof script,
                "source <(\"$TROUPE_BIN\" completion bash)\n"
                "COMP_WORDS=(\"$TROUPE_BIN\" %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                "_troupe\necho \"${COMPREPLY[*]}\"\n",
                words);
    const char *argv[] = {"/bin/bash", "-c", script, NULL};
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 0);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    char line[256];
    trpi_format(line, sizeof line, "%s\n", expected);
    if (strcmp(said(), line) != 0) {
        fail_msg("troupe %s is completed to \"%s\"", words, said());
    }
}

static void bash_completes_commands_options_kinds_and_ids(void **state) {
    static const char *const rows[][2] = {
        {"dr", "drain"},
        {"s", "start status summary submit stop"},
        {"--v", "--version"},
        {"list \"\"", "nodes actors groups gangs jobs runs"},
        {"list actors --so", "--sort"},
        {"list --format \"\"", "table json"},
        {"list --format json g", "groups gangs"},
        {"logs --stream \"\"", "out err"},
        {"get \"\"", "node actor group gang job run"},
        {"get node \"\"", "n1 n2"},
        {"get --address 1.2.3.4:5 gang \"\"", "x1"},
        {"drain \"\"", "n1 n2"},
        {"kill \"\"", "a1 a2 a3"},
        {"kill --grace 5 a", "a1 a2 a3"},
        {"kill a1 \"\"", ""},
        {"jobs \"\"", "get logs stop"},
        {"jobs stop \"\"", "j1"},
        {"summary n", "nodes"},
        {"completion \"\"", "bash"},
        {"help dra", "drain"},
        {"drain --deadline \"\"", ""},
        {"nonsense \"\"", ""},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        completes(rows[i][0], rows[i][1]);
    }
}

static int set_up(void **state) {
    static const char *const names[] = {"alpha", "beta", "gamma"};
    trp_gang gang;
    trp_gang_options crew = {.name = "crew"};
    setenv("TROUPE_HEARTBEAT_MS", "100", 1);
    setenv("TROUPE_NODE_TIMEOUT_MS", "1000", 1);
    test_cluster_start(&cluster, (test_node[]){{.cpus = 2}, {.cpus = 3}}, 2);
    rt = test_connect(&cluster, test_types);
    for (size_t i = 0; i < TRPI_COUNTOF(names); i++) {
        trp_spawn_options options = {.name = names[i], .cpus = 1, .restarts_max = 5};
        trp_actor actor = test_spawn(rt, &options, NULL);
        TEST_OK(trp_actor_wait_alive(rt, actor, TIMEOUT_MS, err));
    }
    TEST_OK(trp_gang_create(rt, &crew, &gang, err));
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    trp_buf_release(&output);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_said_in_one_line_with_what_is_allowed),
        cmocka_unit_test(who_asks_a_cluster_that_is_not_there_gets_3),
        cmocka_unit_test(what_is_not_there_fails_with_1),
        cmocka_unit_test(each_way_to_look_is_0),
        cmocka_unit_test(bash_completes_commands_options_kinds_and_ids),
        cmocka_unit_test(an_actor_is_stopped_restarted_and_killed),
        cmocka_unit_test(a_drained_node_is_empty_when_the_command_returns),
        cmocka_unit_test(health_tells_of_a_node_that_was_lost),
    };
    test_serve_if_worker(test_types);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
