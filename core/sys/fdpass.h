/* fdpass.h: messages with descriptors over a UNIX SOCK_SEQPACKET pair. */
#ifndef TRPI_FDPASS_H
#define TRPI_FDPASS_H

#include <sys/types.h>

#include "core/base/base.h"

TRP_CHECKED trp_code trpi_seqpacket_pair(int ret_fds[2], trp_error *err); /* close-on-exec */
/* At most 8 descriptors and 64 KiB. Blocking, no SIGPIPE; TRP_EDISCONNECTED when the peer is gone.
 */
TRP_CHECKED trp_code trpi_fd_send(int sock, trp_bytes data, const int *fds, size_t fd_count,
                                  trp_error *err);
/* Appends to data; received descriptors are close-on-exec and the caller's. TRP_EDISCONNECTED at
 * the end. Blocks unless the socket is non-blocking (then TRP_ETIMEOUT, err untouched). */
TRP_CHECKED trp_code trpi_fd_recv(int sock, trp_buf *data, int *ret_fds, size_t fd_max,
                                  size_t *ret_fd_count, trp_error *err);

/* Addresses are 1 to 107 characters; the first '@' stands for the abstract namespace, whose names
 * are no files and go with their sockets. All sockets are close-on-exec. */
TRP_CHECKED trp_code trpi_seqpacket_listen(const char *address, int *ret_fd, trp_error *err);
/* TRP_EDISCONNECTED: nobody listens there. */
TRP_CHECKED trp_code trpi_seqpacket_connect(const char *address, int *ret_fd, trp_error *err);
/* The next connection, non-blocking, and whose it is. TRP_ETIMEOUT (err untouched): there is none.
 */
TRP_CHECKED trp_code trpi_seqpacket_accept(int listener, int *ret_fd, pid_t *ret_pid,
                                           uid_t *ret_uid, trp_error *err);

#endif
