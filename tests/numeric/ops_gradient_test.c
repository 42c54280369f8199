/* ops_gradient_test.c: every backward of the cpu device against central differences of the forward
 * in double. The objective is sum(weights * output), whose gradient is what backward gets as dy. */
#include "tests/numeric/numbers.h"
#include "trainer/device/cpu/cpu.h"

/* A forward in double: writes `count_y` outputs from the inputs it was made with. */
struct objective {
    void (*forward)(const struct objective *o);
    void *args; /* of the reference operation; its tensors are double */
    double *y;
    const double *weights;
    int64_t count_y;
};

static double value(const struct objective *o) {
    double sum = 0.0;
    o->forward(o);
    for (int64_t i = 0; i < o->count_y; i++) {
        sum += o->weights[i] * o->y[i];
    }
    return sum;
}

/* Differences with respect to x[0..count), an input of the objective, against `got` (fp32). One
 * difference costs two whole forwards, so of a large input only every 7th element is tried. */
static void expect_gradient(const char *what, const struct objective *o, double *x, int64_t count,
                            const float *got) {
    const double h = 1e-4;
    int64_t every = count > 1000 ? 7 : 1;
    float *want = copy_of(got, (size_t)count * sizeof(*want));
    for (int64_t i = 0; i < count; i += every) {
        double kept = x[i];
        x[i] = kept + h;
        double above = value(o);
        x[i] = kept - h;
        double below = value(o);
        x[i] = kept;
        want[i] = (float)((above - below) / (2.0 * h));
    }
    expect_close(what, got, want, count, TRP_F32, 1e-4);
    free(want);
}

/* Numbers as double for the objective and, the same ones, as fp32 for the operation. */
struct twin {
    double *wide;
    float *narrow;
};

static struct twin twin_of(int64_t count, double scale) {
    float *narrow = random_values(count, TRP_F32, scale);
    return (struct twin){converted(narrow, count, TRP_F32, TRPI_F64), narrow};
}

static void free_twin(struct twin *t) {
    free(t->wide);
    free(t->narrow);
}

#define FORWARD(op)                                                                                \
    static void forward_##op(const struct objective *o) {                                          \
        assert_int_equal(trpi_reference_##op(NULL, o->args, NULL), TRP_OK);                        \
    }
FORWARD(gelu)
FORWARD(tanh)
FORWARD(dropout)
FORWARD(layernorm)
FORWARD(attention)
FORWARD(embedding)
FORWARD(matmul)

static void *zeros(int64_t count, size_t size) {
    return calloc((size_t)count, size);
}

static void gradient_of_gelu(void **state) {
    enum { COUNT = 301 };
    trp_device *device = open_device(2, false);
    for (int exact = 0; exact < 2; exact++) {
        random_state = 1;
        struct twin x = twin_of(COUNT, 4.0), dy = twin_of(COUNT, 1.0);
        float dx[COUNT];
        double y[COUNT];
        trp_gelu_args forward = {
            .count = COUNT, .x = x.wide, .y = y, .dtype = TRPI_F64, .exact = exact};
        struct objective o = {forward_gelu, &forward, y, dy.wide, COUNT};
        trp_gelu_backward_args args = {
            .count = COUNT, .dy = dy.narrow, .x = x.narrow, .dx = dx, .exact = exact};
        assert_int_equal(trp_op_gelu_backward(device, &args, NULL), TRP_OK);
        expect_gradient("gelu", &o, x.wide, COUNT, dx);
        free_twin(&x);
        free_twin(&dy);
    }
    trp_device_close(device);
}

static void gradient_of_tanh(void **state) {
    enum { COUNT = 301 };
    trp_device *device = open_device(2, false);
    random_state = 2;
    struct twin x = twin_of(COUNT, 2.0), dy = twin_of(COUNT, 1.0);
    float dx[COUNT], y_narrow[COUNT];
    double y[COUNT];
    trp_tanh_args forward = {.count = COUNT, .x = x.wide, .y = y, .dtype = TRPI_F64};
    struct objective o = {forward_tanh, &forward, y, dy.wide, COUNT};
    trp_tanh_args narrow = {.count = COUNT, .x = x.narrow, .y = y_narrow};
    assert_int_equal(trp_op_tanh(device, &narrow, NULL), TRP_OK);
    trp_tanh_backward_args args = {.count = COUNT, .dy = dy.narrow, .y = y_narrow, .dx = dx};
    assert_int_equal(trp_op_tanh_backward(device, &args, NULL), TRP_OK);
    expect_gradient("tanh", &o, x.wide, COUNT, dx);
    free_twin(&x);
    free_twin(&dy);
    trp_device_close(device);
}

