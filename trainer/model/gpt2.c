/* gpt2.c: GPT-2 as a list of units: embedding, blocks, head.
 *
 * Names and shapes are Hugging Face's, whose Conv1D stores a weight as (in, out): y = x . W + b. */
#include "trainer/model/gpt2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/model/model.h"

#define PARAMS_MAX 12
#define NAME_MAX_BYTES 64

/* Parameters of one unit while they are being listed; trp_model_add() copies them. */
typedef struct param_list {
    trp_param params[PARAMS_MAX];
    char names[PARAMS_MAX][NAME_MAX_BYTES];
    int count;
} param_list;

static trp_param *list_add(param_list *list, int64_t layer, const char *name, int64_t first,
                           int64_t second) {
    int at = list->count++;
    trp_param *param = &list->params[at];
    if (layer >= 0) {
        trpi_format(list->names[at], NAME_MAX_BYTES, "transformer.h.%lld.%s", (long long)layer,
                    name);
    } else {
        TRPI_SET(list->names[at], name);
    }
    *param = (trp_param){.name = list->names[at], .shape = {first, second}};
    param->dims = second ? 2 : 1;
    return param;
}

static void list_matrix(param_list *list, int64_t layer, const char *name, int64_t rows,
                        int64_t columns, double std) {
    trp_param *param = list_add(list, layer, name, rows, columns);
    param->init = TRP_INIT_NORMAL;
    param->std = std;
    param->decay = true;
}

static void list_vector(param_list *list, int64_t layer, const char *name, int64_t count,
                        trp_param_init init) {
    list_add(list, layer, name, count, 0)->init = init;
}

static trp_code add_unit(trp_model *model, const trp_unit_type *type, const trpi_gpt2_state *state,
                         const param_list *list, trp_error *err) {
    trpi_gpt2_state *copy = malloc(sizeof *copy);
    if (!copy) {
        return trpi_fail(err, TRP_ENOMEM, "gpt2");
    }
    *copy = *state;
    trp_code code = trp_model_add(model, type, copy, list->params, list->count, err);
    if (code) {
        free(copy);
    }
    return code;
}

static trp_code add_embedding(trp_model *model, const trpi_gpt2_state *state,
                              const trp_gpt2_config *config, trp_error *err) {
    param_list list = {0};
    list_matrix(&list, -1, "transformer.wte.weight", state->vocabulary, state->width,
                config->init_std);
    list_matrix(&list, -1, "transformer.wpe.weight", config->positions, state->width,
                config->init_std);
    return add_unit(model, &trpi_gpt2_embedding, state, &list, err);
}

static trp_code add_block(trp_model *model, const trpi_gpt2_state *state,
                          const trp_gpt2_config *config, int64_t layer, trp_error *err) {
    int64_t width = state->width;
    double std = config->init_std;
    /* Radford et al. 2019, section 2.3: each layer adds twice to the residual stream. */
    double residual_std = std / sqrt(2.0 * (double)config->layers);
    param_list list = {0};
    list_vector(&list, layer, "ln_1.weight", width, TRP_INIT_ONES);
    list_vector(&list, layer, "ln_1.bias", width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "attn.c_attn.weight", width, 3 * width, std);
    list_vector(&list, layer, "attn.c_attn.bias", 3 * width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "attn.c_proj.weight", width, width, residual_std);
    list_vector(&list, layer, "attn.c_proj.bias", width, TRP_INIT_ZEROS);
    list_vector(&list, layer, "ln_2.weight", width, TRP_INIT_ONES);
    list_vector(&list, layer, "ln_2.bias", width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "mlp.c_fc.weight", width, 4 * width, std);
    list_vector(&list, layer, "mlp.c_fc.bias", 4 * width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "mlp.c_proj.weight", 4 * width, width, residual_std);
    list_vector(&list, layer, "mlp.c_proj.bias", width, TRP_INIT_ZEROS);
    return add_unit(model, &trpi_gpt2_block, state, &list, err);
}

static trp_code add_head(trp_model *model, const trpi_gpt2_state *state, trp_error *err) {
    param_list list = {0};
    list_vector(&list, -1, "transformer.ln_f.weight", state->width, TRP_INIT_ONES);
    list_vector(&list, -1, "transformer.ln_f.bias", state->width, TRP_INIT_ZEROS);
    trp_param *tied = list_add(&list, -1, "lm_head.weight", state->vocabulary, state->width);
    tied->tied_to = "transformer.wte.weight";
    return add_unit(model, &trpi_gpt2_head, state, &list, err);
}

static int64_t or_default(int64_t value, int64_t fallback) {
    return value ? value : fallback;
}

static trp_code complete_config(const trp_gpt2_config *given, trp_gpt2_config *ret_config,
                                trp_error *err) {
    trp_gpt2_config c = *given;
    c.vocabulary = or_default(c.vocabulary, 50257);
    c.positions = or_default(c.positions, 1024);
    c.layers = or_default(c.layers, 12);
    c.heads = or_default(c.heads, 12);
    c.width = or_default(c.width, 768);
    c.init_std = c.init_std != 0 ? c.init_std : 0.02;
    c.norm_eps = c.norm_eps != 0 ? c.norm_eps : 1e-5;
    if (c.vocabulary < 1 || c.positions < 1 || c.layers < 1 || c.heads < 1 || c.width < 1) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: a size is negative");
    }
    if (c.vocabulary > INT32_MAX || c.positions > INT32_MAX || c.width > 1 << 20 ||
        c.layers > 1 << 16) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: a size is too large");
    }
    if (c.width % c.heads != 0) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: width %lld is not a multiple of heads %lld",
                         (long long)c.width, (long long)c.heads);
    }
    if (!(c.init_std > 0) || !(c.norm_eps > 0)) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: init_std and norm_eps must be above 0");
    }
    *ret_config = c;
    return TRP_OK;
}

trp_code trp_gpt2_new(const trp_gpt2_config *config, trp_model **ret_model, trp_error *err) {
    trp_gpt2_config c = {0};
    trp_model *model = NULL;
    trp_code code = complete_config(config, &c, err);
    if (code) {
        return code;
    }
    trpi_gpt2_state state = {c.heads, c.width, c.vocabulary, (float)c.norm_eps};
    code = trp_model_new("gpt2", &(trp_model_limits){c.vocabulary, c.positions}, &model, err);
    if (!code) {
        code = add_embedding(model, &state, &c, err);
    }
    for (int64_t layer = 0; !code && layer < c.layers; layer++) {
        code = add_block(model, &state, &c, layer, err);
    }
    if (!code) {
        code = add_head(model, &state, err);
    }
    if (code) {
        trp_model_free(model);
        return code;
    }
    *ret_model = model;
    return TRP_OK;
}
