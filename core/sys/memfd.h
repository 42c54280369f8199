/* memfd.h: anonymous memory that processes share by its descriptor, and mappings of it. */
#ifndef TRPI_MEMFD_H
#define TRPI_MEMFD_H

#include "core/base/base.h"

/* Memory of that many bytes (whole pages), which can neither grow nor shrink, so that nobody who
 * has it mapped is ever killed for looking behind its end. Takes no page until it is written. */
TRP_CHECKED trp_code trpi_memfd_new(uint64_t bytes, int *ret_fd, trp_error *err);
/* A descriptor of it that cannot be mapped writable. */
TRP_CHECKED trp_code trpi_memfd_reader(int fd, int *ret_fd, trp_error *err);
TRP_CHECKED trp_code trpi_memfd_write(int fd, uint64_t offset, trp_bytes bytes, trp_error *err);
/* Gives its pages back, whoever has it mapped. */
void trpi_memfd_cut(int fd, uint64_t bytes);

/* Maps memory from an offset (whole pages) on, its pages at hand where the kernel can do that. A
 * forked child does not get the mapping. */
TRP_CHECKED trp_code trpi_memfd_map(int fd, uint64_t offset, size_t bytes, bool writable,
                                    void **ret_data, trp_error *err);
void trpi_memfd_unmap(const void *data, size_t bytes);
/* Until allowed again, whoever touches the mapping is ended by a signal; its pages stay at hand. */
TRP_CHECKED bool trpi_memfd_forbid(void *data, size_t bytes);
TRP_CHECKED bool trpi_memfd_allow(void *data, size_t bytes, bool writable);

#endif
