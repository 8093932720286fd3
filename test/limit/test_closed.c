/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>

#include "lib/lib.h"
#include "lib/unit.h"

/*
 * Ways to get more memory than the limit, each refused: what cannot be applied is not skipped.
 * The driver keeps books of its own on what it gave.
 */

static struct pod pod;

static void begin(void)
{
    pod_begin(&pod);
}

static void end(void)
{
    pod_end(&pod);
}

/* The guest gets no memory, and says why once. */
static void refuses(const char *name, const char *what, const char *way, const char *n,
                    const char *why)
{
    struct program guest;
    pod_start(&pod, &guest, name, what, way, n);
    cleanup_free char *said = program_end(&guest, 2);
    const char *line = strstr(said, why);
    ck_assert_msg(line && !strstr(line + 1, why), "not once \"%s\": %s", why, said);
    ck_assert_contains(said, "libgpushare-limit: GPU memory is refused: ");
    ck_assert_uint_eq(pod.books->peak, 0);
}

static uint64_t reserved(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < LIMIT_SLOTS; i++)
        sum += pod.state->slots[i].used;
    return sum;
}

/* -- What the library needs and does not find -- */

TEST(calls_before_cuInit_free_nothing)
{
    pod_run(&pod, "guest", "early", "dlsym", "", 0);
    pod_run(&pod, "guest-link", "early", "link", "", 0);
}

