/* Shards whose files are whole, but which do not tell the truth about themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "core/sys/file.h"
#include "tests/lib/scripted.h"
#include "trainer/engine/shard.h"

static char dir[64];

static trp_code open_and(test_rank *self, bool save, trp_error *load_err, trp_error *err) {
    toy_run t;
    trp_model *model = scripted_model(300, 5, 1);
    TEST_REQUIRE(model);
    trp_code code = toy_open_model(self, "{\"train_batch_size\": 2}", 1, model, &t, err);
    if (code) {
        return code;
    }
    code = save ? trp_zero_save(t.engine, dir, NULL, err)
                : trp_zero_load(t.engine, dir, NULL, load_err);
    toy_close(&t);
    return code;
}

static trp_code save_scripted(test_rank *self, trp_error *err) {
    return open_and(self, true, NULL, err);
}

typedef struct lie {
    const char *old, *new; /* in the JSON text of shard 1 */
    trp_code code;
    const char *what; /* in rank 0's message */
} lie;

static trp_code load_lie(test_rank *self, trp_error *err) {
    const lie *l = self->arg;
    trp_error refused = {0};
    trp_code code = open_and(self, false, &refused, err);
    if (code != l->code || !strstr(refused.message, l->what) || !strstr(refused.message, dir)) {
        return trpi_fail(err, TRP_EINTERNAL, "%s -> %s: load gave %s: %s", l->old, l->new,
                         trp_code_name(code), refused.message);
    }
    return TRP_OK;
}

/* The text with the first `old` replaced. */
static char *replaced(const char *text, const char *old, const char *new) {
    const char *at = strstr(text, old);
    assert_non_null(at);
    size_t size = strlen(text) + strlen(new) + 1;
    char *out = calloc(1, size);
    assert_non_null(out);
    trpi_format(out, size, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    return out;
}

/* Writes shard 1 once more, as a file that is right in itself, with other metadata. */
static void rewrite(const char *old, const char *new) {
    char path[128];
    trpi_tensor_file *file = NULL;
    trpi_tensor_writer *writer = NULL;
    trpi_format(path, sizeof path, "%s/" TRPI_SHARD_NAME, dir, 1, 2);
    assert_int_equal(trpi_tensor_file_open(path, &file, NULL), TRP_OK);
    char *text = replaced(trpi_tensor_file_meta(file, TRPI_SHARD_META), old, new);
    size_t count = trpi_tensor_file_count(file);
    float *data = calloc(count * 512, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        const trpi_tensor *tensor = trpi_tensor_file_at(file, i);
        assert_int_equal(trpi_tensor_file_read_all(file, tensor, data + i * 512, NULL), TRP_OK);
    }
    assert_int_equal(trpi_tensor_writer_open(path, &writer, NULL), TRP_OK);
    assert_int_equal(trpi_tensor_writer_meta(writer, TRPI_SHARD_META, text, NULL), TRP_OK);
    for (size_t i = 0; i < count; i++) {
        const trpi_tensor *t = trpi_tensor_file_at(file, i);
        assert_int_equal(trpi_tensor_writer_add(writer, t->name, t->dtype, t->shape, t->dims, NULL),
                         TRP_OK);
    }
    for (size_t i = 0; i < count; i++) {
        size_t bytes = (size_t)trpi_tensor_file_at(file, i)->bytes;
        assert_int_equal(trpi_tensor_writer_append(writer, i, data + i * 512, bytes, NULL), TRP_OK);
    }
    assert_int_equal(trpi_tensor_writer_finish(&writer, NULL), TRP_OK);
    trpi_tensor_file_close(file);
    free(data);
    free(text);
}

/* w has 300 elements at 0 and b 5 at 320 of 384: rank 1 owns w from 192 on, and b. */
static void a_shard_that_lies_about_itself_is_refused(void **state) {
    static const lie lies[] = {
        {"\"offset\":192", "\"offset\":191", TRP_ECORRUPT, "tensor w"},
        {"\"offset\":192", "\"offset\":-1", TRP_ECORRUPT, "w: elements -1 + 108 of 300"},
        {"\"offset\":192", "\"offset\":193", TRP_ECORRUPT, "w: elements 193 + 108 of 300"},
        {"\"count\":108", "\"count\":107", TRP_ECORRUPT, "expected F32 with 107 elements"},
        {"\"count\":108", "\"count\":0", TRP_ECORRUPT, "the shards have 192 of 300 elements"},
        {"\"count\":108", "\"count\":9223372036854775807", TRP_ECORRUPT, "w: elements"},
        {"[300]", "[301]", TRP_ECORRUPT, "tensor 0"},
        {"[300]", "[300,0]", TRP_ECORRUPT, "dimension 1"},
        {"[300]", "[1,1,1,1,300]", TRP_ECORRUPT, "no list of at most 4"},
        {"[300]", "300", TRP_ECORRUPT, "no list"},
        {"\"name\":\"b\"", "\"name\":\"c\"", TRP_ECORRUPT, "tensor 1 is c, but b in the first"},
        {"\"version\":1", "\"version\":2", TRP_EUNSUPPORTED, "version 2, this program reads 1"},
        {"\"rank\":1", "\"rank\":0", TRP_ECORRUPT, "inside it is shard 0 of 2"},
        {"\"world\":2", "\"world\":3", TRP_ECORRUPT, "inside it is shard 1 of 3"},
        {"\"step\":0", "\"step\":5", TRP_ECORRUPT, "it is of step 5"},
        {"\"updates\":0", "\"updates\":-1", TRP_ECORRUPT, "metadata.updates: -1 is negative"},
        {"\"seed\":\"1\"", "\"seed\":\"x\"", TRP_ECORRUPT, "seed: \"x\" is no number"},
        {"\"seed\":\"1\"", "\"seed\":1", TRP_ECORRUPT, "metadata.seed: expected a string"},
        {"\"epoch\":0,", "", TRP_ECORRUPT, "position.epoch: is missing"},
        {"\"tensors\":[", "\"tensors\":7,\"rest\":[", TRP_ECORRUPT, "must be lists"},
        {"{", "", TRP_ECORRUPT, "metadata:1:"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(lies); i++) {
        lie l = lies[i];
        test_ranks_run(2, save_scripted, NULL);
        rewrite(l.old, l.new);
        test_ranks_run(2, load_lie, &l);
    }
}

static void an_honest_rewrite_loads(void **state) {
    lie none = {"\"rank\":1", "\"rank\":1", TRP_OK, ""};
    test_ranks_run(2, save_scripted, NULL);
    rewrite(none.old, none.new);
    trpi_shards shards;
    trp_error err = {0};
    if (trpi_shards_open(dir, &shards, &err)) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(shards.slices[1][0].offset, 192);
    assert_int_equal(shards.slices[1][0].count, 108);
    assert_int_equal(shards.slices[0][1].count, 0);
    trpi_shards_close(&shards);
}

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-meta-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL) ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_rewrite_loads),
        cmocka_unit_test(a_shard_that_lies_about_itself_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
