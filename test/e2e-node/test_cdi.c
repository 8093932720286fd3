/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mount.h>

#include "domain/keys.h"
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

/*
 * Containers have the device files of their cards or instances and no others: with the CDI
 * specification that the plugin writes, with that of nvidia-ctk, and with device nodes from the
 * kubelet. The driver is a folder with the device numbers of NVIDIA's, behind which no driver
 * is.
 */

#define CDI     "/run/cdi"
#define TOOLKIT "/usr/local/nvidia/toolkit"

static char *driver; /* its root */

static bool plugin_says(const char *text)
{
    return strstr(cluster_file("log/gpushare-device-plugin.log"), text) != NULL;
}

/* What another test has left. */
static void clean_up(void)
{
    unlink(CDI "/gpushare.io-gpu.json");
    unlink(CDI "/nvidia.yaml");
    unlink(TOOLKIT "/nvidia-cdi-hook");
    rmdir(TOOLKIT);
}

/* False: this machine runs no containers. */
static bool begin(void)
{
    if (!node_up())
        return false;
    clean_up();
    driver = inside_make_driver();
    return true;
}

static bool begin_with_cdi(void)
{
    if (!real_has_cdi())
        printf("measured: nothing, because this containerd has no CDI\n");
    return real_has_cdi() && begin();
}

static void start_plugin_with(const char *strategy)
{
    node_start_plugin(ARGV("--host-root", "/", "--driver-root", driver, "--cdi-dir", CDI,
                           "--device-list-strategy", strategy));
    node_wait_well();
}

static void start_plugin(void)
{
    start_plugin_with("auto");
}

static void finish(void)
{
    look_tell_refusals();
    cluster_delete_pods();
    cluster_agrees();
}

/* -- containers -- */

/*
 * The pod runs, and has exactly its cards. Returns them. A podList names pods without their
 * UIDs: until scv-agent publishes again, a pod also counts on the cards that a pod of the
 * same name had in the test before.
 */
static unsigned check_pod(const char *pod, int n)
{
    unsigned cards;
    cluster_wait_running(pod);
    lib_wait_saying(__builtin_popcount(cards = inside_cards(pod)) == n,
                    "pod %s has the cards 0x%x, not %d", pod, cards, n);
    inside_check_opens(pod, cards, cards);
    return cards;
}

static void check_three(void)
{
    node_create("whole", "whole-p");
    cluster_wait_running("whole-p");
    node_create("split", "split-p");
    cluster_wait_running("split-p");
    node_create("one", "one-p");
    unsigned whole = check_pod("whole-p", 1), split = check_pod("split-p", 2);
    check_pod("one-p", 1);
    ck_assert_uint_eq(whole & split, 0);
}

static void check_libraries(const char *dir, const char *files)
{
    ck_assert_str_eq(inside_run("one-p", "files", dir), files);
}

TEST(containers_have_the_device_files_of_their_cards)
{
    if (!begin())
        return;
    start_plugin();
    check_three();
    if (real_has_cdi()) {
        ck_assert(plugin_says("auto stands for cdi-cri"));
        ck_assert_int_eq(access(CDI "/gpushare.io-gpu.json", F_OK), 0);
        check_libraries("/usr/local/nvidia/lib64",
                        "libcuda.so.1\nlibcuda.so." DRIVER_VERSION
                        "\nlibnvidia-ml.so.1\nlibnvidia-ml.so." DRIVER_VERSION "\n");
    } else {
        ck_assert(plugin_says("auto stands for envvar"));
    }
    finish();
}

/* -- the plugin's specification, with NVIDIA's hook -- */

/* Where the GPU Operator installs it. */
static void install_hook(void)
{
    lib_output(0,
               ARGV("install", "-D", "-t", TOOLKIT, cluster_program("nvidia-cdi-hook")));
}

TEST(the_hook_of_nvidia_makes_the_links_of_libraries)
{
    if (!begin_with_cdi())
        return;
    install_hook();
    start_plugin();
    node_create("one", "one-p");
    check_pod("one-p", 1);
    check_libraries(DRIVER_LIBRARIES,
                    "libcuda.so.1\nlibcuda.so." DRIVER_VERSION
                    "\nlibnvidia-ml.so.1\nlibnvidia-ml.so." DRIVER_VERSION "\n");
    check_libraries("/usr/local/nvidia/lib64", "");
    finish();
}

/* -- the specification of nvidia-ctk -- */

