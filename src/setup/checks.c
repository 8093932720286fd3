/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/checks.h"

#include <inttypes.h>

#include "base/mem.h"

#define CRASHED "crictl logs $(crictl ps -a --name kube-scheduler -q | head -1)"

enum { MINOR_WITHOUT_POLICY = 23 };

static const int64_t YOUNG_NS = INT64_C(10) * 1000 * 1000 * 1000;

static void add_managed(struct findings *out, struct finding *it)
{
    findings_set_reason(
        out, it,
        "kube-scheduler is configured here only on control plane nodes that kubeadm "
        "made. On a managed control plane (EKS, GKE, AKS, ...) it cannot be: a "
        "second kube-scheduler of your own can, for the pods that name it in "
        "schedulerName");
    findings_set_command(out, it,
             "on a control plane node of kubeadm: scripts/install --check\n"
             "else: policy/second-scheduler.yaml.example");
}

static bool checks_folder(const struct facts *f, struct findings *out)
{
    struct finding *it;
    if (f->manifests_why.code == ERR_NONE)
        return true;
    if (f->manifests_why.code == ERR_NOT_FOUND) {
        it = findings_add(out, FINDING_PROBLEM, "no-static-pods",
                       "there is no folder of static pods: %s", f->manifests_why.msg);
        add_managed(out, it);
    } else {
        it = findings_add(out, FINDING_UNKNOWN, "manifests-unreadable", "%s",
                       f->manifests_why.msg);
        findings_set_command(out, it, "sudo scripts/install --check");
    }
    return false;
}

static void checks_broken_files(const struct facts *f, struct findings *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        if (file->json)
            continue;
        bool closed = file->why.code == ERR_FORBIDDEN;
        struct finding *it = findings_add(out, closed ? FINDING_UNKNOWN : FINDING_PROBLEM,
                                       "manifest-malformed", "%s", file->why.msg);
        findings_set_reason(out, it,
                  "the kubelet passes over a file that it cannot read, and of several "
                  "documents it reads the first alone");
        findings_set_command(out, it,
                 closed ? "sudo scripts/install --check" : "journalctl -u kubelet");
    }
}

/* A copy beside the file is one more pod to the kubelet, or the same one twice. */
static void checks_copies(const struct facts *f, const struct facts_file *active,
                         const struct scheduler_pod *pod, struct findings *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        struct scheduler_pod other;
        if (file == active || !file->json || !scheduler_pod_read(file->json, &other))
            continue;
        if (strcmp(other.name, pod->name) != 0) {
            findings_add(out, FINDING_NOTE, "second-scheduler",
                      "%s is a further kube-scheduler, %s; it is not looked at",
                      file->path, other.name);
            continue;
        }
        struct finding *it = findings_add(out, FINDING_PROBLEM, "two-manifests",
                                       "%s and %s are the same static pod, %s",
                                       active->path, file->path, pod->name);
        findings_set_reason(out, it,
                  "the kubelet reads every file in that folder, whatever its name ends "
                  "in, and runs one of the two: perhaps the old one");
        findings_set_command(out, it, "mv %s /root/", file->path);
    }
}

static bool checks_option(const struct facts *f, const struct scheduler_pod *pod,
                         const char *path, struct findings *out)
{
    const char *config = scheduler_pod_option(pod, "config");
    const char *old = scheduler_pod_option(pod, "policy-config-file");
    int minor = facts_minor(f, pod);
    struct finding *it;
    if (old && minor >= MINOR_WITHOUT_POLICY) {
        it = findings_add(out, FINDING_PROBLEM, "policy-refused",
                       "%s has --policy-config-file, which kube-scheduler 1.%d does not "
                       "know",
                       path, minor);
        findings_set_reason(out, it,
                  "since Kubernetes 1.23 it ends at once, with \"unknown flag\"");
        findings_set_command(out, it,
                 "take the option out, then scripts/install --yes, which adds --config");
        return config != NULL;
    }
    if (config && old) {
        it = findings_add(out, FINDING_PROBLEM, "both-options",
                       "%s has --config and --policy-config-file", path);
        findings_set_reason(out, it,
                  "which of them tells of extenders depends on the version, and "
                  "with profiles in the first kube-scheduler refuses both");
        findings_set_command(out, it, "take --policy-config-file out, and put its extender into %s",
                 config);
        return false;
    }
    const char *value = config ? config : old;
    if (!value) {
        it = findings_add(out, FINDING_PROBLEM, "no-option",
                       "kube-scheduler (%s) has neither --config nor "
                       "--policy-config-file",
                       path);
        findings_set_reason(out, it,
                  "it knows of no extender: it gives pods that ask for GPU memory a "
                  "node by itself, and no card");
        findings_set_command(out, it, "scripts/install --yes");
    } else if (*value != '/') {
        it =
            findings_add(out, FINDING_PROBLEM, "option-relative",
                      "%s names the file \"%s\", which is no absolute path", path, value);
        findings_set_command(out, it, "write the path as the container has it, from /");
        return false;
    }
    return value != NULL;
}

static bool is_of_group(const struct scheduler_pod *pod, unsigned gid)
{
    const json_t *more = jsonpath_at(pod->pod, "spec.securityContext.supplementalGroups");
    for (size_t i = 0; i < json_array_size(more); i++)
        if (json_integer_value(json_array_get(more, i)) == gid)
            return true;
    const json_t *group = jsonpath_at(pod->container, "securityContext.runAsGroup");
    if (!group)
        group = jsonpath_at(pod->pod, "spec.securityContext.runAsGroup");
    return json_integer_value(group) == gid; /* without any it is root's */
}

