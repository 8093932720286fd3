/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include <fcntl.h>
#include <signal.h>

#include "lib/lib.h"
#include "lib/unit.h"

/* What CUDA programs see of their limit, whichever way they get the driver's functions. */

static struct pod pod;

static void begin(void)
{
    pod_begin(&pod);
}

static void end(void)
{
    pod_end(&pod);
}

/* Each way to each function, in programs of glibc and of musl. */
static const struct {
    const char *guest, *way;
} ways[] = {
    {"guest", "dlsym"},          {"guest", "default"},       {"guest", "proc"},
    {"guest", "proc2"},          {"guest", "ptsz"},          {"guest-link", "link"},
    {"guest-link", "next"},      {"guest-link", "proc2"},    {"musl/guest", "dlsym"},
    {"musl/guest", "default"},   {"musl/guest", "ptsz"},     {"musl/guest-link", "link"},
    {"musl/guest-link", "next"}, {"guest", "deep"},          {"guest", "space"},
    {"guest", "vsym"},           {"musl/guest", "deep"},     {"guest", "lib-dlsym"},
    {"guest", "lib-dlvsym"},     {"musl/guest", "lib-dlsym"}};

static bool is_built(const char *guest)
{
    if (strncmp(guest, "musl/", strlen("musl/")) != 0 || pod_has_musl())
        return true;
    puts("measured: skipped: there is no musl-gcc");
    return false;
}

TEST(every_way_to_allocate_is_limited_and_counted_once)
{
    array_items(c, ways)
        if (is_built(c->guest))
            pod_run(&pod, c->guest, "cases", c->way, "", 0);
    ck_assert_uint_eq(pod.state->reasons, 0);
    ck_assert_uint_gt(pod.state->refused, 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(addresses_of_cuGetProcAddress_that_are_not_exported_are_replaced)
{
    setenv("FAKE_CUDA_ALIAS", "1", 1);
    pod_run(&pod, "guest", "cases", "proc", "", 0);
    pod_run(&pod, "guest", "cases", "ptsz", "", 0);
    ck_assert_uint_eq(pod.state->reasons, 0);
}

TEST(a_program_sees_a_card_of_its_size)
{
    pod_run(&pod, "guest", "info", "dlsym", "", 0);
    pod_run(&pod, "guest-link", "info", "link", "", 0);
    pod_run(&pod, "guest", "all", "proc2", "", 0);
    if (is_built("musl/guest"))
        pod_run(&pod, "musl/guest", "info", "dlsym", "", 0);
}

TEST(a_child_counts_for_itself)
{
    if (!pod_wipes_on_fork())
        return;
    pod_run(&pod, "guest", "fork", "dlsym", "", 0);
    if (is_built("musl/guest"))
        pod_run(&pod, "musl/guest", "fork", "dlsym", "", 0);
}

/* 64 MiB, of which 30 and a context are held: 20 fit, 30 do not. */
TEST(processes_share_the_limit_until_they_are_killed)
{
    struct program other;
    pod_start(&pod, &other, "guest", "hold", "dlsym", "30");
    ck_assert(program_wait_output(&other, "held"));
    pod_run(&pod, "guest", "more", "dlsym", "30", 2);
    pod_run(&pod, "guest", "more", "dlsym", "20", 0);
    program_kill(&other);
    pod_run(&pod, "guest", "more", "dlsym", "60", 0);
}

static bool first_slot_is_free(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    cleanup_free char *path = temp_path(pod.dir, "state/0");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &lock), 0);
    close(fd);
    return lock.l_type == F_UNLCK;
}

