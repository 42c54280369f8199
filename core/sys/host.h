/* host.h: facts about this machine. */
#ifndef TRPI_HOST_H
#define TRPI_HOST_H

#include "core/base/base.h"

int trpi_host_cpus(void);              /* that this process may run on */
uint64_t trpi_host_memory_bytes(void); /* available now, cgroup limits considered */
/* Equal for processes that can share memory and /proc: boot id + pid namespace. */
void trpi_host_id(char *out, size_t size);
void trpi_host_name(char *out, size_t size);
/* Ids of GPUs (as CUDA_VISIBLE_DEVICES would list them; that variable limits them); returns how
 * many, at most max. */
int trpi_host_gpus(char ids[][64], int max);
/* Absolute path of this executable. TRP_EIO if it was deleted. */
TRP_CHECKED trp_code trpi_host_exe(char *out, size_t size, trp_error *err);

#endif
