#include "tests/lib/net.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { CLOSE_S = 10 };

static void *close_net(void *net) {
    trpi_net_close(net);
    return NULL;
}

void test_net_close(trpi_net *net) {
    pthread_t thread;
    struct timespec deadline;
    assert_int_equal(pthread_create(&thread, NULL, close_net, net), 0);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += CLOSE_S;
    if (pthread_timedjoin_np(thread, NULL, &deadline) != 0) {
        fail_msg("a socket is still open; of a test that failed, or left so by one that did not");
    }
}
