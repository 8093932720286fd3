/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "setup/checks_priv.h"

/* The policies that protect promises, with the file of manifests/ that has each. */
static const struct {
    const char *name, *file, *effect;
} policies[] = {
    {"gpushare-promises", "promise-policy",
     "every user who may create or patch pods can forge promises: take cards without a "
     "request, and overcommit them"},
    {"gpushare-bindings", "promise-policy",
     "every client that may bind pods can forge promises by the annotations of a "
     "Binding"},
    {"gpushare-extender", "extender-policy",
     "a stolen token of the extender can change labels, taints and annotations of every "
     "node"},
};

static bool denies(const json_t *binding)
{
    const json_t *actions = jsonpath_at(binding, "spec.validationActions");
    for (size_t i = 0; i < json_array_size(actions); i++) {
        const char *action = json_string_value(json_array_get(actions, i));
        if (action && strcmp(action, "Deny") == 0)
            return true;
    }
    return false;
}

static bool is_bound(const struct facts *f, const char *policy)
{
    const json_t *all = checks_items(f, FACTS_POLICY_BINDINGS);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *binding = json_array_get(all, i);
        if (strcmp(jsonpath_str(binding, "spec.policyName"), policy) == 0 &&
            denies(binding))
            return true;
    }
    return false;
}

static bool exists(const struct facts *f, const char *policy)
{
    const json_t *all = checks_items(f, FACTS_POLICIES);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (strcmp(checks_name(json_array_get(all, i)), policy) == 0)
            return true;
    return false;
}

static void report_too_old(struct findings *out)
{
    struct finding *it = findings_add(
        out, FINDING_NOTE, "no-policies",
        "the API server does not serve ValidatingAdmissionPolicies (Kubernetes 1.30)");
    findings_why(out, it, "%s", policies[0].effect);
}

void checks_policies(const struct facts *f, struct findings *out)
{
    if (f->lists[FACTS_POLICIES].why.code == ERR_NOT_FOUND) {
        report_too_old(out);
        return;
    }
    if (!checks_has_list(f, FACTS_POLICIES, "ValidatingAdmissionPolicies", out) ||
        !checks_has_list(f, FACTS_POLICY_BINDINGS, "ValidatingAdmissionPolicyBindings",
                         out))
        return;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        bool there = exists(f, policies[i].name);
        if (there && is_bound(f, policies[i].name))
            continue;
        struct finding *it = findings_add(
            out, FINDING_PROBLEM, "policy-missing", "%s %s",
            there ? "no ValidatingAdmissionPolicyBinding denies by the policy"
                  : "there is no ValidatingAdmissionPolicy",
            policies[i].name);
        findings_why(out, it, "%s", policies[i].effect);
        findings_fix(out, it,
                     "kubectl apply -f manifests/%s.yaml\n"
                     "or, with Helm, set admissionPolicies to true",
                     policies[i].file);
    }
}