TEST(without_a_descriptor_memory_is_refused_until_there_is_one)
{
    pod_run(&pod, "guest-link", "files", "link", "", 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(in_another_root_memory_is_refused)
{
    struct program guest;
    temp_mkdir(pod.dir, "root");
    cleanup_free char *root = temp_path(pod.dir, "root");
    pod_start(&pod, &guest, "guest-link", "chroot", "link", root);
    int status = program_wait(&guest);
    program_fini(&guest);
    if (status == 77) {
        puts("measured: skipped: no right to chroot");
        return;
    }
    refuses("guest-link", "chroot", "link", root, "the root was changed");
}

/* As in a container: the folder of the plugin is mounted at its fixed place. */
TEST(a_copy_of_the_library_beside_forged_files_is_not_believed)
{
    struct program guest;
    struct limit_file forged = *pod.limit;
    forged.limit = 1ull << 40;
    temp_mkdir(pod.dir, "own");
    temp_mkdir(pod.dir, "own/limit");
    temp_mkdir(pod.dir, "own/state");
    temp_write_bytes(pod.dir, "own/limit/0",
                     (struct span){(const char *)&forged, sizeof forged});
    temp_write_bytes(pod.dir, "own/state/0",
                     (struct span){(const char *)pod.state, sizeof *pod.state});
    cleanup_free char *program = program_path("test/limit/guest/guest-link");
    cleanup_free char *cuda = program_path("fake-cuda");
    cleanup_free char *script = xasprintf(
        "set -e; mount -t tmpfs none /usr/local; mkdir /usr/local/gpushare; "
        "mount --bind %s /usr/local/gpushare; "
        "cp -L %s/libgpushare-limit.so %s/own/; "
        "exec env LD_LIBRARY_PATH=%s FAKE_CUDA_BOOKS=%s/books FAKE_CUDA_CONTEXT_MIB=4 "
        "LD_PRELOAD=%s/own/libgpushare-limit.so:/usr/local/gpushare/libgpushare-limit.so "
        "%s more link 100",
        pod.dir, pod.dir, pod.dir, cuda, pod.dir, pod.dir, program);
    program_start(&guest, pod.dir,
                  ARGV("unshare", geteuid() ? "-rm" : "-m", "sh", "-c", script));
    int status = program_wait(&guest);
    ck_assert_msg(status == 2, "status %d: %s", status, program_output(&guest));
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
    program_fini(&guest);
}

TEST(what_the_kernel_denies_refuses_memory)
{
    static const struct {
        long number;
        const char *why;
    } calls[] = {{SYS_madvise, "no MADV_WIPEONFORK"},
                 {SYS_fcntl, "no open file description locks"},
                 {SYS_openat, "a file of the limit cannot be opened"},
                 {SYS_mmap, "memory cannot be mapped"}};
    array_items(call, calls) {
        cleanup_free char *number = xasprintf("%ld", call->number);
        refuses("guest-link", "without", "link", number, call->why);
    }
    ck_assert_uint_eq(pod.state->reasons, LIMIT_NO_WIPE | LIMIT_NO_LOCKS);
}

/* -- Files -- */

TEST(a_limit_that_cannot_be_read_refuses_memory)
{
    pod.limit->version = LIMIT_VERSION + 1;
    refuses("guest", "more", "dlsym", "1", "the limit file is not one");
    ck_assert_uint_eq(pod.state->reasons, LIMIT_BAD_LIMIT);
    pod.limit->version = LIMIT_VERSION;
    pod.limit->closed = LIMIT_BAD_STATE;
    refuses("guest", "more", "dlsym", "1", "the state file is short or foreign");
    temp_remove(pod.dir, "limit/0");
    refuses("guest", "more", "dlsym", "1", "was not promised this card");
    temp_write(pod.dir, "limit/0", "short");
    refuses("guest", "more", "dlsym", "1", "the limit file is not one");
    temp_remove(pod.dir, "limit/0");
    temp_mkdir(pod.dir, "limit/0");
    refuses("guest", "more", "dlsym", "1", "the limit file is not one");
}

TEST(a_state_that_is_not_one_refuses_memory)
{
    const char *why = "the state file is short or foreign";
    const struct limit_state whole = *pod.state;
    uint32_t *const fields[] = {&pod.state->magic, &pod.state->version, &pod.state->high};
    array_items(field, fields) {
        **field = 1u << 20;
        refuses("guest", "more", "dlsym", "1", why);
        *pod.state = whole;
    }
    cleanup_free char *path = temp_path(pod.dir, "state/0");
    ck_assert_int_eq(truncate(path, sizeof whole - 1), 0);
    refuses("guest", "more", "dlsym", "1", why);
    temp_remove(pod.dir, "state/0");
    refuses("guest", "more", "dlsym", "1", "a file of the limit cannot be opened");
}

TEST(a_state_that_shrinks_refuses_and_kills_nobody)
{
    cleanup_free char *path = temp_path(pod.dir, "state/0");
    pod_run(&pod, "guest", "shorten", "dlsym", path, 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

/* One process finds its slot changed: nobody knows any more what the others hold. */
TEST(a_state_that_was_changed_refuses_until_the_plugin_repaired_it)
{
    struct program other;
    pod_start(&pod, &other, "guest", "again", "dlsym", "40");
    ck_assert(program_wait_output(&other, "held"));
    pod.state->slots[0].used = 0;
    program_signal(&other, SIGUSR1);
    ck_assert(program_wait_output(&other, "refused"));
    ck_assert_uint_eq(pod.state->slots[0].used, (40ull << 20) + FAKE_CONTEXT);
    ck_assert_uint_eq(pod.state->reasons, LIMIT_BAD_STATE);
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
    program_kill(&other);
}

TEST(slots_without_an_owner_count_nothing)
{
    struct program other;
    pod_start(&pod, &other, "guest", "hold", "dlsym", "40");
    ck_assert(program_wait_output(&other, "held"));
    for (size_t i = 1; i < LIMIT_SLOTS; i++)
        pod.state->slots[i].used = UINT64_MAX;
    pod.state->high = LIMIT_SLOTS;
    pod_run(&pod, "guest", "more", "dlsym", "1", 0);
    program_kill(&other);
    pod_run(&pod, "guest", "all", "dlsym", "", 0);
}

/* The next call looks for a free one again. */
TEST(without_a_slot_memory_is_refused_until_there_is_one)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = LIMIT_SLOTS};
    cleanup_free char *path = temp_path(pod.dir, "state/0");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &all), 0);
    refuses("guest", "more", "dlsym", "1", "too many processes of the pod use the card");
    ck_assert_uint_eq(pod.state->reasons, LIMIT_NO_SLOT);
    close(fd);
    pod_run(&pod, "guest", "more", "dlsym", "1", 0);
}

/* -- Cards -- */

