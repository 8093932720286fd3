/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_container.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"

#define UID "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define USD "5d0c1f6e_8a2b_4c3d_9e4f_0123456789ab" /* as systemd names it */
#define ID  "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define ID2 "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"

static const struct example {
    const char *name, *text;
    enum process_container_kind kind;
    const char *uid, *id;
} examples[] = {
    {"v2, systemd, containerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" USD
     ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v2, systemd, a guaranteed pod",
     "0::/kubepods.slice/kubepods-pod" USD ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v2, systemd, CRI-O, with a cgroup in the container",
     "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" USD
     ".slice/crio-" ID ".scope/container\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"CRI-O's monitor of a container",
     "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" USD
     ".slice/crio-conmon-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v2, systemd, cri-dockerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" USD
     ".slice/docker-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v2, cgroupfs (k3s)", "0::/kubepods/burstable/pod" UID "/" ID "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v2, cgroupfs, a guaranteed pod", "0::/kubepods/pod" UID "/" ID "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v1, cgroupfs",
     "12:pids:/kubepods/besteffort/pod" UID "/" ID
     "\n11:cpu,cpuacct:/kubepods/besteffort/pod" UID "/" ID
     "\n1:name=systemd:/kubepods/besteffort/pod" UID "/" ID
     "\n0::/system.slice/containerd.service\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"v1, systemd, with hierarchies that the runtime does not use",
     "13:misc:/\n12:rdma:/\n11:memory:/kubepods.slice/kubepods-burstable.slice/"
     "kubepods-burstable-pod" USD ".slice/docker-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"kubelet with systemd over containerd with cgroupfs",
     "11:cpuset:/system.slice/containerd.service/kubepods-burstable-pod" USD
     ".slice:cri-containerd:" ID "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"kind, systemd",
     "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
     "kubelet-kubepods-burstable-pod" USD ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"kind on Docker, seen from the host",
     "0::/system.slice/docker-" ID2 ".scope/kubelet/kubepods/burstable/pod" UID "/" ID
     "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"systemd in a container",
     "0::/kubepods.slice/kubepods-pod" USD ".slice/cri-containerd-" ID
     ".scope/system.slice/app.service\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"a cluster in a container: the outer pod",
     "0::/kubepods/burstable/pod" UID "/" ID
     "/kubepods/burstable/pod11111111-1111-1111-1111-111111111111/" ID2 "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"a container that makes the cgroup of another pod",
     "0::/kubepods.slice/kubepods-pod" USD ".slice/cri-containerd-" ID
     ".scope/kubepods-pod11111111_1111_1111_1111_111111111111.slice/"
     "cri-containerd-" ID2 ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"namespace: a pod of another class, systemd",
     "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod" USD
     ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"namespace: a pod of the same class, systemd",
     "0::/../../kubepods-besteffort-pod" USD ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"namespace: a pod of the same class, cgroupfs", "0::/../../pod" UID "/" ID "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"namespace: a pod of another class, cgroupfs",
     "0::/../../../burstable/pod" UID "/" ID "\n", PROCESS_CONTAINER_FOUND, UID, ID},
    {"namespace: a process of the host",
     "0::/../../../../system.slice/nvidia-persistenced.service\n", PROCESS_CONTAINER_NONE,
     "", ""},
    {"namespace: another container of the reader's pod",
     "0::/../cri-containerd-" ID ".scope\n", PROCESS_CONTAINER_UNCLEAR, "", ""},
    {"namespace: the reader", "0::/\n", PROCESS_CONTAINER_NONE, "", ""},
    {"a static pod has a hash as UID",
     "0::/kubepods/burstable/podf3a7e1c4b2d5968700112233445566aa/" ID "\n",
     PROCESS_CONTAINER_FOUND, "f3a7e1c4b2d5968700112233445566aa", ID},
    {"the cgroup was removed", "0::/kubepods/burstable/pod" UID "/" ID " (deleted)\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"in the cgroup of the pod", "0::/kubepods/burstable/pod" UID "\n",
     PROCESS_CONTAINER_FOUND, UID, ""},
    {"a runtime that names no container",
     "0::/kubepods/burstable/pod" UID "/kata_overhead\n", PROCESS_CONTAINER_FOUND, UID,
     ""},
    {"a container of Docker", "0::/system.slice/docker-" ID ".scope\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a container of podman", "0::/machine.slice/libpod-" ID ".scope/container\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a user's session", "0::/user.slice/user-1000.slice/session-2.scope\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a service named like a pod", "0::/system.slice/pod" UID "/" ID "\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a class that is not in kubepods", "0::/system.slice/burstable/pod" UID "/" ID "\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a slice named like a pod", "0::/my-pod" USD ".slice/cri-containerd-" ID ".scope\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"a UID with other characters", "0::/kubepods/burstable/pod;rm/" ID "\n",
     PROCESS_CONTAINER_NONE, "", ""},
    {"two lines with different pods",
     "2:cpu:/kubepods/burstable/pod" UID "/" ID
     "\n1:memory:/kubepods/burstable/pod11111111-1111-1111-1111-111111111111/" ID "\n",
     PROCESS_CONTAINER_UNCLEAR, "", ""},
    {"two lines with different containers",
     "2:cpu:/kubepods/burstable/pod" UID "/" ID "\n1:memory:/kubepods/burstable/pod" UID
     "/" ID2 "\n",
     PROCESS_CONTAINER_UNCLEAR, "", ""},
    {"one line has the pod only",
     "2:cpu:/kubepods/burstable/pod" UID "\n1:memory:/kubepods/burstable/pod" UID "/" ID
     "\n",
     PROCESS_CONTAINER_FOUND, UID, ID},
    {"no text", "", PROCESS_CONTAINER_UNCLEAR, "", ""},
    {"no number", "x::/kubepods/burstable/pod" UID "/" ID "\n", PROCESS_CONTAINER_UNCLEAR,
     "", ""},
    {"no path", "0:\n", PROCESS_CONTAINER_UNCLEAR, "", ""},
    {"no '/'", "0::kubepods/burstable/pod" UID "/" ID "\n", PROCESS_CONTAINER_UNCLEAR, "",
     ""},
    {"an empty line", "0::/kubepods/burstable/pod" UID "/" ID "\n\n",
     PROCESS_CONTAINER_UNCLEAR, "", ""},
};

