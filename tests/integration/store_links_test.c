/* store_links_test.c: two stores in this process, linked by tcp as those of two hosts are, with a
 * head that only knows where they are; and many threads that use one connection. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/objects.h"
#include "actors/proc/store_server.h"
#include "core/wire/codec.h"
#include "tests/lib/cluster.h"

enum { READERS = 100, THREADS = 8, ROUNDS = 200 };
#define MIB ((size_t)1 << 20)

/* ---- Two stores and their head ---- */

typedef struct pair {
    trpi_store_server *stores[2];
    int event_fds[2];
    pthread_mutex_t lock; /* of the stores: one may be stopped */
    pthread_t head;
    atomic_bool must_stop;
} pair;

static pair two;

static void answer_query(trp_buf *frame, int asker) {
    trpi_msg msg;
    trpi_arena arena = {0};
    trp_buf out = {0};
    TEST_OK(trpi_decode(trp_buf_bytes(frame), &arena, &msg, err));
    uint64_t node = msg.store_query.node;
    trpi_store_server *found = node >= 1 && node <= 2 ? two.stores[node - 1] : NULL;
    trpi_msg at = {.type = TRPI_MSG_STORE_AT,
                   .store_at = {.request = msg.store_query.request,
                                .code = found != NULL ? TRP_OK : TRP_ENOTFOUND,
                                .node = found != NULL ? node : 0}};
    if (found != NULL) {
        at.store_at.path = trpi_store_path(found);
        at.store_at.endpoint = trpi_store_endpoint(found);
    }
    TEST_OK(trpi_encode(&at, &out, err));
    trpi_store_tell(two.stores[asker], trp_buf_bytes(&out));
    trp_buf_release(&out);
    trpi_arena_release(&arena);
}

static void *play_head(void *arg) {
    while (!atomic_load(&two.must_stop)) {
        trp_buf frame = {0};
        pthread_mutex_lock(&two.lock);
        for (int i = 0; i < 2; i++) {
            while (two.stores[i] != NULL && trpi_store_word(two.stores[i], &frame)) {
                answer_query(&frame, i);
                trp_buf_release(&frame);
            }
        }
        pthread_mutex_unlock(&two.lock);
        usleep(2000);
    }
    return NULL;
}

static void open_store(int i) {
    char uuid[40];
    snprintf(uuid, sizeof(uuid), "links-%d-%d", (int)getpid(), i);
    two.event_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    trpi_store_options options = {.uuid = uuid,
                                  .host = "127.0.0.1",
                                  .capacity = 256 * MIB,
                                  .descriptors_max = 1000,
                                  .event_fd = two.event_fds[i]};
    trpi_store_server *store;
    TEST_OK(trpi_store_open(&options, &store, err));
    TEST_OK(trpi_store_serve(store, (uint64_t)i + 1, 1, err));
    two.stores[i] = store;
}

static void close_store(int i) {
    pthread_mutex_lock(&two.lock);
    (void)trpi_store_stop(two.stores[i]);
    two.stores[i] = NULL;
    pthread_mutex_unlock(&two.lock);
    close(two.event_fds[i]);
}

static int start(void **state) {
    memset(&two, 0, sizeof(two));
    pthread_mutex_init(&two.lock, NULL);
    open_store(0);
    open_store(1);
    return pthread_create(&two.head, NULL, play_head, NULL);
}

static int stop(void **state) {
    atomic_store(&two.must_stop, true);
    pthread_join(two.head, NULL);
    for (int i = 0; i < 2; i++) {
        if (two.stores[i] != NULL) {
            close_store(i);
        }
    }
    pthread_mutex_destroy(&two.lock);
    return 0;
}

/* ---- Processes, as far as the stores can tell ---- */

static trp_code find_first(void *arg, char *path, size_t size, trp_error *err) {
    if (two.stores[0] == NULL) {
        return trpi_fail(err, TRP_ENODE_DIED, "the first store is closed");
    }
    trpi_format(path, size, "%s", trpi_store_path(two.stores[0]));
    return TRP_OK;
}

static trp_code find_second(void *arg, char *path, size_t size, trp_error *err) {
    trpi_format(path, size, "%s", trpi_store_path(two.stores[1]));
    return TRP_OK;
}

static uint64_t number_of(void *arg) {
    return *(const uint64_t *)arg;
}

static trpi_objects *process_at(int store, uint64_t *client) {
    trpi_objects_options options = {.find = store == 0 ? find_first : find_second,
                                    .client = number_of,
                                    .arg = client,
                                    .label = "driver test"};
    return trpi_objects_new(&options);
}

static trp_object put_pattern(trpi_objects *objects, size_t size) {
    void *data;
    trp_object object;
    TEST_OK(trpi_objects_create(objects, size, &data, &object, err));
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)data)[i] = (unsigned char)(i * 2654435761u >> 11);
    }
    TEST_OK(trpi_objects_seal(objects, object, err));
    return object;
}

static bool is_pattern(trp_bytes bytes, size_t size) {
    const unsigned char *data = bytes.data;
    bool is_same = bytes.size == size;
    for (size_t i = 0; i < size && is_same; i++) {
        is_same = data[i] == (unsigned char)(i * 2654435761u >> 11);
    }
    return is_same;
}

