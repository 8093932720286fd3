/* SPDX-License-Identifier: Apache-2.0 */
#include "node/limit_readback.h"

#include "gpu/fake_limits.h"
#include "gpu/nvml_fixture.h"

#include "base/clock.h"
#include "lib/promtool.h"
#include "node/allocation.h"

/*
 * Limits on a made-up tree of cgroups, read back through the fake NVML. Containers are of pod "p" in
 * namespace "ns", and have the ID of the character: container "a" has "aaaa...".
 */

#define MIB    (1ull << 20)
#define DRIVER "driver 615.32.01\n"
#define BOTH   DRIVER T4 H200
#define UID    "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define POD    "cgroup/kubepods/burstable/pod" UID
#define GET    "nvmlDeviceGetMemoryLimits_v1"
#define SET    "nvmlDeviceSetMemoryLimits_v1"

static struct limit_readback *readback;
static struct allocation_set set;
static struct fake_limits *account;
static int account_fd;
static struct buf reported;
static int64_t now_ms;

static void on_missing(void *ctx, const char *uid, const char *why)
{
    (void)ctx;
    ck_assert_str_eq(uid, UID);
    buf_printf(&reported, "%s\n", why);
}

static void start(bool sets)
{
    cleanup_free char *root = temp_path(dir, "cgroup");
    static char *kept;
    free(kept);
    kept = steal(&root);
    limit_readback_free(readback);
    readback = limit_readback_new(
        &(struct limit_readback_settings){"n1", dir, kept, sets, on_missing, NULL});
}

static void begin(void)
{
    static const char *const folders[] = {
        "cgroup", "cgroup/kubepods", "cgroup/kubepods/burstable", POD,
        "var",    "var/log",         "var/log/containers"};
    fixture_begin();
    array_items(folder, folders)
        temp_mkdir(dir, *folder);
    temp_write(dir, "cgroup/cgroup.controllers", "");
    cleanup_free char *file = temp_path(dir, "limits"), *root = temp_path(dir, "cgroup");
    setenv("FAKE_CGROUP_ROOT", root, 1);
    setenv("FAKE_CGROUP", root, 1);
    setenv("FAKE_LIMITS", file, 1);
    account = fake_limits_open(&account_fd);
    opens(BOTH);
    buf_adds(&reported, "");
    now_ms = 1000;
    start(false);
}

static void end(void)
{
    limit_readback_free(readback);
    allocation_set_fini(&set);
    munmap(account, sizeof *account);
    close(account_fd);
    fixture_end();
}

/* "container" or "container/leaf", new. */
static char *path_of(const char *name)
{
    char id[65];
    memset(id, name[0], 64);
    id[64] = '\0';
    return xasprintf(POD "/%s%s", id, name + 1);
}

/* Makes a cgroup with a process and, of a container, the kubelet's link. */
static void runs(const char *name)
{
    cleanup_free char *path = path_of(name), *procs = xasprintf("%s/cgroup.procs", path);
    temp_mkdir(dir, path);
    temp_write(dir, procs, "7\n");
    if (name[1])
        return;
    cleanup_free char *link =
        xasprintf("var/log/containers/p_ns_%c-%s.log", *name, strrchr(path, '/') + 1);
    temp_write(dir, link, "");
}

/* The container's allocation, with the limit, on cards that are separated by spaces. */
static void has(const char *container, enum container_role role, int64_t mib,
                const char *cards)
{
    cleanup_buf struct buf text = {0};
    struct allocation *al = allocation_new(SPAN(UID), SPAN("ns"), SPAN("p"),
                                           span_of(container), role, IDS_MEM);
    al->driver_limit_mib = mib;
    for (struct span rest = span_of(cards); rest.n;)
        ck_assert(allocation_add(al, span_cut(&rest, ' '), 0, (int64_t)set.n));
    allocation_set_put(&set, al);
    allocation_set_write(&text, &set, SPAN("n1"));
    limit_readback_allocations(readback, buf_span(&text));
}

static void set_limit(const char *name, const char *uuid, uint64_t soft, uint64_t hard)
{
    cleanup_free char *path = *name ? path_of(name) : xstrdup(POD),
                      *whole = temp_path(dir, path);
    ck_assert_int_eq(gpu_memory_limit_set(gpu, uuid, whole,
                                          &(struct gpu_memory_limit){soft, hard, 0},
                                          &err),
                     GPU_LIMIT_OK);
}

