/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include <signal.h>

#include "base/file.h"
#include "lib/lib.h"
#include "lib/unit.h"

/*
 * The programs of test_closed.c, test_fits.c and test_preload.c under the driver's own limit, without
 * the library: a program sees a card of that size, however it gets the driver's functions. Managed
 * memory is the exception, and is seen.
 */

static struct pod pod;
enum { MIB = 1 << 20, ROOMY_MIB = 256 };
#define LEAF "cgroup/pod/c"
#define POD  "cgroup/pod"

static void begin(void)
{
    pod_begin(&pod);
    pod_limit_by_driver(&pod, LEAF, POD_LIMIT_MIB);
}

static void end(void)
{
    pod_end(&pod);
}

/* What the stand-in of the driver, and a card, do otherwise than the library. */
#define NODES                                                                            \
    "the driver takes the memory of a graph at its launch, the library at the node"
#define KEEPS    "a pool or graph keeps what was freed, as on a card of this size"
#define EXPORTER "the stand-in forgets memory whose maker has ended"

static const struct row {
    const char *what, *n;
    const char
        *otherwise;      /* why the program fails, which expects the library's answers */
    const char *refuses; /* FAKE_CUDA_REFUSES */
    bool counts;         /* only what is left of the card is another number */
    bool managed;        /* more than the limit */
    bool
        apart; /* uses card 1, which has no size but its limit; or counts ended children */
} rows[] = {
    {.what = "case", .n = "cuMemAlloc_v2"},
    {.what = "case", .n = "cuMemAlloc_v2, cuMemFreeAsync"},
    {.what = "case",
     .n = "cuMemAllocManaged",
     .otherwise = "it is not limited",
     .managed = true},
    {.what = "case", .n = "cuMemAllocPitch_v2"},
    {.what = "case", .n = "cuMemAllocAsync"},
    {.what = "case", .n = "cuMemAllocAsync_ptsz"},
    {.what = "case", .n = "cuMemAllocAsync, cuMemFree", .otherwise = KEEPS},
    {.what = "case", .n = "cuMemAllocFromPoolAsync"},
    {.what = "case", .n = "cuMemAllocFromPoolAsync_ptsz"},
    {.what = "case", .n = "cuMemPoolDestroy"},
    {.what = "case", .n = "cuMemCreate"},
    {.what = "case", .n = "cuMemMap"},
    {.what = "case", .n = "cuArrayCreate_v2"},
    {.what = "case", .n = "cuArray3DCreate_v2"},
    {.what = "case", .n = "cuMipmappedArrayCreate"},
    {.what = "case", .n = "cuGraphAddMemAllocNode", .otherwise = KEEPS},
    {.what = "case", .n = "cuGraphAddNode"},
    {.what = "case", .n = "cuGraphAddNode_v2", .otherwise = KEEPS},
    {.what = "case", .n = "cuMemAllocAsync, captured"},
    {.what = "case", .n = "not counted"},
    {.what = "case", .n = "contexts"},
    {.what = "early"},
    {.what = "files", .otherwise = "the driver needs no descriptor"},
    {.what = "green"},
    {.what = "references"},
    {.what = "peaks", .otherwise = NODES},
    {.what = "formats"},
    {.what = "future"},
    {.what = "streams", .apart = true},
    {.what = "second", .apart = true},
    {.what = "settings"},
    {.what = "modules"},
    {.what = "loads"},
    {.what = "module-beside"},
    {.what = "launches"},
    {.what = "green-stream", .apart = true},
    {.what = "lack", .refuses = "cuCtxGetLimit"},
    {.what = "lack", .refuses = "cuDeviceGetAttribute"},
    {.what = "lack", .refuses = "cuMemGetAllocationPropertiesFromHandle"},
    {.what = "lack", .refuses = "cuMemGetInfo_v2"},
    {.what = "lack", .refuses = "cuMemPoolGetAttribute"},
    {.what = "lack", .refuses = "cuStreamGetCaptureInfo_v3"},
    {.what = "orphan", .otherwise = EXPORTER},
    {.what = "orphan-beside", .otherwise = EXPORTER},
    {.what = "detach"},
    {.what = "graphics"},
    {.what = "child", .counts = true},
    {.what = "graphs", .counts = true},
    {.what = "graphs-leave", .otherwise = NODES},
    {.what = "captures", .counts = true},
    {.what = "capture-pools", .otherwise = NODES, .apart = true},
    {.what = "beside"},
    {.what = "second-context"},
    {.what = "in-flight"},
    {.what = "fork", .apart = true},
    {.what = "room", .otherwise = KEEPS},
    {.what = "all", .otherwise = "sizes that overflow are invalid"},
    {.what = "unlimited", .otherwise = "functions before CUDA 3.2 are not refused"},
    {.what = "more", .n = "60"},
};

