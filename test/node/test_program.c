/* SPDX-License-Identifier: Apache-2.0 */
#include "node/program.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "lib/driver_tree.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/driver_loss.h"

/*
 * The whole node program in the process of the test, with the fake NVML and without an API
 * server: what minutes do to it. Linked with --wrap=clock_mono_ms (test/rules.mk).
 */

static atomic_llong passed_ms;
int64_t __real_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return __real_clock_mono_ms() + atomic_load(&passed_ms);
}

static char *dir;
static struct node_options options;
static const struct opt_program *table;

static void script(const char *text)
{
    temp_write(dir, "script", text);
}

static struct node_program *start(const char *mode)
{
    struct err err;
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *gpu = xasprintf("--gpu-source=nvml:%s/fake-nvml/libnvidia-ml.so.1",
                                       build ? build : "build"),
                      *plugins = xasprintf("--plugin-dir=%s", dir),
                      *state = xasprintf("--state-file=%s/state", dir),
                      *limits = xasprintf("--limit-dir=%s/limits", dir),
                      *host = xasprintf("--host-root=%s/host", dir),
                      *cdi = xasprintf("--cdi-dir=%s/cdi", dir),
                      *cgroup = xasprintf("--cgroup-root=%s/cgroup", dir),
                      *config = xasprintf("--kubeconfig=%s/config", dir);
    const char *argv[] = {"gpushare-node",
                          "--node-name=n1",
                          "--listen=127.0.0.1",
                          "--port=0",
                          "--publish-port=0",
                          gpu,
                          plugins,
                          state,
                          limits,
                          host,
                          cdi,
                          cgroup,
                          config,
                          mode};
    table = node_options_of(argv[0], &options);
    ck_assert_msg(opt_load(table, &options, ARRAY_LEN(argv), (char *const *)argv, NULL,
                           NULL, stdout, &err) == OPT_RUN,
                  "%s", err.msg);
    struct node_program *p = node_program_start(&options, &err);
    ck_assert_msg(p != NULL, "%s", err.msg);
    return p;
}

#define UP "driver 535.1\ncard uuid=GPU-0;name=T4;total=16106127360;free=16106127360\n"

/* The kubelet makes a new container, which alone can find the driver again. */
TEST(a_lost_driver_ends_the_process)
{
    static const char *const modes[] = {"--allocate=on", "--allocate=off",
                                        "--publish=off"};
    array_items(mode, modes) {
        struct err err = {0};
        int number = 0;
        sigset_t signals = signals_block();
        const struct timespec none = {0}, moment = {0, 200 * 1000 * 1000};
        script(UP);
        struct node_program *p = start(*mode);
        passed_ms += 2 * DRIVER_LOSS_FIRST_MS; /* it works */
        ck_assert_int_eq(sigtimedwait(&signals, NULL, &none), -1);
        ck_assert_int_eq(node_program_verdict(p, &err), 0);
        script("down 999\n");
        do /* the first failure, then minutes */
            passed_ms += DRIVER_LOSS_MS;
        while ((number = sigtimedwait(&signals, NULL, &moment)) < 0);
        ck_assert_int_eq(number, SIGTERM);
        ck_assert_int_eq(node_program_verdict(p, &err), -1);
        ck_assert_contains(err.msg, "Unknown Error (999)");
        ck_assert(node_program_stop(p));
        opt_free(table, &options);
        options = (struct node_options){0};
    }
}

static bool is_there(const char *name)
{
    cleanup_free char *path = temp_path(dir, name);
    return access(path, F_OK) == 0;
}

/* A minute passes, and the host is looked at again: our specification is back. */
static void look_again(void)
{
    for (int i = 0; i < 2; i++) {
        temp_remove(dir, "cdi/" DRIVER_CDI_FILE);
        passed_ms += 60 * 1000;
        while (!is_there("cdi/" DRIVER_CDI_FILE))
            usleep(1000);
    }
}

static bool has_limit(void)
{
    cleanup_free char *text = temp_read(dir, "cdi/gpushare.io-limit-u1.json");
    return strstr(text, "NVIDIA_GPU_MEMORY_LIMIT=4096") != NULL;
}

/* A container that starts meanwhile would be unbounded. What the driver says counts. */
TEST(a_limit_outlives_a_failure_of_the_driver)
{
#define NEW "driver 615.1\ncard uuid=GPU-0;name=T4;minor=3;total=16106127360;free=1\n"
    cleanup_free char *root = temp_path(dir, "cgroup"),
                      *account = temp_path(dir, "account");
    cleanup_free char *host = temp_path(dir, "host");
    sigset_t signals = signals_block();
    (void)signals;
    temp_mkdir(dir, "host");
    temp_mkdir(dir, "cdi");
    temp_mkdir(dir, "cgroup");
    temp_write(dir, "cgroup/cgroup.controllers", "");
    driver_tree_make(host, "");
    driver_tree_file(host, DRIVER_TREE_LIBRARIES "/libcuda.so.615.1");
    driver_tree_file(host, DRIVER_TREE_LIBRARIES "/libcuda.so.615.2");
    setenv("FAKE_CGROUP_ROOT", root, 1);
    setenv("FAKE_LIMITS", account, 1);
    temp_write(dir, "state",
               "{\"version\":1,\"node\":\"n1\",\"grants\":[{\"uid\":\"u1\",\"namespace\":"
               "\"ns\",\"pod\":\"p\",\"container\":\"c\",\"role\":\"app\",\"resource\":"
               "\"aliyun.com/gpu-mem\",\"driverLimitMiB\":4096,\"limitDevice\":true,"
               "\"cards\":[{\"uuid\":\"GPU-0\",\"index\":0,\"units\":\"0-3\"}]}]}");
    script(NEW);
    struct node_program *p = start("--publish=off");
    while (!is_there("cdi/gpushare.io-limit-u1.json"))
        usleep(1000);
    ck_assert(has_limit());
    script(NEW "fail nvmlDeviceGetMemoryLimits_v1 999\n");
    look_again();
    ck_assert(has_limit());
    /* Also where the driver is another one, or the process: the hook asks for itself. */
    script("driver 615.2\ncard uuid=GPU-0;name=T4;minor=3;total=16106127360;free=1\n"
           "fail nvmlDeviceGetMemoryLimits_v1 999\n");
    look_again();
    ck_assert(has_limit());
    script(NEW "fail nvmlDeviceGetMemoryLimits_v1 3\n"); /* switched off in the driver */
    look_again();
    while (has_limit())
        usleep(1000);
    script(NEW);
    look_again();
    while (!has_limit())
        usleep(1000);
    ck_assert(node_program_stop(p));
    opt_free(table, &options);
}

static void begin(void)
{
    dir = temp_dir();
    cleanup_free char *path = temp_path(dir, "script");
    setenv("FAKE_NVML", path, 1);
    temp_write(dir, "config",
               "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
               "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
               "users: [{name: u, user: {}}]\n"
               "contexts: [{name: c, context: {cluster: c, user: u}}]\n");
}

static void end(void)
{
    temp_dir_remove(dir);
}

UNIT_MAIN_AROUND(begin, end)
