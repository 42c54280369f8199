/* Executables and working directories that reach a node by the hash of their content, and commands
 * that it runs as jobs, under a head that this test plays. The program of the workers is this one,
 * under a path that the node does not have. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/client_package.h"
#include "core/base/hash.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/fake_head.h"
#include "tests/lib/probe.h"

#define PATIENCE_MS 20000
#define NOWHERE "/nowhere/driver"

static test_head the_head;
static trpi_package exe;    /* this program */
static char scratch[64];    /* files of this test */
static uint64_t last = 100; /* actor or job */

/* ---- An actor that tells where it is ---- */

static trp_code where_exe(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    char path[512];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    return trp_buf_append(reply, path, size > 0 ? (size_t)size : 0);
}

static trp_code where_cwd(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    char path[512];
    return trp_buf_printf(reply, "%s", getcwd(path, sizeof path));
}

static trp_code where_read(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    char name[128];
    trpi_format(name, sizeof name, "%.*s", (int)args.size, (const char *)args.data);
    return trpi_file_read(name, 65536, reply, err);
}

static const trp_method where_methods[] = {
    {"exe", where_exe}, {"cwd", where_cwd}, {"read", where_read}, {NULL, NULL}};
static const trp_actor_type where_type = {.name = "where", .methods = where_methods};
static const trp_actor_type *const types[] = {&where_type, NULL};

/* ---- The head's part ---- */

/* What the head has, and how often it was asked for. */
typedef struct shelf {
    const trpi_package *file;
    const char *hash; /* under which it is asked for; the file's own */
    uint64_t busy;    /* answers "not yet" so often at first */
    trp_code code;    /* or fails with this */
    bool is_mute;
    bool turns; /* the first byte is another one */
    uint64_t firsts, asked;
} shelf;

static void answer(test_head *head, shelf *on, const trpi_msg_blob_get *get) {
    trpi_msg msg = {.type = TRPI_MSG_BLOB_DATA, .blob_data = {.request = get->request}};
    trp_buf part = {0};
    on->asked++;
    on->firsts += get->offset == 0;
    assert_string_equal(get->hash, on->hash ? on->hash : on->file->hash);
    if (on->is_mute) {
        return;
    }
    if (on->busy > 0 || on->code != TRP_OK) {
        msg.blob_data.code = on->busy > 0 ? TRP_EBUSY : on->code;
        msg.blob_data.message = "the driver is gone";
        on->busy -= on->busy > 0;
    } else {
        uint64_t size = TRPI_MIN(get->size, on->file->size - get->offset);
        int fd = on->file->fd >= 0 ? on->file->fd : open(on->file->path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(trp_buf_reserve(&part, size), TRP_OK);
        TEST_OK(trpi_read_at(fd, "blob", get->offset, part.data, size, err));
        part.size = size;
        part.data[0] ^= on->turns && get->offset == 0;
        if (fd != on->file->fd) {
            close(fd);
        }
        msg.blob_data.total = on->file->size;
        msg.blob_data.data = trp_buf_bytes(&part);
    }
    test_head_say(head, &msg);
    trp_buf_release(&part);
}

/* Hands out blobs until a message of that type comes. */
static const trpi_msg *serve(test_head *head, shelf *shelves, size_t count, trpi_msg_type type) {
    uint64_t deadline_ns = trpi_deadline_ns(PATIENCE_MS);
    while (trpi_now_ns() < deadline_ns) {
        const trpi_msg *msg = test_head_try(head, TRPI_MSG_BLOB_GET, 10);
        for (size_t i = 0; msg && i < count; i++) {
            const char *hash = shelves[i].hash ? shelves[i].hash : shelves[i].file->hash;
            if (strcmp(msg->blob_get.hash, hash) == 0) {
                answer(head, &shelves[i], &msg->blob_get);
                break;
            }
        }
        msg = test_head_try(head, type, 0);
        if (msg) {
            return msg;
        }
    }
    fail_msg("%s did not come", trpi_msg_name(type));
    return NULL;
}

static uint64_t say_start(test_head *head, const char *path, const char *hash,
                          const char *package) {
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last,
                              .incarnation = TEST_PROBE_INCARNATION,
                              .type = "where",
                              .name = "",
                              .exe = path,
                              .cwd = "/nowhere",
                              .job = "delivery_test",
                              .owner_job = 5,
                              .start_timeout_ms = PATIENCE_MS,
                              .exe_hash = hash,
                              .package = package}};
    test_head_say(head, &msg);
    return last;
}

