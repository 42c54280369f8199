/* sys_file_test.c: files, host and session of core/sys. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "core/sys/host.h"
#include "core/sys/process.h"
#include "core/sys/session.h"

static char dir[64]; /* of the running test */
static char path_text[4][512];

/* dir/name, in one of a few turns of static storage. */
static const char *in_dir(const char *name) {
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path_text[turn], sizeof(path_text[turn]), "%s/%s", dir, name);
    return path_text[turn];
}

static int make_dir(void **state) {
    snprintf(dir, sizeof(dir), "/tmp/sys_file_test_XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL) == TRP_OK ? 0 : -1;
}

/* ---- Files ---- */

static void what_is_written_is_read_and_nothing_else_is_left(void **state) {
    trp_buf content = {0};
    char **names;
    size_t count;
    trp_error err;
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("one"), &err), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("second"), &err), TRP_OK);
    assert_int_equal(trp_buf_append(&content, ">", 1), TRP_OK);
    assert_int_equal(trpi_file_read(in_dir("f"), 6, &content, &err), TRP_OK);
    assert_string_equal((char *)content.data, ">second");
    assert_int_equal(trpi_dir_list(dir, &names, &count, &err), TRP_OK);
    assert_int_equal(count, 1);
    trpi_names_free(names, count);
    trp_buf_release(&content);
}

static void an_empty_file_is_a_file(void **state) {
    trp_buf content = {0};
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of(NULL), NULL), TRP_OK);
    assert_true(trpi_file_exists(in_dir("f")));
    assert_int_equal(trpi_file_read(in_dir("f"), 0, &content, NULL), TRP_OK);
    assert_int_equal(content.size, 0);
    trp_buf_release(&content);
}

static void a_file_that_is_too_large_or_missing_appends_nothing(void **state) {
    trp_buf content = {0};
    trp_error err;
    assert_int_equal(trp_buf_append(&content, "kept", 4), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("1234567"), NULL), TRP_OK);
    assert_int_equal(trpi_file_read(in_dir("f"), 6, &content, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "larger than 6 bytes"));
    assert_int_equal(trpi_file_read(in_dir("none"), 0, &content, &err), TRP_ENOTFOUND);
    assert_non_null(strstr(err.message, in_dir("none")));
    assert_int_equal(trpi_file_read(dir, 0, &content, &err), TRP_EIO);
    assert_string_equal((char *)content.data, "kept");
    assert_false(trpi_file_exists(in_dir("none")));
    trp_buf_release(&content);
}

static void no_more_of_a_file_is_read_than_is_allowed(void **state) {
    trp_buf content = {0};
    trp_error err;
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("1"), NULL), TRP_OK);
    assert_int_equal(truncate(in_dir("f"), (off_t)1 << 30), 0); /* a hole: nothing on the disk */
    assert_int_equal(trpi_file_read(in_dir("f"), 100, &content, &err), TRP_EINVALID);
    assert_true(content.capacity < 4096);
    trp_buf_release(&content);
}

static void a_process_without_descriptors_says_so(void **state) {
    trp_buf content = {0};
    trp_error err;
    struct rlimit before;
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("1"), NULL), TRP_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    trp_code code = trpi_file_read(in_dir("f"), 0, &content, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(code, TRP_EBUSY);
    trp_buf_release(&content);
}

static void a_file_whose_size_is_not_told_is_read_whole(void **state) {
    trp_buf content = {0};
    assert_int_equal(trpi_file_read("/proc/self/maps", 0, &content, NULL), TRP_OK);
    assert_true(content.size > 100);
    trp_buf_release(&content);
}

static void a_write_that_fails_leaves_the_old_content(void **state) {
    trp_buf content = {0};
    trp_error err;
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("old"), NULL), TRP_OK);
    /* A directory in the place of the temporary file. */
    assert_int_equal(mkdir(in_dir("f.tmp"), 0700), 0);
    assert_int_equal(trpi_file_write_atomic(in_dir("f"), trp_bytes_of("new"), &err), TRP_EIO);
    assert_int_equal(trpi_file_write_atomic("/dev/full/x", trp_bytes_of("new"), &err), TRP_EIO);
    assert_int_equal(trpi_file_read(in_dir("f"), 0, &content, NULL), TRP_OK);
    assert_string_equal((char *)content.data, "old");
    trp_buf_release(&content);
}

