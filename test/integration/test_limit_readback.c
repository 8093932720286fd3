/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fake_limits.h"
#include "integration/suite.h"
#include "lib/driver_tree.h"
#include "lib/promtool.h"

/*
 * gpushare-node reads the driver's limits back, in a made-up tree of cgroups and through the fake
 * NVML. The test is the runtime and its hook.
 */

#define HOOK "/usr/bin/nvidia-cdi-hook"
#define ID   "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define POD  "/kubepods/burstable/poduid-p"
#define LEAF POD "/" ID
#define GET  "nvmlDeviceGetMemoryLimits_v1"
#define SET  "nvmlDeviceSetMemoryLimits_v1"
#define MIB  (1ull << 20)

static const char *hook = "apply-cuda-memory-limits"; /* the text of the host's hook */

static void use_script(const char *extra)
{
    agent_script(lib_fmt("driver 615.32.01\n%s"
                         "card uuid=GPU-0;name=T4;bus=0a;minor=3;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;processes=\n"
                         "card uuid=GPU-1;name=T4;bus=0b;minor=0;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;processes=\n",
                         extra));
}

static void make_folder(const char *path)
{
    temp_mkdir(lib_dir, lib_fmt("cgroup%s", path));
    temp_write(lib_dir, lib_fmt("cgroup%s/cgroup.procs", path),
               strcmp(path, LEAF) ? "" : "7\n");
}

static void set_up(const char *const *more)
{
    static const char *const folders[] = {"cgroup", "host", "cdi"};
    const char *options[PROGRAM_ARGS] = {"--host-root",        lib_path("host"),
                                         "--cdi-dir",          lib_path("cdi"),
                                         "--cgroup-root",      lib_path("cgroup"),
                                         "--gpu-source",       agent_nvml(),
                                         "--refresh-interval", "100ms"};
    program_args(options, 10, more);
    agent_setup(&sim);
    array_items(folder, folders)
        temp_mkdir(lib_dir, *folder);
    temp_write(lib_dir, "cgroup/cgroup.controllers", "");
    make_folder("/kubepods");
    make_folder("/kubepods/burstable");
    setenv("FAKE_LIMITS", lib_path("limits-of-driver"), 1);
    setenv("FAKE_CGROUP_ROOT", lib_path("cgroup"), 1);
    driver_tree_make(lib_path("host"), "");
    driver_tree_file(lib_path("host"), "/usr/lib/x86_64-linux-gnu/libcuda.so.615.32.01");
    driver_tree_file(lib_path("host"), HOOK);
    temp_write(lib_dir, "host" HOOK, hook);
    driver_tree_file(lib_path("host"), "/proc/2/stat");
    temp_write(lib_dir, "host/proc/2/stat",
               "2 (kthreadd) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0\n");
    driver_tree_file(lib_path("host"), "/var/log/containers/p_default_c-" ID ".log");
    use_script("");
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, options);
    kubelet_wait_registered(&kubelet, -1);
}

static bool can(void)
{
    const char *first = lib_str(agent_scv(&sim), "status.isolation.0");
    return first && strcmp(first, "driver") == 0;
}

/* The bound pod of n GiB on GPU-1; a former one is replaced. */
static void load_pod(int n)
{
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
        "\"namespace\":\"default\",\"uid\":\"uid-p\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\"}},"
        "\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"name\":\"c\",\"image\":\"i\","
        "\"resources\":{"
        "\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]},"
        "\"status\":{\"phase\":\"Pending\"}}",
        n);
}

