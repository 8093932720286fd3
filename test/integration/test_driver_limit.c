/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "integration/suite.h"
#include "lib/driver_tree.h"

/*
 * The driver's limit of memory as gpushare-node gives it: the answer to Allocate, the CDI file of
 * the pod, and the Scv, with the fake NVML. What the hook makes of it is in test/e2e-node.
 */

#define NEW      "615.32.01"
#define OLD      "580.95.05"
#define LIBS     DRIVER_TREE_LIBRARIES
#define HOOK     "/usr/bin/nvidia-cdi-hook"
#define UID(pod) "uid-" pod

static const char *const *more;

/* The driver of the node, with both cards. `extra`: lines of the fake NVML. */
static void use_driver(const char *version, const char *extra)
{
    driver_tree_file(lib_path("host"), lib_fmt(LIBS "/libcuda.so.%s", version));
    agent_script(lib_fmt("driver %s\n%s"
                         "card uuid=GPU-0;name=T4;bus=0a;minor=3;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;events=11\n"
                         "card uuid=GPU-1;name=T4;bus=0b;minor=0;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;events=11\n",
                         version, extra));
}

static void start_node_with(int resource) /* that is registered then; -1: all */
{
    const char *options[PROGRAM_ARGS] = {
        "--host-root",   lib_path("host"),   "--cdi-dir",    lib_path("cdi"),
        "--cgroup-root", lib_path("cgroup"), "--gpu-source", agent_nvml()};
    program_args(options, 8, more);
    plugin_start_node(&plugin, &sim, options);
    kubelet_wait_registered(&kubelet, resource);
    lib_wait(agent_number(&sim, "status.cardNumber") == 2);
}

static void start_node(void)
{
    start_node_with(-1);
}

/* A node that can: its files, and gpushare-node with these options. */
static void set_up(const char *const *options)
{
    agent_setup(&sim);
    temp_mkdir(lib_dir, "host");
    temp_mkdir(lib_dir, "cdi");
    temp_mkdir(lib_dir, "cgroup");
    temp_write(lib_dir, "cgroup/cgroup.controllers", "memory dmem\n");
    setenv("FAKE_LIMITS", lib_path("limits-of-driver"), 1);
    setenv("FAKE_CGROUP_ROOT", lib_path("cgroup"), 1);
    driver_tree_make(lib_path("host"), "");
    driver_tree_file(lib_path("host"), HOOK);
    temp_write(lib_dir, "host" HOOK, "update-ldcache apply-cuda-memory-limits");
    use_driver(NEW, "");
    kubelet_start(&kubelet);
    more = options;
}

static bool can(void)
{
    const char *first = lib_str(agent_scv(&sim), "status.isolation.0");
    return first && strcmp(first, "driver") == 0;
}

/* A pod of n GiB on GPU-1, bound; one of that name is replaced. */
static void load_pod(const char *name, int n, const char *isolation)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"" UID(
                 "%s") "\",\"annotations\":{"
                       "\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
                       "\"false\","
                       "\"gpushare/isolation\":\"%s\"}},\"spec\":{\"nodeName\":\"n1\","
                       "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
                       "\"limits\":{"
                       "\"aliyun.com/"
                       "gpu-mem\":\"%d\"}}}]},\"status\":{\"phase\":\"Pending\"}}",
             name, name, isolation, n);
}

/* A pod of 4 GiB on GPU-1. */
static void admit(const char *name, const char *isolation, struct kubelet_answer *a)
{
    load_pod(name, 4, isolation);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, 4, a);
}

