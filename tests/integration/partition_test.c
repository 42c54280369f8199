/* partition_test.c: two hosts whose link fails, for a moment and for longer than the timeout.
 *
 * The hosts are namespaces without names, so that nothing of them can outlive the test: this
 * process moves into a network of its own, and a child into another one, with process ids of its
 * own, too, since that is what tells hosts apart. Packets are lost because each side believes its
 * neighbour at an address that nobody has, which no socket is told of. Needs root, ip and nsenter.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"

#define NEAR_IP "10.77.0.1"
#define FAR_IP "10.77.0.2"
#define NOBODY "02:00:00:00:00:01"

enum { COMMAND_MS = 60000, WAIT_MS = 60000 };

typedef struct far_host {
    pid_t pid; /* in its network, not among its processes */
    int go;    /* closed by it when it is there; it goes on when it reads a byte */
    char root[32];
} far_host;

static far_host far;
static char near_root[] = "/tmp/trp-test-XXXXXX", address[64];
static trp_runtime *rt;
static trp_buf output;
static const char *missing; /* why none of this can run here */

__attribute__((format(printf, 1, 2))) static int sh(const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    trp_buf_clear(&output);
    int code = test_run((const char *[]){"/bin/sh", "-c", line, NULL}, &output, COMMAND_MS);
    assert_int_equal(trp_buf_append(&output, "", 0), TRP_OK); /* data is there, and ends with NUL */
    return code;
}

static void must(int code, const char *what) {
    if (code != 0) {
        fail_msg("%s: %d: %s", what, code, (const char *)output.data);
    }
}

static const char *troupe_bin(void) {
    const char *bin = getenv("TROUPE_BIN");
    if (bin == NULL) {
        fail_msg("TROUPE_BIN is not set: run this through ctest");
    }
    return bin;
}

/* ---- The two hosts ---- */

_Noreturn static void be_the_first_process(void) {
    const char *bin = troupe_bin();
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0) {
        _exit(71);
    }
    execl(bin, "troupe", "start", "--address", address, "--host", FAR_IP, "--num-cpus", "1",
          "--num-gpus", "0", "--resources", "far=1", "--block", (char *)NULL);
    _exit(72);
}

/* Two steps: its network must be there before the node that uses it, and `address` is known by
 * then. */
_Noreturn static void be_the_far_host(int ready, int go) {
    char byte = unshare(CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS) == 0;
    ssize_t count = write(ready, &byte, 1);
    for (size_t used = 0; count > 0 && used + 1 < sizeof address; used += (size_t)count) {
        count = read(go, address + used, sizeof address - 1 - used);
    }
    setenv("TROUPE_SESSION_ROOT", far.root, 1);
    unsetenv("TROUPE_ADDRESS");
    (void)!freopen("/dev/null", "w", stdout);
    pid_t first = fork(); /* this process is one thread, and has no other */
    if (first == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* and the kernel kills the rest of its namespace */
        be_the_first_process();
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 73);
}

static bool begin_far_host(void) {
    int ready[2], go[2];
    char byte = 0;
    snprintf(far.root, sizeof far.root, "/tmp/trp-test-XXXXXX");
    assert_non_null(mkdtemp(far.root));
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    far.pid = test_child_fork();
    if (far.pid == 0) {
        close(go[1]);
        be_the_far_host(ready[1], go[0]);
    }
    close(ready[1]);
    close(go[0]);
    far.go = go[1];
    bool is_there = test_read(ready[0], &byte, 1, "the far host") == 1 && byte;
    close(ready[0]);
    return is_there;
}

/* NULL, or what is missing. */
static const char *build_hosts(void) {
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || !begin_far_host()) {
        return "needs the right to make namespaces (root)";
    }
    if (sh("command -v ip && command -v nsenter") != 0) {
        return "needs ip (iproute2) and nsenter (util-linux)";
    }
    if (sh("ip link set lo up && ip link add near type veth peer name far netns %d && "
           "ip addr add " NEAR_IP "/24 dev near && ip link set near up",
           (int)far.pid) != 0 ||
        sh("nsenter -t %d -n sh -c 'ip link set lo up && ip addr add " FAR_IP
           "/24 dev far && ip link set far up'",
           (int)far.pid) != 0) {
        return "needs a kernel with veth";
    }
    return NULL;
}

static void cut_the_link(void) {
    must(sh("ip neigh replace " FAR_IP " lladdr " NOBODY " dev near nud permanent && "
            "nsenter -t %d -n ip neigh replace " NEAR_IP " lladdr " NOBODY " dev far nud permanent",
            (int)far.pid),
         "cut");
}

static void heal_the_link(void) {
    must(sh("ip neigh del " FAR_IP " dev near && nsenter -t %d -n ip neigh del " NEAR_IP " dev far",
            (int)far.pid),
         "heal");
}

/* ---- What the head says ---- */