static const struct {
    const char *guest, *way;
} ways[] = {{"guest", "dlsym"},         {"guest", "proc2"},     {"guest", "ptsz"},
            {"guest", "deep"},          {"guest", "lib-dlsym"}, {"guest-link", "link"},
            {"guest-link", "next"},     {"static", "link"},     {"musl/guest", "dlsym"},
            {"musl/guest-link", "link"}};

static bool is_built(const char *guest)
{
    cleanup_free char *relative = xasprintf("test/limit/guest/%s", guest);
    cleanup_free char *path = program_path(relative);
    return access(path, X_OK) == 0;
}

/* Its exit status, and what it said. */
static int run(const struct row *r, size_t way, char **said)
{
    struct program guest;
    pod.books->peak = 0;
    if (r->refuses)
        setenv("FAKE_CUDA_REFUSES", r->refuses, 1);
    if (r->counts)
        setenv("GUEST_COUNTS_OTHERWISE", "1", 1);
    pod_start(&pod, &guest, ways[way].guest, r->what, ways[way].way, r->n ? r->n : "");
    unsetenv("FAKE_CUDA_REFUSES");
    unsetenv("GUEST_COUNTS_OTHERWISE");
    int status = program_wait(&guest);
    *said = xstrdup(program_output(&guest));
    program_fini(&guest);
    return status;
}

TEST(every_program_is_held)
{
    array_items(r, rows)
        array_indices(way, ways) {
            cleanup_free char *said = NULL;
            if (!is_built(ways[way].guest))
                continue;
            int status = run(r, way, &said);
            ck_assert_msg(status == (r->otherwise ? 1 : 0), "%s %s %s %s: %d: %s",
                          ways[way].guest, ways[way].way, r->what, r->n ? r->n : "",
                          status, said);
            bool more = pod.books->peak > POD_LIMIT_MIB * (uint64_t)MIB;
            ck_assert_msg(more == r->managed, "%s %s: %llu MiB", r->what, r->n,
                          pod.books->peak / MIB);
        }
}

/* What is refused is what a card of this size refuses: no legal use is. */
TEST(a_limit_is_a_card_of_this_size)
{
    array_items(r, rows) {
        cleanup_free char *limited = NULL, *small = NULL;
        if (r->apart || r->managed)
            continue;
        int status = run(r, 0, &limited);
        pod.books->capacity = POD_LIMIT_MIB * (uint64_t)MIB;
        pod_limit_by_driver(&pod, LEAF, ROOMY_MIB);
        int alone = run(r, 0, &small);
        pod.books->capacity = 1ull << 40;
        pod_limit_by_driver(&pod, LEAF, POD_LIMIT_MIB);
        ck_assert_msg(status == alone && !strcmp(limited, small), "%s %s: %d %s%d %s",
                      r->what, r->n, status, limited, alone, small);
    }
}

/* -- Managed memory is not limited, and is seen -- */

static int64_t listed_mib(void)
{
    cleanup_gpu_sample struct gpu_sample sample = {0};
    struct gpu *gpu = pod_open_nvml(&pod);
    struct err err = {0};
    int64_t sum = 0;
    ck_assert_done(gpu_sample(gpu, &sample, &err), err);
    for (size_t i = 0; i < sample.cards[0].n_processes; i++)
        sum += sample.cards[0].processes[i].bytes;
    pod_close_nvml(gpu);
    return sum / MIB;
}