static void gets(const char *name, const char *devices)
{
    cleanup_answer struct kubelet_answer a = {0};
    admit(name, "", &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    ck_assert_str_eq(a.devices, devices);
    ck_assert(!lib_at(a.env, "NVIDIA_GPU_MEMORY_LIMIT"));
}

#define DEVICES(pod) "gpushare.io/gpu=GPU-1 gpushare.io/limit=" UID(pod) "-c "
#define FILE_OF(pod) "cdi/gpushare.io-limit-" UID(pod) ".json"
#define TEXT_OF(pod, env)                                                                \
    "{\"cdiVersion\":\"0.5.0\",\"kind\":\"gpushare.io/limit\",\"devices\":[{\"name\":"   \
    "\"" UID(pod) "-c\",\"containerEdits\":{\"env\":[" env "]}}]}\n"
#define LIMITED(pod, mib)                                                                \
    TEXT_OF(pod, "\"NVIDIA_GPU_MEMORY_LIMIT=" mib "\",\"NVIDIA_GPU_MEMORY_REQUEST=0\"")
#define UNLIMITED(pod) TEXT_OF(pod, "\"GPUSHARE_MEMORY_LIMIT=none\"")

static bool has_file(const char *name)
{
    return access(lib_path(name), F_OK) == 0;
}

static bool file_is(const char *name, const char *text)
{
    return has_file(name) && strcmp(lib_read(name), text) == 0;
}

TEST(a_container_gets_the_limit_before_its_answer)
{
    set_up(NULL);
    start_node();
    lib_wait(can());
    ck_assert(program_wait_output(&plugin.program,
                                  "the driver limits the memory of containers"));
    ck_assert_double_eq(plugin_metric(&plugin, "isolation{by=\"driver\"}"), 1);
    ck_assert_double_eq(plugin_metric(&plugin, "isolation{by=\"mps\"}"), 0);
    ck_assert_contains(lib_read("cdi/gpushare.io-gpu.json"),
                       "apply-cuda-memory-limits\",\"--driver-root\",\"/\",\"--gpu-id\","
                       "\"GPU-1\"");
    gets("p", DEVICES("p"));
    ck_assert_str_eq(lib_read(FILE_OF("p")), LIMITED("p", "4096"));
    ck_assert_contains(lib_read("state.json"),
                       "\"driverLimitMiB\":4096,\"limitDevice\":true");
    /* The pod goes, and the file with it. */
    sim_delete_pod(&sim, "p");
    kubelet_remove(&kubelet, "p");
    lib_wait(!has_file(FILE_OF("p")));
    gets("q", DEVICES("q"));
    ck_assert(!has_file(FILE_OF("p")));
    ck_assert(has_file(FILE_OF("q")));
}

/* A boot empties the directory. The kubelet repeats no Allocate. */
TEST(the_files_are_back_after_a_boot)
{
    set_up(NULL);
    start_node();
    lib_wait(can());
    gets("p", DEVICES("p"));
    plugin_stop(&plugin);
    temp_remove(lib_dir, FILE_OF("p"));
    temp_write(lib_dir, FILE_OF("gone"), "{}");
    start_node();
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "4096")));
    lib_wait(!has_file(FILE_OF("gone")));
    /* Without an API server the container waits no longer than for the driver. */
    plugin_stop(&plugin);
    temp_remove(lib_dir, FILE_OF("p"));
    sim_fault(&sim, "{\"resource\":\"pods\",\"action\":\"answer\",\"status\":503}");
    start_node_with(MEM); /* slots are registered once the pods are known */
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "4096")));
    sim_no_faults(&sim);
}

/* It holds at the next start of the container. */
TEST(the_file_follows_the_promise)
{
    set_up(NULL);
    start_node();
    lib_wait(can());
    gets("p", DEVICES("p"));
    load_pod("p", 2, "");
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "2048")));
    ck_assert_contains(lib_read("state.json"), "\"driverLimitMiB\":2048");
}