/* State and incarnation of the far node; "" when there is none. */
static void look_at_far(char *state, size_t size, long *ret_incarnation) {
    size_t i;
    json_t *row;
    must(sh("%s list nodes --format json", troupe_bin()), "list nodes");
    json_t *rows = test_json_in((const char *)output.data);
    assert_non_null(rows);
    state[0] = '\0';
    *ret_incarnation = 0;
    json_array_foreach(rows, i, row) {
        if (strcmp(json_string_value(json_object_get(row, "host")), FAR_IP) == 0) {
            snprintf(state, size, "%s", json_string_value(json_object_get(row, "state")));
            *ret_incarnation = (long)json_integer_value(json_object_get(row, "incarnation"));
        }
    }
    json_decref(rows);
}

static bool far_is(void *wanted) {
    char state[16];
    long incarnation;
    look_at_far(state, sizeof state, &incarnation);
    return strcmp(state, wanted) == 0;
}

/* The command that waits, the node daemon and its store, but no zygote and no worker. */
static bool far_runs_nothing(void *arg) {
    char entry[64];
    pid_t pids[16];
    snprintf(entry, sizeof entry, "TROUPE_SESSION_ROOT=%s", far.root);
    return test_processes_with(entry, pids, 16) <= 3;
}

/* ---- Tests ---- */

static trp_actor far_actor(void) {
    trp_resource there = {"far", 1};
    return test_spawn(
        rt,
        &(trp_spawn_options){
            .resources = &there, .resource_count = 1, .restarts_max = -1, .call_retries_max = -1},
        NULL);
}

static void A35_a_link_that_fails_for_a_moment_costs_nothing(void **state) {
    if (missing) {
        print_message("skipped: %s\n", missing);
        skip();
    }
    trp_actor actor = far_actor();
    trp_actor_info info;
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1); /* over tcp: another host */
    cut_the_link();
    trp_ref call = test_call(rt, actor, "add", NULL);
    usleep(500 * 1000); /* a third of the timeout */
    heal_the_link();
    trp_bytes value;
    TEST_OK(trp_get(rt, call, WAIT_MS, &value, err));
    assert_memory_equal(value.data, "2", 1);
    trp_ref_release(rt, call);
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.incarnation, 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void
a_node_behind_a_broken_link_is_dead_and_comes_back_as_another_incarnation(void **state) {
    if (missing) {
        print_message("skipped: %s\n", missing);
        skip();
    }
    trp_actor actor = far_actor();
    trp_actor_info info;
    TEST_OK(trp_monitor(rt, actor, err));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    cut_the_link();
    trp_ref call = test_call(rt, actor, "add", NULL);
    assert_int_equal(test_wait_death(rt, actor).cause, TRP_CAUSE_NODE_DIED);
    assert_true(far_is((void *)"dead"));
    /* It has not heard of that, and ends them all the same. */
    assert_true(test_until(far_runs_nothing, NULL, WAIT_MS));
    heal_the_link();
    trp_bytes value;
    TEST_OK(trp_get(rt, call, WAIT_MS, &value, err)); /* the next incarnation counts anew */
    assert_memory_equal(value.data, "1", 1);
    trp_ref_release(rt, call);
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.incarnation, 2);
    char far_state[16];
    long incarnation;
    look_at_far(far_state, sizeof far_state, &incarnation);
    assert_string_equal(far_state, "alive");
    assert_int_equal(incarnation, 2);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static int set_up(void **state) {
    missing = build_hosts();
    if (missing) {
        return 0;
    }
    assert_non_null(mkdtemp(near_root));
    setenv("TROUPE_SESSION_ROOT", near_root, 1);
    setenv("TROUPE_NODE_TIMEOUT_MS", "1500", 1);
    setenv("TROUPE_HEARTBEAT_MS", "100", 1);
    must(sh("%s start --head --host " NEAR_IP " --port 0 --num-cpus 1 --num-gpus 0", troupe_bin()),
         "start");
    assert_int_equal(sscanf((const char *)output.data, "head %63[^,]", address), 1);
    setenv("TROUPE_ADDRESS", address, 1);
    assert_int_equal(write(far.go, address, strlen(address)), strlen(address));
    close(far.go);
    assert_true(test_until(far_is, (void *)"alive", WAIT_MS));
    TEST_OK(trp_init(test_types, NULL, &rt, err));
    return 0;
}

static int tear_down(void **state) {
    if (missing) {
        if (far.pid > 0) {
            test_child_kill(far.pid);
            rmdir(far.root);
        }
        trp_buf_release(&output);
        return 0;
    }
    trp_shutdown(&rt);
    must(sh("%s stop", troupe_bin()), "stop"); /* the head tells the far node, too */
    assert_true(test_child_exit_code(far.pid, "the far host") >= 0);
    assert_int_equal(rmdir(near_root), 0);
    assert_int_equal(rmdir(far.root), 0);
    trp_buf_release(&output);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A35_a_link_that_fails_for_a_moment_costs_nothing),
        cmocka_unit_test(a_node_behind_a_broken_link_is_dead_and_comes_back_as_another_incarnation),
    };
    test_serve_if_worker(test_types);
    return cmocka_run_group_tests_name("partition", tests, set_up, tear_down);
}
