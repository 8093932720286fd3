/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "domain/keys.h"
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"
#include "gpu/fake_limits.h"

/*
 * The driver limits the memory of containers by their cgroups: NVIDIA's hook, which the container's
 * runtime calls by a CDI specification, tells it the limit. The driver is the fake NVML, all else is
 * real.
 */

#define CDI     "/run/cdi"
#define TOOLKIT "/usr/local/nvidia/toolkit"
#define PLUGIN  "gpushare-device-plugin"
#define DRIVER  "615.43.02"
#define UUID    "GPU-11111111-0a0a-4b4b-8c8c-000000000001" /* of card 0 */

static char *driver; /* its root */

static const unsigned long long MIB = 1 << 20, NONE = FAKE_NO_LIMIT;

static bool is_possible(void)
{
    if (!real_has_cdi())
        printf("measured: nothing, because this containerd has no CDI\n");
    return real_has_cdi() && !cell_why_not();
}

/* -- the stand-ins -- */

/* NVIDIA's hook for this machine: it asks for cgroup v2 at /sys/fs/cgroup, and the stand-in of the
 * driver for its files. A script that runs PROGRAM.real, as the GPU Operator installs it. */
static char *write_hook(void)
{
    const char *root = node_cgroups();
    temp_script(cell_dir(), "nvidia-cdi-hook",
                lib_fmt("[ \"$IN\" ] || IN=1 exec unshare --mount \"$0\" \"$@\"\n"
                        "[ %s = /sys/fs/cgroup ] || mount --bind %s /sys/fs/cgroup || "
                        "exit\n"
                        "exec env FAKE_NVML=%s/nvml FAKE_LIMITS=%s \"$0.real\" \"$@\"\n",
                        root, root, cluster.dir, node_limits()));
    lib_output(0, ARGV("ln", "-sf", cluster_program("nvidia-cdi-hook"),
                       lib_fmt("%s/nvidia-cdi-hook.real", cell_dir())));
    return lib_fmt("%s/nvidia-cdi-hook", cell_dir());
}

/* The account at the time when the program of the container started. */
static char *account_of(const char *id)
{
    return lib_fmt("%s/starts/%s", cell_dir(), id);
}

/* Keeps the account before each program of a container starts. While there is the file "jit", the
 * runtime is NVIDIA's. */
static void write_runtime(void)
{
    temp_script(cell_dir(), "runtime",
                lib_fmt("cd %s || exit\n"
                        "case \" $* \" in *' start '*)\n"
                        "    for id; do :; done; cp %s starts/$id || : >starts/$id\n"
                        "esac\n"
                        "[ -e jit ] || exec runc \"$@\"\n"
                        "FAKE_NVML=%s/nvml XDG_CONFIG_HOME=$PWD exec %s \"$@\"\n",
                        cell_dir(), node_limits(), cluster.dir,
                        cluster_program("nvidia-container-runtime")));
    real_set_runtime(lib_fmt("%s/runtime", cell_dir()));
}

/* The hard limit on the card of the cgroup whose path ends so, in an account. */
static unsigned long long limit_in(const char *account, const char *cgroup,
                                   const char *uuid)
{
    struct fake_limits all = {0};
    FILE *f = fopen(account, "re");
    unsigned long long hard = NONE;
    if (f && fread(&all, sizeof all, 1, f) != 1)
        all = (struct fake_limits){0};
    if (f)
        fclose(f);
    for (const struct fake_limit *l = all.limits; l < all.limits + FAKE_LIMITS; l++) {
        size_t n = strlen(l->path), end = strlen(cgroup);
        if (strcmp(l->uuid, uuid) || n < end || strcmp(l->path + n - end, cgroup))
            continue;
        ck_assert_uint_eq(l->soft, 0); /* it would stay behind in the ancestors */
        ck_assert_uint_eq(hard, NONE);
        hard = l->hard;
    }
    return hard;
}

/* -- the hook alone -- */

