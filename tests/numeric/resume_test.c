/* Saving and loading: a run that was interrupted is the run that was not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/hash.h"
#include "core/sys/file.h"
#include "tests/lib/scripted.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/shard.h"

#define CONFIG                                                                                     \
    "{\"train_batch_size\": 12, \"bf16\": {\"enabled\": %s},"                                      \
    " \"zero_optimization\": {\"stage\": %d, \"reduce_bucket_size\": %d},"                         \
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}},"    \
    " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": 1e-3,"          \
    "   \"warmup_num_steps\": 4, \"total_num_steps\": 30}}}"

static char dir[64];

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-resume-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL) ? -1 : 0;
}

/* What one group of ranks does: load, train from step `from` to `to`, save. */
typedef struct leg {
    int stage, from, to, bucket;
    bool bf16, load, save;
    /* Of rank 0. */
    double losses[32], rates[32];
    char hash[33];   /* of the masters at the end */
    char states[33]; /* of this rank 0's kept masters and moments */
    char loaded[33]; /* of the masters after loading */
    uint64_t steps;
} leg;

static void hash_states(const trp_zero *e, char ret_hex[33]) {
    trpi_hasher *hasher = trpi_hasher_new();
    for (int b = 0; b < e->layout.bucket_count; b++) {
        size_t bytes = (size_t)trpi_memory_kept_count(&e->memory, b) * sizeof(float);
        trpi_hasher_add(hasher, trpi_memory_masters(&e->memory, b), bytes);
        trpi_hasher_add(hasher, trpi_memory_m(&e->memory, b), bytes);
        trpi_hasher_add(hasher, trpi_memory_v(&e->memory, b), bytes);
    }
    trpi_hasher_hex(hasher, ret_hex);
    trpi_hasher_free(hasher);
}

static trp_code load_leg(toy_run *t, leg *l, trp_error *err) {
    trp_zero_position position = {0};
    trp_code code = trp_zero_load(t->engine, dir, &position, err);
    if (code) {
        return code;
    }
    TEST_REQUIRE(position.epoch == 2 && position.sample == (uint64_t)l->from * 12);
    TEST_REQUIRE(position.data_seed == UINT64_MAX - 5);
    TEST_REQUIRE(trp_zero_steps(t->engine) == (uint64_t)l->from);
    return trp_zero_weights_hash(t->engine, l->loaded, err);
}

static trp_code run_leg(test_rank *self, trp_error *err) {
    leg mine = *(leg *)self->arg;
    toy_run t;
    trp_step_stats stats = {0};
    /* Another seed where the weights come from disk: nothing may depend on it. */
    uint64_t seed = mine.load ? 777 : 21;
    const char *config = toy_config(CONFIG, mine.bf16 ? "true" : "false", mine.stage,
                                    mine.bucket ? mine.bucket : 1 << 20);
    trp_code code = toy_open(self, config, seed, &t, err);
    if (!code && mine.load) {
        code = load_leg(&t, &mine, err);
    }
    for (int step = mine.from; !code && step < mine.to; step++) {
        code = toy_step(&t, self, (uint64_t)step, &stats, err);
        mine.losses[step] = stats.loss;
        mine.rates[step] = stats.lr;
    }
    if (!code && mine.save) {
        trp_zero_position position = {
            .epoch = 2, .sample = (uint64_t)mine.to * 12, .data_seed = UINT64_MAX - 5};
        code = trp_zero_save(t.engine, dir, &position, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t.engine, mine.hash, err);
    }
    if (!code && self->rank == 0) {
        hash_states(t.engine, mine.states);
        mine.steps = trp_zero_steps(t.engine);
        *(leg *)self->arg = mine;
    }
    toy_close(&t);
    return code;
}

static leg do_leg(int world, leg l) {
    test_ranks_run(world, run_leg, &l);
    return l;
}

static void z25_ten_steps_saved_and_ten_more_are_twenty(void **state) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int stage = 0; stage <= 3; stage++) {
            leg straight = do_leg(2, (leg){.stage = stage, .bf16 = bf16, .to = 20});
            leg first = do_leg(2, (leg){.stage = stage, .bf16 = bf16, .to = 10, .save = true});
            leg second =
                do_leg(2, (leg){.stage = stage, .bf16 = bf16, .from = 10, .to = 20, .load = true});
            assert_string_equal(second.loaded, first.hash);
            assert_string_equal(second.hash, straight.hash);
            assert_string_equal(second.states, straight.states);
            assert_int_equal(second.steps, 20);
            for (int i = 10; i < 20; i++) {
                assert_true(second.losses[i] == straight.losses[i]);
                assert_true(second.rates[i] == straight.rates[i]);
            }
        }
    }
}