TEST(a_card_that_was_not_promised_has_the_limit_0)
{
    refuses("guest", "second", "proc2", "", "was not promised this card");
    strcpy(pod.limit->uuid, "GPU-99999999-0405-0607-0809-0a0b0c0d0e0f");
    refuses("guest", "more", "proc2", "1", "was not promised this card");
    memset(pod.limit->uuid, 'G', sizeof pod.limit->uuid);
    refuses("guest", "more", "proc2", "1", "was not promised this card");
}

TEST(what_is_measured_outside_counts)
{
    pod.limit->extra = 20ull << 20;
    pod_run(&pod, "guest", "more", "dlsym", "41", 2);
    pod_run(&pod, "guest", "more", "dlsym", "40", 0);
    pod.limit->extra = UINT64_MAX;
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
}

/* -- What the driver takes beside allocations -- */

TEST(contexts_count_as_the_driver_makes_them)
{
    enum { N = 7, MIB = 1 << 20 };
    struct program guests[N];
    setenv("FAKE_CUDA_CONTEXT_MIB", "500", 1);
    pod.limit->context = 0;
    pod.limit->limit = pod.books->watch = 4000ull * MIB;
    for (int i = 0; i < N; i++) {
        pod_start(&pod, &guests[i], "guest", "hold", i % 2 ? "proc2" : "dlsym", "1");
        ck_assert(program_wait_output(&guests[i], "held"));
        ck_assert_uint_eq(pod.state->slots[i].context, 500ull * MIB);
    }
    pod_run(&pod, "guest", "more", "dlsym", "1", 2);
    ck_assert_uint_eq(reserved(), N * 501ull * MIB);
    program_kill(&guests[0]);
    pod_run(&pod, "guest", "more", "dlsym", "1", 0);
    pod_run(&pod, "guest", "more", "dlsym", "500", 2);
    for (int i = 1; i < N; i++)
        program_kill(&guests[i]);
    unsetenv("FAKE_CUDA_CONTEXT_MIB");
}

/* Contexts are measured exactly, whatever NVML's lists look like. */
static void measures(const char *nvml, const char *card, unsigned others)
{
    struct buf list = {0};
    for (unsigned i = 0; i < others; i++)
        buf_printf(&list, "%s%u:%u", i ? "," : ";processes=", 100 + i, 1000 * i);
    cleanup_free char *text =
        xasprintf("%scard uuid=" POD_UUID ";name=Tesla T4;bus=3b;total=17179869184;"
                  "free=17179869184;used=0;reserved=0;books=1048576%s%s\n",
                  nvml, card, list.p ? list.p : "");
    temp_write(pod.dir, "nvml", text);
    free(list.p);
    pod.limit->context = 0;
    pod_run(&pod, "guest", "second-context", "dlsym", "", 0);
    pod_run(&pod, "guest", "all", "dlsym", "", 0);
    ck_assert_uint_eq(pod.state->reasons, 0);
}

TEST(items_of_nvml_have_any_size)
{
    static const char *const sizes[] = {"", ";size_v3=32", ";size_v2=32", ";size_v2=40"};
    static const unsigned others[] = {0, 1, 20, 110};
    array_items(size, sizes)
        array_items(n, others)
            measures("", *size, *n);
    measures("", ";spill=24", 3);
    measures("", ";size_v2=16", 3); /* the card says it, and nobody else allocates */
    measures("", ";unset=2", 3);
    measures("", "", 200);
}

/* As GB10, which shares the memory of the host. */
TEST(a_card_without_memory_of_its_own_says_what_this_process_has)
{
    measures("fail nvmlDeviceGetMemoryInfo 3\n", "", 3);
}

/* A driver whose NVML is not there: the number of the limit file counts. */
TEST(a_context_that_cannot_be_measured_counts_what_the_plugin_says)
{
    temp_write(pod.dir, "nvml", "down 9\n");
    pod_run(&pod, "guest", "more", "dlsym", "60", 0);
    pod.limit->context = 10ull << 20;
    pod_run(&pod, "guest", "more", "dlsym", "54", 0);
    pod_run(&pod, "guest", "more", "dlsym", "55", 2);
}

/* Its context appears in NVML's list at the same time, so which process is which is unknown; and
 * it allocates while a module is loaded. */
