/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/checks_priv.h"
#include "setup/platform.h"
#include "setup/rancher.h"

#define CRASH_LOG "crictl logs $(crictl ps -a --name kube-scheduler -q | head -1)"

/* RKE2 starts the kubelet and writes its log. New. */
static char *kubelet_log(const struct facts *f)
{
    if (f->platform != FACTS_RKE2)
        return xstrdup("journalctl -u kubelet --since -10min");
    cleanup_free char *data_dir = rancher_data_dir(f);
    return xasprintf("tail %s/agent/logs/kubelet.log", data_dir);
}

enum { MINOR_WITHOUT_POLICY = 23 };

static void explain_managed(struct findings *out, struct finding *it)
{
    findings_why(out, it,
                 "kube-scheduler can be configured only on control plane nodes of "
                 "kubeadm, k3s and RKE2. With a managed control plane (EKS, GKE, AKS, "
                 "...), the chart runs a second kube-scheduler");
    findings_fix(out, it,
                 "on a control plane node: scripts/install --check\n"
                 "managed: " PLATFORM_HELM " --set platform=managed");
}

static bool check_folder(const struct facts *f, struct findings *out)
{
    struct finding *it;
    if (f->manifests_why.code == ERR_NONE)
        return true;
    if (f->manifests_why.code == ERR_NOT_FOUND) {
        it = findings_add(out, FINDING_PROBLEM, "no-static-pods",
                          "no folder of static pods: %s", f->manifests_why.msg);
        explain_managed(out, it);
    } else {
        it = findings_add(out, FINDING_UNKNOWN, "manifests-unreadable", "%s",
                          f->manifests_why.msg);
        findings_fix(out, it, "sudo scripts/install --check");
    }
    return false;
}

static void check_malformed(const struct facts *f, struct findings *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        if (file->json)
            continue;
        bool denied = file->why.code == ERR_FORBIDDEN;
        struct finding *it = findings_add(out, denied ? FINDING_UNKNOWN : FINDING_PROBLEM,
                                          "manifest-malformed", "%s", file->why.msg);
        findings_why(out, it,
                     "the kubelet ignores manifests that it cannot parse, and reads only "
                     "the first of several documents");
        findings_fix(out, it,
                     denied ? "sudo scripts/install --check" : "journalctl -u kubelet");
    }
}

/* The kubelet runs every manifest in the folder, also a backup copy. */
static void check_copies(const struct facts *f, const struct facts_file *manifest,
                         const struct scheduler_pod *pod, struct findings *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        struct scheduler_pod other;
        if (file == manifest || !file->json || !scheduler_pod_read(file->json, &other) ||
            strcmp(other.name, pod->name) != 0)
            continue;
        struct finding *it = findings_add(out, FINDING_PROBLEM, "two-manifests",
                                          "%s and %s are the same static pod, %s",
                                          manifest->path, file->path, pod->name);
        findings_why(out, it,
                     "the kubelet reads every file in this folder, whatever its suffix, "
                     "and runs one of the two, perhaps the old one");
        findings_fix(out, it, "mv %s /root/", file->path);
    }
}

static bool check_option(const struct facts *f, const struct scheduler_pod *pod,
                         const char *path, struct findings *out)
{
    const char *config = scheduler_pod_option(pod, "config");
    const char *policy = scheduler_pod_option(pod, "policy-config-file");
    int minor = facts_minor(f, pod);
    struct finding *it;
    if (policy && minor >= MINOR_WITHOUT_POLICY) {
        it =
            findings_add(out, FINDING_PROBLEM, "policy-refused",
                         "%s has --policy-config-file, which kube-scheduler 1.%d rejects",
                         path, minor);
        findings_why(out, it,
                     "since Kubernetes 1.23, kube-scheduler exits with \"unknown flag\"");
        findings_fix(
            out, it,
            "remove the option, then scripts/install --yes, which adds --config");
        return config != NULL;
    }
    if (config || policy)
        return true;
    it = findings_add(out, FINDING_PROBLEM, "no-option",
                      "kube-scheduler (%s) has neither --config nor --policy-config-file",
                      path);
    findings_why(out, it,
                 "kube-scheduler does not call the extender: it gives pods that request "
                 "GPU memory a node, but no card");
    findings_fix(out, it, "scripts/install --yes");
    return false;
}