/* Dropout has no backward of its own: the same call on the gradient is it. */
static void gradient_of_dropout(void **state) {
    enum { COUNT = 301 };
    trp_device *device = open_device(2, false);
    random_state = 3;
    struct twin x = twin_of(COUNT, 1.0), dy = twin_of(COUNT, 1.0);
    float dx[COUNT];
    double y[COUNT];
    trp_dropout_args forward = {.count = COUNT,
                                .x = x.wide,
                                .y = y,
                                .rate = 0.25f,
                                .seed = 9,
                                .offset = 100,
                                .dtype = TRPI_F64};
    struct objective o = {forward_dropout, &forward, y, dy.wide, COUNT};
    trp_dropout_args args = forward;
    args.x = dy.narrow;
    args.y = dx;
    args.dtype = TRP_F32;
    assert_int_equal(trp_op_dropout(device, &args, NULL), TRP_OK);
    expect_gradient("dropout", &o, x.wide, COUNT, dx);
    free_twin(&x);
    free_twin(&dy);
    trp_device_close(device);
}

static void gradient_of_layernorm(void **state) {
    enum { ROWS = 5, COLUMNS = 37, COUNT = ROWS * COLUMNS };
    trp_device *device = open_device(2, false);
    random_state = 4;
    struct twin x = twin_of(COUNT, 2.0), dy = twin_of(COUNT, 1.0), weight = twin_of(COLUMNS, 1.0),
                bias = twin_of(COLUMNS, 1.0);
    float mean[ROWS], rstd[ROWS], y_narrow[COUNT];
    float *dx = zeros(COUNT, 4), *dweight = zeros(COLUMNS, 4), *dbias = zeros(COLUMNS, 4);
    double y[COUNT];
    trp_layernorm_args forward = {.rows = ROWS,
                                  .columns = COLUMNS,
                                  .x = x.wide,
                                  .weight = weight.wide,
                                  .bias = bias.wide,
                                  .y = y,
                                  .mean = mean,
                                  .rstd = rstd,
                                  .eps = 1e-5f,
                                  .dtype = TRPI_F64};
    struct objective o = {forward_layernorm, &forward, y, dy.wide, COUNT};
    trp_layernorm_args narrow = forward;
    narrow.x = x.narrow;
    narrow.weight = weight.narrow;
    narrow.bias = bias.narrow;
    narrow.y = y_narrow;
    narrow.dtype = TRP_F32;
    assert_int_equal(trp_op_layernorm(device, &narrow, NULL), TRP_OK);
    trp_layernorm_backward_args args = {.rows = ROWS,
                                        .columns = COLUMNS,
                                        .dy = dy.narrow,
                                        .x = x.narrow,
                                        .weight = weight.narrow,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .dx_add = dx,
                                        .dweight_add = dweight,
                                        .dbias_add = dbias};
    assert_int_equal(trp_op_layernorm_backward(device, &args, NULL), TRP_OK);
    expect_gradient("layernorm dx", &o, x.wide, COUNT, dx);
    expect_gradient("layernorm dweight", &o, weight.wide, COLUMNS, dweight);
    expect_gradient("layernorm dbias", &o, bias.wide, COLUMNS, dbias);
    free_twin(&x);
    free_twin(&dy);
    free_twin(&weight);
    free_twin(&bias);
    free(dx);
    free(dweight);
    free(dbias);
    trp_device_close(device);
}

