/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* A made-up root of a host: /proc with processes, and /var/log/containers. */

#define UID    "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define ID     "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define IN_POD "0::/kubepods/burstable/pod" UID "/" ID "\n"

static char *root;
static struct arena a;

static void folder(const char *path)
{
    cleanup_free char *full = xasprintf("%s/%s", root, path);
    ck_assert_int_eq(mkdir(full, 0700), 0);
}

static void file(const char *path, const char *text)
{
    cleanup_free char *full = xasprintf("%s/%s", root, path);
    struct err err = {0};
    ck_assert_done(file_write(full, span_of(text), &err), err);
}

static void process_in_state(int pid, const char *comm, char state, int started,
                             const char *cgroup)
{
    cleanup_free char *path = xasprintf("proc/%d", pid);
    cleanup_free char *stat = xasprintf("proc/%d/stat", pid);
    cleanup_free char *group = xasprintf("proc/%d/cgroup", pid);
    cleanup_free char *text =
        xasprintf("%d (%s) %c 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 "
                  "0 1 0 %d 999 888\n",
                  pid, comm, state, started);
    folder(path);
    file(stat, text);
    file(group, cgroup);
}

static void process(int pid, const char *comm, int started, const char *cgroup)
{
    process_in_state(pid, comm, 'S', started, cgroup);
}

static void setup(void)
{
    root = temp_dir();
    folder("proc");
    folder("var");
    folder("var/log");
    folder("var/log/containers");
    process(2, "kthreadd", 0, "0::/\n");
}

static void teardown(void)
{
    arena_fini(&a);
    temp_dir_remove(root);
    free(root);
}

static const struct usage_place *places(const struct gpu_process *list, size_t n,
                                        size_t *found)
{
    struct gpu_card card = {.processes_known = true, .processes = list, .n_processes = n};
    struct gpu_sample sample = {.cards = &card, .n_cards = 1};
    const struct usage_place *p;
    process_places(root, &sample, &a, &p, found);
    return p;
}

START_TEST(where_processes_run)
{
    static const struct gpu_process list[] = {{10, 1, 1}, {11, 1, 1}, {12, 1, 1},
                                              {13, 1, 1}, {14, 1, 1}, {15, 1, 1}};
    size_t n;
    process(10, "python", 4711, IN_POD);
    process(11, "X) R 1 (org", 5, "0::/user.slice/session-2.scope\n");
    process(12, "odd", 5, "nothing of a cgroup");
    folder("proc/14"); /* no stat: it ends at this moment */
    folder("proc/15");
    file("proc/15/stat", "15 (bash) S 1\n");
    const struct usage_place *p = places(list, ARRAY_LEN(list), &n);
    ck_assert_uint_eq(n, 6);
    ck_assert_int_eq(p[0].kind, USAGE_CONTAINER);
    ck_assert_int_eq(p[0].pid.pid, 10);
    ck_assert_uint_eq(p[0].pid.started, 4711);
    ck_assert_span_eq(p[0].pod_uid, UID);
    ck_assert_span_eq(p[0].container_id, ID);
    ck_assert_span_eq(p[0].name, "python");
    ck_assert_int_eq(p[1].kind, USAGE_OUTSIDE);
    ck_assert_uint_eq(p[1].pid.started, 5);
    ck_assert_span_eq(p[1].name, "X) R 1 (org");
    ck_assert_int_eq(p[2].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[3].kind, USAGE_ENDED);
    ck_assert_int_eq(p[4].kind, USAGE_ENDED);
    ck_assert_int_eq(p[5].kind, USAGE_UNMAPPED);
}

/* cgroup v1 moves a thread that exits to the root of each hierarchy, also the main thread of
 * a process whose other threads run on. cgroup v2 keeps its path. */