static void directories_are_made_with_their_parents_once(void **state) {
    trp_error err;
    assert_int_equal(trpi_dir_make(in_dir("a/b/c"), 0700, &err), TRP_OK);
    assert_int_equal(trpi_dir_make(in_dir("a/b/c"), 0700, &err), TRP_OK);
    assert_int_equal(trpi_dir_make(in_dir("a/b/d/"), 0700, &err), TRP_OK);
    assert_int_equal(trpi_dir_make("/", 0700, &err), TRP_OK);
    assert_int_equal(trpi_file_sync(in_dir("a/b"), &err), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(in_dir("a/f"), trp_bytes_of("x"), &err), TRP_OK);
    assert_int_equal(trpi_dir_make(in_dir("a/f"), 0700, &err), TRP_EIO);
    assert_int_equal(trpi_dir_make(in_dir("a/f/g"), 0700, &err), TRP_EIO);
    assert_int_equal(trpi_dir_make("", 0700, &err), TRP_ENOTFOUND);
}

static void a_tree_is_removed_without_following_links(void **state) {
    trp_error err;
    assert_int_equal(trpi_dir_make(in_dir("tree/x/y"), 0700, &err), TRP_OK);
    assert_int_equal(trpi_dir_make(in_dir("home"), 0700, &err), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(in_dir("home/f"), trp_bytes_of("1"), &err), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(in_dir("tree/x/g"), trp_bytes_of("1"), &err), TRP_OK);
    assert_int_equal(symlink(in_dir("home"), in_dir("tree/x/link")), 0);
    assert_int_equal(symlink(in_dir("home"), in_dir("link")), 0);
    assert_int_equal(trpi_dir_remove(in_dir("tree"), &err), TRP_OK);
    assert_false(trpi_file_exists(in_dir("tree")));
    assert_int_equal(trpi_dir_remove(in_dir("link"), &err), TRP_EIO);
    assert_true(trpi_file_exists(in_dir("home/f")));
    assert_int_equal(trpi_dir_remove(in_dir("tree"), &err), TRP_OK);
}

static void names_come_sorted(void **state) {
    static const char *const expected[] = {"B", "a", "b10", "b9"};
    char **names = NULL;
    size_t count = 0;
    trp_error err;
    for (size_t i = 4; i > 0; i--) {
        assert_int_equal(trpi_dir_make(in_dir(expected[i - 1]), 0700, &err), TRP_OK);
    }
    assert_int_equal(trpi_dir_list(dir, &names, &count, &err), TRP_OK);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(names[i], expected[i]);
    }
    trpi_names_free(names, count);
    trpi_names_free(NULL, 0);
    assert_int_equal(trpi_dir_list(in_dir("none"), &names, &count, &err), TRP_ENOTFOUND);
}

/* ---- Host ---- */

static void the_host_has_processors_memory_and_a_name(void **state) {
    char name[256], id[256], again[256];
    assert_true(trpi_host_cpus() >= 1);
    assert_true(trpi_host_memory_bytes() > 16u << 20);
    assert_true(trpi_host_memory_bytes() < 1ull << 50);
    trpi_host_name(name, sizeof(name));
    assert_true(strlen(name) > 0);
    trpi_host_id(id, sizeof(id));
    trpi_host_id(again, sizeof(again));
    assert_true(strlen(id) > 10);
    assert_string_equal(id, again);
}

static void the_program_knows_its_file(void **state) {
    char exe[512], small[4];
    trp_error err;
    assert_int_equal(trpi_host_exe(exe, sizeof(exe), &err), TRP_OK);
    assert_int_equal(exe[0], '/');
    assert_int_equal(access(exe, X_OK), 0);
    assert_int_equal(trpi_host_exe(small, sizeof(small), &err), TRP_EINVALID);
}

