/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/checks_priv.h"
#include "setup/platform.h"
#include "setup/rancher.h"

static void explain(const struct facts *f, enum platform_state state,
                    const struct err *fact, struct findings *out)
{
    static const char *const codes[] = {[PLATFORM_OPENSHIFT] = "openshift",
                                        [PLATFORM_AGENT] = "agent",
                                        [PLATFORM_UNREADABLE] = "settings-malformed",
                                        [PLATFORM_DISABLED] = "scheduler-disabled"};
    bool denied = fact->code == ERR_FORBIDDEN;
    enum finding_kind kind = state != PLATFORM_UNREADABLE ? FINDING_NOTE
                             : denied                     ? FINDING_UNKNOWN
                                                          : FINDING_PROBLEM;
    cleanup_free char *remedy = platform_remedy(f, state, " --check");
    struct finding *it = findings_add(out, kind, codes[state], "%s", fact->msg);
    if (state == PLATFORM_OPENSHIFT)
        findings_why(out, it,
                     "its Scheduler object chooses one of three profiles, and takes no "
                     "extender");
    else if (kind == FINDING_PROBLEM)
        findings_why(out, it, "%s reads this file when it starts, and exits if it cannot",
                     rancher_name(f));
    if (*remedy)
        findings_fix(out, it, "%s", remedy);
}

static void check_service(const struct facts *f, struct findings *out)
{
    if (!f->service_option)
        return;
    struct finding *it =
        findings_add(out, FINDING_UNKNOWN, "service-option", "%s is set beside %s",
                     f->service_option, rancher_config(f));
    findings_why(out, it,
                 "it takes precedence over the settings in these files, which are all "
                 "that is checked here");
    findings_fix(out, it, "move it to %s, then: systemctl restart %s", rancher_config(f),
                 rancher_unit(f));
}

bool checks_platform(const struct facts *f, struct findings *out)
{
    struct err fact = {0};
    enum platform_state state = platform_state(f, &fact);
    if (state == PLATFORM_USABLE || state == PLATFORM_DISABLED)
        check_service(f, out);
    if (state != PLATFORM_USABLE) {
        explain(f, state, &fact, out);
        return false;
    }
    if (f->platform == FACTS_KUBEADM)
        return true;
    findings_add(out, FINDING_OK, "platform",
                 "a server of %s; files with its settings: %zu (%s, config.yaml.d)",
                 rancher_name(f), f->n_settings, rancher_config(f));
    return true;
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
