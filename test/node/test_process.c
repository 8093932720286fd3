/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/rng.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* A made-up root of a host: /proc with processes, and /var/log/containers. */

#define UID    "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define ID     "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define IN_POD "0::/kubepods/burstable/pod" UID "/" ID "\n"

enum { PROCESSES = 64 };

static char *root;
static struct arena a;

static void file(const char *path, const char *text)
{
    temp_write_bytes(root, path, span_of(text));
}

static void process(int pid, const char *comm, char state, const char *cgroup)
{
    cleanup_free char *path = xasprintf("proc/%d", pid);
    cleanup_free char *stat = xasprintf("%s/stat", path);
    cleanup_free char *group = xasprintf("%s/cgroup", path);
    cleanup_free char *text =
        xasprintf("%d (%s) %c 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 999 888\n",
                  pid, comm, state, pid == 2 ? 0 : 4711);
    cleanup_free char *folder = temp_path(root, path);
    if (access(folder, F_OK) != 0)
        temp_mkdir(root, path);
    file(stat, text);
    file(group, cgroup);
}

static void begin(void)
{
    root = temp_dir();
    temp_mkdir(root, "proc");
    temp_mkdir(root, "var");
    temp_mkdir(root, "var/log");
    temp_mkdir(root, "var/log/containers");
    process(2, "kthreadd", 'S', "0::/\n");
}

static void end(void)
{
    arena_fini(&a);
    temp_dir_remove(root);
    free(root);
}

/* Of the processes 10, 11, ... which two cards have. */
static const struct usage_place *places(size_t n)
{
    struct gpu_process list[PROCESSES] = {0};
    struct gpu_card cards[] = {{.processes = list, .n_processes = n},
                               {.processes = list, .n_processes = n},
                               {.processes = (struct gpu_process[]){{9, 1, 1}},
                                .n_processes = 1,
                                .state = GPU_MIG}};
    struct usage_place *p;
    size_t found;
    for (size_t i = 0; i < n; i++)
        list[i] = (struct gpu_process){10 + (int64_t)i, 1, 1};
    process_places(root, &(struct gpu_sample){.cards = cards, .n_cards = 3}, &a, &p,
                   &found);
    ck_assert_uint_eq(found, n);
    return p;
}

/* cgroup v1 moves a thread that exits to the root of each hierarchy, also the main thread of
 * a process whose other threads run on. cgroup v2 keeps its path. */
#define ROOTS "3:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/\n"

TEST(where_processes_run)
{
    static const struct {
        const char *comm;
        char state;
        const char *cgroup;
        enum usage_place_kind kind;
    } rows[] = {
        {"python", 'S', IN_POD, USAGE_CONTAINER},
        {"X) R 1 (org", 'S', "0::/user.slice/session-2.scope\n", USAGE_OUTSIDE},
        {"odd", 'S', "nothing of a cgroup", USAGE_UNMAPPED},
        {"python", 'Z', ROOTS, USAGE_UNMAPPED},
        {"python", 'X', ROOTS, USAGE_UNMAPPED},
        {"python", 'Z', IN_POD, USAGE_CONTAINER},
        {"Z) S (x", 'R', ROOTS, USAGE_OUTSIDE},
        /* not there; without stat: it ends at this moment; with a part of it */
        {.kind = USAGE_ENDED},
        {.kind = USAGE_ENDED},
        {.kind = USAGE_UNMAPPED},
    };
    for (int i = 0; i < 7; i++)
        process(10 + i, rows[i].comm, rows[i].state, rows[i].cgroup);
    temp_mkdir(root, "proc/18");
    temp_mkdir(root, "proc/19");
    file("proc/19/stat", "19 (bash) S 1\n");
    const struct usage_place *p = places(ARRAY_LEN(rows));
    array_indices(i, rows) {
        bool read = rows[i].comm != NULL;
        ck_assert_msg(p[i].kind == rows[i].kind, "row %zu: kind %d", i, p[i].kind);
        ck_assert_int_eq(p[i].pid.pid, 10 + (int)i);
        ck_assert_uint_eq(p[i].pid.started, read ? 4711 : 0);
        if (read)
            ck_assert_span_eq(p[i].name, rows[i].comm);
    }
    ck_assert_span_eq(p[0].pod_uid, UID);
    ck_assert_span_eq(p[0].container_id, ID);
}

