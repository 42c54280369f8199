/* store_bench.c: the object store against memcpy in the same process, by size; then one object from
 * another node's store, over tcp on this host. Times are the best of some, in ms; a ratio is to
 * memcpy. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/objects.h"
#include "actors/proc/store_server.h"
#include "core/net/clock.h"
#include "core/wire/codec.h"

#define MIB ((size_t)1 << 20)
enum { ROUNDS = 8 };

static trpi_store_server *stores[2];
static atomic_bool must_stop;

static void check(trp_code code, const trp_error *err) {
    if (code != TRP_OK) {
        fprintf(stderr, "store_bench: %s\n", err->message);
        exit(1);
    }
}
#define OK(call)                                                                                   \
    do {                                                                                           \
        trp_error *err = &(trp_error){0};                                                          \
        check((call), err);                                                                        \
    } while (0)

static trp_code find(void *arg, char *path, size_t size, trp_error *err) {
    trpi_format(path, size, "%s", trpi_store_path(arg));
    return TRP_OK;
}

static uint64_t client(void *arg) {
    return 1;
}

static trpi_objects *process_at(int store) {
    trpi_objects_options options = {
        .find = find, .client = client, .arg = stores[store], .label = "bench"};
    return trpi_objects_new(&options);
}

/* Tells the second store where the first one is. */
static void *play_head(void *arg) {
    while (!atomic_load(&must_stop)) {
        trp_buf frame = {0};
        while (trpi_store_word(stores[1], &frame)) {
            trpi_msg at = {.type = TRPI_MSG_STORE_AT,
                           .store_at = {.request = 1,
                                        .node = 1,
                                        .path = trpi_store_path(stores[0]),
                                        .endpoint = trpi_store_endpoint(stores[0])}};
            OK(trpi_encode(&at, &frame, err));
            trpi_store_tell(stores[1], trp_buf_bytes(&frame));
            trp_buf_release(&frame);
        }
        usleep(1000);
    }
    return NULL;
}

static double ms_since(uint64_t from_ns) {
    return (double)(trpi_now_ns() - from_ns) / 1e6;
}

static unsigned long read_all(const unsigned char *data, size_t size) {
    unsigned long sum = 0;
    for (size_t i = 0; i < size; i += 64) {
        sum += data[i];
    }
    return sum;
}

typedef struct times {
    double copy, put, get, touch, zero_copy;
} times;

static void least(double *best, double value) {
    *best = *best == 0 || value < *best ? value : *best;
}

static times measure(trpi_objects *objects, const unsigned char *from, unsigned char *to,
                     size_t size) {
    times best = {0};
    volatile unsigned long sink = 0;
    for (int i = 0; i < ROUNDS; i++) {
        trp_object object;
        trp_bytes bytes;
        void *data;
        uint64_t start_ns = trpi_now_ns();
        memcpy(to, from, size);
        least(&best.copy, ms_since(start_ns));
        start_ns = trpi_now_ns();
        OK(trpi_objects_put(objects, (trp_bytes){from, size}, &object, err));
        least(&best.put, ms_since(start_ns));
        start_ns = trpi_now_ns();
        OK(trpi_objects_get(objects, object, 10000, &bytes, err));
        least(&best.get, ms_since(start_ns));
        sink += read_all(bytes.data, size);
        least(&best.touch, ms_since(start_ns));
        trpi_objects_release(objects, object);
        trpi_objects_release(objects, object);
        start_ns = trpi_now_ns();
        OK(trpi_objects_create(objects, size, &data, &object, err));
        OK(trpi_objects_seal(objects, object, err));
        least(&best.zero_copy, ms_since(start_ns));
        trpi_objects_release(objects, object);
    }
    return best;
}

static void measure_sizes(trpi_objects *objects) {
    size_t sizes[] = {4096, MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};
    printf("%10s %10s %10s %6s %10s %10s %12s\n", "KiB", "memcpy", "put", "ratio", "get",
           "get+read", "create+seal");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *from = malloc(sizes[i]), *to = malloc(sizes[i]);
        memset(from, 1, sizes[i]);
        memset(to, 1, sizes[i]);
        times best = measure(objects, from, to, sizes[i]);
        printf("%10zu %10.3f %10.3f %6.2f %10.3f %10.3f %12.3f\n", sizes[i] / 1024, best.copy,
               best.put, best.copy / best.put, best.get, best.touch, best.zero_copy);
        free(from);
        free(to);
    }
}

static void measure_fetch(trpi_objects *home, trpi_objects *away) {
    size_t size = 256 * MIB;
    double best = 0;
    for (int i = 0; i < ROUNDS / 2; i++) {
        trp_object object;
        trp_bytes bytes;
        void *data;
        OK(trpi_objects_create(home, size, &data, &object, err));
        memset(data, i, size);
        OK(trpi_objects_seal(home, object, err));
        uint64_t start_ns = trpi_now_ns();
        OK(trpi_objects_get(away, object, 60000, &bytes, err));
        least(&best, ms_since(start_ns));
        trpi_objects_release(away, object);
        trpi_objects_release(home, object);
    }
    printf("from another node's store, 256 MiB: %.1f ms, %.2f GB/s\n", best,
           (double)size / best / 1e6);
}

int main(void) {
    pthread_t head;
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < 2; i++) {
        char uuid[40];
        snprintf(uuid, sizeof(uuid), "bench-%d-%d", (int)getpid(), i);
        trpi_store_options options = {.uuid = uuid,
                                      .host = "127.0.0.1",
                                      .capacity = 3072 * MIB,
                                      .descriptors_max = 256,
                                      .event_fd = event_fd};
        OK(trpi_store_open(&options, &stores[i], err));
        OK(trpi_store_serve(stores[i], (uint64_t)i + 1, 1, err));
    }
    if (pthread_create(&head, NULL, play_head, NULL) != 0) {
        return 1;
    }
    trpi_objects *home = process_at(0), *away = process_at(1);
    measure_sizes(home);
    measure_fetch(home, away);
    trpi_objects_free(home);
    trpi_objects_free(away);
    atomic_store(&must_stop, true);
    pthread_join(head, NULL);
    (void)trpi_store_stop(stores[0]);
    (void)trpi_store_stop(stores[1]);
    close(event_fd);
    return 0;
}
