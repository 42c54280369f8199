/* Zygotes and the warm pool of a node daemon: bursts, a killed zygote, programs out of use, a
 * program that was built anew, one that hangs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/host.h"
#include "core/sys/process.h"
#include "tests/lib/fake_head.h"

#define BURST 60
#define MAX_CHILDREN 256

static trp_code echo(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    return trp_buf_append(reply, args.data, args.size);
}

static const trp_method methods[] = {{"echo", echo}, {NULL, NULL}};
static const trp_actor_type type = {.name = "echoer", .methods = methods};
static const trp_actor_type *const types[] = {&type, NULL};

static char our_exe[512];
static uint64_t last_actor, start_timeout_ms = 20000;

static uint64_t say_start(test_head *head, const char *exe) {
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last_actor,
                              .incarnation = 1,
                              .type = "echoer",
                              .exe = exe,
                              .cwd = "/tmp",
                              .cpus = 10000,
                              .start_timeout_ms = start_timeout_ms}};
    test_head_say(head, &msg);
    return last_actor;
}

static void say_end(test_head *head, uint64_t actor) {
    trpi_msg msg = {
        .type = TRPI_MSG_END,
        .end = {.actor = actor, .incarnation = 1, .cause = TRP_CAUSE_KILLED, .reason = "asked"}};
    test_head_say(head, &msg);
}

static void open_node(test_head *head) {
    test_head_open(head);
    head->timeout_ms = 60000;
    test_head_start_node(head);
    (void)test_head_wait(head, TRPI_MSG_NODE_HELLO);
}

/* Living children of the node, in the order in which it got them: its zygotes first. */
static size_t children(const test_head *head, pid_t pids[MAX_CHILDREN]) {
    char path[64];
    size_t count = 0;
    trpi_format(path, sizeof path, "/proc/%d/task/%d/children", (int)head->node, (int)head->node);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (count < MAX_CHILDREN && fscanf(file, "%d", &pids[count]) == 1) {
        count += trpi_process_start_time(pids[count]) != 0;
    }
    fclose(file);
    return count;
}

static void expect_children(test_head *head, size_t count) {
    pid_t pids[MAX_CHILDREN];
    for (int i = 0; i < 1000 && children(head, pids) != count; i++) {
        test_head_listen(head, 10);
    }
    assert_int_equal(children(head, pids), count);
}

static void a_burst_of_starts_is_served_and_all_are_ended(void **state) {
    test_head head;
    open_node(&head);
    uint64_t first = last_actor + 1;
    bool seen[BURST] = {false};
    for (int i = 0; i < BURST; i++) {
        (void)say_start(&head, our_exe);
    }
    for (int i = 0; i < BURST; i++) {
        uint64_t actor = test_head_wait(&head, TRPI_MSG_STARTED)->started.actor;
        assert_false(seen[actor - first]);
        seen[actor - first] = true;
    }
    expect_children(&head, 1 + BURST + 2); /* a zygote, the actors, the pool */
    for (int i = 0; i < BURST; i++) {
        say_end(&head, first + (uint64_t)i);
    }
    for (int i = 0; i < BURST; i++) {
        assert_int_equal(test_head_wait(&head, TRPI_MSG_EXITED)->exited.death[0].cause,
                         TRP_CAUSE_KILLED);
    }
    expect_children(&head, 1 + 2);
    test_head_close(&head);
}

/* The oldest child of the node: the others were forked by it. */
static pid_t zygote_of(const test_head *head) {
    pid_t pids[MAX_CHILDREN], zygote = 0;
    size_t count = children(head, pids);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint64_t started = trpi_process_start_time(pids[i]);
        if (started != 0 && started < first) {
            first = started;
            zygote = pids[i];
        }
    }
    return zygote;
}

