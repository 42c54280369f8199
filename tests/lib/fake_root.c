#include "tests/lib/fake_root.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "core/sys/file.h"

char test_root[64];

int test_root_set_up(void **state) {
    trpi_format(test_root, sizeof test_root, "/tmp/trp-root-%d", (int)getpid());
    return 0;
}

int test_root_tear_down(void **state) {
    return trpi_dir_remove(test_root, NULL) == TRP_OK ? 0 : -1;
}

void test_root_clear(void) {
    assert_int_equal(trpi_dir_remove(test_root, NULL), TRP_OK);
}

void test_root_put(const char *file, const char *text) {
    char path[512], dir[512];
    trpi_format(path, sizeof path, "%s%s", test_root, file);
    trpi_format(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(trpi_dir_make(dir, 0700, NULL), TRP_OK);
    assert_int_equal(trpi_file_write_atomic(path, trp_bytes_of(text), NULL), TRP_OK);
}