static int setup(void **state) {
    test_head_open(&the_head);
    test_head_start_node(&the_head);
    (void)test_head_wait(&the_head, TRPI_MSG_NODE_HELLO);
    trp_error err = {0};
    trpi_format(scratch, sizeof scratch, "/tmp/delivery-test-XXXXXX");
    return mkdtemp(scratch) && trpi_package_of_exe(&exe, &err) == TRP_OK ? 0 : -1;
}

static int teardown(void **state) {
    test_head_close(&the_head);
    return trpi_dir_remove(scratch, NULL) == TRP_OK ? 0 : -1;
}

static const char *death_of(uint64_t actor, shelf *on, size_t count) {
    const trpi_msg_exited *exited = &serve(&the_head, on, count, TRPI_MSG_EXITED)->exited;
    assert_int_equal(exited->actor, actor);
    assert_int_equal(exited->death[0].cause, TRP_CAUSE_NEVER_STARTED);
    return exited->death[0].message;
}

static void dies_with(uint64_t actor, shelf *on, const char *words) {
    const char *message = death_of(actor, on, 1);
    if (strstr(message, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message, words);
    }
}

/* ---- Executables ---- */

static void two_actors_start_from_one_fetch_of_a_program_that_the_node_lacks(void **state) {
    test_caller callers[2];
    shelf on = {.file = &exe, .busy = 1};
    char path[512];
    say_start(&the_head, NOWHERE, exe.hash, "");
    say_start(&the_head, NOWHERE, exe.hash, "");
    for (int i = 0; i < 2; i++) {
        test_caller_open(&the_head, &serve(&the_head, &on, 1, TRPI_MSG_STARTED)->started,
                         &callers[i]);
    }
    assert_int_equal(on.firsts, 2); /* the first one was too early */
    assert_int_equal(on.asked, 1 + (exe.size + (1 << 20) - 1) / (1 << 20));
    trpi_format(path, sizeof path, "/blobs/%s", exe.hash);
    assert_non_null(strstr(test_caller_ask(&callers[0], "exe", ""), path));
    assert_non_null(strstr(test_caller_ask(&callers[1], "exe", ""), path));
    test_end_probe(&the_head, &callers[0]);
    test_end_probe(&the_head, &callers[1]);
}

static void a_path_with_other_content_is_not_run(void **state) {
    test_caller caller;
    shelf on = {.file = &exe};
    say_start(&the_head, "/bin/false", exe.hash, "");
    test_caller_open(&the_head, &serve(&the_head, &on, 1, TRPI_MSG_STARTED)->started, &caller);
    assert_int_equal(on.asked, 0); /* it is here since the test before */
    assert_non_null(strstr(test_caller_ask(&caller, "exe", ""), "/blobs/"));
    test_end_probe(&the_head, &caller);
}

static void a_path_with_the_same_content_is_run_where_it_is(void **state) {
    test_caller caller;
    shelf on = {.file = &exe};
    say_start(&the_head, test_exe(), exe.hash, "");
    test_caller_open(&the_head, &serve(&the_head, &on, 1, TRPI_MSG_STARTED)->started, &caller);
    assert_int_equal(on.asked, 0);
    assert_string_equal(test_caller_ask(&caller, "exe", ""), test_exe());
    test_end_probe(&the_head, &caller);
}

static void a_directory_that_this_host_lacks_is_needed_only_by_who_asked_for_it(void **state) {
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last,
                              .incarnation = TEST_PROBE_INCARNATION,
                              .type = "where",
                              .exe = test_exe(),
                              .cwd = "/nowhere",
                              .needs_cwd = true}};
    test_head_say(&the_head, &msg);
    shelf on = {.file = &exe};
    dies_with(last, &on, "change directory to /nowhere: No such file or directory");
}