static void starts_survive_the_death_of_their_zygote(void **state) {
    for (uint64_t round = 0; round < 6; round++) {
        test_head head;
        setenv("TROUPE_RESTART_BACKOFF_MS", "10", 1);
        open_node(&head);
        unsetenv("TROUPE_RESTART_BACKOFF_MS");
        (void)say_start(&head, our_exe);
        (void)test_head_wait(&head, TRPI_MSG_STARTED);
        pid_t zygote = zygote_of(&head);
        for (int i = 0; i < BURST; i++) {
            (void)say_start(&head, our_exe);
        }
        test_head_listen(&head, 5 * round); /* at another point of the burst each time */
        kill(zygote, SIGKILL);
        for (int i = 0; i < BURST; i++) {
            (void)test_head_wait(&head, TRPI_MSG_STARTED);
        }
        assert_null(test_head_try(&head, TRPI_MSG_EXITED, 0));
        test_head_close(&head);
    }
}

static void a_node_without_descriptors_keeps_what_it_has_and_says_so(void **state) {
    test_head head;
    size_t started = 0, refused = 0;
    setenv("TEST_NODE_DESCRIPTORS", "80", 1);
    open_node(&head);
    unsetenv("TEST_NODE_DESCRIPTORS");
    pid_t driver = getpid();
    start_timeout_ms = 1000;
    for (int i = 0; i < BURST; i++) {
        (void)say_start(&head, our_exe);
    }
    start_timeout_ms = 20000;
    while (started + refused < BURST) {
        const trpi_msg *msg = test_head_try(&head, TRPI_MSG_STARTED, 20);
        started += msg != NULL;
        while ((msg = test_head_try(&head, TRPI_MSG_EXITED, 0)) != NULL) {
            assert_int_equal(msg->exited.death[0].cause, TRP_CAUSE_START_TIMEOUT);
            assert_non_null(strstr(msg->exited.death[0].message, "ulimit -n"));
            refused++;
        }
    }
    assert_in_range(started, 3, BURST / 2);
    /* Not taken for dead because there is nothing left to watch it with. */
    trpi_msg watch = {.type = TRPI_MSG_WATCH_PID};
    for (uint64_t client = 1; client <= 12; client++) {
        watch.watch_pid = (trpi_msg_watch_pid){.client = client, .pid = driver};
        test_head_say(&head, &watch);
    }
    assert_null(test_head_try(&head, TRPI_MSG_PID_GONE, 100));
    test_head_close(&head);
}

static void an_actor_is_ended_though_its_zygote_hangs(void **state) {
    test_head head;
    setenv("TROUPE_WARM_WORKERS", "0", 1);
    setenv("TROUPE_FORK_TIMEOUT_MS", "700", 1);
    open_node(&head);
    unsetenv("TROUPE_WARM_WORKERS");
    unsetenv("TROUPE_FORK_TIMEOUT_MS");
    (void)say_start(&head, our_exe);
    (void)test_head_wait(&head, TRPI_MSG_STARTED);
    kill(zygote_of(&head), SIGSTOP);
    start_timeout_ms = 300;
    uint64_t actor = say_start(&head, our_exe);
    start_timeout_ms = 20000;
    say_end(&head, actor);
    const trpi_msg_exited *exited = &test_head_wait(&head, TRPI_MSG_EXITED)->exited;
    assert_int_equal(exited->actor, actor);
    assert_int_equal(exited->death[0].cause, TRP_CAUSE_KILLED);
    (void)say_start(&head, our_exe); /* by another zygote */
    (void)test_head_wait(&head, TRPI_MSG_STARTED);
    test_head_close(&head);
}

static void a_program_out_of_use_gives_its_processes_back(void **state) {
    test_head head;
    setenv("TROUPE_WARM_IDLE_MS", "200", 1);
    open_node(&head);
    unsetenv("TROUPE_WARM_IDLE_MS");
    uint64_t actor = say_start(&head, our_exe);
    (void)test_head_wait(&head, TRPI_MSG_STARTED);
    test_head_listen(&head, 400);
    expect_children(&head, 1 + 1 + 2); /* in use: kept */
    say_end(&head, actor);
    (void)test_head_wait(&head, TRPI_MSG_EXITED);
    expect_children(&head, 0);
    actor = say_start(&head, our_exe);
    assert_int_equal(test_head_wait(&head, TRPI_MSG_STARTED)->started.actor, actor);
    test_head_close(&head);
}