/* "SOFT/HARD" in MiB as the driver has it, "none" without. */
static const char *limit_of(const char *name, const char *uuid)
{
    static char text[64];
    struct gpu_memory_limit is;
    cleanup_free char *path = *name ? path_of(name) : xstrdup(POD),
                      *whole = temp_path(dir, path);
    if (gpu_memory_limit_get(gpu, uuid, whole, &is, &err) == GPU_LIMIT_NONE)
        return "none";
    snprintf(text, sizeof text, "%d/%d", (int)(is.soft >> 20), (int)(is.hard >> 20));
    return text;
}

/* Samples after so many milliseconds; "container card hard used" of what is read, MiB. */
static const char *sampled(int64_t after_ms)
{
    static struct buf out;
    now_ms += after_ms;
    fixture_sample();
    limit_readback_sample(readback, gpu, &sample, now_ms);
    struct limit_readings *l = limit_readback_readings(readback);
    buf_set(&out, SPAN(""));
    for (size_t i = 0; i < l->n; i++) {
        const struct usage_limit *at = &l->limits[i];
        ck_assert_span_eq(at->ns, "ns");
        ck_assert_span_eq(at->pod, "p");
        ck_assert_span_eq(at->pod_uid, UID);
        ck_assert(at->container_id.n == 64 && at->container_id.p[7] == *at->container.p);
        buf_printf(&out, "%.*s %.*s %lld %lld%s\n", SPAN_ARG(at->container),
                   SPAN_ARG(at->uuid),
                   at->hard == GPU_NO_LIMIT ? -1 : (long long)(at->hard >> 20),
                   at->used < 0 ? -1 : (long long)(at->used >> 20),
                   at->missing ? " missing" : "");
    }
    limit_readings_unref(l);
    return out.p;
}

/* The test itself uses memory of the card in the cgroup. */
static void uses(const char *name, const char *uuid, uint64_t mib)
{
    cleanup_free char *path = path_of(name), *whole = temp_path(dir, path);
    struct fake_member *m = &account->members[0];
    *m = (struct fake_member){.pid = getpid(), .cards = {{.used = mib * MIB}}};
    ck_assert(fake_cgroup_of(whole, m->path));
    snprintf(m->cards[0].uuid, sizeof m->cards[0].uuid, "%s", uuid);
}

TEST(one_failure_withdraws_nothing)
{
#define F GPU_LIMIT_FAILED
#define N GPU_LIMIT_NONE
    static const struct {
        enum gpu_limit_answer answers[5]; /* 10 s apart */
        bool fails[5];
    } cases[] = {
        {{GPU_LIMIT_OK, N, N, N, N}, {0}},
        {{F, F, F, F, N}, {0, 0, 0, 1, 0}},
        {{F, F, F, GPU_LIMIT_OK, F}, {0}},
        {{F, F, GPU_LIMIT_INVALID, F, F}, {0, 0, 0, 1, 1}},
        {{GPU_LIMIT_NOT_SUPPORTED, F, F, N, N}, {1, 1, 1, 0, 0}},
        {{N, GPU_LIMIT_NO_PERMISSION, N, GPU_LIMIT_OLD_DRIVER, N}, {0, 1, 0, 1, 0}},
        {{N, GPU_LIMIT_NO_CGROUP, F, N, F}, {0, 1, 1, 0, 0}},
    };
    array_indices(i, cases) {
        struct limit_readback_card card = {0};
        for (int k = 0; k < 5; k++) {
            limit_readback_judge(&card, cases[i].answers[k], 1 + k * 10000);
            ck_assert_msg(card.fails == cases[i].fails[k], "case %zu, answer %d", i, k);
        }
    }
}