static void executable(int pid, const char *target)
{
    cleanup_free char *path = xasprintf("%s/proc/%d/exe", root, pid);
    unlink(path);
    ck_assert_int_eq(symlink(target, path), 0);
}

/* A process chooses its comm. */
TEST(the_name_is_that_of_the_executable)
{
    static const struct {
        const char *target, *name;
    } rows[] = {
        {"/usr/bin/python3.11", "python3.11"},
        {"/tmp/a b/miner (deleted)", "miner"},
        {"/memfd:x (deleted)", "memfd:x"},
        {"/opt/a\nb", "a\nb"}, /* usage.c escapes it */
        {"/", "kworker/0:1"},
        {" (deleted)", "kworker/0:1"},
        {NULL, "kworker/0:1"}, /* not readable */
    };
    array_indices(i, rows) {
        process(10 + (int)i, "kworker/0:1", 'S', IN_POD);
        if (rows[i].target)
            executable(10 + (int)i, rows[i].target);
    }
    const struct usage_place *p = places(ARRAY_LEN(rows));
    array_indices(i, rows)
        ck_assert_span_eq(p[i].name, rows[i].name);
}

static void thread(int tid, const char *cgroup)
{
    cleanup_free char *folder = xasprintf("proc/10/task/%d", tid);
    cleanup_free char *path = xasprintf("%s/cgroup", folder);
    temp_mkdir(root, folder);
    file(path, cgroup);
}

TEST(a_main_thread_that_has_exited)
{
    process(10, "python", 'Z', ROOTS);
    temp_mkdir(root, "proc/10/task");
    thread(10, ROOTS);
    ck_assert_int_eq(places(1)->kind, USAGE_UNMAPPED);
    thread(99, "3:memory:/kubepods/burstable/pod" UID "/" ID "\n1:name=systemd:/\n");
    ck_assert_int_eq(places(1)->kind, USAGE_CONTAINER);
    ck_assert_span_eq(places(1)->pod_uid, UID);
    ck_assert_span_eq(places(1)->container_id, ID);
    process(10, "python", 'S', ROOTS); /* outside, and alive */
    ck_assert_int_eq(places(1)->kind, USAGE_OUTSIDE);
    process(10, "python", 'Z', ""); /* cgroup v2, after its cgroup went */
    ck_assert_int_eq(places(1)->kind, USAGE_CONTAINER);
}

/* In another PID namespace the same pid is another process. */
TEST(a_proc_that_is_not_of_the_host)
{
    struct err err = {0};
    process(10, "python", 'S', IN_POD);
    ck_assert_done(process_check_host(root, &err), err);
    file("proc/2/stat", "2 (sh) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 7 9 8\n");
    ck_assert_int_eq(process_check_host(root, &err), -1);
    ck_assert_contains(err.msg, "hostPID");
    ck_assert_int_eq(places(1)->kind, USAGE_UNMAPPED);
}

/* The first is that of a container; the others are none. */
static const char *const links[] = {
    "a.b-c_kube-system_nvidia-device-plugin-ctr-" ID ".log",
    "serve-0_team_main.log",
    "serve-0_team_main-" ID,
    "serve-0_team_main-4f797c53.log",
    "serve-0_team_main-" ID "x.log",
    "serve-0_team_-" ID ".log",
    "serve-0__main-" ID ".log",
    "_team_main-" ID ".log",
    "serve-0_team_a_b-" ID ".log",
    "serve-0_team-" ID ".log",
    ".log",
    "other",
};

TEST(the_names_of_a_node)
{
    const struct usage_name *names;
    struct err err = {0};
    size_t n;
    array_items(c, links) {
        cleanup_free char *link = xasprintf("%s/var/log/containers/%s", root, *c);
        ck_assert_int_eq(symlink("/var/log/pods/somewhere/0.log", link), 0);
    }
    ck_assert_done(process_names_read(root, &a, &names, &n, &err), err);
    ck_assert_uint_eq(n, 1);
    ck_assert_span_eq(names[0].pod, "a.b-c");
    ck_assert_span_eq(names[0].ns, "kube-system");
    ck_assert_span_eq(names[0].container, "nvidia-device-plugin-ctr");
    ck_assert_span_eq(names[0].container_id, ID);
    ck_assert_int_eq(process_names_read("/nowhere", &a, &names, &n, &err), -1);
    ck_assert_uint_eq(n, 0);
}