TEST(managed_memory_is_beyond_the_limit_and_in_the_list_of_processes)
{
    static const char *const guests[][2] = {{"guest", "dlsym"}, {"static", "link"}};
    array_items(guest, guests) {
        struct program managed;
        if (!is_built((*guest)[0]))
            continue;
        pod_start(&pod, &managed, (*guest)[0], "managed", (*guest)[1], "100");
        ck_assert(program_wait_output(&managed, "held"));
        ck_assert_uint_eq(pod_driver_limit(&pod, LEAF).used, FAKE_CONTEXT);
        ck_assert_int_eq(listed_mib(), 104);
        program_kill(&managed);
        ck_assert_uint_eq(pod_driver_limit(&pod, LEAF).used, 0);
    }
}

/* -- Who shares a limit -- */

TEST(processes_of_a_cgroup_share_its_limit)
{
    struct program other;
    pod_start(&pod, &other, "static", "hold", "link", "30");
    ck_assert(program_wait_output(&other, "held"));
    ck_assert_uint_eq(pod_driver_limit(&pod, LEAF).used, 34 * MIB);
    pod_run(&pod, "guest", "more", "dlsym", "30", 2);
    pod_run(&pod, "static", "more", "link", "30", 2);
    pod_run(&pod, "static", "more", "link", "20", 0);
    program_kill(&other);
    pod_run(&pod, "guest", "more", "dlsym", "60", 0);
}

TEST(a_limit_of_a_parent_holds_too)
{
    pod_limit_by_driver(&pod, LEAF, ROOMY_MIB);
    pod_limit_by_driver(&pod, POD, POD_LIMIT_MIB);
    pod_run(&pod, "guest", "more", "dlsym", "61", 2);
    pod_run(&pod, "static", "more", "link", "61", 2);
    pod_run(&pod, "guest", "more", "dlsym", "60", 0);
    ck_assert_uint_eq(pod_driver_limit(&pod, POD).hard, POD_LIMIT_MIB * (uint64_t)MIB);
}

TEST(a_change_holds_at_once)
{
    struct program other;
    pod_start(&pod, &other, "guest", "again", "dlsym", "40");
    ck_assert(program_wait_output(&other, "held"));
    pod_limit_by_driver(&pod, LEAF, 20); /* below what is used */
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
    program_signal(&other, SIGUSR1);
    ck_assert(program_wait_output(&other, "refused"));
    pod_limit_by_driver(&pod, LEAF, ROOMY_MIB);
    pod_run(&pod, "guest", "more", "dlsym", "200", 0);
    program_signal(&other, SIGUSR1);
    ck_assert(program_wait_output(&other, "allocated"));
    program_kill(&other);
}

TEST(tensor_parallel_processes_share_what_they_share)
{
    static const char *const sizes[] = {"2", "4", "8"};
    pod_limit_by_driver(&pod, LEAF, ROOMY_MIB);
    array_items(size, sizes)
        pod_run(&pod, "guest", "tensor", "dlsym", *size, 0);
    pod_run(&pod, "guest-link", "tensor", "link", "4", 0);
    ck_assert_uint_le(pod.books->peak, ROOMY_MIB * (uint64_t)MIB);
}

/* -- What stops the library does not stop the driver -- */

TEST(contexts_count_as_the_driver_makes_them)
{
    setenv("FAKE_CUDA_CONTEXT_MIB", "65", 1);
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
    pod_run(&pod, "static", "more", "link", "1", 2);
    unsetenv("FAKE_CUDA_CONTEXT_MIB");
}

TEST(what_the_kernel_denies_changes_nothing)
{
    static const char *const calls[] = {"28" /* madvise */, "72" /* fcntl */};
    array_items(call, calls)
        pod_run(&pod, "guest-link", "without", "link", *call, 2);
    ck_assert_uint_eq(pod.books->peak, FAKE_CONTEXT);
}