static void generate(void)
{
    lib_output(0,
               ARGV("env", lib_fmt("FAKE_NVML=%s/nvml", cluster.dir),
                    cluster_program("nvidia-ctk"), "cdi", "generate", "--mode", "nvml",
                    "--driver-root", driver, "--nvidia-cdi-hook-path",
                    cluster_program("nvidia-cdi-hook"), "--output", CDI "/nvidia.yaml"));
}

TEST(the_specification_of_nvidia_ctk_is_used)
{
    if (!begin_with_cdi())
        return;
    generate();
    start_plugin();
    check_three();
    ck_assert(plugin_says("take names of the kind nvidia.com/gpu"));
    /* ldconfig, a hook, makes links of sonames, which these libraries do not have. */
    check_libraries(DRIVER_LIBRARIES, "libcuda.so\nlibcuda.so." DRIVER_VERSION
                                      "\nlibnvidia-ml.so." DRIVER_VERSION "\n");
    finish();
}

/* -- control groups -- */

TEST(a_container_keeps_its_card_when_its_control_group_is_set_again)
{
    if (!begin())
        return;
    start_plugin();
    node_create("one", "one-p");
    unsigned cards = check_pod("one-p", 1);
    inside_update("one-p");
    inside_check_opens("one-p", cards, cards);
    if (inside_has_lists()) {
        int other = cards & 1 ? 1 : 0;
        inside_allow("one-p", other);
        inside_check_opens("one-p", cards, cards | 1U << other);
        inside_restore("one-p");
        inside_check_opens("one-p", cards, cards);
    } else {
        printf("measured: no lists of devices to set again: this is cgroup v2\n");
    }
    finish();
}

/* -- instances of a card in MIG mode -- */

/* The kernel's list of capability files, for the processes of the cell alone. */
static void make_capabilities(void)
{
    const char *text = "config 1\nmonitor 2\n";
    for (int i = 0; i < NODE_INSTANCES; i++) {
        const char *gi = lib_fmt("gpu%d/gi%d", NODE_SPLIT, i + 1);
        text = lib_fmt("%s%s/access %d\n%s/ci0/access %d\n", text, gi, NODE_CARDS + 2 * i,
                       gi, NODE_CARDS + 2 * i + 1);
    }
    ck_assert_msg(mount("tmpfs", "/proc/driver", "tmpfs", 0, "mode=755") == 0,
                  "mount /proc/driver: %m");
    temp_mkdir("/proc/driver", "nvidia-caps");
    temp_write("/proc/driver/nvidia-caps", "mig-minors", text);
}

static void create_with_profile(const char *kind, const char *name)
{
    const char *text = node_pod(kind, name);
    json_t *pod = lib_parse(text, strlen(text));
    json_object_set_new(lib_at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", KEY_GPU_MODEL, NODE_PROFILE));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
}

/* The pod has this instance alone. `visible`: its variable. */
static void check_instance(const char *name, int i, const char *visible)
{
    unsigned files = 1U << NODE_SPLIT | 3U << (NODE_CARDS + 2 * i);
    cluster_wait_running(name);
    const json_t *pod = cluster_pod(name);
    ck_assert_str_eq(lib_annotation(pod, "gpushare/card-uuid"), node_instances[i]);
    const char *log;
    lib_wait((log = real_log(name, lib_str(pod, "metadata.uid"), "c")));
    ck_assert_str_eq(look_variable(log, "NVIDIA_VISIBLE_DEVICES"), visible);
    inside_check_opens(name, files, files);
}

TEST(a_container_has_the_files_of_its_instance_alone)
{
    if (!begin())
        return;
    make_capabilities();
    node_split_card();
    start_plugin_with("envvar");
    /* There are three full cards and two instances. */
    node_create("wholes", "wholes-p");
    cluster_wait_refused("wholes-p", "instances of cards in MIG mode are taken by their "
                                     "profile (" KEY_GPU_MODEL ")");
    create_with_profile("whole", "whole-p");
    check_instance("whole-p", 0, node_instances[0]);
    create_with_profile("two", "two-p");
    check_instance("two-p", 1, node_instances[1]);
    /* Binpack takes what is left of the instance before a card, also with CDI. */
    if (real_has_cdi())
        start_plugin();
    node_create("equal", "equal-p");
    check_instance("equal-p", 1, real_has_cdi() ? "void" : node_instances[1]);
    finish();
}

NODE_MAIN
