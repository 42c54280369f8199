/* fdpass.c: SCM_RIGHTS over SOCK_SEQPACKET, which keeps the borders of messages. */
#include "core/sys/fdpass.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 8
#define DATA_MAX_BYTES 65536

/* Room for the control message, aligned as its header must be. */
typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
} control;

trp_code trpi_seqpacket_pair(int ret_fds[2], trp_error *err) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) != 0) {
        return trpi_fail(err, errno == EMFILE || errno == ENFILE ? TRP_EBUSY : TRP_EIO,
                         "socket pair: %s", strerror(errno));
    }
    return TRP_OK;
}

/* ---- Rendezvous ---- */

#define BACKLOG 128

static trp_code fill_address(const char *address, struct sockaddr_un *ret_name, socklen_t *ret_size,
                             trp_error *err) {
    size_t length = strlen(address);
    if (length == 0 || length >= sizeof(ret_name->sun_path)) {
        return trpi_fail(err, TRP_EINVALID, "socket address \"%s\": 1 to %zu characters", address,
                         sizeof(ret_name->sun_path) - 1);
    }
    memset(ret_name, 0, sizeof(*ret_name));
    ret_name->sun_family = AF_UNIX;
    memcpy(ret_name->sun_path, address, length);
    bool is_abstract = address[0] == '@';
    if (is_abstract) {
        ret_name->sun_path[0] = '\0';
    }
    *ret_size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (is_abstract ? 0 : 1));
    return TRP_OK;
}

static trp_code open_socket(int flags, int *ret_fd, trp_error *err) {
    *ret_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    if (*ret_fd < 0) {
        return trpi_fail(err, errno == EMFILE || errno == ENFILE ? TRP_EBUSY : TRP_EIO,
                         "socket: %s", strerror(errno));
    }
    return TRP_OK;
}

trp_code trpi_seqpacket_listen(const char *address, int *ret_fd, trp_error *err) {
    struct sockaddr_un name;
    socklen_t size;
    int fd;
    trp_code code = fill_address(address, &name, &size, err);
    if (code == TRP_OK) {
        code = open_socket(SOCK_NONBLOCK, &fd, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    if (bind(fd, (struct sockaddr *)&name, size) != 0 || listen(fd, BACKLOG) != 0) {
        code = trpi_fail(err, TRP_EIO, "listen at %s: %s", address, strerror(errno));
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return TRP_OK;
}

trp_code trpi_seqpacket_connect(const char *address, int *ret_fd, trp_error *err) {
    struct sockaddr_un name;
    socklen_t size;
    int fd;
    trp_code code = fill_address(address, &name, &size, err);
    if (code == TRP_OK) {
        code = open_socket(0, &fd, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    if (connect(fd, (struct sockaddr *)&name, size) != 0) {
        code = trpi_fail(err, TRP_EDISCONNECTED, "connect to %s: %s", address, strerror(errno));
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return TRP_OK;
}

trp_code trpi_seqpacket_accept(int listener, int *ret_fd, pid_t *ret_pid, uid_t *ret_uid,
                               trp_error *err) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int fd;
    do {
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0 && errno == EAGAIN) {
        return TRP_ETIMEOUT;
    }
    if (fd < 0) {
        return trpi_fail(err, errno == EMFILE || errno == ENFILE ? TRP_EBUSY : TRP_EIO,
                         "accept: %s", strerror(errno));
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        trp_code code = trpi_fail(err, TRP_EIO, "accept: %s", strerror(errno));
        close(fd);
        return code;
    }
    *ret_fd = fd;
    *ret_pid = peer.pid;
    *ret_uid = peer.uid;
    return TRP_OK;
}

/* ---- Messages ---- */

static trp_code send_failed(trp_error *err, int error) {
    if (error == EPIPE || error == ECONNRESET || error == ENOTCONN) {
        return trpi_fail(err, TRP_EDISCONNECTED, "send descriptors: the peer is gone");
    }
    if (error == EAGAIN) {
        return trpi_fail(err, TRP_EBUSY, "send descriptors: the peer does not read");
    }
    return trpi_fail(err, TRP_EIO, "send descriptors: %s", strerror(error));
}

trp_code trpi_fd_send(int sock, trp_bytes data, const int *fds, size_t fd_count, trp_error *err) {
    /* An empty message would look like the end to the receiver. */
    if (data.size == 0 || data.size > DATA_MAX_BYTES || fd_count > FDS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "send descriptors: %zu bytes and %zu descriptors",
                         data.size, fd_count);
    }
    control ancillary;
    struct iovec part = {(void *)data.data, data.size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&ancillary, 0, sizeof(ancillary));
        message.msg_control = &ancillary;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(sock, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? TRP_OK : send_failed(err, errno);
}

/* Takes descriptors out of a received message; those beyond fd_max are closed. Returns how many
 * there were. */
static size_t take_fds(struct msghdr *message, int *ret_fds, size_t fd_max) {
    size_t taken = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (taken < fd_max) {
                ret_fds[taken] = fd;
            } else {
                close(fd);
            }
            taken++;
        }
    }
    return taken;
}

static trp_code recv_failed(trp_error *err, ssize_t size, int error) {
    if (size == 0 || error == ECONNRESET) {
        return trpi_fail(err, TRP_EDISCONNECTED, "receive descriptors: the peer is gone");
    }
    if (error == EAGAIN) {
        return TRP_ETIMEOUT;
    }
    return trpi_fail(err, TRP_EIO, "receive descriptors: %s", strerror(error));
}

trp_code trpi_fd_recv(int sock, trp_buf *data, int *ret_fds, size_t fd_max, size_t *ret_fd_count,
                      trp_error *err) {
    if (trp_buf_reserve(data, DATA_MAX_BYTES) != TRP_OK) {
        return trpi_fail(err, TRP_ENOMEM, "receive descriptors: out of memory");
    }
    control ancillary;
    struct iovec part = {data->data + data->size, DATA_MAX_BYTES};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &ancillary,
        .msg_controllen = sizeof(ancillary),
    };
    ssize_t size;
    do {
        size = recvmsg(sock, &message, MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    int error = errno;
    if (size <= 0) {
        return recv_failed(err, size, error);
    }
    size_t count = take_fds(&message, ret_fds, fd_max);
    if (count > fd_max || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        for (size_t i = 0; i < TRPI_MIN(count, fd_max); i++) {
            close(ret_fds[i]);
        }
        data->data[data->size] = '\0';
        return trpi_fail(err, TRP_EPROTOCOL, "receive descriptors: more than was expected");
    }
    data->size += (size_t)size;
    data->data[data->size] = '\0';
    *ret_fd_count = count;
    return TRP_OK;
}