static bool check_file(const struct facts *f, const struct scheduler_pod *pod,
                       const char *path, struct findings *out)
{
    bool policy;
    const char *inside = scheduler_pod_config_option(pod, &policy);
    const struct facts_file *file = &f->config;
    struct finding *it;
    if (!f->config_mounted) {
        it = findings_add(out, FINDING_PROBLEM, "not-mounted",
                          "%s: no hostPath volume is mounted at %s", path, inside);
        findings_why(out, it,
                     "kube-scheduler does not find the file in its container, and exits");
        findings_fix(out, it,
                     "scripts/install --yes, which adds the mount; by hand: a hostPath "
                     "volume and a volumeMount with mountPath %s",
                     inside);
        return false;
    }
    if (file->why.code == ERR_NOT_FOUND || file->why.code == ERR_UNAVAILABLE) {
        it = findings_add(out, FINDING_PROBLEM, "file-absent", "%s", file->why.msg);
        findings_why(out, it, "%s names this file as %s; kube-scheduler exits without it",
                     path, inside);
        findings_fix(out, it, "cp policy/%s %s",
                     policy ? "scheduler-policy-config.json"
                            : "kube-scheduler-config.yaml",
                     file->path);
        return false;
    }
    if (file->why.code == ERR_FORBIDDEN) {
        it = findings_add(out, FINDING_UNKNOWN, "file-unreadable", "%s", file->why.msg);
        findings_fix(out, it, "sudo scripts/install --check");
        return false;
    }
    return true;
}

static void check_process(const struct facts *f, const struct scheduler_pod *pod,
                          const char *path, struct findings *out)
{
    if (checks_process_of_platform(f, pod, out))
        return;
    const struct facts_process *p = facts_scheduler(f, pod);
    const struct facts_file *newer = p ? facts_newer_file(f, p) : NULL;
    cleanup_free char *log = kubelet_log(f);
    struct finding *it;
    if (newer) {
        it = findings_add(out, FINDING_PROBLEM, "older-than-file",
                          "kube-scheduler (process %d) started before %s was changed",
                          p->pid, newer->path);
        findings_why(out, it, "kube-scheduler reads this file only when it starts");
        findings_fix(out, it, "kill %d    # the kubelet restarts it", p->pid);
    } else if (p) {
        findings_add(out, FINDING_OK, "process", "process %d runs with the options of %s",
                     p->pid, path);
    } else if (f->processes_why.code != ERR_NONE) {
        findings_add(out, FINDING_UNKNOWN, "processes", "%s", f->processes_why.msg);
    } else if (f->n_processes) {
        it = findings_add(out, FINDING_PROBLEM, "other-arguments",
                          "kube-scheduler (process %d) does not run with the options of "
                          "%s",
                          f->processes[0].pid, path);
        findings_why(out, it,
                     "the kubelet has not applied the manifest: it is busy, stopped, or "
                     "rejects the file");
        findings_fix(out, it, "%s", log);
    } else {
        it = findings_add(out, FINDING_PROBLEM, "not-running",
                          "kube-scheduler does not run on this node");
        findings_why(out, it,
                     "it exited, perhaps because of its configuration, or the kubelet "
                     "does not start it");
        findings_fix(out, it, CRASH_LOG "\n%s", log);
    }
}

bool checks_scheduler(const struct facts *f, struct findings *out)
{
    struct scheduler_pod pod;
    if (!checks_platform(f, out) || !check_folder(f, out))
        return false;
    check_malformed(f, out);
    const struct facts_file *manifest = facts_manifest(f, &pod);
    if (!manifest) {
        if (f->n_files)
            return false;
        struct finding *it =
            findings_add(out, FINDING_PROBLEM, "no-static-pod",
                         "%s has no static pod of kube-scheduler", f->manifests);
        explain_managed(out, it);
        return false;
    }
    int minor = facts_minor(f, &pod);
    findings_add(out, FINDING_OK, "manifest", "%s: kube-scheduler%s%.0d", manifest->path,
                 minor ? " 1." : ", version unknown", minor);
    check_copies(f, manifest, &pod, out);
    bool usable = check_option(f, &pod, manifest->path, out) &&
                  check_file(f, &pod, manifest->path, out);
    check_process(f, &pod, manifest->path, out);
    return usable;
}

void checks_run(const struct facts *f, bool with_cluster, struct findings *out)
{
    if (checks_scheduler(f, out) && checks_config(f, out))
        checks_reach(f, out);
    if (with_cluster)
        checks_cluster(f, out);
}
