/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb_args.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    /* A container with a limit has at least 46 bytes. It takes 88 in an array that doubles,
     * and 32 in the parts of the request. (The CPU and memory of containers take 53 KiB at
     * most, whatever the pod, which are not counted.) */
    POD_COST = 5,
    NODES_MORE = 1000, /* candidates beyond twice the known nodes */
};

void verb_args_fini(struct verb_args *args)
{
    free(args->nodes);
    *args = (struct verb_args){0};
}

struct verb_args_limits verb_args_limits_of(size_t nodes_known, struct budget *budget)
{
    return (struct verb_args_limits){2 * nodes_known + NODES_MORE, nodes_known, budget};
}

int verb_args_too_many_nodes(const struct verb_args_limits *limits, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE,
                   "too many nodes: expected at most %zu, twice the %zu nodes that are "
                   "known and %d",
                   limits->nodes, limits->nodes_known, NODES_MORE);
}

int verb_args_read_pod(struct jread *j, struct arena *a, struct budget *budget,
                       struct pod *pod, uint64_t *charged, struct err *err)
{
    size_t n = j->n, left = n - j->pos;
    if (left > VERB_ARGS_POD_MAX)
        left = VERB_ARGS_POD_MAX;
    if (!budget_take(budget, left * POD_COST))
        return err_set(err, ERR_UNAVAILABLE,
                       "too many bytes of requests and replies in memory");
    *charged += left * POD_COST;
    /* To the reader, a larger pod looks like an incomplete one. */
    j->part = left < n - j->pos;
    j->n = j->pos + left;
    pod_read(j, a, pod);
    j->n = n;
    j->part = false;
    if (j->state == JREAD_TRUNCATED)
        return err_set(err, ERR_TOO_LARGE, "Pod: expected at most %d MiB",
                       VERB_ARGS_POD_MAX >> 20);
    return 0;
}

struct reading {
    struct jread j;
    struct arena *a;
    struct verb_args *args;
    const struct verb_args_limits *limits;
    size_t seen; /* candidates, also of a list that a later one replaces */
    bool has_pod, has_nodes;
    uint64_t *charged;
    struct err *err;
    bool failed; /* err is set: the rest of the body is not read */
};

static void fail(struct reading *r, int rc)
{
    r->failed |= rc != 0;
}

static void add(struct reading *r, struct span raw, struct span name)
{
    struct verb_args *args = r->args;
    if (r->seen++ == r->limits->nodes) {
        fail(r, verb_args_too_many_nodes(r->limits, r->err));
        return;
    }
    MEM_GROW(args->nodes, args->cap, args->n + 1);
    args->nodes[args->n++] = (struct verb_candidate){raw, name};
}

static void add_name(struct reading *r, const struct jread_str *name)
{
    struct span decoded = jread_span(*name, r->a);
    if (object_is_name(decoded))
        add(r, (struct span){name->p - 1, name->n + 2}, decoded);
    else
        jread_fail(&r->j, "NodeNames[]", "is not a valid node name");
}

/* A long list of names is nearly always one of plain names. */
static void add_names(struct reading *r, const struct jread_str *names, size_t n)
{
    struct verb_args *args = r->args;
    bool plain = n <= r->limits->nodes - r->seen;
    for (size_t i = 0; i < n; i++)
        plain &=
            names[i].plain && object_is_plain_name((struct span){names[i].p, names[i].n});
    if (!plain) {
        for (size_t i = 0; i < n && !r->failed; i++)
            add_name(r, &names[i]);
        return;
    }
    MEM_GROW(args->nodes, args->cap, args->n + n);
    struct verb_candidate *to = args->nodes + args->n;
    for (size_t i = 0; i < n; i++)
        to[i] = (struct verb_candidate){{names[i].p - 1, names[i].n + 2},
                                        {names[i].p, names[i].n}};
    args->n += n;
    r->seen += n;
}

static void read_names(struct reading *r)
{
    struct jread *j = &r->j;
    struct jread_str names[32] = {0};
    bool more;
    r->args->n = 0;
    r->args->full = false;
    jread_array(j, "NodeNames");
    do {
        size_t n;
        while (!r->failed && (n = jread_strings(j, names, ARRAY_LEN(names))) > 0)
            add_names(r, names, n);
        more = !r->failed && jread_item(j);
        if (more && jread_string(j, "NodeNames[]", &names[0]))
            add_name(r, &names[0]);
        else if (more)
            jread_fail(j, "NodeNames[]", "is not a valid node name");
    } while (more);
}

static void read_node(struct reading *r)
{
    struct jread *j = &r->j;
    struct jread_str key;
    struct object_meta meta = {0};
    jread_peek(j); /* moves to the first byte of the object */
    const char *start = j->data + j->pos;
    jread_object(j, "Nodes.items[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, r->a, &meta, NULL, 0);
        else
            jread_skip(j);
        if (arena_bytes(r->a) > VERB_ARGS_ARENA_MAX)
            fail(r, err_set(r->err, ERR_TOO_LARGE,
                            "Nodes.items[]: the names have more than %d MiB",
                            VERB_ARGS_ARENA_MAX >> 20));
    }
    if (jread_check(j, NULL))
        return;
    object_meta_check(j, &meta);
    add(r, (struct span){start, (size_t)(j->data + j->pos - start)}, meta.name);
}

static void read_nodes(struct reading *r)
{
    struct jread *j = &r->j;
    struct jread_str key;
    r->args->n = 0;
    r->args->full = true;
    jread_object(j, "Nodes");
    while (!r->failed && jread_member(j, &key)) {
        if (!jread_str_eq_nocase(key, SPAN("items"))) {
            jread_skip(j);
            continue;
        }
        r->args->n = 0;
        jread_array(j, "Nodes.items");
        while (!r->failed && jread_item(j))
            read_node(r);
    }
}

static void read_pod(struct reading *r)
{
    fail(r, verb_args_read_pod(&r->j, r->a, r->limits->budget, &r->args->pod, r->charged,
                               r->err));
    r->has_pod = true;
}

static int read_body(struct reading *r)
{
    struct jread *j = &r->j;
    struct jread_str key;
    jread_object(j, "body");
    while (!r->failed && jread_member(j, &key)) {
        if (jread_peek(j) == JREAD_NULL) {
            jread_skip(j);
        } else if (jread_str_eq_nocase(key, SPAN("Pod"))) {
            read_pod(r);
        } else if (jread_str_eq_nocase(key, SPAN("NodeNames"))) {
            read_names(r);
            r->has_nodes = true;
        } else if (jread_str_eq_nocase(key, SPAN("Nodes"))) {
            read_nodes(r);
            r->has_nodes = true;
        } else {
            jread_skip(j);
        }
    }
    if (r->failed || jread_finish(j, r->err))
        return -1;
    if (!r->has_pod)
        return err_set(r->err, ERR_INVALID, "Pod is missing");
    if (!r->has_nodes)
        return err_set(r->err, ERR_INVALID, "NodeNames and Nodes are both missing");
    return 0;
}

int verb_args_read(struct verb_args *args, struct span body,
                   const struct request_rules *rules,
                   const struct verb_args_limits *limits, struct arena *a,
                   uint64_t *charged, struct err *err)
{
    struct reading r = {
        .a = a, .args = args, .limits = limits, .charged = charged, .err = err};
    args->n = 0;
    args->end = body.p + body.n;
    args->invalid = (struct err){0};
    jread_init(&r.j, body.p, body.n);
    if (read_body(&r))
        return -1;
    if (request_of(&args->pod, rules, a, &args->request, &args->invalid))
        args->request.kind = REQUEST_NONE;
    return 0;
}