START_TEST(a_process_whose_main_thread_has_exited)
{
    static const char roots[] = "3:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/\n";
    static const struct gpu_process list[] = {
        {10, 1, 1}, {11, 1, 1}, {12, 1, 1}, {13, 1, 1}};
    size_t n;
    process_in_state(10, "python", 'Z', 5, roots);
    process_in_state(11, "python", 'X', 5, roots);
    process_in_state(12, "python", 'Z', 5, IN_POD);
    process_in_state(13, "Z) S (x", 'R', 5, roots);
    const struct usage_place *p = places(list, ARRAY_LEN(list), &n);
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(p[0].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[1].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[2].kind, USAGE_CONTAINER);
    ck_assert_int_eq(p[3].kind, USAGE_OUTSIDE);
}

START_TEST(a_process_of_two_cards_is_read_once)
{
    static const struct gpu_process list[] = {{10, 1, 1}};
    struct gpu_card cards[] = {{.processes = list, .n_processes = 1},
                               {.processes = list, .n_processes = 1},
                               {.processes = (struct gpu_process[]){{9, 1, 1}},
                                .n_processes = 1,
                                .state = GPU_MIG}};
    struct gpu_sample sample = {.cards = cards, .n_cards = 3};
    const struct usage_place *p;
    size_t n;
    process(10, "python", 4711, IN_POD);
    process_places(root, &sample, &a, &p, &n);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(p[0].kind, USAGE_CONTAINER);
}