TEST(what_a_neighbor_takes_meanwhile_is_not_counted)
{
    pod.books->entries[0].pid = getpid();
    pod.books->neighbor = 30ull << 20;
    pod_run(&pod, "guest", "more", "dlsym", "58", 0);
    pod_run(&pod, "guest", "loads", "dlsym", "", 0);
}

static void run_all_ways(const char *what);

TEST(variables_count_whatever_neighbors_do)
{
    pod.books->entries[0].pid = getpid();
    pod.books->entries[0].used = 2000ull << 20;
    pod.books->neighbor = -(20ull << 20); /* frees, at each module and context */
    pod_run(&pod, "guest", "module-beside", "proc2", "", 0);
    pod_run(&pod, "guest-link", "module-beside", "link", "", 0);
    /* With the first context, a neighbor's appears: which process is which is not known. */
    pod.books->entries[0].used = 0;
    pod.books->neighbor = 30ull << 20;
    pod.books->neighbor_once = 1;
    pod_run(&pod, "guest", "module-beside", "dlsym", "", 0);
}

/* Other processes come with each context. A process that has one is not new. */
TEST(a_process_that_comes_is_not_this_one)
{
    pod.books->entries[0].pid = getpid();
    pod.books->entries[1].pid = getppid();
    pod.books->entries[2].pid = 1;
    pod.books->neighbors = 3;
    pod.books->neighbor = 30ull << 20;
    pod_run(&pod, "guest", "second-context", "dlsym", "", 0);
}

static void run_all_ways(const char *what)
{
    static const char *const ways[] = {"dlsym", "proc2", "ptsz"};
    array_items(way, ways)
        pod_run(&pod, "guest", what, *way, "", 0);
    pod_run(&pod, "guest-link", what, "link", "", 0);
    if (pod_has_musl())
        pod_run(&pod, "musl/guest", what, "dlsym", "", 0);
}

