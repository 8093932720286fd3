/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fake_limits.h"
#include "gpu/nvml_fixture.h"

#include "base/clock.h"

/* The driver's limit of memory for a cgroup, as src/gpu asks for it and the fake has it. */

#define MIB    (1ull << 20)
#define DRIVER "driver 615.32.01\n"
#define BOTH   DRIVER T4 H200

static char *root, *pod, *leaf; /* folders of cgroups */
static struct fake_limits *account;
static int account_fd;

static char *cgroup(const char *name)
{
    temp_mkdir(dir, name);
    return temp_path(dir, name);
}

static void begin(void)
{
    fixture_begin();
    cleanup_free char *file = temp_path(dir, "limits");
    root = cgroup("cgroup");
    pod = cgroup("cgroup/pod");
    leaf = cgroup("cgroup/pod/leaf");
    setenv("FAKE_CGROUP_ROOT", root, 1);
    setenv("FAKE_CGROUP", root, 1);
    setenv("FAKE_LIMITS", file, 1);
    account = fake_limits_open(&account_fd);
    opens(BOTH);
}

static void end(void)
{
    munmap(account, sizeof *account);
    close(account_fd);
    free(root);
    free(pod);
    free(leaf);
    unsetenv("FAKE_LIMITS");
    unsetenv("FAKE_CGROUP");
    unsetenv("FAKE_CGROUP_ROOT");
    fixture_end();
}

static enum gpu_limit_answer set(const char *uuid, const char *path, uint64_t soft,
                                 uint64_t hard)
{
    err = (struct err){0};
    return gpu_memory_limit_set(gpu, uuid, path,
                                &(struct gpu_memory_limit){soft, hard, 7}, &err);
}

static enum gpu_limit_answer get(const char *uuid, const char *path,
                                 struct gpu_memory_limit *is)
{
    err = (struct err){0};
    *is = (struct gpu_memory_limit){1, 2, 3};
    return gpu_memory_limit_get(gpu, uuid, path, is, &err);
}

static void limit_is(const char *uuid, const char *path, uint64_t soft, uint64_t hard,
                     uint64_t used)
{
    struct gpu_memory_limit is;
    enum gpu_limit_answer answer = get(uuid, path, &is);
    ck_assert_msg(answer == GPU_LIMIT_OK, "%s: %s", path, err.msg);
    ck_assert_uint_eq(is.soft, soft);
    ck_assert_uint_eq(is.hard, hard);
    ck_assert_uint_eq(is.used, used);
    ck_assert_int_eq(err.code, ERR_NONE);
}

static void no_limit(const char *uuid, const char *path)
{
    struct gpu_memory_limit is;
    ck_assert_int_eq(get(uuid, path, &is), GPU_LIMIT_NONE);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert(is.soft == 0 && is.hard == GPU_NO_LIMIT && is.used == 0);
}

/* The test itself uses memory of the card in the cgroup. */
static void uses(const char *path, const char *uuid, uint64_t bytes)
{
    struct fake_member *m = &account->members[0];
    *m = (struct fake_member){.pid = getpid(), .cards = {{.used = bytes}}};
    ck_assert(fake_cgroup_of(path, m->path));
    snprintf(m->cards[0].uuid, sizeof m->cards[0].uuid, "%s", uuid);
}

TEST(a_limit_is_set_read_back_changed_and_removed)
{
    no_limit("GPU-t4", leaf);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 3000 * MIB), GPU_LIMIT_OK);
    limit_is("GPU-t4", leaf, 0, 3000 * MIB, 0);
    no_limit("GPU-h200", leaf); /* a limit for each card */
    no_limit("GPU-t4", pod);    /* and cgroup */
    uses(leaf, "GPU-t4", 500 * MIB);
    limit_is("GPU-t4", leaf, 0, 3000 * MIB, 500 * MIB);
    ck_assert_int_eq(set("GPU-t4", pod, 0, 4000 * MIB), GPU_LIMIT_OK);
    limit_is("GPU-t4", pod, 0, 4000 * MIB, 500 * MIB);
    ck_assert_int_eq(set("GPU-t4", leaf, 1000 * MIB, GPU_NO_LIMIT), GPU_LIMIT_OK);
    limit_is("GPU-t4", leaf, 1000 * MIB, GPU_NO_LIMIT, 500 * MIB);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, GPU_NO_LIMIT), GPU_LIMIT_OK);
    no_limit("GPU-t4", leaf);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 0), GPU_LIMIT_OK); /* nothing may be used */
    limit_is("GPU-t4", leaf, 0, 0, 500 * MIB);
}

