/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/platform.h"

#include "base/mem.h"
#include "setup/rancher.h"

/* The error of the first file that cannot be read or parsed; NULL: none. */
static const struct err *find_unreadable(const struct facts *f)
{
    if (f->settings_why.code != ERR_NONE)
        return &f->settings_why;
    for (size_t i = 0; i < f->n_settings; i++)
        if (!f->settings[i].json)
            return &f->settings[i].why;
    return NULL;
}

enum platform_state platform_state(const struct facts *f, struct err *err)
{
    if (f->platform == FACTS_KUBEADM)
        return PLATFORM_USABLE;
    if (f->platform == FACTS_OPENSHIFT) {
        err_set(err, ERR_INVALID,
                "OpenShift: an operator writes the static pod and the configuration of "
                "kube-scheduler. Nothing is to be changed on its nodes");
        return PLATFORM_OPENSHIFT;
    }
    if (f->is_agent) {
        err_set(err, ERR_NOT_FOUND,
                "a node of %s without a control plane, which runs no kube-scheduler",
                rancher_name(f));
        return PLATFORM_AGENT;
    }
    const struct err *why = find_unreadable(f);
    if (why) {
        *err = *why;
        return PLATFORM_UNREADABLE;
    }
    cleanup_free char *disabled = rancher_text(f, "disable-scheduler");
    if (strcmp(disabled, "true") != 0)
        return PLATFORM_USABLE;
    err_set(err, ERR_NOT_FOUND,
            "disable-scheduler: true; this server of %s runs no kube-scheduler",
            rancher_name(f));
    return PLATFORM_DISABLED;
}

char *platform_remedy(const struct facts *f, enum platform_state state,
                      const char *option)
{
    if (state == PLATFORM_OPENSHIFT)
        return xstrdup(PLATFORM_HELM " --set platform=openshift");
    if (state == PLATFORM_AGENT)
        return xasprintf("scripts/install%s    # on each server of %s", option,
                         rancher_name(f));
    const struct err *why = find_unreadable(f);
    return why && why->code == ERR_FORBIDDEN ? xasprintf("sudo scripts/install%s", option)
                                             : xstrdup("");
}
