/* messages.c: a layout for every struct of messages.def. Each is made inside a function, where
 * `self` names the struct that the field macros need but are not told. */
#include "trainer/run/messages.h"

/* clang-format off */
#define FIELD(kind_, n) {.name = #n, .kind = TRPI_FIELD_##kind_, .offset = offsetof(self, n)},
#define U64(n)  FIELD(U64, n)
#define I64(n)  FIELD(I64, n)
#define F64(n)  FIELD(F64, n)
#define BOOL(n) FIELD(BOOL, n)
#define STR(n)  FIELD(STR, n)
#define BIN(n)  FIELD(BIN, n)
#define LIST(type, n)                                                                              \
    {.name = #n, .kind = TRPI_FIELD_LIST, .offset = offsetof(self, n),                             \
     .count_offset = offsetof(self, n##_count), .element = layout_of_##type},
#define STRUCT(type)                                                                               \
    static const trpi_layout *layout_of_##type(void) {                                             \
        typedef trpi_run_##type self;                                                              \
        static const trpi_field fields[] = {
#define END_STRUCT(type)                                                                           \
        };                                                                                         \
        static const trpi_layout layout = {#type, sizeof(self), fields, TRPI_COUNTOF(fields)};     \
        return &layout;                                                                            \
    }
#define MESSAGE(type)     STRUCT(type)
#define END_MESSAGE(type)                                                                          \
    END_STRUCT(type)                                                                               \
    trp_code trpi_pack_##type(const trpi_run_##type *message, trp_buf *out, trp_error *err) {      \
        return trpi_pack(layout_of_##type(), message, out, err);                                   \
    }                                                                                              \
    trp_code trpi_unpack_##type(trp_bytes bytes, trpi_arena *arena, trpi_run_##type *ret_message,  \
                                trp_error *err) {                                                  \
        return trpi_unpack(layout_of_##type(), bytes, arena, ret_message, err);                    \
    }
/* clang-format on */
#include "trainer/run/messages.def"