TEST(another_root_changes_nothing)
{
    struct program guest;
    temp_mkdir(pod.dir, "root");
    cleanup_free char *root = temp_path(pod.dir, "root");
    pod_start(&pod, &guest, "guest-link", "chroot", "link", root);
    int status = program_wait(&guest);
    ck_assert_msg(status == 2 || status == 77, "%d: %s", status, program_output(&guest));
    program_fini(&guest);
    ck_assert_uint_le(pod.books->peak, FAKE_CONTEXT);
}

TEST(what_waits_for_another_thread_is_not_refused)
{
    setenv("FAKE_CUDA_DESTROY_WAITS", "1", 1);
    pod_run(&pod, "guest", "destroy-waits", "dlsym", "", 0);
    unsetenv("FAKE_CUDA_DESTROY_WAITS");
    setenv("FAKE_CUDA_FREE_WAITS", "1", 1);
    pod_run(&pod, "guest", "free-waits", "dlsym", "", 0);
    unsetenv("FAKE_CUDA_FREE_WAITS");
}

TEST(a_second_copy_of_the_driver_has_the_same_limit)
{
    cleanup_free char *copy = temp_path(pod.dir, "libcuda-copy.so");
    cleanup_free char *driver = program_path("fake-cuda/libcuda.so.1");
    cleanup_buf struct buf bytes = {0};
    struct err err;
    ck_assert_done(file_read(driver, 1 << 24, &bytes, &err), err);
    ck_assert_done(file_write(copy, buf_span(&bytes), &err), err);
    setenv("GUEST_COPY", copy, 1);
    pod_run(&pod, "guest", "more", "copy", "61", 2);
    pod_run(&pod, "guest", "more", "copy", "60", 0);
    unsetenv("GUEST_COPY");
}

TEST(threads_and_children_stay_within_the_limit)
{
    enum { GUESTS = 4 };
    struct program guests[GUESTS];
    for (int i = 0; i < GUESTS; i++) {
        cleanup_free char *seed = xasprintf("%d", i);
        pod_start(&pod, &guests[i], i % 2 ? "static" : "guest", "race",
                  i % 2 ? "link" : "dlsym", seed);
    }
    lib_wait(pod.books->peak > POD_LIMIT_MIB * (uint64_t)MIB * 9 / 10);
    for (int i = 0; i < GUESTS; i++)
        program_kill(&guests[i]);
    ck_assert_uint_le(pod.books->peak, POD_LIMIT_MIB * (uint64_t)MIB);
    pod_run(&pod, "guest", "more", "dlsym", "60", 0); /* nothing of the killed is left */
}

/* -- Nothing is left out -- */

/* Above, or about the files of the library. */
static const char *const elsewhere[] = {"destroy-waits", "free-waits", "shorten"};

static bool has_program(struct span name)
{
    array_items(r, rows)
        if (span_eq(name, span_of(r->what)))
            return true;
    array_items(other, elsewhere)
        if (span_eq(name, span_of(*other)))
            return true;
    return false;
}

TEST(each_program_of_the_other_tests_is_here)
{
    static const char *const files[] = {"attack.c", "fits.c"};
    size_t n = 0;
    array_items(file, files) {
        cleanup_free char *path = xasprintf("test/limit/guest/%s", *file);
        cleanup_buf struct buf text = {0};
        struct err err;
        ck_assert_done(file_read(path, 1 << 20, &text, &err), err);
        /* Lines as `{"green", green},` of their tables. */
        for (struct span rest = buf_span(&text); rest.n;) {
            struct span line = span_cut(&rest, '\n');
            const char *at = memchr(line.p, '{', line.n);
            if (!at || at + 1 >= line.p + line.n || at[1] != '"')
                continue;
            struct span name = {at + 2, (size_t)(line.p + line.n - at - 2)};
            struct span after = name;
            name = span_cut(&after, '"');
            if (!span_starts(after, SPAN(", ")) || span_starts(after, SPAN(", \"")))
                continue;
            n++;
            ck_assert_msg(has_program(name), "%s: %.*s", *file, SPAN_ARG(name));
        }
    }
    ck_assert_uint_ge(n, 25);
}

UNIT_MAIN_WITH(300, .begin = begin, .end = end)
