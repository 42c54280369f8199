/* mask.h: dropout's mask. Every backend must keep the same elements, so it is defined here once. */
#ifndef TRPI_MASK_H
#define TRPI_MASK_H

#include <stdbool.h>
#include <stdint.h>

/* An element is dropped when its 32 random bits are below this. */
static inline uint32_t trpi_mask_threshold(float rate) {
    return (uint32_t)((double)rate * 4294967296.0);
}

/* splitmix64's output function (Steele, Lea, Flood 2014) on a counter: each position is mixed on
 * its own, so any part of a mask can be had in any order. */
static inline bool trpi_mask_keep(uint64_t seed, uint64_t position, uint32_t threshold) {
    uint64_t z = seed + (position + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32) >= threshold;
}

#endif