static const struct alone {
    const char *what, *env; /* of the container, in JSON */
    int status, mib;        /* -1: no limit */
    const char *says;
    bool is_old; /* the driver has no such function */
} alone[] = {
    {"no specification of the container", NULL, 0, -1, "", false},
    {"neither variable", "\"A=1\"", 0, -1, "", false},
    {"as the node program gives it",
     "\"NVIDIA_GPU_MEMORY_REQUEST=0\",\"NVIDIA_GPU_MEMORY_LIMIT=3000\"", 0, 3000, "",
     false},
    {"a limit of nothing",
     "\"NVIDIA_GPU_MEMORY_REQUEST=0\",\"NVIDIA_GPU_MEMORY_LIMIT=0\"", 0, 0, "", false},
    {"the first of two",
     "\"NVIDIA_GPU_MEMORY_LIMIT=3000\",\"NVIDIA_GPU_MEMORY_REQUEST=0\","
     "\"NVIDIA_GPU_MEMORY_LIMIT=4000\"",
     0, 3000, "", false},
    {"an empty limit", "\"NVIDIA_GPU_MEMORY_REQUEST=0\",\"NVIDIA_GPU_MEMORY_LIMIT=\"", 1,
     -1, "failed to parse NVIDIA_GPU_MEMORY_LIMIT", false},
    {"more than the card has",
     "\"NVIDIA_GPU_MEMORY_REQUEST=0\",\"NVIDIA_GPU_MEMORY_LIMIT=9000\"", 1, -1,
     "failed to set memory limits", false},
    {"an old driver, no variable", "\"A=1\"", 0, -1, "", true},
    {"an old driver", "\"NVIDIA_GPU_MEMORY_LIMIT=3000\"", 127, -1,
     "undefined symbol: nvmlDeviceSetMemoryLimits_v1", true},
};

static int run_hook(const char *hook, const char *bundle, pid_t pid, const char **said)
{
    const char *state =
        lib_fmt("{\"ociVersion\":\"1.0.2\",\"id\":\"c\",\"status\":\"creating\","
                "\"pid\":%d,\"bundle\":\"%s\"}",
                (int)pid, bundle);
    struct program p;
    temp_write(lib_dir, "state", state);
    program_start(&p, lib_dir,
                  ARGV("sh", "-c", lib_fmt("exec \"$@\" <%s/state", lib_dir), "sh", hook,
                       "apply-cuda-memory-limits", "--driver-root", driver, "--gpu-id",
                       UUID));
    int status = program_wait(&p);
    *said = lib_keep(program_end(&p, -1), free);
    return status;
}

TEST(the_hook_sets_the_limit_of_the_cgroup_of_the_process)
{
    if (!is_possible())
        return;
    driver = inside_make_driver();
    inside_change_driver(DRIVER, node_nvml());
    const char *hook = write_hook();
    array_indices(i, alone) {
        const struct alone *c = &alone[i];
        const char *cgroup = lib_fmt("/%s/alone-%zu", cell_cgroup(), i);
        const char *folder = lib_fmt("%s%s", node_cgroups(), cgroup), *said;
        const char *bundle = lib_fmt("%s/%zu", lib_dir, i);
        struct program p;
        ck_assert_int_eq(mkdir(folder, 0755), 0);
        ck_assert_int_eq(mkdir(bundle, 0755), 0);
        if (c->is_old)
            inside_change_driver(DRIVER_VERSION,
                                 node_built("fake-nvml/old/libnvidia-ml.so.1"));
        if (c->env)
            temp_write(bundle, "config.json",
                       lib_fmt("{\"process\":{\"env\":[%s]}}", c->env));
        program_start(&p, lib_dir,
                      ARGV("sh", "-c",
                           lib_fmt("echo $$ >%s/cgroup.procs && echo there && "
                                   "exec tail -f /dev/null",
                                   folder)));
        ck_assert(program_wait_output(&p, "there"));
        int status = run_hook(hook, bundle, p.pid, &said);
        ck_assert_msg(status == c->status && strstr(said, c->says), "%s: %d: %s", c->what,
                      status, said);
        unsigned long long is = limit_in(node_limits(), cgroup, UUID);
        ck_assert_msg(is == (c->mib < 0 ? NONE : c->mib * MIB), "%s: %llu", c->what, is);
        program_kill(&p);
    }
}

/* -- containers -- */

/* How the driver is told the limit of a container. */
enum way { GENERATED, OWN, RUNTIME, ITSELF };
static const struct {
    const char *what, *strategy, *option;
} ways[] = {
    [GENERATED] = {"by the specification of nvidia-ctk", "cdi-annotations",
                   "--limit-env"},
    [OWN] = {"by the specification of the node program", "cdi-cri", "--limit-env"},
    [RUNTIME] = {"by the runtime of NVIDIA", "envvar", "--limit-env"},
    [ITSELF] = {"by the node program itself", "cdi-cri", "--set-limits"},
};