TEST(green_contexts_keep_what_the_primary_has)
{
    run_all_ways("green");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(stacks_and_heaps_of_a_context_count)
{
    run_all_ways("settings");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(launches_by_kernels_count)
{
    run_all_ways("launches");
}

TEST(variables_of_modules_count)
{
    run_all_ways("modules");
}

TEST(memory_counts_until_its_last_reference_is_gone)
{
    run_all_ways("references");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(imported_memory_that_nobody_exports_counts_where_it_is_mapped)
{
    run_all_ways("orphan");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
    run_all_ways("orphan-beside");
}

TEST(streams_and_pools_of_another_card_count_there)
{
    pod_add_card(&pod);
    run_all_ways("streams");
}

TEST(streams_of_green_contexts_count_on_their_card)
{
    pod_add_card(&pod);
    run_all_ways("green-stream");
    setenv("FAKE_CUDA_REFUSES", "cuStreamGetCtx_v2", 1);
    run_all_ways("green-stream");
    setenv("FAKE_CUDA_REFUSES", "cuCtxPushCurrent_v2", 1);
    run_all_ways("green-stream");
    setenv("GUEST_REFUSED", "1", 1);
    setenv("FAKE_CUDA_REFUSES", "cuStreamGetCtx_v2 cuStreamGetDevice", 1);
    run_all_ways("green-stream");
    setenv("FAKE_CUDA_REFUSES", "cuCtxPushCurrent_v2 cuStreamGetDevice", 1);
    run_all_ways("green-stream");
    unsetenv("FAKE_CUDA_REFUSES");
    unsetenv("GUEST_REFUSED");
}

/* -- What is not counted is said -- */

static void says(const char *what, const char *name)
{
    struct program guest;
    pod.state->reasons = 0;
    pod_start(&pod, &guest, "guest", what, "dlsym", "1");
    cleanup_free char *said = program_end(&guest, 0);
    cleanup_free char *line = xasprintf("memory is not counted: no answer of %s\n", name);
    const char *at = strstr(said, line);
    ck_assert_msg(at && !strstr(at + strlen(line), "not counted"), "not once %s: %s",
                  line, said);
    ck_assert_uint_eq(pod.state->reasons, LIMIT_UNCOUNTED);
}

TEST(a_query_that_the_driver_refuses_is_said)
{
    static const char *const queries[] = {"cuCtxGetLimit", "cuDeviceGetAttribute",
                                          "cuMemGetAllocationPropertiesFromHandle",
                                          "cuMemGetInfo_v2", "cuMemPoolGetAttribute"};
    temp_write(pod.dir, "nvml", "down 9\n");
    array_items(query, queries) {
        setenv("FAKE_CUDA_REFUSES", *query, 1);
        says("lack", *query);
    }
    setenv("FAKE_CUDA_REFUSES", "cuStreamGetCaptureInfo_v3", 1);
    says("lack", "cuStreamGetCaptureInfo");
    unsetenv("FAKE_CUDA_REFUSES");
    pod.limit->context = 0;
    says("more", "NVML: how large a context is");
    temp_write(pod.dir, "nvml", "cuda 12020\n"); /* without the card */
    says("more", "NVML: how large a context is");
}

/* The library's functions work with the first copy: the program fails, and gets no memory. */
TEST(a_second_copy_of_the_driver_gives_no_memory)
{
    cleanup_free char *copy = temp_path(pod.dir, "libcuda-copy.so");
    cleanup_free char *driver = program_path("fake-cuda/libcuda.so.1");
    struct program cp, guest;
    program_start(&cp, pod.dir, ARGV("cp", driver, copy));
    ck_assert_int_eq(program_wait(&cp), 0);
    program_fini(&cp);
    setenv("GUEST_COPY", copy, 1);
    pod_start(&pod, &guest, "guest", "unlimited", "copy", "");
    ck_assert_int_ne(program_wait(&guest), 0);
    program_fini(&guest);
    unsetenv("GUEST_COPY");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

/* -- What fits is not refused -- */

TEST(graphs_count_what_they_need_at_one_time)
{
    run_all_ways("peaks");
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

TEST(arrays_count_by_their_format)
{
    run_all_ways("formats");
}

/* Processes with parts of a model: every call has the result of the driver. */
TEST(tensor_parallel_processes_share_what_they_share)
{
    static const char *const sizes[] = {"2", "4", "8"};
    pod.limit->limit = pod.books->watch = 256ull << 20;
    array_indices(i, sizes)
        pod_run(&pod, "guest", "tensor", i % 2 ? "proc2" : "dlsym", sizes[i], 0);
    pod_run(&pod, "guest-link", "tensor", "link", "4", 0);
    if (pod_has_musl())
        pod_run(&pod, "musl/guest", "tensor", "dlsym", "4", 0);
    ck_assert_uint_eq(pod.state->refused, 0);
    ck_assert_uint_le(pod.books->peak, pod.limit->limit);
}

/* -- A driver of the future -- */

static void meets_future(const char *way)
{
    struct program guest;
    pod.state->reasons = 0;
    pod_start(&pod, &guest, "guest", "future", way, "");
    cleanup_free char *said = program_end(&guest, 0);
    const char *line = strstr(said, "unknown version of cuMemCreate");
    ck_assert_msg(line && !strstr(line + 1, "unknown"), "%s", said);
    ck_assert_uint_eq(pod.state->reasons, LIMIT_UNKNOWN);
}

TEST(an_unknown_version_passes_untouched_and_is_reported_once)
{
    setenv("GUEST_FUTURE", "1", 1);
    meets_future("dlsym");
    meets_future("proc");
    meets_future("proc2");
    meets_future("ptsz");
    setenv("FAKE_CUDA_ALIAS", "1", 1);
    meets_future("proc2");
    unsetenv("FAKE_CUDA_ALIAS");
    unsetenv("GUEST_FUTURE");
}

/* The newest driver says nothing to programs that ask for what is known. */
TEST(known_versions_are_not_reported)
{
    setenv("GUEST_FUTURE", "1", 1);
    pod_run(&pod, "guest", "cases", "proc2", "", 0);
    pod_run(&pod, "guest", "cases", "ptsz", "", 0);
    unsetenv("GUEST_FUTURE");
    ck_assert_uint_eq(pod.state->reasons, 0);
}

UNIT_MAIN_WITH(300, .begin = begin, .end = end)