static bool may_read(const struct facts_file *file, const struct scheduler_pod *pod)
{
    int64_t user = scheduler_pod_user(pod);
    if (user == 0)
        return true;
    return file->mode & (user == file->uid             ? 0400
                         : is_of_group(pod, file->gid) ? 0040
                                                       : 0004);
}

static bool checks_file(const struct facts *f, const struct scheduler_pod *pod,
                       const char *path, struct findings *out)
{
    bool policy;
    const char *inside = scheduler_pod_config_option(pod, &policy);
    const struct facts_file *file = &f->config;
    struct finding *it;
    if (!f->config_mounted) {
        it = findings_add(out, FINDING_PROBLEM, "not-mounted",
                       "%s: nothing of the node is mounted at %s", path, inside);
        findings_set_reason(out, it,
                  "in its container kube-scheduler does not find the file, and ends");
        findings_set_command(out, it,
                 "scripts/install --yes, which adds the mount; by hand: a hostPath "
                 "volume and a volumeMount with mountPath %s",
                 inside);
        return false;
    }
    if (file->why.code == ERR_NOT_FOUND || file->why.code == ERR_UNAVAILABLE) {
        it = findings_add(out, FINDING_PROBLEM,
                       file->why.code == ERR_NOT_FOUND ? "file-absent" : "file-no-file",
                       "%s", file->why.msg);
        findings_set_reason(out, it, "%s names it as %s: kube-scheduler ends without it", path,
                  inside);
        findings_set_command(out, it, "cp policy/%s %s",
                 policy ? "scheduler-policy-config.json" : "kube-scheduler-config.yaml",
                 file->path);
        return false;
    }
    if (file->why.code == ERR_FORBIDDEN) {
        it = findings_add(out, FINDING_UNKNOWN, "file-closed", "%s", file->why.msg);
        findings_set_command(out, it, "sudo scripts/install --check");
        return false;
    }
    if (!may_read(file, pod)) {
        it = findings_add(out, FINDING_PROBLEM, "file-unreadable",
                       "%s has mode %04o, and kube-scheduler runs as user %" PRId64,
                       file->path, file->mode, scheduler_pod_user(pod));
        findings_set_reason(out, it, "it may not read its file, and ends");
        findings_set_command(out, it, "chmod o+r %s", file->path);
    }
    return true;
}

static void checks_process(const struct facts *f, const struct scheduler_pod *pod,
                          const char *path, struct findings *out)
{
    const struct facts_process *p = facts_scheduler(f, pod);
    struct finding *it;
    if (p && facts_process_is_older(p, &f->config)) {
        it = findings_add(out, FINDING_PROBLEM, "older-than-file",
                       "kube-scheduler (process %d) has run since before %s was changed",
                       p->pid, f->config.path);
        findings_set_reason(out, it, "it reads the file at its start only");
        findings_set_command(out, it, "kill %d    # the kubelet starts it again", p->pid);
    } else if (p) {
        findings_add(out, FINDING_OK, "process", "process %d runs as %s says", p->pid, path);
        if (f->now_ns - p->started_ns < YOUNG_NS) {
            it = findings_add(
                out, FINDING_NOTE, "just-started",
                "it started a moment ago; if that is so each time, it ends again "
                "and again");
            findings_set_command(out, it, CRASHED);
        }
    } else if (f->processes_why.code != ERR_NONE) {
        findings_add(out, FINDING_UNKNOWN, "processes", "%s", f->processes_why.msg);
    } else if (f->n_processes) {
        it = findings_add(out, FINDING_PROBLEM, "other-arguments",
                       "kube-scheduler runs (process %d), but not with the options of %s",
                       f->processes[0].pid, path);
        findings_set_reason(out, it,
                  "the kubelet has not taken the file up: it is busy, stopped, or "
                  "refuses the file");
        findings_set_command(out, it, "journalctl -u kubelet --since -10min");
    } else {
        it = findings_add(out, FINDING_PROBLEM, "not-running",
                       "no kube-scheduler runs on this node");
        findings_set_reason(out, it,
                  "it ended, perhaps because of its configuration, or the kubelet "
                  "does not start it");
        findings_set_command(out, it, CRASHED "\njournalctl -u kubelet --since -10min");
    }
}

bool checks_scheduler(const struct facts *f, struct findings *out)
{
    struct scheduler_pod pod;
    if (!checks_folder(f, out))
        return false;
    checks_broken_files(f, out);
    const struct facts_file *active = facts_manifest(f, &pod);
    if (!active) {
        if (f->n_files)
            return false;
        struct finding *it = findings_add(out, FINDING_PROBLEM, "no-static-pod",
                                       "%s has no pod of kube-scheduler", f->manifests);
        add_managed(out, it);
        return false;
    }
    int minor = facts_minor(f, &pod);
    findings_add(out, FINDING_OK, "manifest", "%s: kube-scheduler%s%.0d", active->path,
              minor ? " 1." : ", of a version that its image does not tell", minor);
    checks_copies(f, active, &pod, out);
    bool go_on = checks_option(f, &pod, active->path, out) &&
                 checks_file(f, &pod, active->path, out);
    checks_process(f, &pod, active->path, out);
    return go_on;
}

void checks_run(const struct facts *f, struct findings *out)
{
    if (checks_scheduler(f, out) && checks_config(f, out))
        checks_reach(f, out);
    checks_cluster(f, out);
}
