#include "trainer/state/checkpoint_keep.h"

static bool is_better(const trpi_keep *a, const trpi_keep *b) {
    return a->score != b->score ? a->score > b->score : a->number > b->number;
}

void trpi_keep_select(trpi_keep *entries, size_t count, size_t best) {
    for (size_t i = 0; i < count; i++) {
        size_t better = 0;
        bool latest = true;
        for (size_t j = 0; j < count; j++) {
            better += j != i && is_better(&entries[j], &entries[i]);
            latest = latest && entries[j].number <= entries[i].number;
        }
        entries[i].keep = best == 0 || better < best || latest;
    }
}