static void what_has_another_hash_starts_nothing_and_the_next_start_tries_again(void **state) {
    char hash[TRPI_HASH_TEXT] = "00000000000000000000000000000001";
    shelf on = {.file = &exe, .hash = hash};
    dies_with(say_start(&the_head, NOWHERE, hash, ""), &on, "what came has the hash");
    assert_int_equal(on.firsts, 1);
    dies_with(say_start(&the_head, NOWHERE, hash, ""), &on, "what came has the hash");
    assert_int_equal(on.firsts, 2);
}

static void the_reason_that_the_head_gives_reaches_the_death_notice(void **state) {
    char hash[TRPI_HASH_TEXT] = "00000000000000000000000000000002";
    shelf on = {.file = &exe, .hash = hash, .code = TRP_ENOTFOUND};
    dies_with(say_start(&the_head, NOWHERE, hash, ""), &on,
              "cannot start the program on node n7: the executable could not be brought to this "
              "node: the driver is gone");
}

static void a_hash_that_is_none_leads_out_of_no_directory(void **state) {
    shelf on = {.file = &exe};
    dies_with(say_start(&the_head, NOWHERE, "../../../../../../../../bin/true", ""), &on,
              "is no hash");
}

static void a_file_that_is_too_large_is_not_fetched(void **state) {
    static char hash[TRPI_HASH_TEXT] = "00000000000000000000000000000003";
    trpi_msg msg = {.type = TRPI_MSG_BLOB_DATA};
    say_start(&the_head, NOWHERE, hash, "");
    msg.blob_data.request = test_head_wait(&the_head, TRPI_MSG_BLOB_GET)->blob_get.request;
    msg.blob_data.total = UINT64_C(1) << 40;
    msg.blob_data.data = trp_bytes_of("x");
    test_head_say(&the_head, &msg);
    shelf on = {.file = &exe, .hash = hash};
    dies_with(last, &on, "TROUPE_PACKAGE_BYTES_MAX");
}

static void an_actor_that_is_ended_during_the_fetch_is_gone_at_once(void **state) {
    static char hash[TRPI_HASH_TEXT] = "00000000000000000000000000000004";
    uint64_t actor = say_start(&the_head, NOWHERE, hash, "");
    (void)test_head_wait(&the_head, TRPI_MSG_BLOB_GET);
    test_say_end(&the_head, actor);
    assert_int_equal(test_wait_exit(&the_head, actor)->cause, TRP_CAUSE_KILLED);
}

static void a_start_that_times_out_says_how_far_the_fetch_was(void **state) {
    static char hash[TRPI_HASH_TEXT] = "00000000000000000000000000000005";
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last,
                              .incarnation = TEST_PROBE_INCARNATION,
                              .type = "where",
                              .exe = NOWHERE,
                              .start_timeout_ms = 300,
                              .exe_hash = hash}};
    test_head_say(&the_head, &msg);
    const trpi_death *death = test_wait_exit(&the_head, last);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    assert_non_null(strstr(death->message, "its executable is being fetched: 0.0 of 0.0 MiB"));
}

/* ---- Working directories ---- */

