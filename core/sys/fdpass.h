/* fdpass.h: messages with descriptors over a UNIX SOCK_SEQPACKET pair. */
#ifndef TRPI_FDPASS_H
#define TRPI_FDPASS_H

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

#endif
