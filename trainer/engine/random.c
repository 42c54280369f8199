#include "trainer/engine/random.h"

#include <math.h>

#define PI 3.14159265358979323846
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* SplitMix64 (Steele, Lea, Flood 2014): its n-th output is mix(key + n * GOLDEN). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Box, Muller 1958: two uniform numbers make two normal ones, for elements 2 * pair and the next.
 */
static void normal_pair(uint64_t key, uint64_t pair, double ret_values[2]) {
    uint64_t bits = mix(key + (pair + 1) * GOLDEN);
    double u1 = ((double)(bits >> 32) + 0.5) / 4294967296.0;
    double u2 = ((double)(bits & 0xffffffff) + 0.5) / 4294967296.0;
    double radius = sqrt(-2 * log(u1));
    ret_values[0] = radius * cos(2 * PI * u2);
    ret_values[1] = radius * sin(2 * PI * u2);
}

static void fill_normal(double std, uint64_t key, int64_t from, int64_t count, float *out) {
    for (int64_t i = from; i < from + count;) {
        double values[2];
        normal_pair(key, (uint64_t)i / 2, values);
        for (int odd = (int)(i % 2); odd < 2 && i < from + count; odd++, i++) {
            out[i - from] = (float)(std * values[odd]);
        }
    }
}

void trpi_random_init(const trp_param *param, uint64_t seed, uint64_t tensor, int64_t from,
                      int64_t count, float *out) {
    if (param->init == TRP_INIT_NORMAL) {
        fill_normal(param->std, mix(seed + (tensor + 1) * GOLDEN), from, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = param->init == TRP_INIT_ONES ? 1 : 0;
    }
}