/* The hook lets no container with the variables start where the driver has no limits. */
TEST(the_files_follow_the_driver)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0}, c = {0};
    set_up(NULL);
    start_node();
    lib_wait(can());
    admit("d", "driver", &c);
    gets("p", DEVICES("p"));
    use_driver(OLD, "");
    lib_wait(file_is(FILE_OF("p"), UNLIMITED("p")));
    /* It starts with its limit or not at all. */
    ck_assert_str_eq(lib_read(FILE_OF("d")), LIMITED("d", "4096"));
    lib_wait(!can());
    ck_assert_double_eq(plugin_metric(&plugin, "isolation{by=\"driver\"}"), 0);
    ck_assert_double_eq(plugin_metric(&plugin, "isolation{by=\"library\"}"), 1);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy",
                          "the driver cannot limit the memory of containers: driver " OLD
                          ": needs 615"));
    ck_assert_at(agent_scv(&sim), "status.isolation.0", "library");
    ck_assert(program_wait_output(&plugin.program,
                                  "the driver cannot limit the memory of containers: "
                                  "driver " OLD ": needs 615"));
    gets("q", "gpushare.io/gpu=GPU-1 ");
    ck_assert(!has_file(FILE_OF("q")));
    admit("r", "driver", &a);
    ck_assert_int_eq(a.status, GRPC_FAILED_PRECONDITION);
    ck_assert_contains(a.words, "no-driver-limit): container c may not start without the "
                                "driver's limit of memory: driver " OLD ": needs 615");
    sim_delete_pod(&sim, "r");
    kubelet_remove(&kubelet, "r");
    plugin_stop(&plugin); /* the next process finds the old driver */
    temp_remove(lib_dir, FILE_OF("p"));
    temp_remove(lib_dir, FILE_OF("d"));
    start_node();
    lib_wait(file_is(FILE_OF("p"), UNLIMITED("p")));
    ck_assert_str_eq(lib_read(FILE_OF("d")), LIMITED("d", "4096"));
    use_driver(NEW, "");
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "4096")));
    lib_wait(can());
    ck_assert(!has_file(FILE_OF("q"))); /* its answer named no device */
    admit("s", "driver", &b);
    ck_assert_msg(b.status == GRPC_OK, "%s", b.words);
    ck_assert_str_eq(b.devices, DEVICES("s"));
}

/* Nothing that a pod of release 1.0 got is different, and nobody says that it lacks anything. */
TEST(a_node_that_cannot_answers_as_1_0)
{
    static const struct {
        const char *driver, *extra, *hook, *cgroup, *why;
    } cases[] = {
        {OLD, "", "apply-cuda-memory-limits", "cgroup.controllers",
         "driver " OLD ": needs 615"},
        {NEW, "fail nvmlDeviceGetMemoryLimits_v1 3 1\n", "apply-cuda-memory-limits",
         "cgroup.controllers", "have no memory limits"},
        {NEW, "", "update-ldcache", "cgroup.controllers",
         HOOK " cannot be read, or has no apply-cuda-memory-limits"},
        {NEW, "", "apply-cuda-memory-limits", "tasks", "cgroup v1: "},
    };
    static const char *const options[][3] = {{"--isolation=auto", "--limit-env"},
                                             {"--isolation=none"},
                                             {"--isolation=driver"}};
    set_up(NULL);
    array_items(c, cases) {
        cleanup_answer struct kubelet_answer by_auto = {0}, by_none = {0},
                                             by_driver = {0};
        struct kubelet_answer *const answers[] = {&by_auto, &by_none, &by_driver};
        use_driver(c->driver, c->extra);
        temp_write(lib_dir, "host" HOOK, c->hook);
        temp_remove(lib_dir, has_file("cgroup/tasks") ? "cgroup/tasks"
                                                      : "cgroup/cgroup.controllers");
        temp_write(lib_dir, lib_fmt("cgroup/%s", c->cgroup), "");
        array_indices(i, options) {
            more = options[i];
            start_node();
            ck_assert(program_wait_output(&plugin.program, c->why));
            admit("p", "", answers[i]);
            sim_delete_pod(&sim, "p");
            kubelet_remove(&kubelet, "p");
            lib_wait(agent_scv_is(&sim, "Healthy Healthy", i == 1 ? "" : c->why));
            ck_assert(!can());
            plugin_stop(&plugin);
            if (i < 2)
                temp_remove(lib_dir, "state.json");
        }
        ck_assert_msg(by_auto.status == GRPC_OK, "%s", by_auto.words);
        ck_assert_msg(by_none.status == GRPC_OK, "%s", by_none.words);
        ck_assert(json_equal(by_auto.env, by_none.env));
        ck_assert_str_eq(by_auto.devices, by_none.devices);
        ck_assert_str_eq(by_auto.mounts, by_none.mounts);
        ck_assert_str_eq(by_auto.devices, "gpushare.io/gpu=GPU-1 ");
        ck_assert_int_eq(by_driver.status, GRPC_FAILED_PRECONDITION);
        ck_assert_contains(by_driver.words, c->why);
    }
}