/* The stage of who wrote does not matter: the bits are those of a run at one stage throughout. */
static void a_checkpoint_of_one_stage_goes_on_at_any_other(void **state) {
    leg straight = do_leg(2, (leg){.to = 8});
    for (int from = 0; from <= 3; from++) {
        (void)do_leg(2, (leg){.stage = from, .to = 4, .save = true});
        for (int to = 0; to <= 3; to++) {
            leg second = do_leg(2, (leg){.stage = to, .from = 4, .to = 8, .load = true});
            assert_string_equal(second.hash, straight.hash);
        }
    }
}

static void clear_dir(void) {
    assert_int_equal(trpi_dir_remove(dir, NULL), TRP_OK);
    assert_int_equal(trpi_dir_make(dir, 0700, NULL), TRP_OK);
}

static void a_checkpoint_loads_at_any_world_size_and_bucket_size(void **state) {
    static const int worlds[] = {2, 3, 1, 4, 2};
    clear_dir();
    leg before = do_leg(worlds[0], (leg){.stage = 3, .to = 3, .save = true});
    char first_states[33];
    TRPI_SET(first_states, before.states);
    for (int i = 1; i < 5; i++) {
        /* No steps: only what was loaded is saved again, through all these layouts. */
        leg after = do_leg(
            worlds[i], (leg){.stage = 4 - i, .from = 3, .to = 3, .load = true, .bucket = 700 * i});
        assert_string_equal(after.loaded, before.hash);
        clear_dir();
        leg again = do_leg(worlds[i], (leg){.stage = 3, .to = 3, .save = true});
        before = again;
    }
}

/* 2 ranks save, 3 load and save, 1 loads and saves, 2 load: the same bits of weights and moments.
 */
static trp_code pass_on(test_rank *self, trp_error *err) {
    leg mine = *(leg *)self->arg;
    toy_run t;
    trp_code code = toy_open(self, toy_config(CONFIG, "false", mine.stage, 1 << 20), 5, &t, err);
    if (!code) {
        code = trp_zero_load(t.engine, dir, NULL, err);
    }
    if (!code && self->rank == 0) {
        clear_dir();
    }
    if (!code) {
        code = trp_comm_barrier(self->comm, err);
    }
    if (!code) {
        code = trp_zero_save(t.engine, dir, &(trp_zero_position){2, 36, UINT64_MAX - 5}, err);
    }
    if (!code && self->rank == 0) {
        hash_states(t.engine, ((leg *)self->arg)->states);
    }
    toy_close(&t);
    return code;
}

static void z25_states_survive_two_three_one_and_two_ranks(void **state) {
    clear_dir();
    leg first = do_leg(2, (leg){.stage = 3, .to = 3, .save = true});
    leg straight = do_leg(2, (leg){.stage = 3, .to = 6});
    leg at_three = {.stage = 2}, at_one = {.stage = 0}, at_two = {.stage = 3};
    test_ranks_run(3, pass_on, &at_three);
    test_ranks_run(1, pass_on, &at_one);
    test_ranks_run(2, pass_on, &at_two);
    assert_string_equal(at_two.states, first.states);
    leg second = do_leg(2, (leg){.stage = 3, .from = 3, .to = 6, .load = true});
    assert_string_equal(second.hash, straight.hash);
}

/* ---- What must not load ---- */

typedef struct refusal {
    trp_code code;
    const char *what[2];
    int layers; /* of the model; 0: two */
    bool untied;
} refusal;

static const trp_unit_type untied_type = {.name = "untied"};

/* The toy's tensors by name and shape, but lm_head.weight is a tensor of its own. */
static trp_model *untied_model(const trp_model *toy) {
    trp_model *model = NULL;
    if (trp_model_new("untied", &toy->limits, &model, NULL)) {
        return NULL;
    }
    for (int u = 0; u < toy->unit_count; u++) {
        trp_param params[16];
        for (int p = 0; p < toy->units[u].param_count; p++) {
            params[p] = toy->units[u].params[p];
            params[p].tied_to = NULL;
        }
        if (trp_model_add(model, &untied_type, NULL, params, toy->units[u].param_count, NULL)) {
            trp_model_free(model);
            return NULL;
        }
    }
    return model;
}