static void without_a_pool_every_start_forks(void **state) {
    test_head head;
    setenv("TROUPE_WARM_WORKERS", "0", 1);
    open_node(&head);
    unsetenv("TROUPE_WARM_WORKERS");
    for (int i = 0; i < 3; i++) {
        (void)say_start(&head, our_exe);
        (void)test_head_wait(&head, TRPI_MSG_STARTED);
    }
    expect_children(&head, 1 + 3);
    test_head_close(&head);
}

static void copy_exe(const char *to) {
    trp_buf bytes = {0};
    trp_error err = {0};
    if (trpi_file_read(our_exe, 0, &bytes, &err) != TRP_OK ||
        trpi_file_write_atomic(to, trp_buf_bytes(&bytes), &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    trp_buf_release(&bytes);
    assert_int_equal(chmod(to, 0700), 0);
}

static uint64_t inode_of_worker(test_head *head, const char *exe) {
    struct stat info;
    char path[64];
    (void)say_start(head, exe);
    int64_t pid = test_head_wait(head, TRPI_MSG_STARTED)->started.pid;
    trpi_format(path, sizeof path, "/proc/%d/exe", (int)pid);
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

static void a_program_that_was_built_anew_is_the_one_that_runs(void **state) {
    test_head head;
    char exe[128];
    struct stat info;
    open_node(&head);
    trpi_format(exe, sizeof exe, "%s/program", getenv("TROUPE_SESSION_ROOT"));
    assert_int_equal(trpi_dir_make(getenv("TROUPE_SESSION_ROOT"), 0700, NULL), TRP_OK);
    for (int i = 0; i < 2; i++) {
        copy_exe(exe);
        assert_int_equal(stat(exe, &info), 0);
        assert_int_equal(inode_of_worker(&head, exe), info.st_ino);
        assert_int_equal(inode_of_worker(&head, exe), info.st_ino);
    }
    unlink(exe);
    test_head_close(&head);
}

/* The one that is replaced may have been asked for forks that it will not make any more. */
static void starts_survive_that_their_program_is_built_anew(void **state) {
    char exe[128];
    trpi_format(exe, sizeof exe, "%s/program", getenv("TROUPE_SESSION_ROOT"));
    for (uint64_t round = 0; round < 4; round++) {
        test_head head;
        open_node(&head);
        assert_int_equal(trpi_dir_make(getenv("TROUPE_SESSION_ROOT"), 0700, NULL), TRP_OK);
        copy_exe(exe);
        (void)say_start(&head, exe);
        (void)test_head_wait(&head, TRPI_MSG_STARTED);
        for (int i = 0; i < BURST / 2; i++) {
            (void)say_start(&head, exe);
        }
        test_head_listen(&head, 2 * round);
        copy_exe(exe);
        (void)say_start(&head, exe);
        for (int i = 0; i < BURST / 2 + 1; i++) {
            (void)test_head_wait(&head, TRPI_MSG_STARTED);
        }
        unlink(exe);
        test_head_close(&head);
    }
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, types);
    trp_error err = {0};
    test_head_own_root();
    if (trpi_host_exe(our_exe, sizeof our_exe, &err) != TRP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_of_starts_is_served_and_all_are_ended),
        cmocka_unit_test(starts_survive_the_death_of_their_zygote),
        cmocka_unit_test(a_node_without_descriptors_keeps_what_it_has_and_says_so),
        cmocka_unit_test(an_actor_is_ended_though_its_zygote_hangs),
        cmocka_unit_test(a_program_out_of_use_gives_its_processes_back),
        cmocka_unit_test(without_a_pool_every_start_forks),
        cmocka_unit_test(a_program_that_was_built_anew_is_the_one_that_runs),
        cmocka_unit_test(starts_survive_that_their_program_is_built_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
