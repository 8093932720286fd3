/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdlib.h>

#include "base/mem.h"

/* GET of a collection: selectors, pages of one consistent state. */

/* The objects that a selector has found, shared. */
struct found {
    const struct selector *selector;
    struct object **items;
    size_t n, cap;
    size_t limit; /* 0: none */
    size_t bytes; /* of the objects */
    bool more;    /* the limit was reached, and more objects follow */
};

struct wish {
    struct selector selector;
    uint64_t rv;      /* of the list */
    struct buf start; /* first key */
    int64_t limit;
    bool stale; /* resourceVersion=0: a stale state is allowed */
};

static void wish_fini(struct wish *w)
{
    sim_selector_fini(&w->selector);
    buf_fini(&w->start);
}

int sim_list_selector(struct call *c, struct selector *s)
{
    struct err err;
    if (sim_selector_init(s, c->route.kind, c->route.ns,
                          sim_query_get(&c->query, "labelSelector"),
                          sim_query_get(&c->query, "fieldSelector"), &err) == 0)
        return 0;
    sim_selector_fini(s);
    return sim_refuse(c, 400, "%s", err.msg);
}

/* The watch cache of a real server waits and sends Retry-After; etcd does not. */
static int refuse_future(struct call *c, int64_t rv, bool exact)
{
    cleanup_json_value json_t *causes =
        json_pack("[{s:s,s:s}]", "reason", "ResourceVersionTooLarge", "message",
                  "Too large resource version");
    struct status_about about = {.causes = causes, .retry_s = exact ? 0 : 1};
    c->reply->retry_after_s = about.retry_s;
    return sim_refuse_with(c, 504, "Timeout", &about,
                           "Timeout: Too large resource version: %lld, current: %lld",
                           (long long)rv, (long long)c->api->rv);
}

static int wish_continue(struct call *c, struct wish *w, struct span text, struct span rv)
{
    if (!sim_token_read(text, &w->rv, &w->start))
        return sim_refuse(c, 400,
                          "invalid continue token: continue key is not valid: invalid "
                          "character in token");
    if (rv.p && !span_eq(rv, SPAN("0")))
        return sim_refuse(
            c, 400, "specifying resource version is not allowed when using continue");
    if (w->rv < c->store->floor_rv || w->rv > c->api->rv)
        return sim_refuse(c, 410,
                          "The provided continue parameter is too old to display a "
                          "consistent list result. You can start a new list without the "
                          "continue parameter.");
    return 0;
}

static int wish_version(struct call *c, struct wish *w, struct span rv)
{
    int64_t n;
    w->rv = c->api->rv;
    if (!rv.p)
        return 0;
    if (!span_i64(rv, &n) || n < 0)
        return sim_refuse(c, 400,
                          "invalid resource version: resourceVersion: Invalid value: "
                          "\"%.*s\": strconv.ParseUint: parsing \"%.*s\": invalid syntax",
                          SPAN_ARG(rv), SPAN_ARG(rv));
    if (n == 0) {
        w->stale = true;
        w->limit = 0; /* the watch cache ignores limit */
        return 0;
    }
    if ((uint64_t)n > c->api->rv)
        return refuse_future(c, n, w->limit > 0);
    if (w->limit <= 0) /* any version that is not older */
        return 0;
    w->rv = (uint64_t)n;
    return w->rv >= c->store->floor_rv
               ? 0
               : sim_refuse(c, 410,
                            "The resourceVersion for the provided list is too old.");
}

static int read_wish(struct call *c, struct wish *w)
{
    struct err err;
    struct span rv = sim_query_get(&c->query, "resourceVersion");
    struct span token = sim_query_get(&c->query, "continue");
    if (sim_query_int(&c->query, "limit", 0, &w->limit, &err))
        return sim_refuse(c, 400, "%s", err.msg);
    if (token.p ? wish_continue(c, w, token, rv) : wish_version(c, w, rv))
        return -1;
    return sim_list_selector(c, &w->selector);
}

static bool gather(void *ctx, struct object *o)
{
    struct found *f = ctx;
    struct span ns = f->selector->ns;
    if (ns.p && !span_eq(ns, o->ns))
        return false; /* past the last key of the namespace */
    if (!sim_selector_match(f->selector, o))
        return true;
    if (f->limit && f->n == f->limit) {
        f->more = true;
        return false;
    }
    MEM_GROW(f->items, f->cap, f->n + 1);
    f->items[f->n++] = sim_object_ref(o);
    f->bytes += o->bytes.n + 1;
    return true;
}

/* Walks from the key `from` on, or from the first key of the namespace. */
static void gather_from(const struct store *store, uint64_t rv, struct span from,
                        struct found *f)
{
    cleanup_buf struct buf key = {0};
    if (f->selector->ns.p) {
        buf_add_span(&key, f->selector->ns);
        buf_addc(&key, '/');
        if (span_cmp(from, buf_span(&key)) < 0)
            from = buf_span(&key);
    }
    sim_store_walk(store, rv, from, gather, f);
}

struct object **sim_list_collect(struct store *store, const struct selector *s,
                                 uint64_t rv, size_t *n)
{
    struct found f = {.selector = s};
    gather_from(store, rv, (struct span){NULL, 0}, &f);
    *n = f.n;
    return f.items;
}

static void write_list(const struct kind *kind, uint64_t rv, const struct found *f,
                       struct buf *out)
{
    buf_reserve(out, f->bytes + 1024);
    buf_printf(out, "{\"kind\":\"%sList\",\"apiVersion\":\"", kind->kind);
    sim_kind_add_group_version(kind, out);
    buf_printf(out, "\",\"metadata\":{\"resourceVersion\":\"%llu\"",
               (unsigned long long)rv);
    if (f->more || kind->custom) {
        buf_adds(out, ",\"continue\":\"");
        if (f->more)
            sim_token_write(out, rv, f->items[f->n - 1]->key);
        buf_addc(out, '"');
    }
    buf_adds(out, "},\"items\":[");
    for (size_t i = 0; i < f->n; i++) {
        if (i)
            buf_addc(out, ',');
        sim_object_add_item(f->items[i], out);
    }
    buf_adds(out, "]}\n");
}

void sim_list_handle(struct call *c)
{
    struct wish w = {0};
    if (read_wish(c, &w) == 0) {
        const struct frozen *frozen = &c->api->frozen[sim_kind_index(c->route.kind)];
        struct found f = {.selector = &w.selector,
                          .limit = w.limit > 0 ? (size_t)w.limit : 0};
        if (w.stale && frozen->on) {
            w.rv = frozen->rv;
            for (size_t i = 0; i < frozen->n; i++)
                gather(&f, frozen->items[i]);
        } else {
            gather_from(c->store, w.rv, buf_span(&w.start), &f);
        }
        c->reply->status = 200;
        write_list(c->route.kind, w.rv, &f, &c->reply->body);
        for (size_t i = 0; i < f.n; i++)
            sim_object_unref(f.items[i]);
        free(f.items);
    }
    wish_fini(&w);
}