TEST(limits_of_containers_are_read)
{
    ck_assert_str_eq(sampled(0), "");
    runs("a");
    runs("b");
    has("a", CONTAINER_APP, 3000, "GPU-t4 GPU-h200");
    has("b", CONTAINER_SIDECAR, 0, "GPU-t4");
    set_limit("a", "GPU-t4", 0, 3000 * MIB);
    set_limit("a", "GPU-h200", 0, 1000 * MIB);
    uses("a", "GPU-t4", 500);
    ck_assert_str_eq(sampled(0), "a GPU-t4 3000 500\n"
                                 "a GPU-h200 1000 0\n"
                                 "b GPU-t4 -1 -1\n");
    /* crun: the process is in a cgroup below that of the container. Whichever has the limit. */
    cleanup_free char *b = path_of("b"), *procs = xasprintf("%s/cgroup.procs", b);
    temp_write(dir, procs, "");
    runs("b/container");
    set_limit("b/container", "GPU-t4", 0, 70 * MIB);
    ck_assert_str_eq(sampled(6000), "a GPU-t4 3000 500\n"
                                    "a GPU-h200 1000 0\n"
                                    "b GPU-t4 70 0\n");
    set_limit("b/container", "GPU-t4", 0, GPU_NO_LIMIT);
    set_limit("b", "GPU-t4", 0, 80 * MIB);
    ck_assert_ptr_nonnull(strstr(sampled(0), "b GPU-t4 80 0\n"));
    ck_assert_str_eq(reported.p, "");
    ck_assert(!limit_readback_fails(readback) && !limit_readback_sets(readback));
    /* A card in MIG mode, and a host with cgroup v1, have none. */
    temp_remove(dir, "cgroup/cgroup.controllers");
    ck_assert_str_eq(sampled(6000), "");
}

TEST(a_limit_that_is_missing_for_a_while_is_reported_once)
{
    runs("a");
    runs("b");
    runs("c");
    has("a", CONTAINER_APP, 3000, "GPU-t4");
    has("b", CONTAINER_APP, 3000, "GPU-h200");
    has("c", CONTAINER_APP, 0, "GPU-h200"); /* as from 1.0 */
    set_limit("b", "GPU-h200", 0, 3001 * MIB);
    ck_assert_str_eq(sampled(0), "a GPU-t4 -1 -1\n"
                                 "b GPU-h200 3001 0\n"
                                 "c GPU-h200 -1 -1\n");
    sampled(9999); /* the hook runs after the cgroup is made */
    ck_assert_str_eq(reported.p, "");
    for (int i = 0; i < 20; i++)
        ck_assert_str_eq(sampled(1000), "a GPU-t4 -1 -1 missing\n"
                                        "b GPU-h200 3001 0 missing\n"
                                        "c GPU-h200 -1 -1\n");
    ck_assert_str_eq(reported.p,
                     "container a has no limit of the driver on GPU0; it should have "
                     "3000 MiB\n"
                     "container b has a limit of 3001 MiB of the driver on GPU1; it "
                     "should have 3000 MiB\n");
    /* It is so until it is read again. */
    cleanup_buf struct buf text = {0}, once = {0};
    buf_set(&once, buf_span(&reported));
    fixture_script("fail " GET " 999 0\n" BOTH);
    ck_assert_str_eq(sampled(1000), "b GPU-h200 3001 0 missing\n"
                                    "c GPU-h200 -1 -1\n"
                                    "a GPU-t4 -1 -1 missing\n");
    limit_readback_metrics(readback, &text);
    fixture_script(BOTH);
    for (int i = 0; i < 12; i++)
        sampled(1000);
    ck_assert_str_eq(reported.p, once.p);
    promtool_check_metrics(buf_span(&text));
    ck_assert_contains(text.p,
                       "gpushare_container_gpu_memory_limit_missing{namespace=\"ns\","
                       "pod=\"p\",container=\"a\",card=\"0\",uuid=\"GPU-t4\"} 1\n");
    ck_assert_lacks(text.p, "container=\"c\"");
    set_limit("a", "GPU-t4", 0, 3000 * MIB);
    set_limit("b", "GPU-h200", 0,
              2000 * MIB); /* less than it was given is none of ours */
    ck_assert_str_eq(sampled(1000), "a GPU-t4 3000 0\n"
                                    "b GPU-h200 2000 0\n"
                                    "c GPU-h200 -1 -1\n");
    /* The cgroup is made again, and the driver has forgotten its limit. */
    cleanup_free char *a = path_of("a"), *whole = temp_path(dir, a);
    temp_dir_remove(whole);
    ck_assert_str_eq(sampled(1000), "b GPU-h200 2000 0\nc GPU-h200 -1 -1\n");
    buf_set(&reported, SPAN(""));
    runs("a");
    sampled(6000); /* a cgroup is found within five seconds */
    ck_assert_ptr_nonnull(strstr(sampled(10000), "a GPU-t4 -1 -1 missing\n"));
    ck_assert_contains(reported.p, "container a has no limit");
}

