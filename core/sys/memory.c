#include "core/sys/memory.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/sys/file.h"

#define UNLIMITED (UINT64_C(1) << 60) /* how v1 says it: some number above this */

/* ---- Files of numbers ---- */

/* The number behind `key` at the start of a line, times scale; false when it is not there. */
static bool find_number(const char *text, const char *key, uint64_t scale, uint64_t *ret_value) {
    size_t key_size = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, key_size) == 0 && !isalnum((unsigned char)line[key_size])) {
            unsigned long long value;
            if (sscanf(line + key_size, "%*[: \t]%llu", &value) == 1) {
                *ret_value = value * scale;
                return true;
            }
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

/* The number in a line "key number" of DIR/FILE, or its only one without a key; false also for
 * "max". */
static bool read_number(const char *dir, const char *file, const char *key, uint64_t *ret_value) {
    char path[PATH_MAX];
    trp_buf text = {0};
    unsigned long long value = 0;
    trpi_format(path, sizeof(path), "/%s", file);
    bool ok = trpi_file_read_text(dir, path, &text);
    if (ok && key != NULL) {
        ok = find_number((char *)text.data, key, 1, ret_value);
    } else if (ok && (ok = sscanf((char *)text.data, "%llu", &value) == 1)) {
        *ret_value = value;
    }
    trp_buf_release(&text);
    return ok;
}

/* ---- Control groups ---- */

/* The two generations name the same things differently. */
typedef struct group_kind {
    const char *prefix; /* of the line in /proc/self/cgroup, up to the path */
    const char *mount, *limit, *usage;
    const char *caches[2]; /* in memory.stat: given back when memory is short */
    const char *kills; /* file with a line "oom_kill N": of this group, and with v2 those below */
} group_kind;

static const group_kind group_kinds[] = {
    {"0::",
     "/sys/fs/cgroup",
     "memory.max",
     "memory.current",
     {"inactive_file", "active_file"},
     "memory.events"},
    {":memory:",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"},
     "memory.oom_control"},
};

/* False when it has no limit. */
static bool look_at_group(const group_kind *kind, const char *dir, trpi_memory *ret_memory) {
    trp_buf stat = {0};
    if (!read_number(dir, kind->limit, NULL, &ret_memory->total) ||
        ret_memory->total >= UNLIMITED || !read_number(dir, kind->usage, NULL, &ret_memory->used)) {
        return false;
    }
    if (trpi_file_read_text(dir, "/memory.stat", &stat)) {
        for (size_t i = 0; i < TRPI_COUNTOF(kind->caches); i++) {
            uint64_t cache = 0;
            (void)find_number((char *)stat.data, kind->caches[i], 1, &cache);
            ret_memory->used -= TRPI_MIN(cache, ret_memory->used);
        }
    }
    trp_buf_release(&stat);
    return true;
}

/* The path of our group of this kind, cut out of /proc/self/cgroup; "" when there is none. */
static void own_group(const group_kind *kind, const char *groups, char *out, size_t size) {
    const char *found = strstr(groups, kind->prefix);
    out[0] = '\0';
    if (found != NULL) {
        const char *path = found + strlen(kind->prefix);
        trpi_format(out, size, "%.*s", (int)strcspn(path, "\n"), path);
    }
}

typedef struct looking {
    const char *root;
    void (*take)(struct looking *looking, const trpi_memory *memory);
    trpi_memory fullest;
    uint64_t room;
    bool any;
} looking;

/* Every group above ours limits us as well. In a container the upper ones are not mounted: then
 * what is mounted at the top is ours. */
static void look_at_groups(looking *l, const group_kind *kind, const char *groups) {
    char group[PATH_MAX / 2], dir[PATH_MAX];
    own_group(kind, groups, group, sizeof(group));
    for (;;) {
        trpi_memory memory;
        trpi_format(dir, sizeof(dir), "%s%s%s", l->root, kind->mount, group);
        if (look_at_group(kind, dir, &memory)) {
            l->take(l, &memory);
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

static void look_at_host(looking *l, trp_buf *text) {
    uint64_t total = 0, available = 0;
    if (trpi_file_read_text(l->root, "/proc/meminfo", text) &&
        find_number((char *)text->data, "MemTotal", 1024, &total) &&
        find_number((char *)text->data, "MemAvailable", 1024, &available)) {
        l->take(l, &(trpi_memory){total, total - TRPI_MIN(available, total)});
    }
}

static void look(looking *l) {
    trp_buf text = {0};
    look_at_host(l, &text);
    if (trpi_file_read_text(l->root, "/proc/self/cgroup", &text)) {
        for (size_t i = 0; i < TRPI_COUNTOF(group_kinds); i++) {
            look_at_groups(l, &group_kinds[i], (char *)text.data);
        }
    }
    trp_buf_release(&text);
}

/* used / total as a fraction of 2^-20, without overflow. */
static uint64_t fullness(const trpi_memory *memory) {
    uint64_t parts = TRPI_MAX(memory->total >> 20, 1);
    return memory->used / parts;
}

static void take_fuller(looking *l, const trpi_memory *memory) {
    if (memory->total > 0 && (!l->any || fullness(memory) > fullness(&l->fullest))) {
        l->fullest = *memory;
        l->any = true;
    }
}

static void take_room(looking *l, const trpi_memory *memory) {
    uint64_t room = memory->total - TRPI_MIN(memory->used, memory->total);
    l->room = TRPI_MIN(l->room, room);
    l->any = true;
}

bool trpi_memory_look(const char *root, trpi_memory *ret_memory) {
    looking l = {.root = root, .take = take_fuller};
    look(&l);
    *ret_memory = l.fullest;
    return l.any;
}

uint64_t trpi_memory_room(const char *root) {
    looking l = {.root = root, .take = take_room, .room = UINT64_MAX};
    look(&l);
    return l.any ? l.room : (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- The kernel's kills ---- */

uint64_t trpi_memory_kernel_kills(const char *root) {
    trp_buf text = {0};
    uint64_t kills = 0;
    bool found = false;
    char group[PATH_MAX / 2], dir[PATH_MAX];
    if (trpi_file_read_text(root, "/proc/self/cgroup", &text)) {
        for (size_t i = 0; i < TRPI_COUNTOF(group_kinds) && !found; i++) {
            const group_kind *kind = &group_kinds[i];
            own_group(kind, (char *)text.data, group, sizeof(group));
            trpi_format(dir, sizeof(dir), "%s%s%s", root, kind->mount, group);
            found = read_number(dir, kind->kills, "oom_kill", &kills);
        }
    }
    if (!found && trpi_file_read_text(root, "/proc/vmstat", &text)) {
        (void)find_number((char *)text.data, "oom_kill", 1, &kills);
    }
    trp_buf_release(&text);
    return kills;
}

uint64_t trpi_memory_resident(pid_t pid) {
    char path[64];
    trp_buf text = {0};
    unsigned long long resident = 0, shared = 0;
    trpi_format(path, sizeof(path), "/proc/%d/statm", (int)pid);
    if (trpi_file_read_text("", path, &text) &&
        sscanf((char *)text.data, "%*u %llu %llu", &resident, &shared) != 2) {
        resident = shared = 0;
    }
    trp_buf_release(&text);
    return (resident - TRPI_MIN(shared, resident)) * (uint64_t)sysconf(_SC_PAGESIZE);
}
