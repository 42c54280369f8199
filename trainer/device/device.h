/* device.h (internal): what a backend hands to the dispatcher. A backend is one table of memory
 * functions and operations, and one function that opens a device by name. */
#ifndef TRPI_DEVICE_H
#define TRPI_DEVICE_H

#include <troupe/device.h>

typedef struct trpi_device_table {
    void (*close)(trp_device *device);
    bool (*native)(const trp_device *device, trp_dtype dtype);
    trp_code (*alloc)(trp_device *device, size_t bytes, void **ret_data, trp_error *err);
    void (*free)(trp_device *device, void *data); /* never called with NULL */
    size_t (*bytes)(const trp_device *device, size_t *ret_peak);
    trp_code (*upload)(trp_device *device, void *to, const void *from_host, size_t bytes,
                       trp_error *err);
    trp_code (*download)(trp_device *device, void *to_host, const void *from, size_t bytes,
                         trp_error *err);
    trp_code (*sync)(trp_device *device, trp_error *err);
#define OP(name, text)                                                                             \
    trp_code (*name)(trp_device * device, const trp_##name##_args *args, trp_error *err);
#include <troupe/ops.def>
#undef OP
} trpi_device_table;

/* The head of every backend's own struct. */
struct trp_device {
    const trpi_device_table *table;
    char name[32];
};

typedef trp_code (*trpi_device_open)(const char *name, const trp_device_options *options,
                                     trp_device **ret_device, trp_error *err);

/* What can be told from the arguments alone (shapes, dtypes, missing pointers) is checked here,
 * once for all backends; what needs a look at the data (ids, targets, lengths) is the backend's. */
#define OP(name, text) trp_code trpi_check_##name(const trp_##name##_args *args, trp_error *err);
#include <troupe/ops.def>
#undef OP

#endif