/* In another PID namespace the same pid is another process. */
START_TEST(a_proc_that_is_not_of_the_host)
{
    static const struct gpu_process list[] = {{10, 1, 1}};
    struct err err = {0};
    size_t n;
    process(10, "python", 4711, IN_POD);
    ck_assert_done(process_check_host(root, &err), err);
    file("proc/2/stat", "2 (sh) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 7 9 8\n");
    ck_assert_int_eq(process_check_host(root, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "hostPID"));
    ck_assert_int_eq(places(list, 1, &n)[0].kind, USAGE_UNMAPPED);
    ck_assert_uint_eq(n, 1);
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

START_TEST(the_names_of_a_node)
{
    const struct usage_name *names;
    struct err err = {0};
    size_t n;
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        cleanup_free char *link = xasprintf("%s/var/log/containers/%s", root, links[i]);
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

START_TEST(examples_of_runtimes)
{
    struct gpu_process list[ARRAY_LEN(examples)];
    size_t n;
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        cleanup_free char *text = expand(examples[i].text);
        list[i] = (struct gpu_process){1000 + (int64_t)i, 1, 1};
        process(1000 + (int)i, "x", 5, text);
    }
    const struct usage_place *p = places(list, ARRAY_LEN(list), &n);
    for (size_t i = 0; i < n; i++) {
        const struct example *e = &examples[i];
        cleanup_free char *want = expand(e->want ? e->want : "$U/$I");
        cleanup_free char *is = p[i].kind == USAGE_CONTAINER
                                    ? xasprintf("%.*s/%.*s", SPAN_ARG(p[i].pod_uid),
                                                SPAN_ARG(p[i].container_id))
                                : p[i].kind == USAGE_OUTSIDE ? xstrdup("none")
                                                             : xstrdup("unclear");
        ck_assert_msg(!strcmp(is, want), "%s: %s", e->name, is);
    }
    ck_assert_uint_eq(n, ARRAY_LEN(list));
}

/* Whatever the text is, a found container has a valid pod, and no other kind has one. */
START_TEST(damaged_examples)
{
    static const char *const pieces[] = {
        "/",        "..", ":", "\n", "pod",       "-pod",  ".slice", ".scope",
        "kubepods", ID,   "-", "_",  "(deleted)", "burst", "\xff",   "0"};
    static const struct gpu_process list[] = {{10, 1, 1}};
    cleanup_free char *dir = xasprintf("%s/proc/10", root);
    struct rng rng;
    rng_init(&rng, 7);
    process(10, "x", 5, "");
    for (int i = 0; i < 2000; i++) {
        cleanup_buf struct buf text = {0};
        const struct example *e = &examples[rng_below(&rng, ARRAY_LEN(examples))];
        cleanup_free char *whole = expand(e->text);
        size_t n = strlen(whole), at = rng_below(&rng, n + 1), skip = rng_below(&rng, 9);
        buf_add(&text, whole, at);
        buf_adds(&text, pieces[rng_below(&rng, ARRAY_LEN(pieces))]);
        if (at + skip < n)
            buf_adds(&text, whole + at + skip);
        temp_write(dir, "cgroup", text.p);
        const struct usage_place *p = places(list, 1, &n);
        ck_assert((p->kind == USAGE_CONTAINER) == (p->pod_uid.n > 0));
        ck_assert(p->pod_uid.n || !p->container_id.n);
        for (size_t k = 0; k < p->pod_uid.n; k++)
            ck_assert_ptr_null(memchr("/_.:\n\xff", p->pod_uid.p[k], 6));
        arena_reset(&a);
    }
    /* A NUL, and more than any cgroup has. */
    cleanup_free char *path = xasprintf("%s/cgroup", dir);
    cleanup_buf struct buf text = {0};
    struct err err;
    size_t n;
    buf_add_span(&text, SPAN("0::/kubepods/pod" UID "/" ID "\0\n"));
    ck_assert_int_eq(file_write(path, buf_span(&text), &err), 0);
    ck_assert_int_eq(places(list, 1, &n)->kind, USAGE_UNMAPPED);
    for (buf_clear(&text); text.n <= 64 * 1024;)
        buf_adds(&text, IN_POD);
    temp_write(dir, "cgroup", text.p);
    ck_assert_int_eq(places(list, 1, &n)->kind, USAGE_UNMAPPED);
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

START_TEST(the_process_that_was_measured_is_killed)
{
    struct usage_pid pid = start_child();
    struct err err = {0};
    ck_assert_done(process_kill(&pid, &err), err);
    ck_assert_int_eq(end_child(&pid), SIGKILL);
}

START_TEST(a_process_with_a_reused_pid_is_not_hit)
{
    struct usage_pid pid = start_child(), before = {pid.pid, pid.started - 1};
    struct err err = {0};
    ck_assert_int_eq(process_kill(&before, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    /* Were SIGKILL pending, it would end the process, whatever follows. */
    ck_assert_int_eq(kill((pid_t)pid.pid, SIGUSR1), 0);
    ck_assert_int_eq(end_child(&pid), SIGUSR1);
}

START_TEST(a_process_that_has_ended_is_not_found)
{
    struct usage_pid pid = start_child();
    struct err err = {0};
    kill((pid_t)pid.pid, SIGUSR1);
    end_child(&pid);
    ck_assert_int_eq(process_kill(&pid, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
}

START_TEST(init_process_groups_and_this_process_are_never_killed)
{
    static const int64_t never[] = {-1, 0, 1, (int64_t)1 << 32};
    struct usage_pid self = {getpid(), 0};
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(never); i++) {
        struct usage_pid pid = {never[i], 0};
        ck_assert_int_eq(process_kill(&pid, &err), -1);
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
    ck_assert_int_eq(process_kill(&self, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
}

int main(void)
{
    const TTest *const tests[] = {
        where_processes_run,
        a_process_whose_main_thread_has_exited,
        a_process_of_two_cards_is_read_once,
        a_proc_that_is_not_of_the_host,
        the_names_of_a_node,
        examples_of_runtimes,
        damaged_examples,
        the_process_that_was_measured_is_killed,
        a_process_with_a_reused_pid_is_not_hit,
        a_process_that_has_ended_is_not_found,
        init_process_groups_and_this_process_are_never_killed,
    };
    static const struct unit_fixtures around = {.begin = setup, .end = teardown};
    return unit_run_with("process", tests, ARRAY_LEN(tests), 60, &around);
}
