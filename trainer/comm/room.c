/* room.c: see room.h. From top to bottom: the memory's layout; how it is made and found; how a rank
 * waits; what is said when waiting was in vain. */
#include "trainer/comm/room.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <troupe/device.h>
#include <unistd.h>

#include "core/net/clock.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

#define ROOM_MAGIC UINT64_C(0x6d6f6f7265707274) /* "trperoom" */
#define ROOM_VERSION 1u
#define ROOM_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum {
    SPINS = 1000,           /* some 50 us: longer than a chunk takes, shorter than a time slice */
    YIELDS = 8,             /* instead, when ranks share cores: let the peer run */
    SLEEP_NS = 4 * 1000000, /* longest sleep without looking around */
    LOOK_NS = 20 * 1000000, /* how often peers are looked at */
    TOLD_TRIES = 1000,      /* for the writer of the reason to end its sentence */
};

enum { EMPTY, JOINED, LEFT };

typedef struct seat {
    _Alignas(64) atomic_uint phase; /* futex word: meetings so far, modulo 2^32 */
    atomic_uint waiters; /* who sleep on it; may count dead ones, which only costs a wake */
    atomic_int state;    /* EMPTY until start_time is there, JOINED, LEFT */
    _Atomic int64_t pid; /* 0 = free */
    uint64_t start_time;
    trpi_room_call calls[2];
} seat;

enum { WHOLE, BREAKING, BROKEN };

typedef struct head {
    uint64_t magic, token, bytes, slot_bytes;
    uint32_t version, world;
    atomic_uint broken; /* WHOLE, BREAKING while the reason is written, BROKEN */
    int32_t code;
    uint64_t number; /* of the call in which it broke */
    char reason[512];
} head;

struct trpi_room {
    head *head;
    seat *seats;
    unsigned char *slots;
    size_t bytes;
    int rank, world;
    uint32_t phase;       /* meetings so far, as seat.phase of this rank */
    uint64_t number;      /* of the running call; 0 is the join */
    uint64_t deadline_ns; /* of the running call */
    uint64_t timeout_ms;
    unsigned round;
    bool checked; /* all ranks are known to make this call */
    bool dead;    /* a call has failed here */
    bool crowded; /* more ranks than processors */
    int *pidfds;  /* by rank; -1 = not open */
};

static const char *const op_names[] = {
#define X(name, text) text,
    TRPI_ROOM_OP_MAP(X)
#undef X
};

/* ---- Layout ---- */

static size_t seats_offset(void) {
    return (sizeof(head) + 63) / 64 * 64;
}

static size_t slots_offset(int world) {
    size_t end = seats_offset() + (size_t)world * sizeof(seat);
    return (end + 4095) / 4096 * 4096;
}

static size_t room_bytes(int world) {
    return slots_offset(world) + (size_t)world * 2 * TRPI_ROOM_SLOT_BYTES;
}

trp_code trpi_room_create(int world, uint64_t token, int *ret_fd, trp_error *err) {
    size_t bytes = room_bytes(world);
    int fd = memfd_create("troupe-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return trpi_fail(err, TRP_EIO, "memfd_create: %s", strerror(errno));
    }
    head first = {.magic = ROOM_MAGIC,
                  .token = token,
                  .bytes = bytes,
                  .slot_bytes = TRPI_ROOM_SLOT_BYTES,
                  .version = ROOM_VERSION,
                  .world = (uint32_t)world};
    /* Allocated now: a page that cannot be had later would be a SIGBUS in the midst of a step. */
    int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (!failed && (pwrite(fd, &first, sizeof first, 0) != (ssize_t)sizeof first ||
                    fcntl(fd, F_ADD_SEALS, ROOM_SEALS) < 0)) {
        failed = errno;
    }
    if (failed) {
        close(fd);
        return trpi_fail(err, failed == ENOSPC || failed == ENOMEM ? TRP_ENOMEM : TRP_EIO,
                         "%zu bytes of shared memory: %s", bytes, strerror(failed));
    }
    *ret_fd = fd;
    return TRP_OK;
}

/* Opens what the path leads to, but only if it is a sealed regular file of this size: the number
 * may belong to something else by now, and to open a device or a pipe for writing has effects. */