static trp_code load_refused(test_rank *self, trp_error *err) {
    const refusal *r = self->arg;
    trp_gpt2_config gpt2 = {.vocabulary = TOY_VOCABULARY,
                            .positions = TOY_COLUMNS,
                            .layers = r->layers ? r->layers : 2,
                            .heads = 3,
                            .width = 48};
    toy_run t;
    trp_error refused = {0};
    trp_model *model = NULL;
    char before[33], after[33];
    trp_code code = trp_gpt2_new(&gpt2, &model, err);
    if (!code && r->untied) {
        trp_model *other = untied_model(model);
        trp_model_free(model);
        model = other;
        TEST_REQUIRE(model);
    }
    if (!code) {
        code = toy_open_model(self, toy_config(CONFIG, "false", 3, 1 << 20), 5, model, &t, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t.engine, before, err);
    }
    if (code) {
        return code;
    }
    code = trp_zero_load(t.engine, dir, NULL, &refused);
    if (code != r->code || (self->rank == 0 && (!strstr(refused.message, r->what[0]) ||
                                                !strstr(refused.message, r->what[1])))) {
        return trpi_fail(err, TRP_EINTERNAL, "load gave %s: %s", trp_code_name(code),
                         refused.message);
    }
    code = trp_zero_weights_hash(t.engine, after, err);
    TEST_REQUIRE(!code && strcmp(before, after) == 0 && trp_zero_steps(t.engine) == 0);
    toy_close(&t);
    return TRP_OK;
}

static void save_two(void) {
    clear_dir();
    (void)do_leg(2, (leg){.stage = 3, .to = 1, .save = true});
}

static char *shard_path(int rank) {
    static char path[128];
    trpi_format(path, sizeof path, "%s/" TRPI_SHARD_NAME, dir, rank, 2);
    return path;
}

static void an_empty_directory_is_not_a_checkpoint(void **state) {
    refusal r = {TRP_ENOTFOUND, {dir, "there are no shards"}, 0, false};
    clear_dir();
    test_ranks_run(2, load_refused, &r);
}

static void a_missing_shard_is_named(void **state) {
    refusal r = {TRP_ECORRUPT, {"shard-00001-of-00002.safetensors", "missing"}, 0, false};
    save_two();
    assert_int_equal(unlink(shard_path(1)), 0);
    test_ranks_run(2, load_refused, &r);
}

static void a_shard_shorter_by_a_byte_is_named(void **state) {
    refusal r = {TRP_ECORRUPT, {"shard-00001-of-00002.safetensors", ""}, 0, false};
    struct stat st;
    save_two();
    assert_int_equal(stat(shard_path(1), &st), 0);
    assert_int_equal(truncate(shard_path(1), st.st_size - 1), 0);
    test_ranks_run(2, load_refused, &r);
}

static void shards_of_two_checkpoints_are_refused(void **state) {
    refusal r = {TRP_ECORRUPT, {"shard-00001-of-00002.safetensors", "step"}, 0, false};
    char kept[128];
    save_two();
    trpi_format(kept, sizeof kept, "%s/kept", dir);
    assert_int_equal(rename(shard_path(1), kept), 0);
    (void)do_leg(2, (leg){.stage = 3, .to = 2, .save = true});
    assert_int_equal(rename(kept, shard_path(1)), 0);
    test_ranks_run(2, load_refused, &r);
}

static void a_checkpoint_of_another_depth_is_refused(void **state) {
    refusal r = {
        TRP_ECORRUPT, {"transformer.h.2.ln_1.weight", "transformer.ln_f.weight"}, 3, false};
    save_two();
    test_ranks_run(2, load_refused, &r);
}

static void z24_weights_that_are_not_tied_any_more_are_refused(void **state) {
    refusal r = {TRP_ECORRUPT,
                 {"lm_head.weight is tied to transformer.wte.weight in the checkpoint",
                  "none in this model"},
                 0,
                 true};
    save_two();
    test_ranks_run(2, load_refused, &r);
}

/* Damage that only the data has is found by its checksum while it is read: the engine then refuses
 * to go on rather than train from half a checkpoint. */
