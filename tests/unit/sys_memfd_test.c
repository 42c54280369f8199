/* core/sys/memfd and the rendezvous of core/sys/fdpass: what processes share, and with whom. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/fdpass.h"
#include "core/sys/memfd.h"
#include "tests/lib/cluster.h"

#define BYTES ((size_t)1 << 20)

static void a_reader_sees_and_cannot_write(void **state) {
    int fd, reader;
    void *data, *seen;
    TEST_OK(trpi_memfd_new(BYTES, &fd, err));
    TEST_OK(trpi_memfd_reader(fd, &reader, err));
    TEST_OK(trpi_memfd_map(fd, 0, BYTES, true, &data, err));
    TEST_OK(trpi_memfd_map(reader, 0, BYTES, false, &seen, err));
    memset(data, 5, BYTES);
    assert_memory_equal(data, seen, BYTES);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, reader, 0), MAP_FAILED);
    assert_int_equal(mprotect(seen, BYTES, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(write(reader, "x", 1), -1);
    TEST_OK(trpi_memfd_write(fd, 100, trp_bytes_of("abc"), err));
    assert_memory_equal((char *)seen + 100, "abc", 3);
    trpi_memfd_unmap(seen, BYTES);
    trpi_memfd_unmap(data, BYTES);
    close(reader);
    close(fd);
}

static void it_neither_shrinks_nor_grows(void **state) {
    int fd;
    TEST_OK(trpi_memfd_new(BYTES, &fd, err));
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 2 * BYTES), -1);
    trp_error error;
    assert_int_not_equal(trpi_memfd_write(fd, BYTES - 1, trp_bytes_of("ab"), &error), TRP_OK);
    close(fd);
}

static void what_is_cut_takes_no_memory_whoever_has_it_mapped(void **state) {
    int fd;
    void *data;
    struct stat facts;
    TEST_OK(trpi_memfd_new(BYTES, &fd, err));
    TEST_OK(trpi_memfd_map(fd, 0, BYTES, true, &data, err));
    memset(data, 5, BYTES);
    assert_int_equal(fstat(fd, &facts), 0);
    assert_int_equal((size_t)facts.st_blocks * 512, BYTES);
    assert_true(trpi_memfd_forbid(data, BYTES));
    trpi_memfd_cut(fd, BYTES);
    assert_int_equal(fstat(fd, &facts), 0);
    assert_int_equal(facts.st_blocks, 0);
    assert_true(trpi_memfd_allow(data, BYTES, true));
    assert_int_equal(*(char *)data, 0);
    trpi_memfd_unmap(data, BYTES);
    close(fd);
}

static void a_connection_tells_whose_it_is(void **state) {
    char address[64];
    int listener, ours, theirs;
    pid_t pid;
    uid_t uid;
    trp_error error = {0};
    trpi_format(address, sizeof(address), "@troupe-test-%d", (int)getpid());
    assert_int_equal(trpi_seqpacket_connect(address, &ours, &error), TRP_EDISCONNECTED);
    TEST_OK(trpi_seqpacket_listen(address, &listener, err));
    assert_int_equal(trpi_seqpacket_listen(address, &ours, &error), TRP_EIO); /* taken */
    assert_int_equal(trpi_seqpacket_accept(listener, &theirs, &pid, &uid, &error), TRP_ETIMEOUT);
    TEST_OK(trpi_seqpacket_connect(address, &ours, err));
    TEST_OK(trpi_seqpacket_accept(listener, &theirs, &pid, &uid, err));
    assert_int_equal(pid, getpid());
    assert_int_equal(uid, geteuid());
    int fds[] = {ours, theirs, listener};
    for (size_t i = 0; i < TRPI_COUNTOF(fds); i++) {
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
    }
    /* The name goes with its socket. */
    assert_int_equal(trpi_seqpacket_connect(address, &ours, &error), TRP_EDISCONNECTED);
    char long_address[200];
    memset(long_address, 'x', sizeof(long_address) - 1);
    long_address[sizeof(long_address) - 1] = '\0';
    assert_int_equal(trpi_seqpacket_listen(long_address, &ours, &error), TRP_EINVALID);
    assert_int_equal(trpi_seqpacket_connect("", &ours, &error), TRP_EINVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_sees_and_cannot_write),
        cmocka_unit_test(it_neither_shrinks_nor_grows),
        cmocka_unit_test(what_is_cut_takes_no_memory_whoever_has_it_mapped),
        cmocka_unit_test(a_connection_tells_whose_it_is),
    };
    return cmocka_run_group_tests_name("memfd", tests, NULL, NULL);
}