TEST(cards_that_fail_withdraw_the_driver)
{
    static const struct {
        const char *script, *read;
        bool fails, later; /* at once, after half a minute */
    } cases[] = {
        {"sometimes " GET " 999 3\n" BOTH, NULL, false, false},
        {"fail " GET " 3 1\n" BOTH, "a GPU-t4 3000 0\n", true, true},
        {"fail " GET " 4 1\n" BOTH, "a GPU-t4 3000 0\n", true, true},
        {"fail " GET " 15 1\n" BOTH, "a GPU-t4 3000 0\n", false, true},
        {"fail " GET " 13\n" BOTH, "", true, true},
        {"driver 580.95.05\n" T4 H200, "", true, true},
        {DRIVER T4 "card uuid=GPU-h200;mig=1;total=1000;free=1000\n", "a GPU-t4 3000 0\n",
         false, false},
        {DRIVER T4 "card uuid=GPU-h200;open=15\n", "a GPU-t4 3000 0\n", false, false},
    };
    runs("a");
    has("a", CONTAINER_APP, 3000, "GPU-t4 GPU-h200");
    set_limit("a", "GPU-t4", 0, 3000 * MIB);
    set_limit("a", "GPU-h200", 0, 3000 * MIB);
    array_indices(i, cases) {
        opens(cases[i].script);
        const char *read = sampled(1);
        ck_assert_msg(!cases[i].read || !strcmp(read, cases[i].read), "case %zu: %s", i,
                      read);
        ck_assert_msg(limit_readback_fails(readback) == cases[i].fails, "case %zu", i);
        for (int k = 0; k < 3; k++)
            sampled(10000);
        ck_assert_msg(limit_readback_fails(readback) == cases[i].later, "case %zu", i);
        opens(BOTH);
        ck_assert_str_eq(sampled(1), "a GPU-t4 3000 0\na GPU-h200 3000 0\n");
        ck_assert(!limit_readback_fails(readback));
    }
    /* The cgroups of containers alone cannot be read. */
    opens(BOTH);
    for (int i = 0; i < 64; i++)
        if (*account->limits[i].path && !strcmp(account->limits[i].uuid, "GPU-t4"))
            account->limits[i].soft = 1ull << 60;
    for (int k = 0; k < 4; k++) {
        ck_assert(!limit_readback_fails(readback));
        ck_assert_str_eq(sampled(10000), "a GPU-h200 3000 0\n");
    }
    ck_assert(limit_readback_fails(readback));
    ck_assert_str_eq(reported.p, "");
    /* The driver opens that of the host, and none of the containers that run. */
    start(false);
    opens("sometimes " GET " 17 2\n" DRIVER T4);
    has("a", CONTAINER_APP, 3000, "GPU-t4");
    for (int k = 0; k < 4; k++) {
        ck_assert(!limit_readback_fails(readback));
        ck_assert_str_eq(sampled(10000), "");
    }
    ck_assert(limit_readback_fails(readback));
}

/* Each sample has a second, and begins where the last one ended. */
TEST(a_late_driver_does_not_delay_samples)
{
    for (int i = 0; i < 5; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        runs(name);
        has(name, CONTAINER_APP, 100, "GPU-t4");
        set_limit(name, "GPU-t4", 0, 100 * MIB);
    }
    sampled(0);
    fixture_script("late " GET " 400\n" BOTH);
    cleanup_buf struct buf all = {0};
    int64_t before = clock_mono_ms();
    buf_adds(&all, sampled(1000));
    ck_assert_int_lt(clock_mono_ms() - before,
                     4000); /* two probes, and some containers */
    ck_assert_ptr_null(strstr(all.p, "e GPU-t4"));
    for (int i = 0; i < 4; i++)
        buf_adds(&all, sampled(1000));
    for (int i = 0; i < 5; i++) {
        cleanup_free char *line = xasprintf("%c GPU-t4 100 0\n", 'a' + i);
        ck_assert_contains(all.p, line);
    }
    /* Asking the cards alone takes more than a second. */
    fixture_script("late " GET " 550\n" BOTH);
    ck_assert_ptr_nonnull(strstr(sampled(1000), " GPU-t4 100 0\n"));
}

