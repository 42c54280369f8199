/* gpt2.h: the three kinds of unit that a GPT-2 is a list of. C = width, M = rows * columns, H =
 * heads, V = vocabulary. */
#ifndef TRPI_GPT2_H
#define TRPI_GPT2_H

#include <troupe/model.h>

typedef struct trpi_gpt2_state {
    int64_t heads, width, vocabulary;
    float norm_eps;
} trpi_gpt2_state;

/* The order of a unit's parameters. */
enum { TRPI_GPT2_WTE, TRPI_GPT2_WPE };
enum {
    TRPI_GPT2_LN1_W,
    TRPI_GPT2_LN1_B,
    TRPI_GPT2_QKV_W,
    TRPI_GPT2_QKV_B,
    TRPI_GPT2_PROJ_W,
    TRPI_GPT2_PROJ_B,
    TRPI_GPT2_LN2_W,
    TRPI_GPT2_LN2_B,
    TRPI_GPT2_FC_W,
    TRPI_GPT2_FC_B,
    TRPI_GPT2_FC2_W,
    TRPI_GPT2_FC2_B
};
enum { TRPI_GPT2_LNF_W, TRPI_GPT2_LNF_B, TRPI_GPT2_LM_HEAD };

/* Each has a trpi_gpt2_state of its own, from malloc. */
extern const trp_unit_type trpi_gpt2_embedding, trpi_gpt2_block, trpi_gpt2_head;

#endif
