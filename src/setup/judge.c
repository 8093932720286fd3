/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/judge.h"

#include <inttypes.h>

#include "base/mem.h"

#define CRASHED "crictl logs $(crictl ps -a --name kube-scheduler -q | head -1)"

enum { MINOR_WITHOUT_POLICY = 23 };

static const int64_t YOUNG_NS = INT64_C(10) * 1000 * 1000 * 1000;

static void add_managed(struct found *out, struct finding *it)
{
    found_why(
        out, it,
        "kube-scheduler is configured here only on control plane nodes that kubeadm "
        "made. On a managed control plane (EKS, GKE, AKS, ...) it cannot be: a "
        "second kube-scheduler of your own can, for the pods that name it in "
        "schedulerName");
    found_do(out, it,
             "on a control plane node of kubeadm: scripts/install --check\n"
             "else: policy/second-scheduler.yaml.example");
}

static bool judge_folder(const struct setup_facts *f, struct found *out)
{
    struct finding *it;
    if (f->manifests_why.code == ERR_NONE)
        return true;
    if (f->manifests_why.code == ERR_NOT_FOUND) {
        it = found_add(out, FOUND_WRONG, "no-static-pods",
                       "there is no folder of static pods: %s", f->manifests_why.msg);
        add_managed(out, it);
    } else {
        it = found_add(out, FOUND_UNKNOWN, "manifests-unreadable", "%s",
                       f->manifests_why.msg);
        found_do(out, it, "sudo scripts/install --check");
    }
    return false;
}

static void judge_broken_files(const struct setup_facts *f, struct found *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct setup_file *file = &f->files[i];
        if (file->json)
            continue;
        bool closed = file->why.code == ERR_FORBIDDEN;
        struct finding *it = found_add(out, closed ? FOUND_UNKNOWN : FOUND_WRONG,
                                       "manifest-malformed", "%s", file->why.msg);
        found_why(out, it,
                  "the kubelet passes over a file that it cannot read, and of several "
                  "documents it reads the first alone");
        found_do(out, it,
                 closed ? "sudo scripts/install --check" : "journalctl -u kubelet");
    }
}

/* A copy beside the file is one more pod to the kubelet, or the same one twice. */
static void judge_copies(const struct setup_facts *f, const struct setup_file *active,
                         const struct setup_pod *pod, struct found *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct setup_file *file = &f->files[i];
        struct setup_pod other;
        if (file == active || !file->json || !setup_pod_of(file->json, &other))
            continue;
        if (strcmp(other.name, pod->name) != 0) {
            found_add(out, FOUND_NOTE, "second-scheduler",
                      "%s is a further kube-scheduler, %s; it is not looked at",
                      file->path, other.name);
            continue;
        }
        struct finding *it = found_add(out, FOUND_WRONG, "two-manifests",
                                       "%s and %s are the same static pod, %s",
                                       active->path, file->path, pod->name);
        found_why(out, it,
                  "the kubelet reads every file in that folder, whatever its name ends "
                  "in, and runs one of the two: perhaps the old one");
        found_do(out, it, "mv %s /root/", file->path);
    }
}

static bool judge_option(const struct setup_facts *f, const struct setup_pod *pod,
                         const char *path, struct found *out)
{
    const char *config = setup_pod_option(pod, "config");
    const char *old = setup_pod_option(pod, "policy-config-file");
    int minor = setup_minor(f, pod);
    struct finding *it;
    if (old && minor >= MINOR_WITHOUT_POLICY) {
        it = found_add(out, FOUND_WRONG, "policy-refused",
                       "%s has --policy-config-file, which kube-scheduler 1.%d does not "
                       "know",
                       path, minor);
        found_why(out, it,
                  "since Kubernetes 1.23 it ends at once, with \"unknown flag\"");
        found_do(out, it,
                 "take the option out, then scripts/install --yes, which adds --config");
        return config != NULL;
    }
    if (config && old) {
        it = found_add(out, FOUND_WRONG, "both-options",
                       "%s has --config and --policy-config-file", path);
        found_why(out, it,
                  "which of them tells of extenders depends on the version, and "
                  "with profiles in the first kube-scheduler refuses both");
        found_do(out, it, "take --policy-config-file out, and put its extender into %s",
                 config);
        return false;
    }
    const char *value = config ? config : old;
    if (!value) {
        it = found_add(out, FOUND_WRONG, "no-option",
                       "kube-scheduler (%s) has neither --config nor "
                       "--policy-config-file",
                       path);
        found_why(out, it,
                  "it knows of no extender: it gives pods that ask for GPU memory a "
                  "node by itself, and no card");
        found_do(out, it, "scripts/install --yes");
    } else if (*value != '/') {
        it =
            found_add(out, FOUND_WRONG, "option-relative",
                      "%s names the file \"%s\", which is no absolute path", path, value);
        found_do(out, it, "write the path as the container has it, from /");
        return false;
    }
    return value != NULL;
}

static bool is_of_group(const struct setup_pod *pod, unsigned gid)
{
    const json_t *more = setup_at(pod->pod, "spec.securityContext.supplementalGroups");
    for (size_t i = 0; i < json_array_size(more); i++)
        if (json_integer_value(json_array_get(more, i)) == gid)
            return true;
    const json_t *group = setup_at(pod->container, "securityContext.runAsGroup");
    if (!group)
        group = setup_at(pod->pod, "spec.securityContext.runAsGroup");
    return json_integer_value(group) == gid; /* without any it is root's */
}

