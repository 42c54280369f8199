/* What of a driver travels to nodes: content hashes and packed directories. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/client_package.h"
#include "core/base/config.h"
#include "core/sys/file.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

#define NOBODY 65534

static char root[64];

static const char *path_of(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void write_text(const char *name, const char *text) {
    char dir[256];
    snprintf(dir, sizeof dir, "%s", path_of(name));
    *strrchr(dir, '/') = '\0';
    TEST_OK(trpi_dir_make(dir, 0755, err));
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    TEST_OK(trpi_write_on(fd, name, trp_bytes_of(text), err));
    close(fd);
}

static void write_zeros(const char *name, off_t size) {
    write_text(name, "");
    assert_int_equal(truncate(path_of(name), size), 0);
}

static int setup(void **state) {
    snprintf(root, sizeof root, "/tmp/package-test-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    trpi_config_set(TRPI_CONFIG_PACKAGE_BYTES_MAX, 512 << 20);
    return trpi_dir_remove(root, NULL) == TRP_OK ? 0 : -1;
}

/* The names in an archive, one a line. */
static void list_names(const trpi_package *package, trp_buf *names) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), package->fd);
    const char *argv[] = {"/bin/tar", "-tf", path, NULL};
    trp_buf_clear(names);
    assert_int_equal(test_run(argv, names, TEST_CHILD_MS), 0);
    assert_int_equal(trp_buf_append(names, "", 1), TRP_OK);
}

static bool has_name(const trp_buf *names, const char *name) {
    char line[256];
    snprintf(line, sizeof line, "./%s\n", name);
    return strstr((char *)names->data, line) != NULL;
}

static void expect_refused(const char *dir, trp_code code, const char *word) {
    trpi_package package = {0};
    trp_error err = {0};
    assert_int_equal(trpi_package_of_dir(dir, &package, &err), code);
    if (strstr(err.message, word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.message, word);
    }
}

/* ---- Hashes ---- */

static void only_32_hex_digits_are_a_hash(void **state) {
    assert_true(trpi_is_hash("0123456789abcdef0123456789abcdef"));
    assert_false(trpi_is_hash(""));
    assert_false(trpi_is_hash("0123456789abcdef0123456789abcdeF"));
    assert_false(trpi_is_hash("../../../../../../../../etc/pass"));
    assert_false(trpi_is_hash("0123456789abcdef0123456789abcdef0"));
}

static void the_hash_of_this_program_is_that_of_its_file(void **state) {
    trpi_package first = {0}, second = {0};
    char hash[TRPI_HASH_TEXT];
    TEST_OK(trpi_package_of_exe(&first, err));
    TEST_OK(trpi_package_of_exe(&second, err));
    int fd = open(test_exe(), O_RDONLY | O_CLOEXEC);
    TEST_OK(trpi_content_hash(fd, test_exe(), hash, err));
    close(fd);
    assert_string_equal(first.hash, hash);
    assert_string_equal(second.hash, hash);
    assert_true(trpi_is_hash(hash));
}

static void a_file_that_was_written_is_another_one(void **state) {
    trpi_file_id before, after;
    write_text("f", "one");
    TEST_OK(trpi_file_id_of(-1, path_of("f"), &before, err));
    write_text("f", "other");
    TEST_OK(trpi_file_id_of(-1, path_of("f"), &after, err));
    assert_false(trpi_file_id_equal(&before, &after));
    assert_int_equal(trpi_file_id_of(-1, root, &after, NULL), TRP_EINVALID);
    assert_int_equal(trpi_file_id_of(-1, path_of("none"), &after, NULL), TRP_ENOTFOUND);
}

/* ---- Packing ---- */

static void equal_files_make_equal_packages_whatever_their_times_and_order(void **state) {
    trpi_package one = {0}, two = {0}, three = {0};
    write_text("a/b/late", "2");
    write_text("a/early", "1");
    write_text("c/early", "1");
    write_text("c/b/late", "2");
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    assert_int_equal(utimensat(AT_FDCWD, path_of("c/early"), times, 0), 0);
    TEST_OK(trpi_package_of_dir(path_of("a"), &one, err));
    TEST_OK(trpi_package_of_dir(path_of("c"), &two, err));
    assert_string_equal(one.hash, two.hash);
    assert_int_equal(one.size, two.size);
    write_text("c/early", "3");
    TEST_OK(trpi_package_of_dir(path_of("c"), &three, err));
    assert_string_not_equal(one.hash, three.hash);
    trpi_package_close(&one);
    trpi_package_close(&two);
    trpi_package_close(&three);
}

static void what_is_packed_leaves_out_what_the_ignore_file_names(void **state) {
    trpi_package package = {0};
    trp_buf names = {0};
    write_text("d/.git/config", "x");
    write_text("d/sub/.git/config", "x");
    write_text("d/keep.c", "x");
    write_text("d/drop.o", "x");
    write_text("d/sub/drop.o", "x");
    write_text("d/build/x", "x");
    write_text("d/data/x", "x");
    write_text("d/sub/data/x", "x");
    write_text("d/with space", "x");
    write_text("d/.troupeignore", "# objects\n*.o\n\nbuild/\n/data\n");
    TEST_OK(trpi_package_of_dir(path_of("d"), &package, err));
    list_names(&package, &names);
    assert_true(has_name(&names, "keep.c"));
    assert_true(has_name(&names, "with space"));
    assert_true(has_name(&names, "sub/data/x"));
    assert_false(has_name(&names, "drop.o"));
    assert_false(has_name(&names, "sub/drop.o"));
    assert_false(has_name(&names, "build/x"));
    assert_false(has_name(&names, "data/x"));
    assert_null(strstr((char *)names.data, "config"));
    write_text("d/.troupeignore", "!keep.c\n");
    expect_refused(path_of("d"), TRP_EINVALID, "can't be taken in again");
    trp_buf_release(&names);
    trpi_package_close(&package);
}

