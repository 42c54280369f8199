/* host.c: what the kernel says about this machine, through /proc, /sys and /dev. */
#include "core/sys/host.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/sys/file.h"
#include "core/sys/memory.h"

int trpi_host_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* More than 1,024 processors do not fit into a cpu_set_t. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

uint64_t trpi_host_memory_bytes(void) {
    return trpi_memory_room("");
}

/* ---- Names ---- */

void trpi_host_name(char *out, size_t size) {
    char name[HOST_NAME_MAX + 1] = "";
    (void)gethostname(name, sizeof(name) - 1);
    trpi_format(out, size, "%s", name[0] != '\0' ? name : "localhost");
}

void trpi_host_id(char *out, size_t size) {
    char namespace_id[64] = "", boot_id[64] = "";
    trp_buf text = {0};
    if (trpi_file_read_text("", "/proc/sys/kernel/random/boot_id", &text)) {
        trpi_format(boot_id, sizeof(boot_id), "%.*s", (int)strcspn((char *)text.data, "\n"),
                    (char *)text.data);
    }
    trp_buf_release(&text);
    /* "pid:[4026531836]" */
    if (readlink("/proc/self/ns/pid", namespace_id, sizeof(namespace_id) - 1) < 0 ||
        boot_id[0] == '\0') {
        /* Without either, two hosts must still not take each other for the same one. */
        trpi_host_name(namespace_id, sizeof(namespace_id));
    }
    trpi_format(out, size, "%s/%s", boot_id, namespace_id);
}

trp_code trpi_host_exe(char *out, size_t size, trp_error *err) {
    static const char deleted[] = " (deleted)";
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length < 0) {
        return trpi_fail(err, TRP_EIO, "path of this program: %s", strerror(errno));
    }
    path[length] = '\0';
    size_t tail = sizeof(deleted) - 1;
    if ((size_t)length > tail && strcmp(path + length - tail, deleted) == 0) {
        return trpi_fail(err, TRP_EIO,
                         "this program's file was removed or replaced since it started (%s); "
                         "start it again",
                         path);
    }
    if ((size_t)length >= size) {
        return trpi_fail(err, TRP_EINVALID, "path of this program is too long: %s", path);
    }
    trpi_format(out, size, "%s", path);
    return TRP_OK;
}

/* ---- GPUs ---- */

/* CUDA numbers from 0 the devices that it can open, whatever their minor numbers are. */
static int count_gpus(void) {
    int count = 0;
    DIR *dir = opendir("/dev");
    if (dir == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        uint64_t minor;
        if (strncmp(entry->d_name, "nvidia", 6) == 0 &&
            trpi_parse_u64(entry->d_name + 6, INT_MAX, &minor)) {
            count++;
        }
    }
    closedir(dir);
    return count;
}

/* As CUDA reads the variable: the first entry that is no device ends the list. */
static int parse_visible(const char *text, int present, char ids[][64], int max) {
    int count = 0;
    while (count < max) {
        size_t length = strcspn(text, ",");
        char id[64];
        uint64_t number;
        trpi_format(id, sizeof(id), "%.*s", (int)TRPI_MIN(length, sizeof(id)), text);
        bool is_index = trpi_parse_u64(id, INT_MAX, &number);
        bool is_uuid = strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0;
        if (!(is_uuid || (is_index && number < (uint64_t)present))) {
            break;
        }
        trpi_format(ids[count++], 64, "%s", id);
        if (text[length] == '\0') {
            break;
        }
        text += length + 1;
    }
    return count;
}

int trpi_host_gpus(char ids[][64], int max) {
    int present = count_gpus();
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (present > 0 && visible != NULL) {
        return parse_visible(visible, present, ids, max);
    }
    int count = TRPI_MIN(present, max);
    for (int i = 0; i < count; i++) {
        trpi_format(ids[i], 64, "%d", i);
    }
    return count;
}
