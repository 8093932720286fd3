/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

/*
 * Containers have the device files of their cards and no others: with the CDI specification
 * that the plugin writes, with that of nvidia-ctk, and with device nodes from the kubelet
 * where containerd has no CDI. The driver is a folder with the device numbers of NVIDIA's,
 * behind which no driver is.
 */

#define CDI     "/run/cdi"
#define TOOLKIT "/usr/local/nvidia/toolkit"

static char *driver; /* its root */

static bool plugin_says(const char *text)
{
    cleanup_free char *log = temp_read(cluster.dir, "log/gpushare-device-plugin.log");
    return strstr(log, text) != NULL;
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

static void start_plugin(void)
{
    node_start_plugin(
        ARGV("--host-root", "/", "--driver-root", driver, "--cdi-dir", CDI));
    node_wait_well();
}

static void finish(void)
{
    free(driver);
    look_tell_refusals();
    cluster_delete_pods();
    cluster_agrees();
}

/* -- containers -- */

/* The pod runs, and has exactly its cards. Returns them. */
static unsigned check_pod(const char *pod, int n)
{
    cluster_wait_running(pod);
    unsigned cards = inside_cards(pod);
    ck_assert_msg(__builtin_popcount(cards) == n, "pod %s has the cards 0x%x, not %d",
                  pod, cards, n);
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
    cleanup_free char *is = inside_run("one-p", "files", dir);
    ck_assert_str_eq(is, files);
}

START_TEST(containers_have_the_device_files_of_their_cards)
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
END_TEST

/* -- the plugin's specification, with NVIDIA's hook -- */

/* Where the GPU Operator installs it. */
static void install_hook(void)
{
    cleanup_free char *hook = cluster_program("nvidia-cdi-hook");
    cleanup_buf struct buf program = {0};
    struct err err;
    ck_assert_msg(mkdir(TOOLKIT, 0755) == 0, "mkdir " TOOLKIT ": %m");
    ck_assert_done(file_read(hook, 1 << 26, &program, &err), err);
    ck_assert_done(file_write(TOOLKIT "/nvidia-cdi-hook", buf_span(&program), &err), err);
    ck_assert_int_eq(chmod(TOOLKIT "/nvidia-cdi-hook", 0755), 0);
}

START_TEST(the_hook_of_nvidia_makes_the_links_of_libraries)
{
    if (!begin())
        return;
    if (!real_has_cdi()) {
        printf("measured: no hook of a specification: this containerd has no CDI\n");
        finish();
        return;
    }
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
END_TEST

/* -- the specification of nvidia-ctk -- */

static void generate(void)
{
    struct program p;
    cleanup_free char *ctk = cluster_program("nvidia-ctk");
    cleanup_free char *hook = cluster_program("nvidia-cdi-hook");
    cleanup_free char *cards = xasprintf("FAKE_NVML=%s/nvml", cluster.dir);
    program_start(&p, cell_dir(),
                  ARGV("env", cards, ctk, "cdi", "generate", "--mode", "nvml",
                       "--driver-root", driver, "--nvidia-cdi-hook-path", hook,
                       "--output", CDI "/nvidia.yaml"));
    int status = program_wait(&p);
    ck_assert_msg(status == 0, "nvidia-ctk cdi generate: %s", program_output(&p));
    program_fini(&p);
}

START_TEST(the_specification_of_nvidia_ctk_is_used)
{
    if (!begin())
        return;
    if (!real_has_cdi()) {
        printf("measured: no specification of nvidia-ctk: this containerd has no CDI\n");
        finish();
        return;
    }
    generate();
    start_plugin();
    check_three();
    ck_assert_int_ne(access(CDI "/gpushare.io-gpu.json", F_OK), 0);
    /* ldconfig, a hook, makes links of sonames, which these libraries do not have. */
    check_libraries(DRIVER_LIBRARIES, "libcuda.so\nlibcuda.so." DRIVER_VERSION
                                      "\nlibnvidia-ml.so." DRIVER_VERSION "\n");
    finish();
}
END_TEST

/* -- control groups -- */

START_TEST(a_container_keeps_its_card_when_its_control_group_is_set_again)
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
END_TEST

NODE_MAIN("cdi", containers_have_the_device_files_of_their_cards,
          the_hook_of_nvidia_makes_the_links_of_libraries,
          the_specification_of_nvidia_ctk_is_used,
          a_container_keeps_its_card_when_its_control_group_is_set_again)