/* How often the plugin has said so. */
static size_t count(const char *text)
{
    const char *file = "log/" PLUGIN ".log";
    const char *log =
        access(lib_fmt("%s/%s", cluster.dir, file), F_OK) ? "" : cluster_file(file);
    size_t n = 0;
    while ((log = strstr(log, text))) {
        log++;
        n++;
    }
    return n;
}

#define LIMITS    "the driver limits the memory of containers"
#define NO_LIMITS "the driver cannot limit the memory of containers: "

static void generate(const char *hook)
{
    lib_output(0, ARGV("env", lib_fmt("FAKE_NVML=%s/nvml", cluster.dir),
                       cluster_program("nvidia-ctk"), "cdi", "generate", "--mode", "nvml",
                       "--driver-root", driver, "--nvidia-cdi-hook-path", hook,
                       "--output", CDI "/nvidia.yaml"));
}

static void use_runtime_of_nvidia(void)
{
    lib_output(0,
               ARGV("mkdir", "-p", lib_fmt("%s/nvidia-container-runtime", cell_dir())));
    temp_write(cell_dir(), "nvidia-container-runtime/config.toml",
               lib_fmt("[nvidia-container-cli]\nroot = \"%s\"\n"
                       "[nvidia-ctk]\npath = \"" TOOLKIT "/nvidia-cdi-hook\"\n"
                       "[nvidia-container-runtime]\nmode = \"jit-cdi\"\n"
                       "debug = \"%s/log/nvidia-container-runtime.log\"\n",
                       driver, cluster.dir));
    temp_write(cell_dir(), "jit", "");
}

static void clean_up(void)
{
    lib_output(0, ARGV("sh", "-c", "rm -rf " CDI "/* " TOOLKIT " \"$@\"", "sh",
                       lib_fmt("%s/jit", cell_dir()), node_limits()));
}

