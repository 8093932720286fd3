/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/checks_priv.h"
#include "setup/rancher.h"

static void explain_openshift(struct findings *out)
{
    struct finding *it = findings_add(
        out, FINDING_NOTE, "openshift",
        "OpenShift: an operator writes the static pod and the configuration of "
        "kube-scheduler. Nothing is to be changed on its nodes");
    findings_why(out, it,
                 "its Scheduler object chooses one of three profiles, and takes no "
                 "extender");
    findings_fix(out, it, CHECKS_HELM " --set platform=openshift");
}

static void explain_agent(const struct facts *f, struct findings *out)
{
    struct finding *it =
        findings_add(out, FINDING_NOTE, "agent",
                     "a node of %s without a control plane: no kube-scheduler runs here",
                     rancher_name(f));
    findings_fix(out, it, "scripts/install --check    # on each server of %s",
                 rancher_name(f));
}

static bool explain_unreadable(const struct facts *f, const struct err *why,
                               struct findings *out)
{
    bool denied = why->code == ERR_FORBIDDEN;
    struct finding *it = findings_add(out, denied ? FINDING_UNKNOWN : FINDING_PROBLEM,
                                      "settings-malformed", "%s", why->msg);
    if (denied)
        findings_fix(out, it, "sudo scripts/install --check");
    else
        findings_why(out, it, "%s reads this file when it starts, and exits if it cannot",
                     rancher_name(f));
    return false;
}

static bool check_settings(const struct facts *f, struct findings *out)
{
    if (f->settings_why.code != ERR_NONE)
        return explain_unreadable(f, &f->settings_why, out);
    for (size_t i = 0; i < f->n_settings; i++)
        if (!f->settings[i].json)
            return explain_unreadable(f, &f->settings[i].why, out);
    if (!f->service_option)
        return true;
    struct finding *it =
        findings_add(out, FINDING_UNKNOWN, "service-option", "%s is set beside %s",
                     f->service_option, rancher_config(f));
    findings_why(out, it,
                 "it takes precedence over the settings in these files, which are all "
                 "that is checked here");
    findings_fix(out, it, "move it to %s, then: systemctl restart %s", rancher_config(f),
                 rancher_unit(f));
    return true;
}

bool checks_platform(const struct facts *f, struct findings *out)
{
    if (f->platform == FACTS_KUBEADM)
        return true;
    if (f->platform == FACTS_OPENSHIFT || f->is_agent) {
        if (f->platform == FACTS_OPENSHIFT)
            explain_openshift(out);
        else
            explain_agent(f, out);
        return false;
    }
    if (!check_settings(f, out))
        return false;
    cleanup_free char *disabled = rancher_text(f, "disable-scheduler");
    findings_add(out, FINDING_OK, "platform",
                 "a server of %s; files with its settings: %zu (%s, config.yaml.d)",
                 rancher_name(f), f->n_settings, rancher_config(f));
    if (strcmp(disabled, "true") != 0)
        return true;
    findings_add(out, FINDING_NOTE, "scheduler-disabled",
                 "disable-scheduler: true; no kube-scheduler runs here");
    return false;
}

static void check_k3s(const struct facts *f, const struct scheduler_pod *pod,
                      struct findings *out)
{
    const struct facts_process *p = facts_scheduler(f, pod);
    const struct facts_file *newer = p ? rancher_newer_file(f, p) : NULL;
    struct finding *it;
    if (newer) {
        it = findings_add(out, FINDING_PROBLEM, "older-than-file",
                          "k3s (process %d) started before %s was changed", p->pid,
                          newer->path);
        findings_why(out, it,
                     "kube-scheduler, a part of k3s, reads this file only when "
                     "k3s starts");
        findings_fix(out, it, "systemctl restart k3s");
    } else if (p) {
        findings_add(out, FINDING_OK, "process",
                     "k3s (process %d) runs with the current files", p->pid);
    } else if (f->processes_why.code != ERR_NONE) {
        findings_add(out, FINDING_UNKNOWN, "processes", "%s", f->processes_why.msg);
    } else {
        it = findings_add(out, FINDING_PROBLEM, "not-running",
                          "k3s does not run on this node");
        findings_fix(out, it, "journalctl -u k3s --since -10min");
    }
}

bool checks_process_of_platform(const struct facts *f, const struct scheduler_pod *pod,
                                struct findings *out)
{
    if (f->platform == FACTS_K3S) {
        check_k3s(f, pod, out);
        return true;
    }
    if (rancher_is_applied(f))
        return false;
    struct finding *it = findings_add(out, FINDING_PROBLEM, "not-applied",
                                      "the static pod of RKE2, %s, does not have the "
                                      "settings of %s",
                                      f->applied.path, rancher_config(f));
    findings_why(out, it, "RKE2 writes this file only when rke2-server starts");
    findings_fix(out, it, "systemctl restart rke2-server");
    return true;
}
