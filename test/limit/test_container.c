/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "base/file.h"
#include "lib/agent.h"
#include "lib/plugin.h"
#include "limit/pod.h"

/*
 * From the annotation of a pod to the program in its container: gpushare-device-plugin makes
 * the files and names the mounts, and a program finds what is mounted.
 */

static struct sim sim;
static struct kubelet kubelet;
static struct plugin plugin;
static char *limits; /* --limit-dir */

static void set_up(const char *const *more)
{
    sim_start(&sim, ARGV(NULL));
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\"}}");
    agent_cards("{'uuid':'" POD_UUID "','model':'Tesla T4','memoryTotal':1073741824}");
    kubelet_start(&kubelet);
    const char *args[8] = {"--memory-unit", "MiB"};
    for (size_t i = 0; more[i]; i++)
        args[2 + i] = more[i];
    plugin_start(&plugin, &sim, args);
    kubelet_wait_registered(&kubelet, -1);
    limits = temp_path(lib_dir, "limits");
}

static void tear_down(void)
{
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    sim_stop(&sim);
    free(limits);
}

static void admit(const char *name, const char *isolation, struct kubelet_answer *a)
{
    cleanup_free char *notes =
        xasprintf("{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"gpushare/card-uuid\":\"" POD_UUID
                  "\",\"gpushare/isolation\":\"%s\"}",
                  isolation);
    sim_add_bound_pod(&sim, name, 64, "n1", notes);
    kubelet_add(&kubelet, name, ARGV("c", NULL));
    kubelet_admit(&kubelet, name, "c", MEM, 64, a);
    ck_assert_msg(a->status == GRPC_OK, "%s", a->words);
}

/* The source of the mount at this place in the container; new. */
static char *mounted(const struct kubelet_answer *a, const char *at, const char *how)
{
    cleanup_free char *end = xasprintf(":%s:%s ", at, how);
    const char *found = strstr(a->mounts, end), *from = found;
    ck_assert_msg(found != NULL, "no mount of %s in %s", at, a->mounts);
    while (from > a->mounts && from[-1] != ' ')
        from--;
    return xmemdup0(from, (size_t)(found - from));
}

static void show(const char *dir, const char *name, const char *source)
{
    cleanup_free char *path = temp_path(dir, name);
    ck_assert_msg(symlink(source, path) == 0, "%s: %m", path);
}

/* The folder /usr/local/gpushare of the container. */
static char *container_of(const struct kubelet_answer *a)
{
    cleanup_free char *library =
        mounted(a, "/usr/local/gpushare/libgpushare-limit.so", "ro");
    cleanup_free char *limit = mounted(a, "/usr/local/gpushare/limit", "ro");
    cleanup_free char *state = mounted(a, "/usr/local/gpushare/state/0", "rw");
    cleanup_free char *preload = mounted(a, "/etc/ld.so.preload", "ro");
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(preload, 4096, &text, &err), err);
    ck_assert_str_eq(text.p, "/usr/local/gpushare/libgpushare-limit.so\n");
    ck_assert_str_eq(json_string_value(json_object_get(a->env, "LD_PRELOAD")),
                     "/usr/local/gpushare/libgpushare-limit.so");
    char *dir = temp_dir();
    show(dir, "libgpushare-limit.so", library);
    show(dir, "limit", limit);
    temp_mkdir(dir, "state");
    show(dir, "state/0", state);
    return dir;
}

TEST(a_program_gets_its_promise_and_no_more)
{
    cleanup_answer struct kubelet_answer a = {0};
    struct pod pod;
    struct program first;
    set_up(ARGV(NULL));
    admit("p", "limit", &a);
    cleanup_free char *dir = container_of(&a);
    pod_begin_in(&pod, dir);
    ck_assert_uint_eq(pod.limit->limit, 64u << 20);
    ck_assert_str_eq(pod.limit->uuid, POD_UUID);
    pod_run(&pod, "guest", "more", "dlsym", "60", 0);
    pod_run(&pod, "guest", "more", "dlsym", "65", 2);
    pod_start(&pod, &first, "guest", "hold", "dlsym", "40");
    ck_assert(program_wait_output(&first, "held"));
    pod_run(&pod, "guest", "more", "dlsym", "40", 2);
    program_kill(&first);
    ck_assert(plugin_metric(&plugin, "limited_containers_total") == 1);
    ck_assert(plugin_metric(&plugin, "limit_failures_total") == 0);
    pod_end(&pod);
    tear_down();
}

