#include "core/net/stamp.h"

#define KIND_BITS 3u
#define OPEN_BIT 4u
#define GAP_BIT 8u

static unsigned char *put_u32(unsigned char *out, uint32_t number) {
    for (int i = 0; i < 4; i++) {
        *out++ = (unsigned char)(number >> (8 * i));
    }
    return out;
}

static uint32_t get_u32(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void trpi_stamp_put(unsigned char *out, const trpi_stamp *stamp) {
    *out++ = (unsigned char)(TRPI_STAMP_MARK | (unsigned)stamp->kind |
                             (stamp->is_open ? OPEN_BIT : 0) | (stamp->has_gap ? GAP_BIT : 0));
    out = put_u32(out, stamp->from);
    out = put_u32(out, stamp->to);
    out = put_u32(out, stamp->seq);
    put_u32(out, stamp->ack);
}

/* A life is not 0: only who is refused need not have one. */
bool trpi_stamp_take(trp_bytes *frame, trpi_stamp *ret_stamp) {
    const unsigned char *at = frame->data;
    if (frame->size < TRPI_STAMP_SIZE || (*at & 0xf0u) != TRPI_STAMP_MARK) {
        return false;
    }
    *ret_stamp = (trpi_stamp){.kind = (trpi_link_kind)(*at & KIND_BITS),
                              .is_open = (*at & OPEN_BIT) != 0,
                              .has_gap = (*at & GAP_BIT) != 0,
                              .from = get_u32(at + 1),
                              .to = get_u32(at + 5),
                              .seq = get_u32(at + 9),
                              .ack = get_u32(at + 13)};
    if (ret_stamp->from == 0 && ret_stamp->kind != TRPI_LINK_RESET) {
        return false;
    }
    *frame = (trp_bytes){at + TRPI_STAMP_SIZE, frame->size - TRPI_STAMP_SIZE};
    return true;
}