static void write_text(const char *name, const char *text) {
    char path[256], dir[256];
    trpi_format(path, sizeof path, "%s/%s", scratch, name);
    trpi_format(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    TEST_OK(trpi_dir_make(dir, 0755, err));
    TEST_OK(trpi_file_write_atomic(path, trp_bytes_of(text), err));
}

static trpi_package pack(const char *name) {
    char path[256];
    trpi_package package = {0};
    trpi_format(path, sizeof path, "%s/%s", scratch, name);
    TEST_OK(trpi_package_of_dir(path, &package, err));
    return package;
}

static void workers_start_in_their_copy_of_the_drivers_directory(void **state) {
    test_caller callers[2];
    char first[512];
    write_text("work/data/words", "hello");
    trpi_package package = pack("work");
    shelf on[] = {{.file = &exe}, {.file = &package}};
    for (int i = 0; i < 2; i++) {
        say_start(&the_head, test_exe(), exe.hash, package.hash);
        test_caller_open(&the_head, &serve(&the_head, on, 2, TRPI_MSG_STARTED)->started,
                         &callers[i]);
        assert_string_equal(test_caller_ask(&callers[i], "read", "data/words"), "hello");
    }
    assert_int_equal(on[1].firsts, 1);
    TRPI_SET(first, test_caller_ask(&callers[0], "cwd", ""));
    assert_string_equal(test_caller_ask(&callers[1], "cwd", ""), first);
    assert_non_null(strstr(first, package.hash));
    test_end_probe(&the_head, &callers[0]);
    test_end_probe(&the_head, &callers[1]);
    trpi_package_close(&package);
}

/* An archive made by hand, as none of ours is. */
static trpi_package archive_of(const char *shell) {
    char path[256], line[1024];
    trp_buf output = {0};
    trpi_package package = {.path = "archive"};
    trpi_format(path, sizeof path, "%s/bad.tar", scratch);
    trpi_format(line, sizeof line, "cd %s && rm -rf bad && mkdir bad && cd bad && %s", scratch,
                shell);
    const char *argv[] = {"/bin/sh", "-c", line, NULL};
    if (test_run(argv, &output, TEST_CHILD_MS) != 0) {
        fail_msg("%.*s", (int)output.size, (char *)output.data);
    }
    trp_buf_release(&output);
    trpi_file_id id;
    package.fd = open(path, O_RDONLY | O_CLOEXEC);
    TEST_OK(trpi_file_id_of(package.fd, path, &id, err));
    TEST_OK(trpi_content_hash(package.fd, path, package.hash, err));
    package.size = id.size;
    return package;
}

static void exists_nowhere(const char *name) {
    char path[256];
    trpi_format(path, sizeof path, "/tmp/%s", name);
    assert_false(trpi_file_exists(path));
    trpi_format(path, sizeof path, "%s/%s", scratch, name);
    assert_false(trpi_file_exists(path));
}

static void an_archive_cannot_write_outside_of_its_directory(void **state) {
    static const char *const archives[] = {
        "echo x > ../escaped-up && tar -P -cf ../bad.tar ../escaped-up && rm ../escaped-up",
        "echo x > /tmp/escaped-root && tar -P -cf ../bad.tar /tmp/escaped-root && "
        "rm /tmp/escaped-root",
        "ln -s /tmp out && tar -cf ../bad.tar out && rm out && mkdir out && "
        "echo x > out/escaped-link && tar -rf ../bad.tar out/escaped-link",
    };
    for (size_t i = 0; i < TRPI_COUNTOF(archives); i++) {
        trpi_package package = archive_of(archives[i]);
        shelf on[] = {{.file = &exe}, {.file = &package}};
        uint64_t actor = say_start(&the_head, test_exe(), exe.hash, package.hash);
        /* Refused, or unpacked where it does no harm. */
        uint64_t deadline_ns = trpi_deadline_ns(PATIENCE_MS);
        bool is_over = false;
        while (!is_over && trpi_now_ns() < deadline_ns) {
            const trpi_msg *msg = test_head_try(&the_head, TRPI_MSG_BLOB_GET, 10);
            if (msg) {
                answer(&the_head, &on[1], &msg->blob_get);
            }
            msg = test_head_try(&the_head, TRPI_MSG_EXITED, 0);
            is_over = msg != NULL;
            msg = msg ? NULL : test_head_try(&the_head, TRPI_MSG_STARTED, 0);
            if (msg) {
                is_over = true;
                test_say_end(&the_head, actor);
                (void)test_wait_exit(&the_head, actor);
            }
        }
        assert_true(is_over);
        exists_nowhere("escaped-up");
        exists_nowhere("escaped-root");
        exists_nowhere("escaped-link");
        trpi_package_close(&package);
    }
}

static void what_is_no_archive_is_refused_in_tars_words(void **state) {
    trpi_package package = archive_of("echo no archive > ../bad.tar");
    shelf on[] = {{.file = &exe}, {.file = &package}};
    uint64_t actor = say_start(&the_head, test_exe(), exe.hash, package.hash);
    const char *message = death_of(actor, on, 2);
    assert_non_null(strstr(message, "does not look like a tar archive"));
    trpi_package_close(&package);
}

/* ---- Jobs ---- */

static uint64_t say_job(const char *const *words, const char *cwd, const char *package) {
    trpi_text argv[8];
    trpi_text env[] = {{.value = "COLOR=red=1"}};
    trpi_msg msg = {.type = TRPI_MSG_JOB_START,
                    .job_start = {.job = ++last,
                                  .argv = argv,
                                  .env = env,
                                  .env_count = 1,
                                  .cwd = cwd,
                                  .package = package,
                                  .address = "127.0.0.1:9"}};
    for (; words[msg.job_start.argv_count]; msg.job_start.argv_count++) {
        argv[msg.job_start.argv_count].value = words[msg.job_start.argv_count];
    }
    test_head_say(&the_head, &msg);
    return last;
}

static const trpi_msg_job_exited *wait_job(uint64_t job, shelf *on, size_t count) {
    const trpi_msg_job_exited *exited =
        &serve(&the_head, on, count, TRPI_MSG_JOB_EXITED)->job_exited;
    assert_int_equal(exited->job, job);
    return exited;
}

/* What it has written so far; static storage. */
static const char *output_of(uint64_t job) {
    static char text[4096];
    trpi_msg msg = {.type = TRPI_MSG_LOGS_QUERY,
                    .logs_query = {.request = 3, .job = job, .stream = "", .client = 4}};
    test_head_say(&the_head, &msg);
    const trpi_msg_logs_data *data = &test_head_wait(&the_head, TRPI_MSG_LOGS_DATA)->logs_data;
    trpi_format(text, sizeof text, "%s%.*s", data->message, (int)data->data.size,
                data->data.size ? (const char *)data->data.data : "");
    return text;
}

static void a_job_runs_in_its_package_and_its_environment(void **state) {
    write_text("job/run.sh",
               "#!/bin/sh\necho \"$COLOR $TROUPE_JOB $TROUPE_ADDRESS $TROUPE_PACKAGE $1\"\n"
               "cat data >&2\nexit 3\n");
    write_text("job/data", "of the job\n");
    char path[256], expected[256];
    trpi_format(path, sizeof path, "%s/job/run.sh", scratch);
    assert_int_equal(chmod(path, 0755), 0);
    trpi_package package = pack("job");
    shelf on = {.file = &package};
    const char *argv[] = {"./run.sh", "one", NULL};
    uint64_t job = say_job(argv, "", package.hash);
    const trpi_msg_job_exited *exited = wait_job(job, &on, 1);
    assert_int_equal(exited->exit_code, 3);
    assert_int_equal(exited->signal, 0);
    assert_string_equal(exited->message, "exit code 3");
    assert_true(test_head_wait(&the_head, TRPI_MSG_JOB_STARTED)->job_started.pid > 1);
    trpi_format(expected, sizeof expected, "red=1 %llu 127.0.0.1:9 %s one\n",
                (unsigned long long)job, package.hash);
    const char *output = output_of(job);
    assert_non_null(strstr(output, expected));
    assert_non_null(strstr(output, "of the job\n"));
    trpi_package_close(&package);
}

static void a_command_that_is_not_there_says_so(void **state) {
    const char *argv[] = {"./none", NULL}, *other[] = {"none", NULL}, *third[] = {"true", NULL};
    const trpi_msg_job_exited *exited = wait_job(say_job(argv, scratch, ""), NULL, 0);
    assert_int_equal(exited->exit_code, 127);
    assert_non_null(strstr(exited->message, "there is no program ./none"));
    assert_non_null(strstr(output_of(last), "there is no program ./none"));
    exited = wait_job(say_job(other, scratch, ""), NULL, 0);
    assert_non_null(strstr(exited->message, "nor in PATH"));
    exited = wait_job(say_job(third, "/nowhere", ""), NULL, 0);
    assert_non_null(strstr(exited->message, "/nowhere"));
    assert_int_equal(wait_job(say_job(third, "", ""), NULL, 0)->exit_code, 0);
}

static void a_job_that_is_told_to_end_has_its_grace(void **state) {
    const char *polite[] = {"/bin/sh", "-c",
                            "trap 'echo bye; exit 5' TERM; echo up; sleep 60 & wait", NULL};
    const char *deaf[] = {"/bin/sh", "-c", "trap '' TERM; echo up; sleep 60", NULL};
    uint64_t job = say_job(polite, "", "");
    trpi_msg end = {.type = TRPI_MSG_JOB_END, .job_end = {.job = job, .grace_ms = PATIENCE_MS}};
    while (strstr(output_of(job), "up") == NULL) {
        test_head_listen(&the_head, 5);
    }
    test_head_say(&the_head, &end);
    assert_int_equal(wait_job(job, NULL, 0)->exit_code, 5);
    assert_non_null(strstr(output_of(job), "bye"));

    job = end.job_end.job = say_job(deaf, "", "");
    end.job_end.grace_ms = 50;
    while (strstr(output_of(job), "up") == NULL) {
        test_head_listen(&the_head, 5);
    }
    test_head_say(&the_head, &end);
    assert_int_equal(wait_job(job, NULL, 0)->signal, SIGKILL);
    test_head_say(&the_head, &end); /* said again: nothing of it is left */
    assert_int_equal(wait_job(job, NULL, 0)->signal, 0);
}

static void what_a_job_leaves_behind_is_killed_with_it(void **state) {
    const char *argv[] = {"/bin/sh", "-c",
                          "sleep 3600 & echo $!; setsid sleep 3600 & echo $!; sleep 0.2", NULL};
    long group, daemon;
    uint64_t job = say_job(argv, "", "");
    (void)wait_job(job, NULL, 0);
    assert_int_equal(sscanf(output_of(job), "%ld %ld", &group, &daemon), 2);
    assert_true(test_process_gone((pid_t)group));
    assert_true(test_process_gone((pid_t)daemon));
}

static void jobs_and_what_was_fetched_go_with_the_node(void **state) {
    const char *argv[] = {"/bin/sh", "-c", "echo up; sleep 3600 & wait", NULL};
    uint64_t job = say_job(argv, "", "");
    pid_t pid = (pid_t)test_head_wait(&the_head, TRPI_MSG_JOB_STARTED)->job_started.pid;
    while (kill(pid, 0) != 0) { /* an earlier job's may have come first */
        pid = (pid_t)test_head_wait(&the_head, TRPI_MSG_JOB_STARTED)->job_started.pid;
    }
    assert_true(job > 0);
    kill(the_head.node, SIGTERM);
    assert_int_equal(test_head_wait_node(&the_head, PATIENCE_MS), 0);
    assert_true(test_process_gone(pid));
    char dir[256];
    trpi_format(dir, sizeof dir, "%s/%.8s", getenv("TROUPE_SESSION_ROOT"), the_head.cluster);
    assert_false(trpi_file_exists(dir));
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_actors_start_from_one_fetch_of_a_program_that_the_node_lacks),
        cmocka_unit_test(a_path_with_other_content_is_not_run),
        cmocka_unit_test(a_path_with_the_same_content_is_run_where_it_is),
        cmocka_unit_test(a_directory_that_this_host_lacks_is_needed_only_by_who_asked_for_it),
        cmocka_unit_test(what_has_another_hash_starts_nothing_and_the_next_start_tries_again),
        cmocka_unit_test(the_reason_that_the_head_gives_reaches_the_death_notice),
        cmocka_unit_test(a_hash_that_is_none_leads_out_of_no_directory),
        cmocka_unit_test(a_file_that_is_too_large_is_not_fetched),
        cmocka_unit_test(an_actor_that_is_ended_during_the_fetch_is_gone_at_once),
        cmocka_unit_test(a_start_that_times_out_says_how_far_the_fetch_was),
        cmocka_unit_test(workers_start_in_their_copy_of_the_drivers_directory),
        cmocka_unit_test(an_archive_cannot_write_outside_of_its_directory),
        cmocka_unit_test(what_is_no_archive_is_refused_in_tars_words),
        cmocka_unit_test(a_job_runs_in_its_package_and_its_environment),
        cmocka_unit_test(a_command_that_is_not_there_says_so),
        cmocka_unit_test(a_job_that_is_told_to_end_has_its_grace),
        cmocka_unit_test(what_a_job_leaves_behind_is_killed_with_it),
        cmocka_unit_test(jobs_and_what_was_fetched_go_with_the_node),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
