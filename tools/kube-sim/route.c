/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/route_priv.h"

/* Takes the next segment of the path. */
static struct span part(struct span *rest)
{
    return rest->p ? span_cut(rest, '/') : *rest;
}

/* The path after "/namespaces/": a Namespace, or resources in it. */
static void in_namespace(struct route *r, struct span group, struct span version,
                         struct span rest)
{
    struct span ns = part(&rest), plural = part(&rest);
    if (!plural.n) {
        r->kind = sim_kind_by_plural(group, version, SPAN("namespaces"));
        r->name = ns;
        return;
    }
    r->kind = sim_kind_by_plural(group, version, plural);
    if (r->kind && !r->kind->namespaced)
        r->kind = NULL;
    r->ns = ns;
    r->name = part(&rest);
    r->sub = part(&rest);
    if (rest.p)
        r->kind = NULL;
}

struct route sim_route_parse(const char *path)
{
    struct route r = {0};
    struct span rest = span_of(path), group = {"", 0};
    if (rest.n > 1 && rest.p[rest.n - 1] == '/')
        rest.n--;
    if (part(&rest).n)
        return r;
    struct span root = part(&rest);
    if (span_eq(root, SPAN("apis")))
        group = part(&rest);
    else if (!span_eq(root, SPAN("api")))
        return r;
    struct span version = part(&rest), plural = part(&rest);
    if (span_eq(plural, SPAN("namespaces")) && rest.n) {
        in_namespace(&r, group, version, rest);
    } else {
        r.kind = sim_kind_by_plural(group, version, plural);
        r.name = part(&rest);
        r.sub = part(&rest);
        if (rest.p || (r.kind && r.kind->namespaced && r.name.n))
            r.kind = NULL;
    }
    if ((r.ns.p && !r.ns.n) || (r.name.p && !r.name.n) || (r.sub.p && !r.sub.n))
        r.kind = NULL; /* an empty segment */
    return r;
}