/* 70 positions: more than one tile of keys and of queries. */
static void check_attention(bool causal, const int32_t *lengths) {
    enum { BATCH = 2, TIME = 70, HEADS = 2, SIZE = 3, COUNT = BATCH * TIME * HEADS * SIZE };
    trp_device *device = open_device(2, false);
    struct twin qkv = twin_of(3 * COUNT, 1.5), dout = twin_of(COUNT, 1.0);
    float *lse = zeros(BATCH * HEADS * TIME, 4), *y_narrow = zeros(COUNT, 4),
          *dqkv = zeros(3 * COUNT, 4);
    double *y = zeros(COUNT, 8);
    trp_attention_args forward = {.batch = BATCH,
                                  .time = TIME,
                                  .heads = HEADS,
                                  .head_size = SIZE,
                                  .qkv = qkv.wide,
                                  .out = y,
                                  .lse = lse,
                                  .causal = causal,
                                  .lengths = lengths,
                                  .dtype = TRPI_F64};
    struct objective o = {forward_attention, &forward, y, dout.wide, COUNT};
    float *own_lse = zeros(BATCH * HEADS * TIME, 4);
    trp_attention_args narrow = forward;
    narrow.qkv = qkv.narrow;
    narrow.out = y_narrow;
    narrow.lse = own_lse;
    narrow.dtype = TRP_F32;
    assert_int_equal(trp_op_attention(device, &narrow, NULL), TRP_OK);
    trp_attention_backward_args args = {.batch = BATCH,
                                        .time = TIME,
                                        .heads = HEADS,
                                        .head_size = SIZE,
                                        .dout = dout.narrow,
                                        .qkv = qkv.narrow,
                                        .out = y_narrow,
                                        .lse = own_lse,
                                        .dqkv = dqkv,
                                        .causal = causal,
                                        .lengths = lengths};
    assert_int_equal(trp_op_attention_backward(device, &args, NULL), TRP_OK);
    expect_gradient("attention", &o, qkv.wide, 3 * COUNT, dqkv);
    free_twin(&qkv);
    free_twin(&dout);
    free(lse);
    free(own_lse);
    free(y_narrow);
    free(dqkv);
    free(y);
    trp_device_close(device);
}

static void gradient_of_attention(void **state) {
    static const int32_t lengths[2] = {70, 13};
    random_state = 5;
    check_attention(false, NULL);
    check_attention(true, NULL);
    check_attention(false, lengths);
    check_attention(true, lengths);
}

static void gradient_of_embedding(void **state) {
    enum { BATCH = 3, TIME = 5, COLUMNS = 7, VOCABULARY = 4, COUNT = BATCH * TIME * COLUMNS };
    trp_device *device = open_device(2, false);
    random_state = 6;
    struct twin tokens = twin_of(VOCABULARY * COLUMNS, 1.0),
                positions = twin_of(TIME * COLUMNS, 1.0), dout = twin_of(COUNT, 1.0);
    int32_t *ids = random_ids(BATCH * TIME, VOCABULARY);
    float *dtokens = zeros(VOCABULARY * COLUMNS, 4), *dpositions = zeros(TIME * COLUMNS, 4);
    double y[COUNT];
    trp_embedding_args forward = {.batch = BATCH,
                                  .time = TIME,
                                  .columns = COLUMNS,
                                  .vocabulary = VOCABULARY,
                                  .tokens = ids,
                                  .token_table = tokens.wide,
                                  .position_table = positions.wide,
                                  .out = y,
                                  .dtype = TRPI_F64};
    struct objective o = {forward_embedding, &forward, y, dout.wide, COUNT};
    trp_embedding_backward_args args = {.batch = BATCH,
                                        .time = TIME,
                                        .columns = COLUMNS,
                                        .vocabulary = VOCABULARY,
                                        .tokens = ids,
                                        .dout = dout.narrow,
                                        .dtoken_table_add = dtokens,
                                        .dposition_table_add = dpositions};
    assert_int_equal(trp_op_embedding_backward(device, &args, NULL), TRP_OK);
    expect_gradient("embedding tokens", &o, tokens.wide, VOCABULARY * COLUMNS, dtokens);
    expect_gradient("embedding positions", &o, positions.wide, TIME * COLUMNS, dpositions);
    free_twin(&tokens);
    free_twin(&positions);
    free_twin(&dout);
    free(ids);
    free(dtokens);
    free(dpositions);
    trp_device_close(device);
}

/* The loss is kept in fp32, too coarse for differences, so it is written out in double here. */
static double mean_loss(const double *logits, const int32_t *targets, int rows, int vocabulary) {
    double total = 0.0;
    int used = 0;
    for (int i = 0; i < rows; i++) {
        double sum = 0.0;
        for (int j = 0; j < vocabulary; j++) {
            sum += exp(logits[i * vocabulary + j]);
        }
        if (targets[i] >= 0) {
            total += log(sum) - logits[i * vocabulary + targets[i]];
            used++;
        }
    }
    return total / used;
}