static trp_code open_checked(const char *path, size_t bytes, int *ret_fd, trp_error *err) {
    char again[64];
    struct stat st;
    int fd = -1, handle = open(path, O_PATH | O_CLOEXEC);
    if (handle < 0) {
        bool gone = errno == ENOENT || errno == ESRCH;
        return trpi_fail(err, gone ? TRP_EDISCONNECTED : TRP_EIO, "%s: %s", path,
                         gone ? "the process that held it is gone, or has closed it"
                              : strerror(errno));
    }
    trp_code code = TRP_OK;
    if (fstat(handle, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 0 ||
        (uint64_t)st.st_size != bytes) {
        code = trpi_fail(err, TRP_EINVALID, "%s is not a room for this world", path);
        goto out;
    }
    trpi_format(again, sizeof again, "/proc/self/fd/%d", handle);
    fd = open(again, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        code = trpi_fail(err, TRP_EIO, "%s: %s", path, strerror(errno));
    } else if ((fcntl(fd, F_GET_SEALS) & ROOM_SEALS) != ROOM_SEALS) {
        code = trpi_fail(err, TRP_EINVALID, "%s is not a room: its size is not sealed", path);
    }
out:
    close(handle);
    if (code && fd >= 0) {
        close(fd);
    }
    *ret_fd = code ? -1 : fd;
    return code;
}

static trp_code check_head(const head *h, int world, uint64_t token, trp_error *err) {
    if (h->magic != ROOM_MAGIC || h->version != ROOM_VERSION ||
        h->slot_bytes != TRPI_ROOM_SLOT_BYTES) {
        return trpi_fail(err, TRP_EINVALID, "not a room of this version of troupe");
    }
    if (h->token != token) {
        return trpi_fail(err, TRP_EINVALID,
                         "the token is that of another attempt: %016llx here, %016llx there",
                         (unsigned long long)token, (unsigned long long)h->token);
    }
    if (h->world != (uint32_t)world || h->bytes != room_bytes(world)) {
        return trpi_fail(err, TRP_EINVALID, "a world of %u ranks there, %d here", h->world, world);
    }
    return TRP_OK;
}

static trp_code map_room(trpi_room *room, int fd, trp_error *err) {
    void *at = mmap(NULL, room->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return trpi_fail(err, TRP_ENOMEM, "%zu bytes of shared memory: %s", room->bytes,
                         strerror(errno));
    }
    room->head = at;
    room->seats = (seat *)((unsigned char *)at + seats_offset());
    room->slots = (unsigned char *)at + slots_offset(room->world);
    return TRP_OK;
}

static trp_code take_seat(trpi_room *room, trp_error *err) {
    seat *mine = &room->seats[room->rank];
    int64_t nobody = 0;
    uint64_t start_time = trpi_process_start_time(getpid());
    if (start_time == TRPI_START_TIME_UNKNOWN) {
        return trpi_fail(err, TRP_EBUSY, "no descriptors left (ulimit -n)");
    }
    if (!atomic_compare_exchange_strong(&mine->pid, &nobody, (int64_t)getpid())) {
        return trpi_fail(err, TRP_EEXISTS, "process %lld has joined as rank %d already",
                         (long long)nobody, room->rank);
    }
    mine->start_time = start_time;
    atomic_store(&mine->state, JOINED);
    return TRP_OK;
}

static void free_room(trpi_room *room) {
    if (room->head) {
        munmap(room->head, room->bytes);
    }
    for (int i = 0; room->pidfds && i < room->world; i++) {
        if (room->pidfds[i] >= 0) {
            close(room->pidfds[i]);
        }
    }
    free(room->pidfds);
    free(room);
}

static trpi_room *new_room(int rank, int world) {
    trpi_room *room = calloc(1, sizeof *room);
    if (!room) {
        return NULL;
    }
    room->rank = rank;
    room->world = world;
    room->bytes = room_bytes(world);
    room->crowded = world > trpi_host_cpus();
    room->pidfds = malloc((size_t)world * sizeof *room->pidfds);
    if (!room->pidfds) {
        free(room);
        return NULL;
    }
    for (int i = 0; i < world; i++) {
        room->pidfds[i] = -1;
    }
    return room;
}

trp_code trpi_room_join(const char *path, int rank, int world, uint64_t token, uint64_t timeout_ms,
                        trpi_room **ret_room, trp_error *err) {
    int fd = -1;
    trp_code code = open_checked(path, room_bytes(world), &fd, err);
    if (code) {
        return code;
    }
    trpi_room *room = new_room(rank, world);
    if (!room) {
        close(fd);
        return trpi_fail(err, TRP_ENOMEM, "a communicator");
    }
    code = map_room(room, fd, err);
    close(fd);
    if (!code) {
        code = check_head(room->head, world, token, err);
    }
    if (!code) {
        code = take_seat(room, err);
    }
    if (code) {
        free_room(room);
        return code;
    }
    room->timeout_ms = timeout_ms;
    room->deadline_ns = trpi_deadline_ns(timeout_ms);
    code = trpi_room_meet(room, err);
    if (code) {
        trpi_room_leave(room);
        return code;
    }
    *ret_room = room;
    return TRP_OK;
}

/* ---- Waking and breaking ---- */

static long futex(atomic_uint *word, int op, unsigned value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void wake(seat *s) {
    if (atomic_load(&s->waiters)) {
        futex(&s->phase, FUTEX_WAKE, INT_MAX, NULL);
    }
}

static void wake_all(trpi_room *room) {
    for (int i = 0; i < room->world; i++) {
        wake(&room->seats[i]);
    }
}

/* The first reason stays; others see it in reason_of(). */
static void break_room(trpi_room *room, trp_code code, uint64_t number, const char *reason) {
    unsigned whole = WHOLE;
    head *h = room->head;
    if (atomic_compare_exchange_strong(&h->broken, &whole, BREAKING)) {
        h->code = (int32_t)code;
        h->number = number;
        trpi_format(h->reason, sizeof h->reason, "%s", reason);
        atomic_store(&h->broken, BROKEN);
    }
    wake_all(room);
}

/* Not the number of the call: that belongs to the owner's thread. */
void trpi_room_abort(trpi_room *room) {
    char reason[64];
    trpi_format(reason, sizeof reason, "rank %d aborted", room->rank);
    break_room(room, TRP_ECOMM_ABORTED, UINT64_MAX, reason);
}

void trpi_room_leave(trpi_room *room) {
    if (!room) {
        return;
    }
    seat *mine = &room->seats[room->rank];
    atomic_store(&mine->state, LEFT);
    wake(mine);
    free_room(room);
}

/* ---- What is said ---- */

/* "all_reduce 12", for the head of every message. */
static const char *call_title(const trpi_room *room, char *out, size_t size) {
    const trpi_room_call *call = &room->seats[room->rank].calls[room->number % 2];
    trpi_format(out, size, "%s %llu", op_names[call->op], (unsigned long long)room->number);
    return out;
}

static void call_text(const trpi_room_call *call, char *out, size_t size) {
    static const char *const reductions[] = {"sum", "average", "max"};
    const char *name = op_names[TRPI_MIN(call->op, TRPI_ROOM_OP_COUNT - 1)];
    unsigned long long count = (unsigned long long)call->count;
    const char *dtype = call->dtype < TRP_DTYPE_COUNT ? trp_dtype_name(call->dtype) : "?";
    switch (call->op) {
    case TRPI_ROOM_ALL_REDUCE:
    case TRPI_ROOM_REDUCE_SCATTER:
        trpi_format(out, size, "%s(%llu %s, %s)", name, count, dtype,
                    reductions[TRPI_MIN(call->reduce, 2u)]);
        break;
    case TRPI_ROOM_ALL_GATHER:
        trpi_format(out, size, "%s(%llu %s)", name, count, dtype);
        break;
    case TRPI_ROOM_BROADCAST:
        trpi_format(out, size, "%s(%llu bytes from rank %u)", name, count, call->root);
        break;
    default:
        trpi_format(out, size, "%s", name);
    }
}

static bool reached(const seat *s, uint32_t phase) {
    return (int32_t)(atomic_load_explicit(&s->phase, memory_order_acquire) - phase) >= 0;
}

/* "ranks 2, 3 of 4" that have not come; cut with "..." when the list is long. */
static void missing_text(const trpi_room *room, char *out, size_t size) {
    size_t at = 0;
    int missing = 0;
    for (int i = 0; i < room->world; i++) {
        if (reached(&room->seats[i], room->phase)) {
            continue;
        }
        missing++;
        if (at + 24 < size) {
            trpi_format(out + at, size - at, "%s%d", missing > 1 ? ", " : "", i);
            at += strlen(out + at);
        }
    }
    trpi_format(out + at, size - at, "%s of %d", at + 24 < size ? "" : "...", room->world);
}

/* This rank has found out that the call cannot end well: tell the others, and the caller. */
static trp_code fail_call(trpi_room *room, trp_code code, const char *reason, trp_error *err) {
    char title[64];
    room->dead = true;
    call_title(room, title, sizeof title);
    break_room(room, code, room->number, reason);
    return trpi_fail(err, code, "%s: %s", title, reason);
}

static trp_code fail_timeout(trpi_room *room, trp_error *err) {
    char missing[160], reason[320];
    missing_text(room, missing, sizeof missing);
    trpi_format(reason, sizeof reason, "rank %d waited %llu ms in vain for rank(s) %s", room->rank,
                (unsigned long long)room->timeout_ms, missing);
    return fail_call(room, TRP_ETIMEOUT, reason, err);
}

static trp_code fail_gone(trpi_room *room, int peer, trp_error *err) {
    char reason[96];
    const seat *s = &room->seats[peer];
    trpi_format(reason, sizeof reason, "rank %d (pid %lld) %s", peer,
                (long long)atomic_load(&s->pid),
                atomic_load(&s->state) == LEFT ? "has left the communicator" : "is gone");
    return fail_call(room, TRP_ECOMM_ABORTED, reason, err);
}

/* Another rank broke the room. Two ranks that made different calls are an error of the program,
 * which every rank that makes that call is told; anything else only means that this call is off. */
static trp_code fail_broken(trpi_room *room, trp_error *err) {
    char title[64];
    const head *h = room->head;
    room->dead = true;
    call_title(room, title, sizeof title);
    for (int i = 0; i < TOLD_TRIES && atomic_load(&h->broken) != BROKEN; i++) {
        sched_yield();
    }
    if (atomic_load(&h->broken) != BROKEN) {
        return trpi_fail(err, TRP_ECOMM_ABORTED, "%s: a rank died while it aborted", title);
    }
    bool same = h->code == TRP_EINVALID && h->number == room->number;
    return trpi_fail(err, same ? TRP_EINVALID : TRP_ECOMM_ABORTED, "%s: %.400s", title, h->reason);
}

/* ---- Meeting ---- */

static trp_code check_peer(trpi_room *room, int peer, trp_error *err) {
    const trpi_room_call *mine = &room->seats[room->rank].calls[room->number % 2];
    const trpi_room_call *other = &room->seats[peer].calls[room->number % 2];
    if (memcmp(mine, other, sizeof *mine) == 0) {
        return TRP_OK;
    }
    char here[96], there[96], reason[320];
    call_text(mine, here, sizeof here);
    call_text(other, there, sizeof there);
    trpi_format(reason, sizeof reason, "rank %d calls %s, but rank %d calls %s", room->rank, here,
                peer, there);
    return fail_call(room, TRP_EINVALID, reason, err);
}

/* Whether the process that sits there has ended. A pidfd also sees one that nobody has waited for;
 * where the kernel gives none, the start time tells that the number belongs to another by now. */
static bool process_gone(trpi_room *room, int peer) {
    const seat *s = &room->seats[peer];
    pid_t pid = (pid_t)atomic_load(&s->pid);
    int *pidfd = &room->pidfds[peer];
    if (*pidfd < 0) {
        *pidfd = trpi_pidfd_open(pid);
        uint64_t start_time = trpi_process_start_time(pid);
        if (start_time != s->start_time && start_time != TRPI_START_TIME_UNKNOWN) {
            return true;
        }
    }
    struct pollfd item = {.fd = *pidfd, .events = POLLIN};
    return *pidfd >= 0 && poll(&item, 1, 0) == 1;
}

static bool all_reached(const trpi_room *room) {
    for (int i = 0; i < room->world; i++) {
        if (!reached(&room->seats[i], room->phase)) {
            return false;
        }
    }
    return true;
}

/* Looks at every peer, not only at the one that is waited for: the dead one may be another. A peer
 * that has reached this meeting and is gone then is not missed. Joining with it would be pointless,
 * unless it has met everybody: then it was through before we had looked, and had nothing to do. */
static trp_code look_around(trpi_room *room, trp_error *err) {
    bool joining = room->number == 0;
    for (int i = 0; i < room->world; i++) {
        seat *s = &room->seats[i];
        bool here = reached(s, room->phase);
        if (i == room->rank || atomic_load(&s->state) == EMPTY) {
            continue;
        }
        if (here && !room->checked) {
            trp_code code = check_peer(room, i, err);
            if (code) {
                return code;
            }
        }
        if (here && !joining) {
            continue;
        }
        bool gone = atomic_load(&s->state) == LEFT || process_gone(room, i);
        if (gone && (joining ? !all_reached(room) : !reached(s, room->phase))) {
            return fail_gone(room, i, err);
        }
    }
    return TRP_OK;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool await_briefly(const trpi_room *room, const seat *s) {
    for (int i = 0; i < (room->crowded ? YIELDS : SPINS); i++) {
        if (reached(s, room->phase)) {
            return true;
        }
        if (room->crowded) {
            sched_yield();
        } else {
            relax();
        }
    }
    return reached(s, room->phase);
}

static void sleep_on(seat *s, uint32_t phase, uint64_t ns) {
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)ns};
    atomic_fetch_add(&s->waiters, 1);
    unsigned seen = atomic_load(&s->phase);
    if ((int32_t)(seen - phase) < 0) {
        futex(&s->phase, FUTEX_WAIT, seen, &timeout);
    }
    atomic_fetch_sub(&s->waiters, 1);
}

static trp_code await_peer(trpi_room *room, int peer, trp_error *err) {
    seat *s = &room->seats[peer];
    if (await_briefly(room, s)) {
        return TRP_OK;
    }
    uint64_t look_ns = 0;
    while (!reached(s, room->phase)) {
        if (atomic_load(&room->head->broken)) {
            return fail_broken(room, err);
        }
        uint64_t now = trpi_now_ns();
        if (now >= room->deadline_ns) {
            return fail_timeout(room, err);
        }
        if (now >= look_ns) {
            trp_code code = look_around(room, err);
            if (code) {
                return code;
            }
            look_ns = now + LOOK_NS;
        }
        sleep_on(s, room->phase, TRPI_MIN((uint64_t)SLEEP_NS, room->deadline_ns - now));
    }
    return TRP_OK;
}

trp_code trpi_room_meet(trpi_room *room, trp_error *err) {
    seat *mine = &room->seats[room->rank];
    room->phase++;
    atomic_store(&mine->phase, room->phase);
    wake(mine);
    for (int i = 0; i < room->world; i++) {
        if (i == room->rank) {
            continue;
        }
        trp_code code = await_peer(room, i, err);
        if (!code && !room->checked) {
            code = check_peer(room, i, err);
        }
        if (code) {
            return code;
        }
    }
    room->checked = true;
    return TRP_OK;
}

trp_code trpi_room_enter(trpi_room *room, const trpi_room_call *call, uint64_t timeout_ms,
                         trp_error *err) {
    if (room->dead) { /* the last call's description stays: a peer may still be comparing it */
        return trpi_fail(err, TRP_ECOMM_ABORTED, "%s: the communicator is broken: %.400s",
                         op_names[call->op],
                         atomic_load(&room->head->broken) == BROKEN ? room->head->reason : "");
    }
    room->number++;
    room->seats[room->rank].calls[room->number % 2] = *call;
    if (atomic_load(&room->head->broken)) {
        return fail_broken(room, err);
    }
    room->checked = false;
    room->timeout_ms = timeout_ms;
    room->deadline_ns = trpi_deadline_ns(timeout_ms);
    return TRP_OK;
}

void trpi_room_turn(trpi_room *room) {
    room->round++;
}

void *trpi_room_slot(trpi_room *room, int rank) {
    size_t index = (size_t)rank * 2 + room->round % 2;
    return room->slots + index * TRPI_ROOM_SLOT_BYTES;
}
