/* fake_root.h: a directory that stands for "/", for what reads /proc and /sys. */
#ifndef TEST_FAKE_ROOT_H
#define TEST_FAKE_ROOT_H

extern char test_root[64]; /* its path, after the set-up */

/* Fixtures of a group. */
int test_root_set_up(void **state);
int test_root_tear_down(void **state);

void test_root_clear(void); /* nothing is in it */
/* Writes a file ("/proc/meminfo") and makes the directories above it. */
void test_root_put(const char *file, const char *text);

#endif