static trp_code load_damaged(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error refused = {0};
    trp_code code = toy_open(self, toy_config(CONFIG, "false", 3, 1 << 20), 5, &t, err);
    if (code) {
        return code;
    }
    TEST_REQUIRE(trp_zero_load(t.engine, dir, NULL, &refused) == TRP_ECORRUPT);
    TEST_REQUIRE(toy_step(&t, self, 0, NULL, &refused) == TRP_ECORRUPT);
    TEST_REQUIRE(strstr(refused.message, "this engine stopped working"));
    toy_close(&t);
    return TRP_OK;
}

static void a_flipped_byte_in_the_data_is_found(void **state) {
    struct stat st;
    save_two();
    assert_int_equal(stat(shard_path(0), &st), 0);
    FILE *file = fopen(shard_path(0), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)st.st_size - 100, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)st.st_size - 100, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
    test_ranks_run(2, load_damaged, NULL);
}

/* ---- What is in a shard ---- */

static void z24_a_tied_tensor_is_stored_once_with_its_alias(void **state) {
    trpi_shards shards;
    trp_error err = {0};
    save_two();
    if (trpi_shards_open(dir, &shards, &err)) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(shards.world, 2);
    assert_int_equal(shards.tensor_count, 2 + 2 * 12 + 2);
    assert_string_equal(shards.tensors[0].name, "transformer.wte.weight");
    assert_int_equal(shards.alias_count, 1);
    assert_string_equal(shards.aliases[0].name, "lm_head.weight");
    assert_string_equal(shards.aliases[0].of, "transformer.wte.weight");
    trpi_shards_close(&shards);
}

/* ---- Skips and Adam's t over a resume ---- */

static trp_code resume_scripted(test_rank *self, trp_error *err) {
    float w[2][8];
    for (int interrupted = 0; interrupted < 2; interrupted++) {
        toy_run t = {0};
        trp_code code = TRP_OK;
        for (int step = 0; !code && step < 8; step++) {
            if (step == 0 || (interrupted && step == 5)) {
                toy_close(&t);
                trp_model *model = scripted_model(8, 3, 1);
                TEST_REQUIRE(model);
                code = toy_open_model(self, "{\"train_batch_size\": 1}", 1, model, &t, err);
            }
            if (!code && interrupted && step == 5) {
                code = trp_zero_load(t.engine, dir, NULL, err);
                TEST_REQUIRE(t.engine->skipped == 1 && t.engine->updates == 4);
            }
            int32_t token = step == 3 ? SCRIPTED_NAN : step + 1;
            trp_step_stats stats;
            if (!code) {
                code = scripted_step(&t, &token, &stats, err);
            }
            TEST_REQUIRE(code || stats.skipped == (step >= 3));
            if (!code && step == 4) {
                code = trp_zero_save(t.engine, dir, NULL, err);
            }
        }
        if (!code) {
            code = trp_zero_get_tensor(t.engine, "w", w[interrupted], 8, err);
        }
        toy_close(&t);
        if (code) {
            return code;
        }
    }
    TEST_REQUIRE(memcmp(w[0], w[1], sizeof w[0]) == 0);
    return TRP_OK;
}

static void z12_skipped_steps_and_bias_correction_survive_a_resume(void **state) {
    clear_dir();
    test_ranks_run(1, resume_scripted, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z25_ten_steps_saved_and_ten_more_are_twenty),
        cmocka_unit_test(a_checkpoint_of_one_stage_goes_on_at_any_other),
        cmocka_unit_test(a_checkpoint_loads_at_any_world_size_and_bucket_size),
        cmocka_unit_test(z25_states_survive_two_three_one_and_two_ranks),
        cmocka_unit_test(an_empty_directory_is_not_a_checkpoint),
        cmocka_unit_test(a_missing_shard_is_named),
        cmocka_unit_test(a_shard_shorter_by_a_byte_is_named),
        cmocka_unit_test(shards_of_two_checkpoints_are_refused),
        cmocka_unit_test(a_checkpoint_of_another_depth_is_refused),
        cmocka_unit_test(z24_weights_that_are_not_tied_any_more_are_refused),
        cmocka_unit_test(a_flipped_byte_in_the_data_is_found),
        cmocka_unit_test(z24_a_tied_tensor_is_stored_once_with_its_alias),
        cmocka_unit_test(z12_skipped_steps_and_bias_correction_survive_a_resume),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
