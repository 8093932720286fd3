/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/body.h"

/* The bodies of writes that more than one program sends to the API server. */

void body_member(struct buf *out, const char *text, struct span value)
{
    buf_adds(out, text);
    buf_add_json(out, value);
}

void body_binding(struct buf *out, const struct body_binding *b)
{
    body_member(
        out,
        "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":", b->name);
    body_member(out, ",\"namespace\":", b->ns);
    body_member(out, ",\"uid\":", b->uid);
    if (b->annotations) {
        buf_adds(out, ",\"annotations\":");
        buf_adds(out, b->annotations);
    }
    body_member(
        out, "},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":", b->node);
    buf_adds(out, "}}");
}

void body_eviction(struct buf *out, struct span ns, struct span name, struct span uid,
                   int grace_s)
{
    body_member(
        out,
        "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":",
        name);
    body_member(out, ",\"namespace\":", ns);
    buf_adds(out, "},\"deleteOptions\":{");
    if (grace_s >= 0)
        buf_printf(out, "\"gracePeriodSeconds\":%d,", grace_s);
    body_member(out, "\"preconditions\":{\"uid\":", uid);
    buf_adds(out, "}}}");
}

void body_nomination(struct buf *out, struct span uid, struct span node)
{
    body_member(out, "{\"metadata\":{\"uid\":", uid);
    buf_adds(out, "},\"status\":{\"nominatedNodeName\":");
    if (node.n)
        buf_add_json(out, node);
    else
        buf_adds(out, "null");
    buf_adds(out, "}}");
}

void body_annotations(struct buf *out, struct span uid, const char *annotations)
{
    buf_adds(out, "{\"metadata\":{");
    if (uid.n) {
        body_member(out, "\"uid\":", uid);
        buf_addc(out, ',');
    }
    buf_printf(out, "\"annotations\":%s}}", annotations);
}