/* The slot outlives no process, although nobody outside the namespace knows its pid. */
TEST(processes_of_several_pid_namespaces_share_the_limit)
{
    struct program other;
    if (!pod_can_start_apart()) {
        puts("measured: skipped: no right to make a pid namespace");
        return;
    }
    pod_start_apart(&pod, &other, "hold", "30");
    ck_assert(program_wait_output(&other, "held"));
    ck_assert_uint_eq(pod.state->slots[0].pid, 1);
    pod_run(&pod, "guest", "more", "dlsym", "30", 2);
    pod_run(&pod, "guest", "more", "dlsym", "20", 0);
    ck_assert(!first_slot_is_free());
    program_kill(&other); /* unshare, and then the kernel kills its child */
    lib_wait(first_slot_is_free());
    pod_run(&pod, "guest", "all", "dlsym", "", 0);
}

TEST(a_change_of_the_limit_holds_at_once)
{
    struct program other;
    pod_start(&pod, &other, "guest", "hold", "dlsym", "10");
    ck_assert(program_wait_output(&other, "held"));
    pod_run(&pod, "guest", "more", "dlsym", "80", 2);
    __atomic_store_n(&pod.limit->limit, (uint64_t)100 << 20, __ATOMIC_SEQ_CST);
    pod_run(&pod, "guest", "more", "dlsym", "80", 0);
    __atomic_store_n(&pod.limit->limit, (uint64_t)12 << 20, __ATOMIC_SEQ_CST);
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
    __atomic_store_n(&pod.limit->limit, LIMIT_NONE, __ATOMIC_SEQ_CST);
    pod_run(&pod, "guest", "more", "dlsym", "128", 0);
    program_kill(&other);
}

TEST(a_program_without_cuda_takes_no_slot)
{
    pod_run(&pod, "guest", "none", "", "", 0);
    ck_assert_uint_eq(pod.state->high, 0);
}

TEST(without_a_folder_nothing_is_limited)
{
    cleanup_free char *folder = temp_path(pod.dir, "limit");
    temp_remove(pod.dir, "limit/0");
    ck_assert_int_eq(rmdir(folder), 0);
    pod_run(&pod, "guest", "unlimited", "dlsym", "", 0);
    pod_run(&pod, "guest-link", "unlimited", "link", "", 0);
}

TEST(a_limit_without_a_uuid_is_that_of_any_card)
{
    memset(pod.limit->uuid, 0, sizeof pod.limit->uuid);
    pod_run(&pod, "guest", "all", "proc2", "", 0);
}

/* -- A pod can write anything into its state -- */

/* The slots have no owner, so what they say is dropped. */
TEST(a_foreign_state_breaks_no_program)
{
    static const unsigned bytes[] = {0x00, 0xff, 0x7f, 0x80, 0x01};
    array_items(byte, bytes) {
        memset(pod.state->slots, (int)*byte, sizeof pod.state->slots);
        pod_run(&pod, "guest", "all", "dlsym", "", 0);
        memset(pod.state->slots, (int)*byte, sizeof pod.state->slots);
        pod_run(&pod, "guest", "info", "dlsym", "", 0);
    }
}

static bool is_high_low(struct program *other)
{
    program_signal(other, SIGUSR1); /* it allocates */
    return __atomic_load_n(&pod.state->high, __ATOMIC_SEQ_CST) == 1;
}

/* Slots of processes that were there cost nothing: the next process, and one that lives, see that they
 * are not used. */
TEST(slots_of_ended_processes_are_not_looked_at)
{
    struct program other;
    pod.state->high = LIMIT_SLOTS;
    pod_start(&pod, &other, "guest", "again", "dlsym", "10");
    ck_assert(program_wait_output(&other, "held"));
    ck_assert_uint_eq(pod.state->high, 1);
    pod.state->high = LIMIT_SLOTS;
    lib_wait(is_high_low(&other));
    program_kill(&other);
}

/* -- make bench-limit -- */

/* The aims: of an allocation and its free, beyond the direct calls; of cuMemGetInfo beside
 * OTHERS; and what MANY of what a process holds cost, as a multiple of what ten do. */
enum { PAIR_NS = 90, INFO_NS = 1000, OTHERS = 60, MANY = 10000, TIMES = 2 };