TEST(each_answer_has_its_reason)
{
    static const struct {
        const char *script, *uuid, *cgroup;
        uint64_t soft, hard;
        enum gpu_limit_answer set, get, probe;
        const char *why; /* of the first that fails */
    } cases[] = {
#define ALL(answer) answer, answer, answer
#define FINE        GPU_LIMIT_OK
        {BOTH, "GPU-t4", "cgroup/pod", 0, MIB, ALL(FINE), ""},
        {"driver 580.95.05\n" T4, "GPU-t4", "cgroup/pod", 0, MIB,
         ALL(GPU_LIMIT_OLD_DRIVER), "driver 580.95.05: needs 615"},
        {"driver 6\033[1m\n" T4, "GPU-t4", "cgroup/pod", 0, MIB,
         ALL(GPU_LIMIT_OLD_DRIVER), "driver 6?[1m: needs 615"},
        {T4, "GPU-t4", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_OLD_DRIVER),
         "driver of unknown version: needs 615"},
        {DRIVER "card uuid=GPU-t4;total=9000;free=9000;mig=1\n", "GPU-t4", "cgroup/pod",
         0, 1000, ALL(GPU_LIMIT_NOT_SUPPORTED),
         "have no memory limits: Not Supported (3)"},
        {BOTH, "MIG-2", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_NOT_SUPPORTED),
         "no instances of MIG"},
        {"fail nvmlDeviceSetMemoryLimits_v1 4\n" BOTH, "GPU-t4", "cgroup/pod", 0, MIB,
         GPU_LIMIT_NO_PERMISSION, GPU_LIMIT_NONE, FINE, "needs root"},
        {"fail nvmlDeviceSetMemoryLimits_v1 3 1\nfail nvmlDeviceGetMemoryLimits_v1 3 "
         "1\n" BOTH,
         "GPU-h200", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_NOT_SUPPORTED), "(3)"},
        {"fail nvmlDeviceSetMemoryLimits_v1 3 1\nfail nvmlDeviceGetMemoryLimits_v1 3 "
         "1\n" BOTH,
         "GPU-t4", "cgroup/pod", 0, MIB, ALL(FINE), ""},
        {"fail nvmlDeviceSetMemoryLimits_v1 13\nfail nvmlDeviceGetMemoryLimits_v1 "
         "13\n" BOTH,
         "GPU-t4", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_OLD_DRIVER),
         "driver 615.32.01: needs 615"},
        {BOTH, "GPU-t4", "cgroup/pod", 2, 1, GPU_LIMIT_INVALID, GPU_LIMIT_NONE, FINE,
         "refuses these values"},
        {BOTH, "GPU-t4", "cgroup/pod", 0, 1ull << 40, GPU_LIMIT_INVALID, GPU_LIMIT_NONE,
         FINE, "refuses these values"},
        {BOTH, "GPU-t4", "cgroup/none", 0, MIB, ALL(GPU_LIMIT_NO_CGROUP),
         "/cgroup/none: the driver opens no cgroup v2 there"},
        {BOTH, "GPU-t4", "", 0, MIB, ALL(GPU_LIMIT_NO_CGROUP), "no cgroup v2"},
        {BOTH, "GPU-x", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_FAILED),
         "card GPU-x was not in the last sample"},
        {BOTH, "", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_FAILED), "was not in"},
        {"fail nvmlDeviceSetMemoryLimits_v1 15\nfail nvmlDeviceGetMemoryLimits_v1 "
         "15\n" BOTH,
         "GPU-t4", "cgroup/pod", 0, MIB, ALL(GPU_LIMIT_FAILED), "GPU is lost (15)"},
        {"fail nvmlDeviceSetMemoryLimits_v1 6\n" BOTH, "GPU-t4", "cgroup/pod", 0, MIB,
         GPU_LIMIT_FAILED, GPU_LIMIT_NONE, FINE, "(6)"},
    };
    array_items(c, cases) {
        struct gpu_memory_limit is;
        struct err why = {0};
        memset(account, 0, sizeof *account);
        opens(c->script);
        cleanup_free char *path = temp_path(dir, c->cgroup);
        enum gpu_limit_answer answer = set(c->uuid, path, c->soft, c->hard);
        ck_assert_msg(answer == c->set, "set %s: %d %s", c->script, answer, err.msg);
        ck_assert_has(err.msg, c->why);
        ck_assert((err.code == ERR_NONE) == (answer == GPU_LIMIT_OK));
        answer = get(c->uuid, path, &is);
        ck_assert_msg(answer == c->get, "get %s: %d %s", c->script, answer, err.msg);
        ck_assert((err.code == ERR_NONE) == (answer == GPU_LIMIT_OK));
        answer = gpu_memory_limit_probe(gpu, c->uuid, path, &why);
        ck_assert_msg(answer == c->probe, "probe %s: %d %s", c->script, answer, why.msg);
        ck_assert((why.code == ERR_NONE) == (answer == GPU_LIMIT_OK));
    }
}