static void gradient_of_cross_entropy(void **state) {
    enum { ROWS = 6, VOCABULARY = 53, COUNT = ROWS * VOCABULARY };
    trp_device *device = open_device(2, false);
    random_state = 7;
    struct twin logits = twin_of(COUNT, 3.0);
    int32_t targets[ROWS] = {0, 52, 17, -100, 5, 5};
    float losses[ROWS], dlogits[COUNT], want[COUNT];
    trp_xent_args args = {.rows = ROWS,
                          .vocabulary = VOCABULARY,
                          .logits = logits.narrow,
                          .targets = targets,
                          .losses = losses,
                          .dlogits = dlogits,
                          .scale = 1.0f / (ROWS - 1),
                          .ignore_index = -100};
    assert_int_equal(trp_op_xent(device, &args, NULL), TRP_OK);
    const double h = 1e-4;
    for (int i = 0; i < COUNT; i++) {
        double kept = logits.wide[i];
        logits.wide[i] = kept + h;
        double above = mean_loss(logits.wide, targets, ROWS, VOCABULARY);
        logits.wide[i] = kept - h;
        double below = mean_loss(logits.wide, targets, ROWS, VOCABULARY);
        logits.wide[i] = kept;
        want[i] = (float)((above - below) / (2.0 * h));
    }
    expect_close("xent", dlogits, want, COUNT, TRP_F32, 1e-4);
    assert_true(losses[3] == 0.0f);
    free_twin(&logits);
    trp_device_close(device);
}

/* A linear layer y = x w^T + b, differentiated with the two products and the sum that a model uses.
 */
static void gradient_of_a_linear_layer(void **state) {
    enum { ROWS = 9, IN = 7, OUT = 5 };
    trp_device *device = open_device(2, false);
    random_state = 8;
    struct twin x = twin_of(ROWS * IN, 1.0), w = twin_of(OUT * IN, 1.0), b = twin_of(OUT, 1.0),
                dy = twin_of(ROWS * OUT, 1.0);
    double y[ROWS * OUT];
    float dx[ROWS * IN], *dw = zeros(OUT * IN, 4), *db = zeros(OUT, 4);
    trp_matmul_args forward = {.m = ROWS,
                               .n = OUT,
                               .k = IN,
                               .a = x.wide,
                               .b = w.wide,
                               .trans_b = true,
                               .c = y,
                               .bias = b.wide,
                               .dtype = TRPI_F64,
                               .dtype_c = TRPI_F64};
    struct objective o = {forward_matmul, &forward, y, dy.wide, ROWS * OUT};
    trp_matmul_args to_x = {.m = ROWS, .n = IN, .k = OUT, .a = dy.narrow, .b = w.narrow, .c = dx};
    trp_matmul_args to_w = {.m = OUT,
                            .n = IN,
                            .k = ROWS,
                            .a = dy.narrow,
                            .trans_a = true,
                            .b = x.narrow,
                            .c = dw,
                            .accumulate = true};
    trp_column_sum_args to_b = {.rows = ROWS, .columns = OUT, .x = dy.narrow, .out_add = db};
    assert_int_equal(trp_op_matmul(device, &to_x, NULL), TRP_OK);
    assert_int_equal(trp_op_matmul(device, &to_w, NULL), TRP_OK);
    assert_int_equal(trp_op_column_sum(device, &to_b, NULL), TRP_OK);
    expect_gradient("linear dx", &o, x.wide, ROWS * IN, dx);
    expect_gradient("linear dw", &o, w.wide, OUT * IN, dw);
    expect_gradient("linear db", &o, b.wide, OUT, db);
    free_twin(&x);
    free_twin(&w);
    free_twin(&b);
    free_twin(&dy);
    free(dw);
    free(db);
    trp_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_of_gelu),          cmocka_unit_test(gradient_of_tanh),
        cmocka_unit_test(gradient_of_dropout),       cmocka_unit_test(gradient_of_layernorm),
        cmocka_unit_test(gradient_of_attention),     cmocka_unit_test(gradient_of_embedding),
        cmocka_unit_test(gradient_of_cross_entropy), cmocka_unit_test(gradient_of_a_linear_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