START_TEST(examples_of_runtimes)
{
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        const struct example *e = &examples[i];
        struct process_container c = process_container_of(span_of(e->text));
        ck_assert_msg(c.kind == e->kind, "%s: kind %d", e->name, (int)c.kind);
        ck_assert_msg(!strcmp(c.pod_uid, e->uid), "%s: pod %s", e->name, c.pod_uid);
        ck_assert_msg(!strcmp(c.id, e->id), "%s: container %s", e->name, c.id);
    }
}
END_TEST

START_TEST(long_texts)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "0::/kubepods/burstable/pod");
    for (int i = 0; i < PROCESS_CONTAINER_ID; i++)
        buf_addc(&text, 'a');
    buf_adds(&text, "/" ID "\n");
    struct process_container c = process_container_of(buf_span(&text));
    ck_assert_int_eq(c.kind, PROCESS_CONTAINER_NONE);
    buf_clear(&text);
    while (text.n <= PROCESS_CONTAINER_TEXT)
        buf_adds(&text, "0::/kubepods/burstable/pod" UID "/" ID "\n");
    c = process_container_of(buf_span(&text));
    ck_assert_int_eq(c.kind, PROCESS_CONTAINER_UNCLEAR);
    c = process_container_of(SPAN("0::/kubepods/pod" UID "/" ID "\0\n"));
    ck_assert_int_eq(c.kind, PROCESS_CONTAINER_UNCLEAR);
}
END_TEST

/* Whatever the text is, a found container has a valid pod, and no other kind has one. */
START_TEST(damaged_examples)
{
    static const char *const pieces[] = {
        "/",        "..", ":", "\n", "pod",       "-pod",  ".slice", ".scope",
        "kubepods", ID,   "-", "_",  "(deleted)", "burst", "\xff",   "0"};
    struct rng rng;
    rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        cleanup_buf struct buf text = {0};
        const struct example *e = &examples[rng_below(&rng, ARRAY_LEN(examples))];
        size_t n = strlen(e->text), at = rng_below(&rng, n + 1),
               skip = rng_below(&rng, 9);
        buf_add(&text, e->text, at);
        buf_adds(&text, pieces[rng_below(&rng, ARRAY_LEN(pieces))]);
        if (at + skip < n)
            buf_adds(&text, e->text + at + skip);
        struct process_container c = process_container_of(buf_span(&text));
        bool found = c.kind == PROCESS_CONTAINER_FOUND;
        ck_assert(strlen(c.pod_uid) < sizeof c.pod_uid && strlen(c.id) < sizeof c.id);
        ck_assert(found == (c.pod_uid[0] != '\0'));
        ck_assert(found || !c.id[0]);
        ck_assert(!strpbrk(c.pod_uid, "/_.:\n\xff"));
    }
}
END_TEST

UNIT_MAIN("process_container", examples_of_runtimes, long_texts, damaged_examples)