static bool may_read(const struct setup_file *file, const struct setup_pod *pod)
{
    int64_t user = setup_pod_user(pod);
    if (user == 0)
        return true;
    return file->mode & (user == file->uid             ? 0400
                         : is_of_group(pod, file->gid) ? 0040
                                                       : 0004);
}

static bool judge_file(const struct setup_facts *f, const struct setup_pod *pod,
                       const char *path, struct found *out)
{
    bool policy;
    const char *inside = setup_config_option(pod, &policy);
    const struct setup_file *file = &f->config;
    struct finding *it;
    if (!f->config_mounted) {
        it = found_add(out, FOUND_WRONG, "not-mounted",
                       "%s: nothing of the node is mounted at %s", path, inside);
        found_why(out, it,
                  "in its container kube-scheduler does not find the file, and ends");
        found_do(out, it,
                 "scripts/install --yes, which adds the mount; by hand: a hostPath "
                 "volume and a volumeMount with mountPath %s",
                 inside);
        return false;
    }
    if (file->why.code == ERR_NOT_FOUND || file->why.code == ERR_UNAVAILABLE) {
        it = found_add(out, FOUND_WRONG,
                       file->why.code == ERR_NOT_FOUND ? "file-absent" : "file-no-file",
                       "%s", file->why.msg);
        found_why(out, it, "%s names it as %s: kube-scheduler ends without it", path,
                  inside);
        found_do(out, it, "cp policy/%s %s",
                 policy ? "scheduler-policy-config.json" : "kube-scheduler-config.yaml",
                 file->path);
        return false;
    }
    if (file->why.code == ERR_FORBIDDEN) {
        it = found_add(out, FOUND_UNKNOWN, "file-closed", "%s", file->why.msg);
        found_do(out, it, "sudo scripts/install --check");
        return false;
    }
    if (!may_read(file, pod)) {
        it = found_add(out, FOUND_WRONG, "file-unreadable",
                       "%s has mode %04o, and kube-scheduler runs as user %" PRId64,
                       file->path, file->mode, setup_pod_user(pod));
        found_why(out, it, "it may not read its file, and ends");
        found_do(out, it, "chmod o+r %s", file->path);
    }
    return true;
}

static void judge_process(const struct setup_facts *f, const struct setup_pod *pod,
                          const char *path, struct found *out)
{
    const struct setup_process *p = setup_running(f, pod);
    struct finding *it;
    if (p && setup_process_is_older(p, &f->config)) {
        it = found_add(out, FOUND_WRONG, "older-than-file",
                       "kube-scheduler (process %d) has run since before %s was changed",
                       p->pid, f->config.path);
        found_why(out, it, "it reads the file at its start only");
        found_do(out, it, "kill %d    # the kubelet starts it again", p->pid);
    } else if (p) {
        found_add(out, FOUND_GOOD, "process", "process %d runs as %s says", p->pid, path);
        if (f->now_ns - p->started_ns < YOUNG_NS) {
            it = found_add(
                out, FOUND_NOTE, "just-started",
                "it started a moment ago; if that is so each time, it ends again "
                "and again");
            found_do(out, it, CRASHED);
        }
    } else if (f->processes_why.code != ERR_NONE) {
        found_add(out, FOUND_UNKNOWN, "processes", "%s", f->processes_why.msg);
    } else if (f->n_processes) {
        it = found_add(out, FOUND_WRONG, "other-arguments",
                       "kube-scheduler runs (process %d), but not with the options of %s",
                       f->processes[0].pid, path);
        found_why(out, it,
                  "the kubelet has not taken the file up: it is busy, stopped, or "
                  "refuses the file");
        found_do(out, it, "journalctl -u kubelet --since -10min");
    } else {
        it = found_add(out, FOUND_WRONG, "not-running",
                       "no kube-scheduler runs on this node");
        found_why(out, it,
                  "it ended, perhaps because of its configuration, or the kubelet "
                  "does not start it");
        found_do(out, it, CRASHED "\njournalctl -u kubelet --since -10min");
    }
}

bool judge_scheduler(const struct setup_facts *f, struct found *out)
{
    struct setup_pod pod;
    if (!judge_folder(f, out))
        return false;
    judge_broken_files(f, out);
    const struct setup_file *active = setup_active(f, &pod);
    if (!active) {
        if (f->n_files)
            return false;
        struct finding *it = found_add(out, FOUND_WRONG, "no-static-pod",
                                       "%s has no pod of kube-scheduler", f->manifests);
        add_managed(out, it);
        return false;
    }
    int minor = setup_minor(f, &pod);
    found_add(out, FOUND_GOOD, "manifest", "%s: kube-scheduler%s%.0d", active->path,
              minor ? " 1." : ", of a version that its image does not tell", minor);
    judge_copies(f, active, &pod, out);
    bool go_on = judge_option(f, &pod, active->path, out) &&
                 judge_file(f, &pod, active->path, out);
    judge_process(f, &pod, active->path, out);
    return go_on;
}

void judge(const struct setup_facts *f, struct found *out)
{
    if (judge_scheduler(f, out) && judge_config(f, out))
        judge_reach(f, out);
    judge_cluster(f, out);
}
