/* proxy.h: a TCP connection that a test can break: what connects to the proxy is connected to the
 * target, by a thread of its own, until the test has it otherwise. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stdbool.h>

typedef struct test_proxy test_proxy;

/* target: "127.0.0.1:6390". Fails the test when it can't. */
test_proxy *test_proxy_open(const char *target);
const char *test_proxy_address(const test_proxy *proxy); /* "127.0.0.1:PORT" */

/* Breaks all connections; what was under way in them is lost. New ones are taken. */
void test_proxy_cut(test_proxy *proxy);
/* While it is closed nobody is let in, and the connections there are were cut. */
void test_proxy_shut(test_proxy *proxy, bool is_shut);
/* While it stalls connections stay, and nothing comes through. */
void test_proxy_stall(test_proxy *proxy, bool stalls);
unsigned test_proxy_connections(test_proxy *proxy); /* that there have been */
void test_proxy_close(test_proxy *proxy);           /* NULL is fine */

#endif