TEST(without_a_driver_there_is_no_limit)
{
    struct err why = {0};
    ck_assert_int_eq(set("GPU-t4", "pod", 0, MIB), GPU_LIMIT_INVALID);
    ck_assert_has(err.msg, "\"pod\" is no absolute path");
    gpu_reopen(gpu); /* its handles are no longer valid */
    ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB), GPU_LIMIT_FAILED);
    fixture_sample();
    ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB), GPU_LIMIT_OK);
    open_library("libnvidia-ml.so.1");
    ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB), GPU_LIMIT_FAILED); /* no sample yet */
    open_library("old/libnvidia-ml.so.1");
    fixture_script("driver 450.80.02\n" T4);
    fixture_sample();
    ck_assert_int_eq(gpu_memory_limit_probe(gpu, "GPU-t4", leaf, &why),
                     GPU_LIMIT_OLD_DRIVER);
    ck_assert_str_eq(why.msg, "driver 450.80.02: needs 615");
    ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB), GPU_LIMIT_OLD_DRIVER);
    gpu_free(gpu);
    gpu = gpu_file_new("/nonexistent");
    ck_assert_int_eq(gpu_memory_limit_probe(gpu, "GPU-t4", leaf, &why),
                     GPU_LIMIT_OLD_DRIVER);
    ck_assert_has(why.msg, "no driver");
}

/* What later structs have behind ours, and numbers that cannot be. */
TEST(hostile_limits_are_not_believed)
{
    static const struct {
        uint64_t soft, hard, used;
    } cases[] = {{1ull << 60, GPU_NO_LIMIT, 0},
                 {0, 1ull << 61, 0},
                 {0, MIB, 1ull << 60},
                 {2, 1, 0},
                 {GPU_NO_LIMIT, GPU_NO_LIMIT, 0}};
    struct gpu_memory_limit is;
    array_items(c, cases) {
        ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB), GPU_LIMIT_OK);
        account->limits[0].soft = c->soft;
        account->limits[0].hard = c->hard;
        uses(leaf, "GPU-t4", c->used);
        ck_assert_int_eq(get("GPU-t4", leaf, &is), GPU_LIMIT_FAILED);
        ck_assert_has(err.msg, "implausible limits: ");
        ck_assert(is.soft == 0 && is.hard == GPU_NO_LIMIT && is.used == 0);
        memset(account, 0, sizeof *account);
    }
    opens(DRIVER "card uuid=GPU-t4;total=1000;free=1000;spill=64\n");
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 900), GPU_LIMIT_OK);
    limit_is("GPU-t4", leaf, 0, 900, 0);
    /* Accepted as limits, read as none. */
    account->limits[0].hard = GPU_NO_LIMIT;
    no_limit("GPU-t4", leaf);
}

/* -- How the fake is less polite than a driver should be -- */

TEST(a_call_fails_at_times_and_is_late)
{
    enum { LATE_MS = 60 };
    opens("sometimes nvmlDeviceSetMemoryLimits_v1 999 3\n" BOTH);
    for (int i = 1; i <= 6; i++)
        ck_assert_int_eq(set("GPU-t4", leaf, 0, MIB),
                         i % 3 ? GPU_LIMIT_OK : GPU_LIMIT_FAILED);
    reads("late nvmlDeviceGetMemoryLimits_v1 60\n" BOTH);
    int64_t before = clock_mono_ms();
    limit_is("GPU-t4", leaf, 0, MIB, 0);
    ck_assert_int_ge(clock_mono_ms() - before, LATE_MS);
}