/* The kubelet cuts a name before ".log". */
static void cut_link(const char *pod, const char *container, const char *target)
{
    cleanup_free char *whole = xasprintf("%s_team_%s-" ID, pod, container);
    cleanup_free char *link = xasprintf("%s/var/log/containers/%.251s.log", root, whole);
    ck_assert_int_eq(symlink(target, link), 0);
}

TEST(names_that_are_cut)
{
    static const char container[] = "cccccccccccccccccccccccccccccccccccccccc";
    char pod[200] = "";
    const struct usage_name *names;
    struct err err = {0};
    size_t n;
    memset(pod, 'p', 190);
    cleanup_free char *target =
        xasprintf("/var/log/pods/team_%s_" UID "/%s/0.log", pod, container);
    cut_link(pod, container, target);
    pod[0] = 'q'; /* it is of another pod; it has no names */
    cut_link(pod, container, target);
    pod[0] = 'r';
    cut_link(pod, container, "/0.log");
    ck_assert_done(process_names_read(root, &a, &names, &n, &err), err);
    ck_assert_uint_eq(n, 1);
    pod[0] = 'p';
    ck_assert_span_eq(names[0].pod, pod);
    ck_assert_span_eq(names[0].ns, "team");
    ck_assert_span_eq(names[0].container, container);
    ck_assert_span_eq(names[0].pod_uid, UID);
    ck_assert(names[0].container_id.n == 14 &&
              span_starts(SPAN(ID), names[0].container_id));
}

/* -- the container of a cgroup -- */

/*
 * In a text, $U is UID, $S is UID as systemd names it, $I is ID, and $J another ID. What is
 * found, as "UID/ID"; NULL: "$U/$I".
 */
