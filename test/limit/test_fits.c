/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include "lib/lib.h"
#include "lib/unit.h"

/*
 * Legal uses that have room in the limit, none of which is refused or counts for longer than it
 * lasts. The driver keeps books of its own on what it gave.
 */

static struct pod pod;
enum { MIB = 1 << 20 };

static void begin(void)
{
    pod_begin(&pod);
}

static void end(void)
{
    pod_end(&pod);
}

static void run(const char *what)
{
    pod_run(&pod, "guest", what, "dlsym", "", 0);
    pod_run(&pod, "guest-link", what, "link", "", 0);
    pod_run(&pod, "guest", what, "proc2", "", 0);
    if (pod_has_musl())
        pod_run(&pod, "musl/guest", what, "dlsym", "", 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(a_context_ends_when_it_is_detached)
{
    run("detach");
}

TEST(contexts_of_graphics_count)
{
    run("graphics");
}

TEST(a_graph_that_moved_ends_with_its_parent)
{
    run("child");
}

TEST(graphs_in_one_stream_share_memory)
{
    run("graphs");
}

TEST(graphs_that_keep_memory_do_not_share_it)
{
    run("graphs-leave");
}

TEST(long_captures_and_those_with_early_kernels_use_memory_again)
{
    run("captures");
}

TEST(captured_allocations_are_where_their_pool_is)
{
    pod_add_card(&pod);
    pod_run(&pod, "guest", "capture-pools", "dlsym", "", 0);
    pod_run(&pod, "guest-link", "capture-pools", "link", "", 0);
}

/* NVML answers in each way that it has, while a neighbor takes or frees more than the limit. */
static void beside_a_neighbor(const char *nvml, long long neighbor_mib)
{
    pod.books->entries[0].pid = getpid();
    pod.books->entries[0].used = 2000ull * MIB;
    cleanup_free char *text = xasprintf(
        "driver 535.129.03\ncuda 12020\n%scard uuid=" POD_UUID
        ";name=Tesla T4;bus=3b;total=17179869184;free=17179869184;used=0;reserved=0;"
        "books=1048576\n",
        nvml);
    temp_write(pod.dir, "nvml", text);
    for (unsigned skip = 0; skip < 3;
         skip++) { /* the context, a module, another context */
        pod.books->neighbor_once = 1;
        pod.books->neighbor_skip = skip;
        pod.books->neighbor = (unsigned long long)(neighbor_mib * MIB);
        pod.books->peak = 0;
        pod.state->refused = 0;
        pod_run(&pod, "guest", "beside", "dlsym", "", 0);
        ck_assert_uint_eq(pod.state->refused, 0);
        ck_assert_uint_eq(pod.books->neighbor, 0);
    }
}

#define NO_LIST                                                                          \
    "fail nvmlDeviceGetComputeRunningProcesses_v2 3\n"                                   \
    "fail nvmlDeviceGetComputeRunningProcesses_v3 3\n"

TEST(what_a_neighbor_takes_is_not_of_a_context_or_module)
{
    beside_a_neighbor("", 1500);
    beside_a_neighbor(NO_LIST, 1500);
    beside_a_neighbor("fail nvmlDeviceGetMemoryInfo 3\n", 1500);
    beside_a_neighbor("fail nvmlInit_v2 9\n", 1500);
}

TEST(what_another_thread_allocates_is_not_of_a_context)
{
    setenv("FAKE_CUDA_SLOW_MIB", "20", 1);
    run("in-flight");
    unsetenv("FAKE_CUDA_SLOW_MIB");
}

TEST(memory_does_not_wait_for_a_context_that_ends)
{
    setenv("FAKE_CUDA_DESTROY_WAITS", "1", 1);
    run("destroy-waits");
    unsetenv("FAKE_CUDA_DESTROY_WAITS");
}

TEST(a_module_does_not_wait_for_a_free_that_waits)
{
    setenv("FAKE_CUDA_FREE_WAITS", "1", 1);
    run("free-waits");
    unsetenv("FAKE_CUDA_FREE_WAITS");
}

UNIT_MAIN_WITH(300, .begin = begin, .end = end)