static void options_in_the_environment_do_not_reach_tar(void **state) {
    trpi_package plain = {0}, other = {0};
    write_text("e/x", "x");
    TEST_OK(trpi_package_of_dir(path_of("e"), &plain, err));
    setenv("TAR_OPTIONS", "--exclude=x", 1);
    TEST_OK(trpi_package_of_dir(path_of("e"), &other, err));
    unsetenv("TAR_OPTIONS");
    assert_string_equal(plain.hash, other.hash);
    trpi_package_close(&plain);
    trpi_package_close(&other);
}

static void what_is_no_directory_is_refused(void **state) {
    write_text("file", "x");
    expect_refused(path_of("file"), TRP_EINVALID, "is no directory");
    expect_refused(path_of("missing"), TRP_ENOTFOUND, "missing");
}

static void what_is_too_large_is_refused_with_the_largest_files_named(void **state) {
    trpi_config_set(TRPI_CONFIG_PACKAGE_BYTES_MAX, 1 << 20);
    write_zeros("big/small", 1000);
    write_zeros("big/left.out", 50 << 20);
    write_zeros("big/two", 2 << 20);
    write_zeros("big/sub/three", 3 << 20);
    write_text("big/.troupeignore", "*.out\n");
    expect_refused(path_of("big"), TRP_EINVALID,
                   "has 5.0 MiB in 4 files, and 1.0 are allowed (TROUPE_PACKAGE_BYTES_MAX); the "
                   "largest: ./sub/three 3.0 MiB, ./two 2.0 MiB");
}

static void a_file_that_cannot_be_read_is_refused_by_name(void **state) {
    if (geteuid() != 0) {
        skip(); /* root reads everything, so it becomes nobody; others can't */
    }
    write_text("secret/open", "x");
    write_text("secret/closed", "x");
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(path_of("secret/closed"), 0), 0);
    assert_int_equal(seteuid(NOBODY), 0);
    trpi_package package = {0};
    trp_error err = {0};
    trp_code code = trpi_package_of_dir(path_of("secret"), &package, &err);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(code, TRP_EIO);
    assert_non_null(strstr(err.message, "closed: Cannot open: Permission denied"));
}

static void a_program_that_ignores_its_children_can_pack(void **state) {
    trpi_package package = {0};
    write_text("i/x", "x");
    signal(SIGCHLD, SIG_IGN);
    trp_error err = {0};
    trp_code code = trpi_package_of_dir(path_of("i"), &package, &err);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(code, TRP_OK);
    trpi_package_close(&package);
}

/* ---- Finding a program ---- */

static void a_program_is_found_as_a_shell_finds_it(void **state) {
    char found[512];
    write_text("bin/tool", "#!/bin/sh\n");
    write_text("bin/text", "x");
    assert_int_equal(chmod(path_of("bin/tool"), 0755), 0);
    TEST_OK(trpi_program_find("tool", path_of("bin"), "/bin", found, sizeof found, err));
    assert_string_equal(found, path_of("bin/tool"));
    TEST_OK(trpi_program_find("./tool", path_of("bin"), "/bin", found, sizeof found, err));
    TEST_OK(trpi_program_find("sh", path_of("bin"), "/usr/none::/bin", found, sizeof found, err));
    assert_string_equal(found, "/bin/sh");
    trp_error err = {0};
    assert_int_equal(trpi_program_find("tool", NULL, "/bin", found, sizeof found, &err),
                     TRP_ENOTFOUND);
    assert_non_null(strstr(err.message, "nor in PATH (/bin)"));
    assert_int_equal(trpi_program_find("./text", path_of("bin"), "/bin", found, sizeof found, &err),
                     TRP_EINVALID);
    assert_non_null(strstr(err.message, "chmod +x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_32_hex_digits_are_a_hash),
        cmocka_unit_test(the_hash_of_this_program_is_that_of_its_file),
        cmocka_unit_test(a_file_that_was_written_is_another_one),
        cmocka_unit_test(equal_files_make_equal_packages_whatever_their_times_and_order),
        cmocka_unit_test(what_is_packed_leaves_out_what_the_ignore_file_names),
        cmocka_unit_test(options_in_the_environment_do_not_reach_tar),
        cmocka_unit_test(what_is_no_directory_is_refused),
        cmocka_unit_test(what_is_too_large_is_refused_with_the_largest_files_named),
        cmocka_unit_test(a_file_that_cannot_be_read_is_refused_by_name),
        cmocka_unit_test(a_program_that_ignores_its_children_can_pack),
        cmocka_unit_test(a_program_is_found_as_a_shell_finds_it),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
