/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include <signal.h>

#include "lib/lib.h"
#include "lib/unit.h"

/*
 * Processes of 8 threads allocate and free all the time, and are killed with SIGKILL at random,
 * while the driver keeps its own books. RACE_SECONDS: the time of `make race-limit`, with 64
 * processes; otherwise 6 processes and 25 kills.
 */

enum { MANY = 64, FEW = 6, KILLS = 25 };

static void race(const char *chunk_mib, uint64_t limit_mib)
{
    struct pod pod;
    struct program guests[MANY];
    char seed[16];
    const char *seconds = getenv("RACE_SECONDS");
    int n = seconds ? MANY : FEW, kills = 0;
    int64_t until = seconds ? lib_now_ms() + strtol(seconds, NULL, 10) * 1000 : 0;
    setenv("FAKE_CUDA_CHUNK_MIB", chunk_mib, 1);
    pod_begin(&pod);
    pod.limit->limit = pod.books->watch = limit_mib << 20;
    for (int i = 0; i < n; i++) {
        snprintf(seed, sizeof seed, "%d", i);
        pod_start(&pod, &guests[i], "guest", "race", "dlsym", seed);
    }
    lib_wait(pod.books->peak > pod.limit->limit / 2 && pod.state->refused > 0);
    while (seconds ? lib_now_ms() < until : kills < KILLS) {
        int i = rand() % n;
        ck_assert_msg(program_runs(&guests[i]), "a guest ended: %s",
                      program_output(&guests[i]));
        program_kill(&guests[i]);
        snprintf(seed, sizeof seed, "%d", n + kills++);
        pod_start(&pod, &guests[i], "guest", "race", "dlsym", seed);
        lib_pause();
    }
    for (int i = 0; i < n; i++)
        program_kill(&guests[i]);
    printf(
        "measured: %d processes of 8 threads, chunks of %s MiB, %d killed: at most %llu "
        "of %llu KiB, %llu refused\n",
        n, chunk_mib, kills, pod.books->peak >> 10,
        (unsigned long long)pod.limit->limit >> 10,
        (unsigned long long)pod.state->refused);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
    pod.limit->limit = (uint64_t)POD_LIMIT_MIB << 20;
    pod_run(&pod, "guest", "all", "dlsym", "", 0); /* all is reclaimed */
    pod_end(&pod);
    unsetenv("FAKE_CUDA_CHUNK_MIB");
}

TEST(processes_never_exceed_the_limit_and_leave_nothing)
{
    race("2", POD_LIMIT_MIB);
}

/* As today's drivers: processes whose pools grow by 32 MiB at a time. */
TEST(processes_never_exceed_the_limit_by_a_chunk)
{
    race("32", 32ull * (getenv("RACE_SECONDS") ? MANY : FEW));
}

/* Free memory of a pool is used by one thread at a time. */
TEST(threads_share_a_pool_within_the_limit)
{
    struct pod pod;
    pod_begin(&pod);
    pod_run(&pod, "guest", "room", "dlsym", "", 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
    pod_end(&pod);
}

UNIT_MAIN(600)