/* Allocations of 1.0 have no limit, and its containers restart as they were. */
TEST(a_state_file_of_1_0_gives_no_limits)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up(NULL);
    more = ARGV("--isolation=none");
    start_node();
    admit("p", "", &a);
    ck_assert(!strstr(lib_read("state.json"), "imit"));
    plugin_stop(&plugin);
    more = NULL;
    start_node();
    lib_wait(can());
    gets("q", DEVICES("q"));
    ck_assert(has_file(FILE_OF("q")) && !has_file(FILE_OF("p")));
    ck_assert_contains(lib_read("state.json"), "\"driverLimitMiB\":4096");
}

/* An answer names the device in any case: the container waits until it can be defined. */
TEST(a_file_that_cannot_be_written_is_written_later)
{
    set_up(NULL);
    start_node();
    lib_wait(can());
    temp_mkdir(lib_dir, FILE_OF("p"));
    gets("p", DEVICES("p"));
    ck_assert(program_wait_output(&plugin.program, "cannot define limits"));
    ck_assert_int_eq(rmdir(lib_path(FILE_OF("p"))), 0);
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "4096")));
}

/* The hook of an instance sets nothing. A node has one list for all of its cards. */
TEST(a_node_with_instances_cannot)
{
    set_up(NULL);
    use_driver(NEW, "");
    agent_script(
        lib_fmt("%sinstance card=1;at=0;uuid=MIG-0;name=A100 MIG 1g.8gb;gi=7;"
                "ci=0;total=8589934592;free=8589934592;used=0;reserved=0\n",
                lib_swap(lib_read("script"), "minor=0;", "minor=0;mig=1;instances=2;")));
    start_node();
    ck_assert(program_wait_output(&plugin.program,
                                  "the driver cannot limit the memory of containers: the "
                                  "driver limits no instances of MIG"));
    ck_assert(!can());
}

/* The limits that containers of its other cards have stay. */
TEST(a_card_in_mig_mode_takes_no_limit_from_others)
{
    set_up(NULL);
    start_node();
    lib_wait(can());
    gets("p", DEVICES("p")); /* on GPU-1 */
    agent_script(
        lib_fmt("%sinstance card=0;at=0;uuid=MIG-0;name=A100 MIG 1g.8gb;gi=7;"
                "ci=0;total=8589934592;free=8589934592;used=0;reserved=0\n",
                lib_swap(lib_read("script"), "minor=3;", "minor=3;mig=1;instances=2;")));
    lib_wait(!can());
    load_pod("p", 2, "");
    lib_wait(file_is(FILE_OF("p"), LIMITED("p", "2048")));
    ck_assert_str_eq(lib_read(FILE_OF("p")), LIMITED("p", "2048"));
}

/* Within seconds: until then, containers start without a limit. */
TEST(a_driver_that_failed_is_asked_again)
{
    set_up(NULL);
    use_driver(NEW, "fail nvmlDeviceGetMemoryLimits_v1 999\n");
    start_node();
    ck_assert(program_wait_output(&plugin.program, "cannot limit the memory"));
    gets("p", "gpushare.io/gpu=GPU-1 ");
    use_driver(NEW, "");
    lib_wait(can());
    gets("q", DEVICES("q"));
}

SUITE_MAIN(120, NULL)