static void devices_that_are_hidden_are_not_listed(void **state) {
    char ids[16][64];
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    assert_int_equal(trpi_host_gpus(ids, 16), 0);
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    assert_int_equal(trpi_host_gpus(ids, 16), 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    int count = trpi_host_gpus(ids, 16);
    assert_true(count >= 0 && count <= 16);
    assert_int_equal(trpi_host_gpus(ids, 0), 0);
}

/* ---- Session ---- */

static int make_session(void **state) {
    int result = make_dir(state);
    setenv("TROUPE_SESSION_ROOT", dir, 1);
    return result;
}

static int remove_session(void **state) {
    unsetenv("TROUPE_SESSION_ROOT");
    return remove_dir(state);
}

static void the_root_is_made_for_us_alone_and_absolute(void **state) {
    char root[256];
    struct stat info;
    trp_error err;
    setenv("TROUPE_SESSION_ROOT", in_dir("deep/root"), 1);
    assert_int_equal(trpi_session_root(root, sizeof(root), &err), TRP_OK);
    assert_string_equal(root, in_dir("deep/root"));
    assert_int_equal(stat(root, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
}

static void a_root_that_others_can_write_to_is_refused(void **state) {
    char root[256] = "untouched";
    trp_error err;
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(trpi_session_root(root, sizeof(root), &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "TROUPE_SESSION_ROOT"));
    assert_string_equal(root, "untouched");
    assert_int_equal(chmod(dir, 0700), 0);
}

static void a_root_that_is_too_long_for_sockets_is_refused(void **state) {
    char root[256], name[128];
    trp_error err;
    memset(name, 'x', 60);
    name[60] = '\0';
    setenv("TROUPE_SESSION_ROOT", in_dir(name), 1);
    assert_int_equal(trpi_session_root(root, sizeof(root), &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "shorter"));
}

static void write_pidfile(const char *name, const char *owned, pid_t pid, uint64_t start_time) {
    trpi_pidfile file = {.pid = pid, .start_time = start_time};
    trp_error err = {0};
    snprintf(file.path, sizeof(file.path), "%s", in_dir(name));
    snprintf(file.address, sizeof(file.address), "127.0.0.1:6390");
    snprintf(file.cluster, sizeof(file.cluster), "01234567-89ab-4def-8123-456789abcdef");
    if (owned != NULL) {
        snprintf(file.dir, sizeof(file.dir), "%s", in_dir(owned));
    }
    assert_int_equal(trpi_pidfile_write(&file, &err), TRP_OK);
    assert_string_equal(err.message, "");
}

static void a_pid_file_says_who_and_whether_it_lives(void **state) {
    trpi_pidfile *files;
    bool *alive;
    size_t count;
    trp_error err;
    uint64_t ours = trpi_process_start_time(getpid());
    write_pidfile("01234567/head.pid", NULL, getpid(), ours);
    write_pidfile("01234567/node-aaaaaaaa.pid", "01234567/node-aaaaaaaa", getpid(), ours + 1);
    assert_int_equal(trpi_pidfile_list(&files, &alive, &count, &err), TRP_OK);
    assert_int_equal(count, 2);
    assert_string_equal(files[0].role, "head");
    assert_string_equal(files[0].address, "127.0.0.1:6390");
    assert_string_equal(files[0].cluster, "01234567-89ab-4def-8123-456789abcdef");
    assert_string_equal(files[0].path, in_dir("01234567/head.pid"));
    assert_string_equal(files[0].dir, "");
    assert_int_equal(files[0].pid, getpid());
    assert_true(files[0].start_time == ours);
    assert_true(alive[0]);
    assert_string_equal(files[1].role, "node");
    assert_string_equal(files[1].dir, in_dir("01234567/node-aaaaaaaa"));
    assert_false(alive[1]);
    free(files);
    free(alive);
}

static void a_sweep_takes_the_dead_and_leaves_the_living(void **state) {
    uint64_t ours = trpi_process_start_time(getpid());
    write_pidfile("11111111/head.pid", NULL, getpid(), ours);
    write_pidfile("11111111/node-bbbbbbbb.pid", "11111111/node-bbbbbbbb", getpid(), ours + 1);
    write_pidfile("22222222/node-cccccccc.pid", "22222222/node-cccccccc", 0x7ffffff0, 5);
    assert_int_equal(trpi_dir_make(in_dir("11111111/node-bbbbbbbb/logs"), 0700, NULL), TRP_OK);
    assert_int_equal(trpi_dir_make(in_dir("22222222/node-cccccccc"), 0700, NULL), TRP_OK);
    trpi_session_sweep();
    assert_true(trpi_file_exists(in_dir("11111111/head.pid")));
    assert_false(trpi_file_exists(in_dir("11111111/node-bbbbbbbb")));
    assert_false(trpi_file_exists(in_dir("11111111/node-bbbbbbbb.pid")));
    assert_false(trpi_file_exists(in_dir("22222222")));
}

static void write_text(const char *name, const char *text) {
    assert_int_equal(trpi_file_write_atomic(in_dir(name), trp_bytes_of(text), NULL), TRP_OK);
}

static void a_pid_file_that_points_outside_or_is_damaged_moves_nothing(void **state) {
    char victim[] = "/tmp/sys_file_test_victim_XXXXXX", line[256];
    assert_non_null(mkdtemp(victim));
    assert_int_equal(trpi_dir_make(in_dir("33333333"), 0700, NULL), TRP_OK);
    snprintf(line, sizeof(line), "2147483632 5 - - %s\n", victim);
    write_text("33333333/node-dddddddd.pid", line);
    snprintf(line, sizeof(line), "2147483632 5 - - %s/../../%s\n", dir, victim);
    write_text("33333333/node-eeeeeeee.pid", line);
    write_text("33333333/node-ffffffff.pid", "garbage");
    write_text("33333333/node-00000000.pid", "");
    write_text("33333333/head.pid", "-1 5 - - \n");
    trpi_session_sweep();
    assert_true(trpi_file_exists(victim));
    assert_int_equal(rmdir(victim), 0);
}

static atomic_bool sweeps;

static void *keep_sweeping(void *arg) {
    while (atomic_load(&sweeps)) {
        trpi_session_sweep();
    }
    return arg;
}

static void a_sweep_takes_nothing_from_one_that_takes_the_place_of_the_dead(void **state) {
    pthread_t sweeper;
    uint64_t ours = trpi_process_start_time(getpid());
    atomic_store(&sweeps, true);
    assert_int_equal(pthread_create(&sweeper, NULL, keep_sweeping, NULL), 0);
    for (int i = 0; i < 300; i++) {
        write_pidfile("44444444/head.pid", NULL, 0x7ffffff0, 5);
        write_pidfile("44444444/head.pid", NULL, getpid(), ours);
        assert_true(trpi_file_exists(in_dir("44444444/head.pid")));
    }
    atomic_store(&sweeps, false);
    pthread_join(sweeper, NULL);
    assert_true(trpi_file_exists(in_dir("44444444/head.pid")));
    trpi_pidfile file = {0};
    snprintf(file.path, sizeof(file.path), "%s", in_dir("44444444/head.pid"));
    trpi_pidfile_remove(&file);
    assert_string_equal(file.path, "");
    assert_false(trpi_file_exists(in_dir("44444444")));
    trpi_pidfile_remove(&file); /* nothing left to remove */
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
#define IN_SESSION(test) cmocka_unit_test_setup_teardown(test, make_session, remove_session)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(what_is_written_is_read_and_nothing_else_is_left),
        IN_DIR(an_empty_file_is_a_file),
        IN_DIR(a_file_that_is_too_large_or_missing_appends_nothing),
        IN_DIR(no_more_of_a_file_is_read_than_is_allowed),
        IN_DIR(a_process_without_descriptors_says_so),
        IN_DIR(a_file_whose_size_is_not_told_is_read_whole),
        IN_DIR(a_write_that_fails_leaves_the_old_content),
        IN_DIR(directories_are_made_with_their_parents_once),
        IN_DIR(a_tree_is_removed_without_following_links),
        IN_DIR(names_come_sorted),
        cmocka_unit_test(the_host_has_processors_memory_and_a_name),
        cmocka_unit_test(the_program_knows_its_file),
        cmocka_unit_test(devices_that_are_hidden_are_not_listed),
        IN_SESSION(the_root_is_made_for_us_alone_and_absolute),
        IN_SESSION(a_root_that_others_can_write_to_is_refused),
        IN_SESSION(a_root_that_is_too_long_for_sockets_is_refused),
        IN_SESSION(a_pid_file_says_who_and_whether_it_lives),
        IN_SESSION(a_sweep_takes_the_dead_and_leaves_the_living),
        IN_SESSION(a_sweep_takes_nothing_from_one_that_takes_the_place_of_the_dead),
        IN_SESSION(a_pid_file_that_points_outside_or_is_damaged_moves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
