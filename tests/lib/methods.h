/* methods.h: what the methods of test actors share. */
#ifndef TEST_METHODS_H
#define TEST_METHODS_H

#include <troupe/bytes.h>

/* The arguments as text, cut to the room there is; returns `out`. */
const char *test_text_of(trp_bytes args, char *out, size_t size);
/* The number that they begin with; 0 if none. */
long test_number_of(trp_bytes args);

/* Sleeps for so long, whatever signals come. */
void test_sleep_ms(long ms);

#endif
