/* net.h: the end of a test's network. */
#ifndef TEST_NET_H
#define TEST_NET_H

#include "core/net/sock.h"

/* trpi_net_close() waits until all sockets are closed, and a test that failed has closed none of
 * its own: then this fails instead. */
void test_net_close(trpi_net *net);

#endif
