#include "tests/lib/methods.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/base.h"

const char *test_text_of(trp_bytes args, char *out, size_t size) {
    trpi_format(out, size, "%.*s", (int)args.size, args.size > 0 ? (const char *)args.data : "");
    return out;
}

long test_number_of(trp_bytes args) {
    char text[32];
    return strtol(test_text_of(args, text, sizeof text), NULL, 10);
}

void test_sleep_ms(long ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}
