#include "trainer/state/progress.h"

void trpi_progress_begin(trpi_progress *progress, uint64_t now_ns) {
    if (!progress->begun) {
        progress->begun = true;
        progress->begun_ns = now_ns;
        progress->furthest_ns = now_ns;
    }
}

void trpi_progress_step(trpi_progress *progress, uint64_t step, uint64_t now_ns) {
    progress->step = step;
    if (step < progress->furthest_step) {
        return;
    }
    if (progress->behind) {
        progress->lost_ns += now_ns - progress->furthest_ns;
        progress->behind = false;
    }
    progress->furthest_step = step;
    progress->furthest_ns = now_ns;
}

void trpi_progress_restart(trpi_progress *progress, uint64_t from_step) {
    if (progress->step > from_step) {
        progress->wasted_steps += progress->step - from_step;
    }
    progress->step = from_step;
    progress->behind = progress->begun;
}

void trpi_progress_end(trpi_progress *progress, uint64_t now_ns) {
    if (progress->behind) {
        progress->lost_ns += now_ns - progress->furthest_ns;
        progress->behind = false;
    }
    progress->ended = true;
    progress->ended_ns = now_ns;
}

uint64_t trpi_progress_total_ns(const trpi_progress *progress, uint64_t now_ns) {
    if (!progress->begun) {
        return 0;
    }
    return (progress->ended ? progress->ended_ns : now_ns) - progress->begun_ns;
}