static const struct example {
    const char *name, *text, *want;
} examples[] = {
    {"v2, systemd, containerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$S.slice/"
     "cri-containerd-$I.scope\n",
     NULL},
    {"v2, systemd, a guaranteed pod",
     "0::/kubepods.slice/kubepods-pod$S.slice/cri-containerd-$I.scope\n", NULL},
    {"v2, systemd, CRI-O, with a cgroup in the container",
     "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$S.slice/"
     "crio-$I.scope/container\n",
     NULL},
    {"CRI-O's monitor of a container",
     "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$S.slice/"
     "crio-conmon-$I.scope\n",
     NULL},
    {"v2, systemd, cri-dockerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$S.slice/"
     "docker-$I.scope\n",
     NULL},
    {"v2, cgroupfs (k3s)", "0::/kubepods/burstable/pod$U/$I\n", NULL},
    {"v2, cgroupfs, a guaranteed pod", "0::/kubepods/pod$U/$I\n", NULL},
    {"v1, cgroupfs",
     "12:pids:/kubepods/besteffort/pod$U/$I\n11:cpu,cpuacct:/kubepods/besteffort/"
     "pod$U/$I\n1:name=systemd:/kubepods/besteffort/pod$U/$I\n0::/system.slice/"
     "containerd.service\n",
     NULL},
    {"v1, systemd, with hierarchies that the runtime does not use",
     "13:misc:/\n12:rdma:/\n11:memory:/kubepods.slice/kubepods-burstable.slice/"
     "kubepods-burstable-pod$S.slice/docker-$I.scope\n",
     NULL},
    {"kubelet with systemd over containerd with cgroupfs",
     "11:cpuset:/system.slice/containerd.service/"
     "kubepods-burstable-pod$S.slice:cri-containerd:$I\n",
     NULL},
    {"kind, systemd",
     "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
     "kubelet-kubepods-burstable-pod$S.slice/cri-containerd-$I.scope\n",
     NULL},
    {"kind on Docker, seen from the host",
     "0::/system.slice/docker-$J.scope/kubelet/kubepods/burstable/pod$U/$I\n", NULL},
    {"systemd in a container",
     "0::/kubepods.slice/kubepods-pod$S.slice/cri-containerd-$I.scope/system.slice/"
     "app.service\n",
     NULL},
    {"a cluster in a container: the outer pod",
     "0::/kubepods/burstable/pod$U/$I/kubepods/burstable/"
     "pod11111111-1111-1111-1111-111111111111/$J\n",
     NULL},
    {"a container that makes the cgroup of another pod",
     "0::/kubepods.slice/kubepods-pod$S.slice/cri-containerd-$I.scope/"
     "kubepods-pod11111111_1111_1111_1111_111111111111.slice/"
     "cri-containerd-$J.scope\n",
     NULL},
    {"namespace: a pod of another class, systemd",
     "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod$S.slice/"
     "cri-containerd-$I.scope\n",
     NULL},
    {"namespace: a pod of the same class, systemd",
     "0::/../../kubepods-besteffort-pod$S.slice/cri-containerd-$I.scope\n", NULL},
    {"namespace: a pod of the same class, cgroupfs", "0::/../../pod$U/$I\n", NULL},
    {"namespace: a pod of another class, cgroupfs", "0::/../../../burstable/pod$U/$I\n",
     NULL},
    {"namespace: a process of the host",
     "0::/../../../../system.slice/nvidia-persistenced.service\n", "none"},
    {"namespace: another container of the reader's pod",
     "0::/../cri-containerd-$I.scope\n", "unclear"},
    {"namespace: the reader", "0::/\n", "none"},
    {"a static pod has a hash as UID",
     "0::/kubepods/burstable/podf3a7e1c4b2d5968700112233445566aa/$I\n",
     "f3a7e1c4b2d5968700112233445566aa/$I"},
    {"the cgroup was removed", "0::/kubepods/burstable/pod$U/$I (deleted)\n", NULL},
    {"in the cgroup of the pod", "0::/kubepods/burstable/pod$U\n", "$U/"},
    {"a runtime that names no container", "0::/kubepods/burstable/pod$U/kata_overhead\n",
     "$U/"},
    {"a container of Docker", "0::/system.slice/docker-$I.scope\n", "none"},
    {"a container of podman", "0::/machine.slice/libpod-$I.scope/container\n", "none"},
    {"a user's session", "0::/user.slice/user-1000.slice/session-2.scope\n", "none"},
    {"a service named like a pod", "0::/system.slice/pod$U/$I\n", "none"},
    {"a class that is not in kubepods", "0::/system.slice/burstable/pod$U/$I\n", "none"},
    {"a slice named like a pod", "0::/my-pod$S.slice/cri-containerd-$I.scope\n", "none"},
    {"a UID with other characters", "0::/kubepods/burstable/pod;rm/$I\n", "none"},
    {"two lines with different pods",
     "2:cpu:/kubepods/burstable/pod$U/$I\n1:memory:/kubepods/burstable/"
     "pod11111111-1111-1111-1111-111111111111/$I\n",
     "unclear"},
    {"two lines with different containers",
     "2:cpu:/kubepods/burstable/pod$U/$I\n1:memory:/kubepods/burstable/pod$U/"
     "$J\n",
     "unclear"},
    {"one line has the pod only",
     "2:cpu:/kubepods/burstable/pod$U\n1:memory:/kubepods/burstable/pod$U/$I\n", NULL},
    {"no text", "", "unclear"},
    {"no number", "x::/kubepods/burstable/pod$U/$I\n", "unclear"},
    {"no path", "0:\n", "unclear"},
    {"no '/'", "0::kubepods/burstable/pod$U/$I\n", "unclear"},
    {"an empty line", "0::/kubepods/burstable/pod$U/$I\n\n", "unclear"},
};