/* False: this machine runs no containers. */
static bool begin(enum way way)
{
    if (!is_possible())
        return false;
    mkdir(lib_fmt("%s/starts", cell_dir()), 0755);
    write_runtime();
    real_configure("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    node_daemons_are_one();
    driver = inside_make_driver();
    inside_change_driver(DRIVER, node_nvml());
    clean_up();
    const char *hook = write_hook();
    if (way == OWN || way == RUNTIME)
        lib_output(0,
                   ARGV("install", "-D", "-t", TOOLKIT, hook, lib_fmt("%s.real", hook)));
    if (way == GENERATED)
        generate(hook);
    if (way == RUNTIME)
        use_runtime_of_nvidia();
    size_t before = count(LIMITS);
    bool is_up =
        node_up_with(ARGV("--host-root", "/", "--driver-root", driver, "--cdi-dir", CDI,
                          "--device-list-strategy", ways[way].strategy, ways[way].option,
                          "--refresh-interval", "1s", "--cgroup-root", node_cgroups()));
    if (is_up)
        lib_wait(count(LIMITS) > before);
    return is_up;
}

static void finish(void)
{
    look_tell_refusals();
    cluster_delete_pods();
    cluster_agrees();
    clean_up();
}

/* The containers of the list had their share of memory on each of the cards when their programs
 * started, and nothing on others. */
static size_t check_list(const json_t *pod, const char *statuses, const char *specs,
                         unsigned cards, unsigned long long card_mib)
{
    json_t *status;
    size_t n = 0;
    lib_each(status, lib_at(pod, statuses)) {
        const char *name = lib_str(status, "name");
        const char *id = strstr(lib_str(status, "containerID"), "://");
        int units = atoi(lib_in(lib_find(lib_at(pod, specs), "name", name),
                                "resources.limits", "aliyun.com/gpu-mem"));
        unsigned long long mib =
            (unsigned long long)units * 1024 / (unsigned)__builtin_popcount(cards);
        ck_assert_ptr_nonnull(id);
        const char *account = account_of(id + 3);
        ck_assert_msg(access(account, F_OK) == 0, "%s was not started", name);
        for (int i = 0; i < NODE_CARDS; i++) {
            unsigned long long want =
                mib && cards >> i & 1 && card_mib ? mib * MIB : NONE;
            unsigned long long is =
                limit_in(account, lib_fmt("/%s", id + 3), node_cards[i].uuid);
            ck_assert_msg(is == want, "%s/%s, card %d: %llu, not %llu",
                          lib_str(pod, "metadata.name"), name, i, is, want);
        }
        n++;
    }
    return n;
}

/* The pod runs, and each of its containers was limited when its program started: `limited` false:
 * not limited. Returns their number. */
static size_t check_limits(const char *name, bool limited)
{
    unsigned cards;
    cluster_wait_running(name);
    lib_wait((cards = inside_cards(name)) != 0);
    const json_t *pod = cluster_pod(name);
    return check_list(pod, "status.containerStatuses", "spec.containers", cards,
                      limited) +
           check_list(pod, "status.initContainerStatuses", "spec.initContainers", cards,
                      limited);
}

static const char *id_of(const char *pod)
{
    return lib_str(cluster_pod(pod), "status.containerStatuses.0.containerID");
}

#define MAPS "/api/v1/namespaces/default/configmaps"

/* Creates a pod of 4 units with variables that no admission policy sees: a limit of 7000 MiB. A CDI
 * device's win over them. Of theirs and Allocate's, containerd hands on both: the hook reads the
 * first, which is Allocate's, while the program sees the last. */
static void create_greedy(const char *name, const char *image)
{
    const char *text = node_pod("one", name);
    json_t *pod = lib_parse(text, strlen(text)), *c = lib_at(pod, "spec.containers.0");
    json_object_set_new(c, "image", json_string(image));
    json_object_set_new(c, "envFrom",
                        json_pack("[{s:{s:s}}]", "configMapRef", "name", "greedy"));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
}

/* Where the image has the variables too, a CDI device's take the place of the second ones, and the
 * hook reads the first. Only what is read back shows it. */
static void check_sly(void)
{
    create_greedy("sly", "localhost/guest-limit:1");
    cluster_wait_running("sly");
    const char *id = strstr(id_of("sly"), "://") + 3;
    unsigned cards;
    lib_wait((cards = inside_cards("sly")) != 0);
    ck_assert_uint_eq(limit_in(account_of(id), lib_fmt("/%s", id),
                               node_cards[__builtin_ctz(cards)].uuid),
                      7000 * MIB);
    lib_wait(cluster_events("reason=GPUIsolationFailed,involvedObject.name=sly",
                            "container c has a limit of 7000 MiB of the driver") == 1);
}

/* A pod of 4 units that must have a limit of the driver. */
static void create_strict(const char *name)
{
    const char *text = node_pod("one", name);
    json_t *pod = lib_parse(text, strlen(text));
    json_object_set_new(lib_at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", KEY_ISOLATION, "driver"));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
}

static void check_way(enum way way)
{
    static const struct {
        const char *kind;
        size_t containers;
    } pods[] = {{"whole", 1}, {"split", 1}, {"two", 2}, {"init", 2}, {"side", 2}};
    if (!begin(way))
        return;
    array_items(pod, pods) {
        const char *name = lib_fmt("%s-p", pod->kind);
        node_create(pod->kind, name);
        ck_assert_uint_eq(check_limits(name, true), pod->containers);
    }
    cluster_create(MAPS, "{\"metadata\":{\"name\":\"greedy\"},\"data\":{"
                         "\"NVIDIA_GPU_MEMORY_LIMIT\":\"7000\","
                         "\"NVIDIA_GPU_MEMORY_REQUEST\":\"0\"}}");
    create_greedy("greedy", NODE_GUEST);
    ck_assert_uint_eq(check_limits("greedy", true), 1);
    if (way == OWN)
        check_sly();
    cluster_delete(MAPS "/greedy");
    printf("measured: containers start with their limits %s\n", ways[way].what);
    finish();
}

TEST(limits_come_by_the_specification_of_nvidia_ctk)
{
    check_way(GENERATED);
}

TEST(limits_come_by_the_specification_of_the_node_program)
{
    check_way(OWN);
}

TEST(limits_come_by_the_runtime_of_nvidia)
{
    check_way(RUNTIME);
}

/* -- programs -- */

static bool has_exited(const char *name, int *status)
{
    const json_t *ended =
        lib_at(cluster_pod(name), "status.containerStatuses.0.state.terminated");
    *status = (int)lib_int(ended, "exitCode");
    return ended != NULL;
}

/* Creates a pod of 2 units with a CUDA program, which takes so much. The card is 0. */
static void create_program(const char *name, const char *image, const char *way,
                           const char *mib)
{
    cluster_create(CLUSTER_PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%"
                   "s\"},\"spec\":{"
                   "\"restartPolicy\":\"Never\",\"automountServiceAccountToken\":false,"
                   "\"volumes\":[{\"name\":\"limits\",\"hostPath\":{\"path\":\"%s\"}}],"
                   "\"containers\":[{\"name\":\"c\",\"image\":\"localhost/%s:1\","
                   "\"imagePullPolicy\":\"Never\",\"args\":[\"more\",\"%s\",\"%s\"],"
                   "\"volumeMounts\":[{\"name\":\"limits\",\"mountPath\":\"/limits\"}],"
                   "\"env\":[{\"name\":\"FAKE_LIMITS\",\"value\":\"/limits\"},"
                   "{\"name\":\"FAKE_CUDA_UUID\",\"value\":\"%s\"}],"
                   "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}",
                   name, node_limits(), image, way, mib, node_cards[0].uuid);
}

static const struct {
    const char *name, *mib;
    int status;
} amounts[] = {{"fits", "2044", 0}, {"more", "2045", 2}}; /* besides a context */

/* The stand-in of CUDA knows the cgroup of a program by its path, which a namespace of cgroups
 * hides: runtimes give one with cgroup v2 alone. */
TEST(a_program_is_held_by_the_limit_of_its_container)
{
    static const char *const images[][2] = {{"cuda-guest", "dlsym"},
                                            {"cuda-guest-musl", "dlsym"},
                                            {"cuda-guest-static", "link"}};
    if (strcmp(node_cgroups(), "/sys/fs/cgroup") == 0) {
        printf("measured: nothing, because this machine has cgroup v2 alone\n");
        return;
    }
    if (!begin(GENERATED))
        return;
    temp_write(cluster.dir, "limits", ""); /* containers have this very file */
    array_items(amount, amounts) {
        int status = -1;
        array_items(image, images)
            create_program(lib_fmt("%s-%s", amount->name, (*image)[0]), (*image)[0],
                           (*image)[1], amount->mib);
        array_items(image, images) {
            lib_wait(has_exited(lib_fmt("%s-%s", amount->name, (*image)[0]), &status));
            ck_assert_msg(status == amount->status, "%s, %s MiB: %d", (*image)[0],
                          amount->mib, status);
        }
        cluster_delete_pods(); /* the next ones are on card 0, too */
    }
    finish();
}

/* -- starts after the first -- */

/* Ends the container's program and waits until the kubelet has started it again. */
static void restart(const char *pod)
{
    const char *before = id_of(pod), *now;
    inside_kill(pod);
    lib_wait(strcmp(now = id_of(pod), before) != 0 && *now);
    cluster_wait_running(pod);
}

/* Kills the plugin and starts it again, which says so. Meanwhile the files of /run and what the
 * driver knows go, as at a boot or with another driver. */
static void restart_plugin(const char *says)
{
    size_t before = count(says), starts = count("listening on ");
    cluster_stop(PLUGIN, "KILL");
    lib_output(0,
               ARGV("sh", "-c", "rm -f " CDI "/gpushare* \"$1\"", "sh", node_limits()));
    cluster_start(PLUGIN);
    lib_wait(count("listening on ") > starts);
    node_wait_well();
    lib_wait(count(says) > before);
}

TEST(a_container_that_starts_again_has_its_limit)
{
    if (!begin(OWN))
        return;
    node_create("one", "one-p");
    check_limits("one-p", true);
    restart("one-p");
    check_limits("one-p", true);
    restart_plugin(LIMITS);
    restart("one-p");
    check_limits("one-p", true);
    finish();
}

TEST(pods_have_their_limits_after_a_reboot)
{
    enum { PODS = 3 };
    struct err err;
    json_t *pod;
    if (!begin(OWN))
        return;
    node_create_many("web", "equal", PODS);
    node_wait_running(PODS);
    cluster_stop("kubelet", "KILL");
    const char *tasks = real_ctr(ARGV("tasks", "ls", "-q"), &err);
    for (struct span rest = span_of(tasks); rest.n;)
        real_ctr(ARGV("tasks", "kill", "--all", "--signal", "SIGKILL",
                      lib_fmt("%.*s", SPAN_ARG(span_cut(&rest, '\n')))),
                 NULL);
    cluster_start("kubelet");
    restart_plugin(LIMITS);
    node_wait_running(PODS);
    lib_each(pod, cluster_list(CLUSTER_PODS))
        if (strcmp(lib_str(pod, "status.phase"), "Running") == 0)
            check_limits(lib_str(pod, "metadata.name"), true);
    node_scale("web", 0);
    node_wait_running(0);
    finish();
}

/* -- another driver -- */

static bool hook_has_failed(const char *pod)
{
    const char *text = lib_text(cluster_pod(pod), "status.containerStatuses.0");
    return strstr(text, "undefined symbol: nvmlDeviceSetMemoryLimits_v1") != NULL;
}

TEST(containers_start_without_a_limit_where_the_driver_has_none)
{
    if (!begin(GENERATED))
        return;
    node_create("one", "old-p");
    check_limits("old-p", true);
    const char *id = id_of("old-p");
    cluster_stop(PLUGIN, "KILL");
    /* The names of its files stay those of the specification. */
    inside_change_driver(DRIVER, node_built("fake-nvml/old/libnvidia-ml.so.1"));
    node_set_driver(DRIVER_VERSION);
    ck_assert_str_eq(id_of("old-p"), id); /* it goes on */
    /* It does not start before the node program has seen the driver. */
    inside_kill("old-p");
    lib_wait(hook_has_failed("old-p"));
    restart_plugin(NO_LIMITS);
    lib_wait(
        json_is_true(lib_at(cluster_pod("old-p"), "status.containerStatuses.0.ready")));
    check_limits("old-p", false);
    create_strict("strict-p");
    cluster_wait_refused("strict-p", "needs memory isolation by the driver");
    node_create("one", "new-p");
    check_limits("new-p", false);
    inside_change_driver(DRIVER, node_nvml());
    restart_plugin(LIMITS);
    restart("old-p");
    restart("new-p");
    check_limits("old-p", true);
    check_limits("strict-p", true);
    check_limits("new-p", false); /* its allocation named no limit */
    finish();
}

/* -- the node program sets limits itself -- */

static bool is_limited(const char *cgroup, const char *uuid, unsigned long long mib)
{
    return limit_in(node_limits(), lib_fmt("/%s", cgroup), uuid) == mib * MIB;
}

/* An ephemeral container, whose cgroup is below the pod's, and which has no limit itself. */
static void check_ephemeral(const char *pod)
{
    json_t *ended;
    peer_do(&cluster.api, "PATCH", lib_fmt(CLUSTER_PODS "/%s/ephemeralcontainers", pod),
            "{\"spec\":{\"ephemeralContainers\":[{\"name\":\"debug\",\"image\":"
            "\"localhost/cuda-guest:1\",\"imagePullPolicy\":\"Never\",\"args\":[\"more\","
            "\"dlsym\",\"6141\"],\"volumeMounts\":[{\"name\":\"limits\",\"mountPath\":"
            "\"/limits\"}],\"env\":[{\"name\":\"FAKE_LIMITS\",\"value\":\"/limits\"},"
            "{\"name\":\"FAKE_CUDA_UUID\",\"value\":\"" UUID "\"}]}]}}");
    lib_wait((ended = lib_at(cluster_pod(pod),
                             "status.ephemeralContainerStatuses.0.state.terminated")));
    ck_assert_int_eq(lib_int(ended, "exitCode"), 2);
}

TEST(limits_are_set_without_a_hook)
{
    json_t *status;
    if (!begin(ITSELF))
        return;
    temp_write(cluster.dir, "limits", ""); /* containers have this very file */
    const char *text = node_pod("two", "two-p");
    json_t *pod = lib_parse(text, strlen(text));
    json_object_set_new(lib_at(pod, "spec"), "volumes",
                        json_pack("[{s:s, s:{s:s}}]", "name", "limits", "hostPath",
                                  "path", node_limits()));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
    cluster_wait_running("two-p");
    pod = cluster_pod("two-p");
    for (int round = 0; round < 2; round++) {
        unsigned long long mib = 2048;
        lib_each(status, lib_at(pod, "status.containerStatuses")) {
            const char *id = strstr(lib_str(status, "containerID"), "://") + 3;
            lib_wait(is_limited(id, UUID, mib));
            mib = 4096;
        }
        lib_wait(is_limited(lib_fmt("pod%s", lib_str(pod, "metadata.uid")), UUID, 6144));
        if (round == 0 && strcmp(node_cgroups(), "/sys/fs/cgroup") != 0)
            check_ephemeral("two-p");
        temp_write_bytes(cluster.dir, "limits",
                         SPAN("")); /* the driver is loaded again */
    }
    restart("two-p");
    pod = cluster_pod("two-p");
    const char *id = strstr(id_of("two-p"), "://") + 3;
    lib_wait(is_limited(id, UUID, 2048));
    finish();
}

NODE_MAIN