TEST(a_cgroup_that_is_made_again_has_no_limit)
{
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 3000 * MIB), GPU_LIMIT_OK);
    ck_assert_int_eq(rmdir(leaf), 0);
    struct gpu_memory_limit is;
    ck_assert_int_eq(get("GPU-t4", leaf, &is), GPU_LIMIT_NO_CGROUP);
    temp_mkdir(dir, "cgroup/pod/leaf");
    no_limit("GPU-t4", leaf);
}

/* As the driver knows a cgroup whatever its mount is called. */
TEST(a_cgroup_is_the_same_below_another_mount)
{
    cleanup_free char *alias = temp_path(dir, "alias");
    cleanup_free char *below = temp_path(dir, "alias/pod/leaf");
    ck_assert_int_eq(symlink(root, alias), 0);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 3000 * MIB), GPU_LIMIT_OK);
    setenv("FAKE_CGROUP_ROOT", alias, 1);
    limit_is("GPU-t4", below, 0, 3000 * MIB, 0);
    setenv("FAKE_CGROUP_ROOT", pod,
           1); /* as in a namespace of cgroups: it does not see it */
    no_limit("GPU-t4", leaf);
    setenv("FAKE_CGROUP_ROOT", root, 1);
    limit_is("GPU-t4", leaf, 0, 3000 * MIB, 0);
}

TEST(a_soft_limit_stays_behind_in_the_ancestors)
{
    cleanup_free char *other = cgroup("cgroup/pod/other");
    ck_assert_int_eq(set("GPU-t4", leaf, 100, 3000), GPU_LIMIT_OK);
    ck_assert_int_eq(set("GPU-t4", other, 20, 3000), GPU_LIMIT_OK);
    limit_is("GPU-t4", pod, 120, GPU_NO_LIMIT, 0);
    limit_is("GPU-t4", root, 120, GPU_NO_LIMIT, 0);
    ck_assert_int_eq(set("GPU-t4", other, 0, 3000), GPU_LIMIT_OK); /* as one should */
    ck_assert_int_eq(rmdir(other), 0);
    ck_assert_int_eq(rmdir(leaf), 0);
    limit_is("GPU-t4", pod, 100, GPU_NO_LIMIT, 0);
    limit_is("GPU-t4", root, 100, GPU_NO_LIMIT, 0);
    ck_assert_int_eq(set("GPU-t4", pod, 0, GPU_NO_LIMIT), GPU_LIMIT_OK);
    no_limit("GPU-t4", pod);
}

TEST(a_limit_below_what_is_used_is_set_or_not)
{
    uses(leaf, "GPU-t4", 500 * MIB);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 100 * MIB), GPU_LIMIT_OK);
    limit_is("GPU-t4", leaf, 0, 100 * MIB, 500 * MIB);
    reads(DRIVER "card uuid=GPU-t4;total=1073741824;free=1073741824;below=2\n");
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 50 * MIB), GPU_LIMIT_INVALID);
    limit_is("GPU-t4", leaf, 0, 100 * MIB, 500 * MIB);
}

/* The size of the card is the limit of the process's own cgroup, and of no parent. */
TEST(a_limit_is_the_size_of_the_card_on_a_leaf)
{
    static const char card[] = DRIVER "card uuid=GPU-t4;total=8589934592;"
                                      "free=8589934592;used=0;reserved=0\n";
    ck_assert_int_eq(set("GPU-t4", pod, 0, 2000 * MIB), GPU_LIMIT_OK);
    setenv("FAKE_CGROUP", leaf, 1);
    reads(card);
    ck_assert_int_eq(gpu_value(&sample.cards[0], GPU_MEM_TOTAL, 0), 8192 * (int64_t)MIB);
    ck_assert_int_eq(set("GPU-t4", leaf, 0, 1000 * MIB), GPU_LIMIT_OK);
    uses(leaf, "GPU-t4", 300 * MIB);
    reads(card);
    ck_assert_int_eq(gpu_value(&sample.cards[0], GPU_MEM_TOTAL, 0), 1000 * (int64_t)MIB);
    ck_assert_int_eq(gpu_value(&sample.cards[0], GPU_MEM_FREE, 0), 700 * (int64_t)MIB);
    setenv("FAKE_CGROUP", pod, 1);
    reads(card);
    ck_assert_int_eq(gpu_value(&sample.cards[0], GPU_MEM_TOTAL, 0), 2000 * (int64_t)MIB);
}

UNIT_MAIN_AROUND(begin, end)
