/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdlib.h>

#include "base/mem.h"

/* GET of a collection: selectors, pages of one consistent state. */

enum { PIECE = 256 * 1024 }; /* approximate bytes per api_list_next */

/* A list that is being sent: references to its objects, and the position. */
struct api_list {
    const struct kind *kind;
    struct object **items;
    size_t n, cap, at;
    size_t limit; /* 0: none */
    size_t bytes; /* of the objects */
    bool more;    /* the limit was reached, and more objects follow */
    bool started;
    uint64_t rv;
    struct buf next;                 /* continue token */
    const struct selector *selector; /* while objects are gathered */
};

struct wish {
    struct selector selector;
    uint64_t rv;      /* of the list */
    struct span from; /* first key */
    struct buf start; /* owns the bytes of `from` */
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

static int refuse_match(struct call *c, struct span match)
{
    cleanup_faultlist struct faultlist f = {0};
    sim_fault_unsupported(&f, "resourceVersionMatch", match,
                          "\"Exact\", \"NotOlderThan\", \"\"");
    return sim_refuse_options(c, &f);
}

static int check_match(struct call *c, struct span match, struct span rv)
{
    if (sim_query_has(&c->query, "sendInitialEvents"))
        return sim_refuse_option(c, "sendInitialEvents",
                                 "sendInitialEvents is forbidden for list");
    if (!match.p)
        return 0;
    if (!span_eq(match, SPAN("Exact")) && !span_eq(match, SPAN("NotOlderThan")))
        return refuse_match(c, match);
    cleanup_faultlist struct faultlist f = {0};
    if (!rv.p)
        sim_fault_forbidden(
            &f, "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided");
    if (sim_query_get(&c->query, "continue").p)
        sim_fault_forbidden(
            &f, "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided");
    if (span_eq(match, SPAN("Exact")) && span_eq(rv, SPAN("0")))
        sim_fault_forbidden(
            &f, "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    return f.n ? sim_refuse_options(c, &f) : 0;
}

/* The watch cache of a real server waits and sends Retry-After; etcd does not. */
static int refuse_future(struct call *c, int64_t rv, bool exact)
{
    cleanup_json_value json_t *causes =
        json_pack("[{s:s,s:s}]", "reason", "ResourceVersionTooLarge", "message",
                  "Too large resource version");
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Timeout: Too large resource version: %lld, current: %lld",
               (long long)rv, (long long)c->api->rv);
    struct status_about about = {.causes = causes, .retry_s = exact ? 0 : 1};
    c->reply->status = 504;
    c->reply->retry_after_s = about.retry_s;
    sim_status_write(&c->reply->body, 504, "Timeout", text.p, &about);
    return -1;
}

static int refuse_expired(struct call *c, const char *start)
{
    if (!start)
        return sim_refuse(c, 410,
                          "The resourceVersion for the provided list is too old.");
    cleanup_buf struct buf token = {0};
    sim_token_write(&token, -1, (struct span){start, strlen(start)});
    sim_refuse(
        c, 410,
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter, or use the continue "
        "token in this response to retrieve the remainder of the results. Continuing "
        "with "
        "the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may "
        "show up in the list.");
    /* The token goes into the empty metadata of the Status. */
    static const char empty[] = "\"metadata\":{}";
    cleanup_buf struct buf old = c->reply->body;
    c->reply->body = (struct buf){0};
    size_t at = (size_t)(strstr(old.p, empty) - old.p) + sizeof empty - 2;
    buf_add(&c->reply->body, old.p, at);
    buf_printf(&c->reply->body, "\"continue\":\"%s\"", token.p);
    buf_add(&c->reply->body, old.p + at, old.n - at);
    return -1;
}

static int refuse_version(struct call *c, struct span rv)
{
    return sim_refuse(c, 400,
                      "invalid resource version: resourceVersion: Invalid value: "
                      "\"%.*s\": strconv.ParseUint: parsing \"%.*s\": invalid syntax",
                      SPAN_ARG(rv), SPAN_ARG(rv));
}

static int wish_continue(struct call *c, struct wish *w, struct span text, struct span rv)
{
    struct token t;
    bool good = sim_token_read(text, &t);
    w->start = t.start;
    if (!good)
        return sim_refuse(c, 400,
                          "invalid continue token: continue key is not valid: invalid "
                          "character in token");
    if (rv.p && !span_eq(rv, SPAN("0")))
        return sim_refuse(
            c, 400, "specifying resource version is not allowed when using continue");
    w->from = buf_span(&w->start);
    w->rv = t.rv < 0 ? c->api->rv : (uint64_t)t.rv;
    if (w->rv < c->store->floor_rv || w->rv > c->api->rv)
        return refuse_expired(c, w->start.p);
    w->stale = false;
    return 0;
}

static int wish_version(struct call *c, struct wish *w, struct span rv, struct span match)
{
    int64_t n;
    w->rv = c->api->rv;
    if (!rv.p)
        return 0;
    if (!span_i64(rv, &n) || n < 0)
        return refuse_version(c, rv);
    if (n == 0) {
        w->stale = true;
        w->limit = 0; /* the watch cache ignores limit */
        return 0;
    }
    bool exact = span_eq(match, SPAN("Exact")) || (!match.p && w->limit > 0);
    if ((uint64_t)n > c->api->rv)
        return refuse_future(c, n, exact);
    if (!exact)
        return 0;
    w->rv = (uint64_t)n;
    return w->rv < c->store->floor_rv ? refuse_expired(c, NULL) : 0;
}

static int read_wish(struct call *c, struct wish *w)
{
    struct err err;
    struct span rv = sim_query_get(&c->query, "resourceVersion");
    struct span match = sim_query_get(&c->query, "resourceVersionMatch");
    struct span token = sim_query_get(&c->query, "continue");
    if (sim_query_int(&c->query, "limit", 0, &w->limit, &err))
        return sim_refuse(c, 400, "%s", err.msg);
    if (check_match(c, match, rv))
        return -1;
    if (token.p ? wish_continue(c, w, token, rv) : wish_version(c, w, rv, match))
        return -1;
    return sim_list_selector(c, &w->selector);
}

/* -- gathering -- */

static bool gather(void *ctx, struct object *o)
{
    struct api_list *l = ctx;
    struct span ns = l->selector->ns;
    if (ns.p && !span_eq(ns, o->ns))
        return false; /* past the last key of the namespace */
    if (!sim_selector_match(l->selector, o))
        return true;
    if (l->limit && l->n == l->limit) {
        l->more = true;
        return false;
    }
    MEM_GROW(l->items, l->cap, l->n + 1);
    l->items[l->n++] = sim_object_ref(o);
    l->bytes += o->bytes.n + 1;
    return true;
}

static void walk_frozen(const struct frozen *frozen, struct api_list *l)
{
    for (size_t i = 0; i < frozen->n; i++)
        gather(l, frozen->items[i]);
}

/* The first key of the walk: `from`, or the first key of the namespace. */
static struct span first_key(const struct selector *s, struct span from, struct buf *key)
{
    if (!s->ns.p)
        return from;
    buf_add_span(key, s->ns);
    buf_addc(key, '/');
    return span_cmp(from, buf_span(key)) > 0 ? from : buf_span(key);
}

struct object **sim_list_collect(struct store *store, const struct selector *s,
                                 uint64_t rv, size_t *n)
{
    struct api_list l = {.selector = s};
    cleanup_buf struct buf key = {0};
    sim_store_walk(store, rv, first_key(s, (struct span){NULL, 0}, &key), gather, &l);
    *n = l.n;
    return l.items;
}

static struct api_list *make(struct call *c, struct wish *w)
{
    struct api_list *l = xcalloc(1, sizeof *l);
    const struct frozen *frozen = &c->api->frozen[sim_kind_index(c->route.kind)];
    *l = (struct api_list){.kind = c->route.kind,
                           .limit = w->limit > 0 ? (size_t)w->limit : 0,
                           .rv = w->rv,
                           .selector = &w->selector};
    if (w->stale && frozen->on) {
        l->rv = frozen->rv;
        walk_frozen(frozen, l);
    } else {
        cleanup_buf struct buf key = {0};
        sim_store_walk(c->store, w->rv, first_key(&w->selector, w->from, &key), gather,
                       l);
    }
    l->selector = NULL;
    if (l->more)
        sim_token_write(&l->next, (int64_t)l->rv, l->items[l->n - 1]->key);
    return l;
}

void sim_list_handle(struct call *c)
{
    struct wish w = {0};
    if (read_wish(c, &w) == 0) {
        struct api_list *l = make(c, &w);
        c->reply->status = 200;
        if (c->req->defer) {
            c->reply->list = l;
        } else {
            buf_reserve(&c->reply->body, l->bytes + 1024);
            while (api_list_next(l, &c->reply->body))
                ;
            api_list_free(l);
        }
    }
    wish_fini(&w);
}

/* -- sending -- */

static void start(struct api_list *l, struct buf *out)
{
    cleanup_buf struct buf meta = {0};
    buf_printf(&meta, "{\"resourceVersion\":\"%llu\"", (unsigned long long)l->rv);
    if (l->next.n)
        buf_printf(&meta, ",\"continue\":\"%s\"", l->next.p);
    else if (l->kind->custom)
        buf_adds(&meta, ",\"continue\":\"\"");
    buf_addc(&meta, '}');
    l->started = true;
    buf_printf(out, "{\"kind\":\"%sList\",\"apiVersion\":\"", l->kind->kind);
    sim_kind_add_group_version(l->kind, out);
    buf_printf(out, "\",\"metadata\":%s,\"items\":[", meta.p);
}

bool api_list_next(struct api_list *l, struct buf *out)
{
    size_t end = out->n + PIECE;
    if (!l->started)
        start(l, out);
    for (; l->at < l->n && out->n < end; l->at++) {
        if (l->at)
            buf_addc(out, ',');
        sim_object_add_item(l->items[l->at], out);
    }
    if (l->at < l->n)
        return true;
    buf_adds(out, "]}\n");
    return false;
}

void api_list_free(struct api_list *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        sim_object_unref(l->items[i]);
    free(l->items);
    buf_fini(&l->next);
    free(l);
}