static bool is_unused(void *arg) {
    trpi_store_server *store = two.stores[*(int *)arg];
    return store == NULL || trpi_store_server_figures(store).used == 0;
}

static void expect_unused(void) {
    for (int i = 0; i < 2; i++) {
        assert_true(test_until(is_unused, &i, 20000));
    }
}

typedef struct reader {
    pthread_t thread;
    uint64_t client;
    trpi_objects *objects;
    trp_object object;
    size_t size;
    trp_code code;
    bool is_right;
} reader;

static void *read_object(void *arg) {
    reader *r = arg;
    trp_bytes bytes;
    trp_error error;
    r->code = trpi_objects_get(r->objects, r->object, 30000, &bytes, &error);
    r->is_right = r->code == TRP_OK && is_pattern(bytes, r->size);
    return NULL;
}

static void start_readers(reader *readers, int count, trp_object object, size_t size) {
    for (int i = 0; i < count; i++) {
        readers[i] = (reader){.client = 100 + (uint64_t)i, .object = object, .size = size};
        readers[i].objects = process_at(1, &readers[i].client);
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_object, &readers[i]), 0);
    }
}

/* ---- Tests ---- */

static void a_hundred_readers_fetch_an_object_once(void **state) {
    static reader readers[READERS];
    uint64_t number = 7;
    size_t size = 10 * MIB + 77;
    trpi_objects *writer = process_at(0, &number);
    trp_object object = put_pattern(writer, size);
    start_readers(readers, READERS, object, size);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].code, TRP_OK);
        assert_true(readers[i].is_right);
    }
    trpi_store_figures figures = trpi_store_server_figures(two.stores[1]);
    assert_in_range(figures.used, size, size + size / 8); /* one copy */
    assert_int_equal(figures.objects, 1);
    trpi_objects_free(writer); /* the other node holds it at its home */
    assert_in_range(trpi_store_server_figures(two.stores[0]).used, size, size + size / 8);
    for (int i = 0; i < READERS; i++) {
        trpi_objects_free(readers[i].objects);
    }
    expect_unused();
}

static void a_hold_given_across_nodes_is_counted_at_home(void **state) {
    uint64_t maker_number = 7, taker_number = 8;
    trpi_objects *maker = process_at(0, &maker_number), *taker = process_at(1, &taker_number);
    trp_object object = put_pattern(maker, MIB);
    trp_bytes bytes;
    TEST_OK(trpi_objects_give(maker, object, taker_number, err));
    trpi_objects_free(maker);
    TEST_OK(trpi_objects_get(taker, object, 20000, &bytes, err));
    trpi_objects_release(taker, object);
    TEST_OK(trpi_objects_get(taker, object, 20000, &bytes, err));
    assert_true(is_pattern(bytes, MIB));
    trpi_objects_release(taker, object);
    trpi_objects_release(taker, object); /* what was given */
    expect_unused();
    trpi_objects_free(taker);
}

static void *use_one_connection(void *arg) {
    trpi_objects *objects = arg;
    for (int i = 0; i < ROUNDS; i++) {
        trp_object object = put_pattern(objects, 1000 + (size_t)(i % 5) * 5000);
        trp_bytes bytes;
        TEST_OK(trpi_objects_get(objects, object, 20000, &bytes, err));
        TEST_OK(trpi_objects_hold(objects, object, err));
        assert_true(is_pattern(bytes, bytes.size));
        trpi_objects_release(objects, object);
        trpi_objects_release(objects, object);
        trpi_objects_release(objects, object);
        trpi_objects_tend(objects);
    }
    return NULL;
}

static void threads_share_a_connection(void **state) {
    uint64_t number = 9;
    trpi_objects *objects = process_at(0, &number);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_one_connection, objects), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    expect_unused();
    trpi_objects_free(objects);
}

/* In the middle of many fetches: each ends in time, with all of the object or with an error. */
static void a_home_that_goes_leaves_nobody_waiting(void **state) {
    static reader readers[10];
    uint64_t number = 7;
    size_t size = 100 * MIB;
    trpi_objects *writer = process_at(0, &number);
    trp_object object = put_pattern(writer, size);
    start_readers(readers, 10, object, size);
    usleep(30000);
    close_store(0);
    for (int i = 0; i < 10; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_true(readers[i].code == TRP_OK ? readers[i].is_right
                                              : readers[i].code == TRP_EOBJECT_LOST);
        trpi_objects_free(readers[i].objects);
    }
    expect_unused();
    trp_error error;
    trp_bytes bytes;
    assert_int_equal(trpi_objects_get(writer, object, 1000, &bytes, &error), TRP_ENODE_DIED);
    trpi_objects_free(writer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_hundred_readers_fetch_an_object_once, start, stop),
        cmocka_unit_test_setup_teardown(a_hold_given_across_nodes_is_counted_at_home, start, stop),
        cmocka_unit_test_setup_teardown(threads_share_a_connection, start, stop),
        cmocka_unit_test_setup_teardown(a_home_that_goes_leaves_nobody_waiting, start, stop),
    };
    return cmocka_run_group_tests_name("store links", tests, NULL, NULL);
}