static char *expand(const char *text)
{
    static const char *const words[] = {
        ['U'] = UID,
        ['S'] = "5d0c1f6e_8a2b_4c3d_9e4f_0123456789ab",
        ['I'] = ID,
        ['J'] = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"};
    struct buf out = {0};
    buf_adds(&out, "");
    for (; *text; text++)
        if (*text == '$')
            buf_adds(&out, words[(int)*++text]);
        else
            buf_addc(&out, *text);
    return buf_take(&out);
}

TEST(examples_of_runtimes)
{
    array_indices(i, examples) {
        cleanup_free char *text = expand(examples[i].text);
        process(10 + (int)i, "x", 'S', text);
    }
    const struct usage_place *p = places(ARRAY_LEN(examples));
    array_indices(i, examples) {
        const struct example *e = &examples[i];
        cleanup_free char *want = expand(e->want ? e->want : "$U/$I");
        cleanup_free char *is = p[i].kind == USAGE_CONTAINER
                                    ? xasprintf("%.*s/%.*s", SPAN_ARG(p[i].pod_uid),
                                                SPAN_ARG(p[i].container_id))
                                : p[i].kind == USAGE_OUTSIDE ? xstrdup("none")
                                                             : xstrdup("unclear");
        ck_assert_msg(!strcmp(is, want), "%s: %s", e->name, is);
    }
}

/* Whatever the text is, a found container has a valid pod, and no other kind has one. */
TEST(damaged_examples)
{
    static const char *const pieces[] = {
        "/",        "..", ":", "\n", "pod",       "-pod",  ".slice", ".scope",
        "kubepods", ID,   "-", "_",  "(deleted)", "burst", "\xff",   "0"};
    struct rng rng;
    rng_init(&rng, 7);
    process(10, "x", 'S', "");
    for (int i = 0; i < 2000; i++) {
        cleanup_buf struct buf text = {0};
        const struct example *e = &examples[rng_below(&rng, ARRAY_LEN(examples))];
        cleanup_free char *whole = expand(e->text);
        size_t n = strlen(whole), at = rng_below(&rng, n + 1), skip = rng_below(&rng, 9);
        buf_add(&text, whole, at);
        buf_adds(&text, pieces[rng_below(&rng, ARRAY_LEN(pieces))]);
        if (at + skip < n)
            buf_adds(&text, whole + at + skip);
        temp_write_bytes(root, "proc/10/cgroup", buf_span(&text));
        const struct usage_place *p = places(1);
        ck_assert((p->kind == USAGE_CONTAINER) == (p->pod_uid.n > 0));
        ck_assert(p->pod_uid.n || !p->container_id.n);
        for (size_t k = 0; k < p->pod_uid.n; k++)
            ck_assert_ptr_null(memchr("/_.:\n\xff", p->pod_uid.p[k], 6));
        arena_reset(&a);
    }
    /* A NUL, and more than any cgroup has. */
    temp_write_bytes(root, "proc/10/cgroup", SPAN("0::/kubepods/pod" UID "/" ID "\0\n"));
    ck_assert_int_eq(places(1)->kind, USAGE_UNMAPPED);
    cleanup_buf struct buf text = {0};
    while (text.n <= 64 * 1024)
        buf_adds(&text, IN_POD);
    file("proc/10/cgroup", text.p);
    ck_assert_int_eq(places(1)->kind, USAGE_UNMAPPED);
}

/* -- the cgroups of the host -- */

/* Makes the cgroup with all above it; "!": there are processes in it. */
static void cgroup(const char *top, const char *path)
{
    cleanup_free char *text = expand(path), *whole = xasprintf("%s/%s", top, text);
    bool busy = whole[strlen(whole) - 1] == '!';
    whole[strlen(whole) - busy] = '\0';
    for (char *end = whole; end;) {
        end = strchr(end + 1, '/');
        cleanup_free char *folder =
            strndup(whole, end ? (size_t)(end - whole) : strlen(whole));
        cleanup_free char *procs = xasprintf("%s/cgroup.procs", folder);
        cleanup_free char *there = temp_path(root, folder);
        if (access(there, F_OK)) {
            temp_mkdir(root, folder);
            file(procs, "");
        }
        if (!end)
            file(procs, busy ? "7\n" : "");
    }
}

#define SLICE "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$S.slice"
#define OTHER "11111111-1111-1111-1111-111111111111"

/* The folders; of each pod and container that is found, by rising path: "UID/ID", and the path of
 * the leaf below it. */
static const struct {
    const char *folders[5], *want;
} layouts[] = {
    {{"kubepods/burstable/pod$U/$I!"}, "$U/\n$U/$I\n"},
    {{"kubepods/pod$U/$I!", "kubepods/pod$U/$J!"}, "$U/\n$U/$I\n$U/$J\n"},
    {{SLICE "/cri-containerd-$I.scope!"}, "$U/\n$U/$I\n"},
    {{"kubepods.slice/kubepods-pod$S.slice/docker-$I.scope!"}, "$U/\n$U/$I\n"},
    {{SLICE "/crio-$I.scope/container!", SLICE "/crio-conmon-$I.scope!",
      SLICE "/crio-conmon-$I.scope/container!"},
     "$U/\n$U/$I /container\n"},
    {{SLICE "/crio-$I.scope/sub!"}, "$U/\n$U/$I /sub\n"}, /* run.oci.systemd.subgroup */
    {{SLICE "/crio-$I.scope/container/mine!"}, "$U/\n$U/$I\n"},
    {{"system.slice/containerd.service!",
      "system.slice/kubepods-burstable-pod$S.slice:cri-containerd:$I!"},
     "$U/$I\n"},
    {{"system.slice/docker-$J.scope/kubelet/kubepods/burstable/pod$U/$I!"},
     "$U/\n$U/$I\n"}, /* kind */
    /* What containers make. */
    {{"kubepods/pod$U/$I!", "kubepods/pod$U/$I/container!",
      "kubepods/pod$U/$I/kubepods/pod" OTHER "/$J!"},
     "$U/\n$U/$I\n"},
    {{"kubepods/pod$U/$I/init.scope!", "kubepods/pod$U/$I/kubepods/pod" OTHER "/$J!",
      "kubepods/pod$U/$I/container!", "kubepods/pod$U/$I/ a;(b)!"},
     "$U/\n$U/$I /container\n"},
    /* None of a container: hash too short, a pod's other cgroup, other services. */
    {{"kubepods/pod$U/abc!", "kubepods/pod$U/kata_overhead/$I!", "system.slice/pod$U/$I!",
      "user.slice/$I!", ".hidden/kubepods/pod" OTHER "/$I!"},
     "$U/\n"},
    {{"kubepods/burstable/pod$U"}, "$U/\n"},
    {{"system.slice/sshd.service!"}, ""},
};

static const char *unwanted; /* the UID of a pod; NULL: all are wanted */

static bool wants(void *ctx, struct span uid)
{
    (void)ctx;
    return !unwanted || !span_eq(uid, span_of(unwanted));
}

static int by_path(const void *x, const void *y)
{
    return strcmp(((const struct process_cgroup *)x)->path,
                  ((const struct process_cgroup *)y)->path);
}

TEST(the_cgroups_of_pods_and_containers)
{
    const struct process_cgroup *list;
    size_t n;
    struct err err = {0};
    array_indices(i, layouts) {
        cleanup_free char *top = xasprintf("cgroup-%zu", i), *at = temp_path(root, top);
        cleanup_free char *mark = xasprintf("%s/cgroup.controllers", top);
        cleanup_free char *want = expand(layouts[i].want);
        temp_mkdir(root, top);
        ck_assert_int_eq(process_cgroups(at, wants, NULL, &a, &list, &n, &err), -1);
        ck_assert_int_eq(err.code, ERR_NOT_FOUND); /* cgroup v1 */
        file(mark, "");
        for (size_t k = 0; k < 5 && layouts[i].folders[k]; k++)
            cgroup(top, layouts[i].folders[k]);
        ck_assert_done(process_cgroups(at, wants, NULL, &a, &list, &n, &err), err);
        cleanup_buf struct buf got = {0};
        qsort((struct process_cgroup *)list, n, sizeof *list, by_path);
        buf_adds(&got, "");
        for (size_t k = 0; k < n; k++) {
            const char *leaf = list[k].leaf ? list[k].leaf + strlen(list[k].path) : "";
            ck_assert(!strncmp(list[k].path, at, strlen(at)) &&
                      !access(list[k].path, F_OK));
            ck_assert_int_eq(list[k].leaf != NULL, list[k].container_id.n > 0);
            buf_printf(&got, "%.*s/%.*s%s%s\n", SPAN_ARG(list[k].pod_uid),
                       SPAN_ARG(list[k].container_id), *leaf ? " " : "", leaf);
        }
        ck_assert_msg(!strcmp(got.p, want), "layout %zu: %s", i, got.p);
    }
}

TEST(the_cgroups_of_pods_that_are_wanted)
{
    const struct process_cgroup *list;
    size_t n;
    struct err err = {0};
    cleanup_free char *top = temp_path(root, "cgroup");
    temp_mkdir(root, "cgroup");
    file("cgroup/cgroup.controllers", "");
    cgroup("cgroup", "kubepods/pod$U/$I!");
    cgroup("cgroup", "kubepods/pod" OTHER "/$J!");
    unwanted = OTHER;
    ck_assert_done(process_cgroups(top, wants, NULL, &a, &list, &n, &err), err);
    ck_assert_uint_eq(n, 2);
    ck_assert_span_eq(list[1].pod_uid, UID);
    unwanted = UID;
    ck_assert_done(process_cgroups(top, wants, NULL, &a, &list, &n, &err), err);
    ck_assert_uint_eq(n, 2);
    ck_assert_span_eq(list[1].pod_uid, OTHER);
}

/* As deep as a path can be, and more than are looked at. */
TEST(cgroups_have_bounds)
{
    const struct process_cgroup *list;
    size_t n = 7;
    struct err err = {0};
    cleanup_free char *top = temp_path(root, "cgroup");
    struct buf deep = {0};
    temp_mkdir(root, "cgroup");
    file("cgroup/cgroup.controllers", "");
    for (int i = 0; i < 40; i++)
        buf_printf(&deep, "%d/", i);
    buf_adds(&deep, "kubepods/pod$U/$I!");
    cleanup_free char *path = buf_take(&deep);
    cgroup("cgroup", path);
    cgroup("cgroup", "kubepods/pod$U/$I!");
    ck_assert_done(process_cgroups(top, wants, NULL, &a, &list, &n, &err), err);
    ck_assert_uint_eq(n, 2);
    for (int i = 0; i < 8300; i++) {
        cleanup_free char *many = xasprintf("%s/user-%d", top, i);
        ck_assert_int_eq(mkdir(many, 0700), 0);
    }
    ck_assert_int_eq(process_cgroups(top, wants, NULL, &a, &list, &n, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(n, 0);
}

/* -- kill -- */

/* A child process that waits for a signal. */
static struct usage_pid start_child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    ck_assert_int_gt(pid, 0);
    cleanup_free char *path = xasprintf("/proc/%d/stat", (int)pid);
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(path, 4096, &text, &err), err);
    struct span rest = span_of(strrchr(text.p, ')') + 2);
    int64_t started;
    for (int field = 3; field < 22; field++)
        span_cut(&rest, ' ');
    ck_assert(span_i64(span_cut(&rest, ' '), &started));
    return (struct usage_pid){pid, (uint64_t)started};
}

/* The signal that ended the child. */
static int end_child(const struct usage_pid *pid)
{
    int status;
    ck_assert_int_eq(waitpid((pid_t)pid->pid, &status, 0), pid->pid);
    ck_assert(WIFSIGNALED(status));
    return WTERMSIG(status);
}

/* The code of the error; ERR_NONE: it is done. */
static enum err_code kill_it(int64_t pid, uint64_t started)
{
    struct err err = {0};
    int rc = process_kill(&(struct usage_pid){pid, started}, &err);
    ck_assert_int_eq(rc, err.code == ERR_NONE ? 0 : -1);
    return err.code;
}

TEST(only_the_process_that_was_measured_is_killed)
{
    static const int64_t never[] = {-1, 0, 1, (int64_t)1 << 32};
    struct usage_pid pid = start_child();
    /* With a reused pid. Were SIGKILL pending, it would end the process, whatever follows. */
    ck_assert_int_eq(kill_it(pid.pid, pid.started - 1), ERR_NOT_FOUND);
    ck_assert_int_eq(kill((pid_t)pid.pid, SIGUSR1), 0);
    ck_assert_int_eq(end_child(&pid), SIGUSR1);
    ck_assert_int_eq(kill_it(pid.pid, pid.started), ERR_NOT_FOUND); /* it has ended */
    pid = start_child();
    ck_assert_int_eq(kill_it(pid.pid, pid.started), ERR_NONE);
    ck_assert_int_eq(end_child(&pid), SIGKILL);
    array_items(n, never)
        ck_assert_int_eq(kill_it(*n, 0), ERR_INVALID);
    ck_assert_int_eq(kill_it(getpid(), 0), ERR_INVALID);
}

UNIT_MAIN_AROUND(begin, end)
