/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb_args.h"

#include <stdlib.h>

#include "base/mem.h"

void verb_args_fini(struct verb_args *args)
{
    free(args->nodes);
    *args = (struct verb_args){0};
}

static void add(struct verb_args *args, struct span raw, struct span name)
{
    MEM_GROW(args->nodes, args->cap, args->n + 1);
    args->nodes[args->n++] = (struct verb_candidate){raw, name};
}

static void add_name(struct jread *j, struct arena *a, struct verb_args *args,
                     const struct jread_str *name)
{
    struct span decoded = jread_span(*name, a);
    if (object_is_name(decoded))
        add(args, (struct span){name->p - 1, name->n + 2}, decoded);
    else
        jread_fail(j, "NodeNames[]", "is not a valid node name");
}

static void read_names(struct jread *j, struct arena *a, struct verb_args *args)
{
    struct jread_str names[32] = {0};
    bool more;
    args->n = 0;
    args->full = false;
    jread_array(j, "NodeNames");
    do {
        size_t n;
        while ((n = jread_strings(j, names, ARRAY_LEN(names))) > 0)
            for (size_t i = 0; i < n; i++)
                add_name(j, a, args, &names[i]);
        more = jread_item(j);
        if (more && jread_string(j, "NodeNames[]", &names[0]))
            add_name(j, a, args, &names[0]);
        else if (more)
            jread_fail(j, "NodeNames[]", "is not a valid node name");
    } while (more);
}

static void read_node(struct jread *j, struct arena *a, struct verb_args *args)
{
    struct jread_str key;
    struct object_meta meta = {0};
    jread_peek(j); /* moves to the first byte of the object */
    const char *start = j->data + j->pos;
    jread_object(j, "Nodes.items[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &meta, NULL, 0);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return;
    object_meta_check(j, &meta);
    add(args, (struct span){start, (size_t)(j->data + j->pos - start)}, meta.name);
}

static void read_nodes(struct jread *j, struct arena *a, struct verb_args *args)
{
    struct jread_str key;
    args->n = 0;
    args->full = true;
    jread_object(j, "Nodes");
    while (jread_member(j, &key)) {
        if (!jread_str_eq_nocase(key, SPAN("items"))) {
            jread_skip(j);
            continue;
        }
        args->n = 0;
        jread_array(j, "Nodes.items");
        while (jread_item(j))
            read_node(j, a, args);
    }
}

int verb_args_read(struct verb_args *args, struct span body,
                   const struct request_rules *rules, struct arena *a, struct err *err)
{
    struct jread j;
    struct jread_str key;
    bool has_pod = false, has_nodes = false;
    args->n = 0;
    args->invalid = (struct err){0};
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (jread_member(&j, &key)) {
        bool null = jread_peek(&j) == JREAD_NULL;
        if (null) {
            jread_skip(&j);
        } else if (jread_str_eq_nocase(key, SPAN("Pod"))) {
            pod_read(&j, a, &args->pod);
            has_pod = true;
        } else if (jread_str_eq_nocase(key, SPAN("NodeNames"))) {
            read_names(&j, a, args);
            has_nodes = true;
        } else if (jread_str_eq_nocase(key, SPAN("Nodes"))) {
            read_nodes(&j, a, args);
            has_nodes = true;
        } else {
            jread_skip(&j);
        }
    }
    if (jread_finish(&j, err))
        return -1;
    if (!has_pod)
        return err_set(err, ERR_INVALID, "Pod is missing");
    if (!has_nodes)
        return err_set(err, ERR_INVALID, "NodeNames and Nodes are both missing");
    if (request_of(&args->pod, rules, a, &args->request, &args->invalid))
        args->request.kind = REQUEST_NONE;
    return 0;
}