static void run_bench(bool limited, const char *what, const char *n, double *out,
                      int count)
{
    struct program guest;
    cleanup_free char *program = program_path("test/limit/guest/guest");
    cleanup_free char *cuda = program_path("fake-cuda");
    struct buf path = {0}, preload = {0};
    buf_printf(&path, "LD_LIBRARY_PATH=%s", cuda);
    buf_printf(&preload, "LD_PRELOAD=%s/libgpushare-limit.so",
               limited ? pod.dir : "/nonexistent");
    program_start(&guest, pod.dir,
                  limited ? ARGV("env", path.p, preload.p, program, what, "proc2", n)
                          : ARGV("env", path.p, program, what, "proc2", n));
    ck_assert_int_eq(program_wait(&guest), 0);
    char *text = (char *)program_output(&guest);
    for (int i = 0; i < count; i++) {
        double ns = strtod(text, &text);
        ck_assert(ns > 0);
        out[i] = ns < out[i] ? ns : out[i];
    }
    program_fini(&guest);
    free(path.p);
    free(preload.p);
}

/* The best of several runs, in turn: other programs of the machine only make a run slower. */
TEST(the_cost_of_an_allocation)
{
    if (!getenv("LIMIT_BENCH"))
        return;
    double without = 1e18, with = 1e18;
    for (int i = 0; i < 9; i++) {
        run_bench(false, "bench", "", &without, 1);
        pod.state->high = LIMIT_SLOTS; /* as many processes were there */
        run_bench(true, "bench", "", &with, 1);
    }
    printf("measured: cuMemAlloc and cuMemFree: %.0f ns with the driver without a card, "
           "%.0f ns with the limit: "
           "%.0f ns more for each call, ratio %.2f\n",
           without, with, (with - without) / 2, with / without);
    ck_assert_msg(with - without <= PAIR_NS, "more than %d ns for both", PAIR_NS);
}

/* Beside other processes, with few and many mappings and pointers. */
TEST(the_cost_of_many)
{
    static const char *const calls[] = {"cuMemMap and cuMemUnmap", "cuStreamSynchronize",
                                        "cuMemGetInfo"};
    enum { CALLS = ARRAY_LEN(calls) };
    const int sizes[] = {10, MANY};
    double without[2][CALLS], with[2][CALLS];
    struct program others[OTHERS];
    if (!getenv("LIMIT_BENCH"))
        return;
    pod.limit->limit = pod.books->watch = 4ull << 30;
    for (int i = 0; i < OTHERS; i++) {
        pod_start(&pod, &others[i], "guest", "hold", "dlsym", "1");
        ck_assert(program_wait_output(&others[i], "held"));
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < CALLS; i++)
            without[k][i] = with[k][i] = 1e18;
    for (int i = 0; i < 18; i++) {
        cleanup_free char *n = xasprintf("%d", sizes[i % 2]);
        run_bench(false, "costs", n, without[i % 2], CALLS);
        run_bench(true, "costs", n, with[i % 2], CALLS);
    }
    for (int i = 0; i < OTHERS; i++)
        program_kill(&others[i]);
    for (int i = 0; i < CALLS; i++) {
        double few = with[0][i] - without[0][i], many = with[1][i] - without[1][i];
        printf("measured: %s beside %d processes: %.0f ns with %d mappings and pointers, "
               "%.0f with %d; %.0f and %.0f more than without the limit\n",
               calls[i], OTHERS, with[0][i], sizes[0], with[1][i], MANY, few, many);
    }
    for (int i = 0; i < CALLS - 1; i++) {
        double few = with[0][i] - without[0][i], many = with[1][i] - without[1][i];
        ck_assert_msg(many <= TIMES * few, "%s: more than %d times", calls[i], TIMES);
    }
    ck_assert_msg(with[1][CALLS - 1] <= INFO_NS, "cuMemGetInfo: more than %d ns",
                  INFO_NS);
}

UNIT_MAIN_WITH(300, .begin = begin, .end = end)