/* A pod of 4 GiB on GPU-1, whose container has not started. */
static void admit(void)
{
    cleanup_answer struct kubelet_answer a = {0};
    lib_wait(can());
    load_pod(4);
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_admit(&kubelet, "p", "c", MEM, 4, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    make_folder(POD);
}

/* The driver's account of the cgroup: a limit in MiB, what a process of it uses. */
static struct fake_limits *open_account(int *fd)
{
    struct fake_limits *l = fake_limits_open(fd);
    fake_limits_lock(*fd, F_WRLCK);
    return l;
}

static void close_account(struct fake_limits *l, int fd)
{
    munmap(l, sizeof *l);
    close(fd);
}

static void set_limit(const char *path, unsigned long long bytes)
{
    int fd;
    struct fake_limits *l = open_account(&fd);
    fake_limits_set(l, path, "GPU-1", 0, bytes);
    close_account(l, fd);
}

static unsigned long long limit_of(const char *path)
{
    int fd;
    struct fake_limits *l = open_account(&fd);
    const struct fake_limit *found = fake_limits_find(l, path, "GPU-1");
    unsigned long long bytes = found ? found->hard : FAKE_NO_LIMIT;
    close_account(l, fd);
    return bytes;
}

static void use_memory(unsigned long long mib)
{
    int fd;
    struct fake_limits *l = open_account(&fd);
    l->members[0] = (struct fake_member){
        .pid = getpid(), .path = LEAF, .cards = {{.uuid = "GPU-1", .used = mib * MIB}}};
    close_account(l, fd);
}

static double used(void)
{
    return agent_number(&sim, "status.podList.0.usage.0.usedMemory");
}

/* The words, with a comma behind each; "unknown". */
static const char *enforced_by(void)
{
    json_t *list = lib_at(agent_scv(&sim), "status.podList.0.usage.0.enforcedBy"), *word;
    const char *text = list ? "" : "unknown";
    lib_each(word, list)
        text = lib_fmt("%s%s,", text, json_string_value(word));
    return text;
}

static bool says(const char *line)
{
    return peer_says(&plugin.health, "/metrics", 200, lib_fmt("\n%s\n", line));
}

#define LABELS                                                                           \
    "{namespace=\"default\",pod=\"p\",container=\"c\",card=\"1\",uuid=\"GPU-1\"}"
#define MISSING "gpushare_container_gpu_memory_limit_missing" LABELS

TEST(the_driver_measures_and_its_limit_is_read_back)
{
    set_up(ARGV("--overuse-grace", "1h"));
    admit();
    make_folder(LEAF);
    set_limit(LEAF, 4096 * MIB); /* as the hook does */
    lib_wait(!strcmp(enforced_by(), "driver,"));
    use_memory(3000); /* NVML lists no process of it, as in another pid namespace */
    lib_wait(used() == 3000);
    ck_assert_str_eq(lib_str(agent_scv(&sim), "status.podList.0.usage.0.podUID"),
                     "uid-p");
    lib_wait(says("gpushare_container_gpu_memory_used_bytes" LABELS " 3145728000"));
    use_memory(4096);
    lib_wait(used() == 4096);
    ck_assert(says("scv_agent_overusing_containers 0"));
    use_memory(
        4097); /* whoever lowered a limit, or managed memory: it has no tolerance */
    lib_wait(says("scv_agent_overusing_containers 1"));
    use_memory(0);
    lib_wait(says("scv_agent_overusing_containers 0"));
    /* A limit that is gone is no overuse. */
    set_limit(LEAF, FAKE_NO_LIMIT);
    lib_wait(!strcmp(enforced_by(), ""));
    ck_assert(!sim_events(&sim, "p", "GPUIsolationFailed", ""));
    lib_wait(says(MISSING " 1"));
    lib_wait(sim_events(&sim, "p", "GPUIsolationFailed",
                        "container c has no limit of the driver on GPU1; it should have "
                        "4096 MiB") == 1);
    cleanup_buf struct buf text = {0};
    ck_assert_uint_eq(peer_call(&plugin.health, "GET", "/metrics", NULL, &text), 200);
    promtool_check_metrics(buf_span(&text));
    ck_assert(says("scv_agent_overusing_containers 0"));
    ck_assert(!sim_events(&sim, "p", "GPUOveruse", ""));
    set_limit(LEAF, 4096 * MIB);
    lib_wait(!strcmp(enforced_by(), "driver,"));
    ck_assert(!says(MISSING " 1"));
}

TEST(a_card_that_refuses_withdraws_the_driver)
{
    set_up(NULL);
    admit();
    make_folder(LEAF);
    set_limit(LEAF, 4096 * MIB);
    lib_wait(!strcmp(enforced_by(), "driver,"));
    use_script("sometimes " GET " 999 3\n");
    lib_wait(!strcmp(enforced_by(), "driver,"));
    ck_assert(can());
    use_script("fail " GET " 3\n");
    lib_wait(!can());
    lib_wait(!strcmp(enforced_by(), ""));
    use_script("");
    lib_wait(can());
    lib_wait(!strcmp(enforced_by(), "driver,"));
}

/* The host has no hook that sets them. */
TEST(set_limits_repairs_what_is_wrong)
{
    hook = "update-ldcache";
    set_up(ARGV("--set-limits"));
    admit();
    lib_wait(limit_of(POD) == 4096 * MIB); /* before the container runs */
    make_folder(LEAF);
    lib_wait(limit_of(LEAF) == 4096 * MIB);
    lib_wait(!strcmp(enforced_by(), "driver,"));
    set_limit(LEAF, 9999 * MIB);
    lib_wait(limit_of(LEAF) == 4096 * MIB);
    load_pod(2); /* the container runs on */
    lib_wait(limit_of(LEAF) == 2048 * MIB && limit_of(POD) == 2048 * MIB);
    ck_assert(!sim_events(&sim, "p", "GPUIsolationFailed", ""));
    ck_assert(access(lib_path("cgroup/gpushare-trial"), F_OK) != 0);
}

SUITE_MAIN(120, NULL)