/* -- --set-limits -- */

TEST(limits_are_set_repaired_and_changed)
{
    start(true);
    ck_assert(!limit_readback_sets(readback));
    sampled(0);
    ck_assert(limit_readback_sets(readback));
    cleanup_free char *trial = temp_path(dir, "cgroup/gpushare-trial");
    ck_assert_int_ne(access(trial, F_OK), 0);
    has("a", CONTAINER_APP, 3000, "GPU-t4");
    has("b", CONTAINER_SIDECAR, 500, "GPU-t4");
    has("c", CONTAINER_INIT, 4000, "GPU-t4");
    sampled(0); /* before a container starts, its pod has a limit */
    ck_assert_str_eq(limit_of("", "GPU-t4"), "0/4500");
    runs("a");
    runs("b");
    runs("d"); /* it has no allocation */
    set_limit("a", "GPU-t4", 3000 * MIB,
              3000 * MIB); /* as of NVIDIA_GPU_MEMORY_LIMIT alone */
    sampled(6000);
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/3000");
    ck_assert_str_eq(limit_of("b", "GPU-t4"), "0/500");
    ck_assert_str_eq(limit_of("d", "GPU-t4"), "none");
    ck_assert_str_eq(sampled(0), "a GPU-t4 3000 0\nb GPU-t4 500 0\n");
    /* Another limit than ours, and resizes in both directions. */
    set_limit("a", "GPU-t4", 0, 9000 * MIB);
    ck_assert_str_eq(sampled(0), "a GPU-t4 4500 0\nb GPU-t4 500 0\n"); /* of the pod */
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/3000");
    has("a", CONTAINER_APP, 6000, "GPU-t4");
    has("b", CONTAINER_SIDECAR, 100, "GPU-t4");
    sampled(0);
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/6000");
    ck_assert_str_eq(limit_of("b", "GPU-t4"), "0/100");
    ck_assert_str_eq(limit_of("", "GPU-t4"), "0/6100");
    /* A container without a limit: neither it nor its pod gets one. */
    set_limit("", "GPU-t4", 0, GPU_NO_LIMIT);
    has("d", CONTAINER_APP, 0, "GPU-t4");
    sampled(6000);
    ck_assert_str_eq(limit_of("d", "GPU-t4"), "none");
    ck_assert_str_eq(limit_of("", "GPU-t4"), "none");
    for (int i = 0; i < 20; i++)
        sampled(1000);
    ck_assert_str_eq(reported.p, "");
}

TEST(limits_that_cannot_be_set_are_tried_again)
{
    start(true);
    runs("a");
    has("a", CONTAINER_APP, 3000, "GPU-t4");
    fixture_script("fail " SET " 4\n" BOTH); /* without CAP_SYS_ADMIN */
    for (int i = 0; i < 12; i++)
        sampled(1000);
    ck_assert(!limit_readback_sets(readback));
    ck_assert(!limit_readback_fails(readback)); /* the hook's can be read */
    ck_assert_contains(reported.p, "container a has no limit of the driver");
    fixture_script(BOTH);
    sampled(60000);
    ck_assert(limit_readback_sets(readback));
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/3000");
    fixture_script("fail " GET " 999\n" BOTH);
    sampled(1000);
    ck_assert(limit_readback_sets(readback));
    fixture_script("fail " SET " 3 1\n" BOTH); /* of one card, what was tried counts */
    set_limit("a", "GPU-t4", 0, GPU_NO_LIMIT);
    sampled(1000);
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/3000");
    fixture_script("sometimes " SET " 999 2\n" BOTH);
    set_limit("a", "GPU-t4", 0, GPU_NO_LIMIT);
    sampled(1000);
    sampled(1000);
    ck_assert_str_eq(limit_of("a", "GPU-t4"), "0/3000");
}

UNIT_MAIN_AROUND(begin, end)
