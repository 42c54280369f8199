/* memfd.c: memfd_create, its seals, mmap. */
#include "core/sys/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 5.14; older headers lack the names, older kernels refuse: then pages come one by one, when
 * they are touched. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static trp_code memory_failed(trp_error *err, const char *what) {
    int error = errno;
    trp_code code = error == EMFILE || error == ENFILE   ? TRP_EBUSY
                    : error == ENOMEM || error == ENOSPC ? TRP_ENOMEM
                                                         : TRP_EIO;
    return trpi_fail(err, code, "shared memory: %s: %s", what, strerror(error));
}

trp_code trpi_memfd_new(uint64_t bytes, int *ret_fd, trp_error *err) {
    int fd = memfd_create("troupe-object", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return memory_failed(err, "create");
    }
    /* The mode keeps a reader of this user from opening it anew for writing. */
    if (fchmod(fd, S_IRUSR) != 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        trp_code code = memory_failed(err, "size");
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return TRP_OK;
}

trp_code trpi_memfd_reader(int fd, int *ret_fd, trp_error *err) {
    char path[40];
    trpi_format(path, sizeof(path), "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    if (reader < 0) {
        return memory_failed(err, "open for reading");
    }
    *ret_fd = reader;
    return TRP_OK;
}

trp_code trpi_memfd_write(int fd, uint64_t offset, trp_bytes bytes, trp_error *err) {
    const char *at = bytes.data;
    size_t left = bytes.size;
    while (left > 0) {
        ssize_t written = pwrite(fd, at, left, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return memory_failed(err, "write");
        }
        at += written;
        offset += (uint64_t)written;
        left -= (size_t)written;
    }
    return TRP_OK;
}

void trpi_memfd_cut(int fd, uint64_t bytes) {
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
}

trp_code trpi_memfd_map(int fd, uint64_t offset, size_t bytes, bool writable, void **ret_data,
                        trp_error *err) {
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *data = mmap(NULL, bytes, protection, MAP_SHARED, fd, (off_t)offset);
    if (data == MAP_FAILED) {
        return memory_failed(err, "map");
    }
    (void)madvise(data, bytes, MADV_DONTFORK);
    (void)madvise(data, bytes, MADV_HUGEPAGE); /* where the host allows that for shared memory */
    int populated = madvise(data, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    if (populated != 0 && (errno == ENOMEM || errno == EFAULT)) { /* no page to be had */
        errno = ENOMEM;
        trp_code code = memory_failed(err, "take its pages");
        munmap(data, bytes);
        return code;
    }
    *ret_data = data;
    return TRP_OK;
}

void trpi_memfd_unmap(const void *data, size_t bytes) {
    if (data != NULL) {
        (void)munmap((void *)data, bytes);
    }
}

bool trpi_memfd_forbid(void *data, size_t bytes) {
    return mprotect(data, bytes, PROT_NONE) == 0;
}

bool trpi_memfd_allow(void *data, size_t bytes, bool writable) {
    return mprotect(data, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}