/* An image with its own /etc/ld.so.preload keeps it; the variable loads the library. */
TEST(a_pod_whose_image_has_a_preload_file_uses_the_variable)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    set_up(ARGV(NULL));
    admit("p", "limit-env", &a);
    ck_assert_lacks(a.mounts, "ld.so.preload");
    ck_assert_str_eq(json_string_value(json_object_get(a.env, "LD_PRELOAD")),
                     "/usr/local/gpushare/libgpushare-limit.so");
    admit("q", "limit-file", &b);
    ck_assert_ptr_null(json_object_get(b.env, "LD_PRELOAD"));
    cleanup_free char *preload = mounted(&b, "/etc/ld.so.preload", "ro");
    lib_wait(plugin_metric(&plugin, "limited_containers_total") == 2);
    ck_assert(plugin_metric(&plugin, "limit_failures_total") == 0);
    tear_down();
}

static bool has_folders(const char *uid)
{
    cleanup_free char *path = xasprintf("%s/pods/%s", limits, uid);
    return access(path, F_OK) == 0;
}

TEST(the_folder_of_a_pod_goes_with_the_pod)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up(ARGV("--isolation", "limit"));
    admit("p", "", &a);
    cleanup_free char *limit = mounted(&a, "/usr/local/gpushare/limit", "ro");
    cleanup_free char *state = mounted(&a, "/usr/local/gpushare/state/0", "rw");
    const char *uid = strstr(limit, "/pods/") + strlen("/pods/");
    cleanup_free char *name = xmemdup0(uid, strcspn(uid, "/"));
    ck_assert(has_folders(name));
    /* What the pod wrote: more than its state, and that the limit did not hold. */
    struct stat st;
    struct limit_state *s = xcalloc(1, sizeof *s);
    *s = (struct limit_state){
        .magic = LIMIT_STATE_MAGIC, .version = LIMIT_VERSION, .reasons = LIMIT_NO_LOCKS};
    FILE *f = fopen(state, "r+");
    ck_assert(f && fwrite(s, sizeof *s, 1, f) == 1 && fclose(f) == 0);
    free(s);
    ck_assert_int_eq(truncate(state, 1 << 20), 0);
    lib_wait(stat(state, &st) == 0 && st.st_size == (off_t)sizeof(struct limit_state));
    lib_wait(sim_events(&sim, NULL, "GPUIsolationFailed",
                        "could not be applied: no open file description locks"));
    sim_delete_pod(&sim, "p");
    lib_wait(!has_folders(name));
    tear_down();
}

TEST(a_pod_without_isolation_gets_none)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    set_up(ARGV(NULL));
    admit("p", "", &a);
    ck_assert_str_eq(a.mounts, "");
    admit("q", "mps", &b);
    ck_assert_str_eq(b.mounts, "");
    lib_wait(sim_events(&sim, NULL, "GPUIsolationFailed", "this node has no MPS daemon"));
    tear_down();
}

/* The container starts, and the reason is an event. */
TEST(a_full_disk_costs_the_limit_and_not_the_pod)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up(ARGV(NULL));
    cleanup_free char *pods = temp_path(limits, "pods");
    ck_assert_int_eq(rmdir(pods), 0); /* no folder can be made in it */
    admit("p", "limit", &a);
    ck_assert_str_eq(a.mounts, "");
    ck_assert_ptr_null(json_object_get(a.env, "LD_PRELOAD"));
    lib_wait(sim_events(&sim, NULL, "GPUIsolationFailed",
                        "its containers have no limit on this node"));
    lib_wait(plugin_metric(&plugin, "limit_failures_total") == 1);
    tear_down();
}

LIB_MAIN(60)
