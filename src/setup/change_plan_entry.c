/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/change_plan_priv.h"
#include "setup/edit.h"

enum { JSON_FLAGS = JSON_INDENT(2) };

int change_plan_entry_add(struct change_plan_work *w, const char *path, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    cleanup_buf struct buf lines = {0}, entry = {0}, bytes = {0};
    bool there = extender_entry_list(file->json) != NULL;
    struct err why = {0};
    int rc =
        w->policy ? err_set(&why, ERR_INVALID, "%s: JSON files are not edited", path) : 0;
    if (rc == 0 && edit_lines(w->name, buf_span(&w->text), "extenders", &lines, err))
        return -1;
    buf_printf(&entry, "extenders:\n%s", lines.p ? lines.p : "");
    if (rc == 0)
        rc = there
                 ? edit_append(path, buf_span(&file->bytes), "extenders", lines.p, &bytes,
                               &why)
                 : edit_add_key(path, buf_span(&file->bytes), "", entry.p, &bytes, &why);
    if (rc == 0) {
        w->tls = !w->in->insecure;
        change_plan_keep(w->out, CHANGE_PLAN_CONFIG, path, &bytes);
        return 0;
    }
    buf_printf(&w->out->by_hand, "in %s, add the extender of %s:\n%s", path, w->name,
               w->policy ? w->text.p : entry.p);
    *err = why;
    return -1;
}

/* An existing entry in the course of its change. */
struct entry {
    const struct facts *facts;
    const char *file;  /* for messages */
    size_t i;          /* in the list of extenders */
    char *path;        /* "extenders.0" */
    const json_t *old; /* its values before the change */
    char *url;         /* the new urlPrefix */
    bool https;        /* set enableHTTPS */
    bool certificate;  /* set our files in tlsConfig */
    const char *https_key;
    struct buf text; /* the whole file, as far as it was changed */
};

static void entry_fini(struct entry *e)
{
    free(e->path);
    free(e->url);
    buf_fini(&e->text);
}
#define cleanup_entry __attribute__((cleanup(entry_fini)))

/* Has the administrator given the entry a client certificate? */
static bool has_certificate(const json_t *entry)
{
    return *jsonpath_str(entry, "tlsConfig.certFile") ||
           *jsonpath_str(entry, "tlsConfig.certData");
}

/* Our certificate, and the name of an extender elsewhere than asked for? */
static bool is_of_other_namespace(const struct facts *f, const json_t *entry)
{
    cleanup_free char *server = facts_server_name(f);
    return f->namespace && change_plan_tls_is_ours(entry) &&
           strcmp(jsonpath_str(entry, "tlsConfig.serverName"), server) != 0;
}

static struct entry plan_entry(const struct change_plan_work *w, const char *file,
                               const json_t *ours)
{
    const json_t *list = extender_entry_list(w->in->facts->config.json);
    struct extender_entry_url url;
    cleanup_buf struct buf base = {0};
    size_t i = 0;
    while (json_array_get(list, i) != ours)
        i++;
    const char *old = jsonpath_str(ours, "urlPrefix");
    bool known = extender_entry_read_url(old, &url, NULL) == 0;
    struct entry e = {.facts = w->in->facts,
                      .file = file,
                      .i = i,
                      .path = xasprintf("extenders.%zu", i),
                      .old = ours,
                      .https_key = w->policy ? "enableHttps" : "enableHTTPS"};
    bool own = known && url.tls && has_certificate(ours) &&
               !is_of_other_namespace(w->in->facts, ours);
    e.https = !w->in->insecure;
    e.certificate = e.https && !own;
    url.tls = e.https;
    if (known)
        extender_entry_url_base(&url, &base);
    if (w->in->address || !known)
        e.url = xasprintf("http%s://%s/gpushare-scheduler", e.https ? "s" : "",
                          w->in->address ? w->in->address : "127.0.0.1:32766");
    else if (own || url.tls == (strncmp(old, "https:", 6) == 0))
        e.url = xstrdup(old);
    else
        e.url = xasprintf("%s%s", base.p, url.path);
    buf_add_span(&e.text, buf_span(&w->in->facts->config.bytes));
    return e;
}

/* Sets or adds one key of the mapping at extenders.N or below. */
static int put(struct entry *e, const char *below, const char *key, const char *value,
               struct err *err)
{
    cleanup_free char *parent = xasprintf("%s%s%s", e->path, *below ? "." : "", below);
    cleanup_free char *path = xasprintf("%s.%s", parent, key);
    cleanup_free char *line = xasprintf("%s: %s\n", key, value);
    const json_t *of = *below ? jsonpath_at(e->old, below) : e->old;
    const json_t *old = json_object_get(of, key);
    cleanup_buf struct buf from = e->text;
    e->text = (struct buf){0};
    if (old && !json_is_null(old))
        return edit_set(e->file, buf_span(&from), path, value, &e->text, err);
    return edit_add_key(e->file, buf_span(&from), parent, line, &e->text, err);
}

/* The lines of one key of tlsConfig. */
static int drop(struct entry *e, const char *key, struct err *err)
{
    cleanup_free char *path = xasprintf("%s.tlsConfig.%s", e->path, key);
    cleanup_buf struct buf from = e->text;
    e->text = (struct buf){0};
    return edit_remove(e->file, buf_span(&from), path, &e->text, err);
}

static int add_tls_config(struct entry *e, struct err *err)
{
    cleanup_buf struct buf lines = {0};
    cleanup_buf struct buf from = e->text;
    e->text = (struct buf){0};
    change_plan_tls_describe(e->facts, &lines, 0);
    return edit_add_key(e->file, buf_span(&from), e->path, lines.p, &e->text, err);
}

static int put_certificate(struct entry *e, struct err *err)
{
    const json_t *tls = json_object_get(e->old, "tlsConfig");
    cleanup_free char *server = facts_server_name(e->facts);
    if (!tls || json_is_null(tls))
        return add_tls_config(e, err);
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        if (put(e, "tlsConfig", client_secret_member((enum client_secret_file)i),
                client_secret_path((enum client_secret_file)i), err))
            return -1;
    if (put(e, "tlsConfig", "serverName", server, err))
        return -1;
    /* kube-scheduler prefers the data to a file. */
    if (json_object_get(tls, "caData") && drop(e, "caData", err))
        return -1;
    /* kube-scheduler exits if a caFile stands beside `insecure: true`. */
    if (json_is_true(json_object_get(tls, "insecure")))
        return put(e, "tlsConfig", "insecure", "false", err);
    return 0;
}

/* The lines of YAML. */
static int put_all(struct entry *e, struct err *err)
{
    bool on = json_is_true(json_object_get(e->old, e->https_key));
    if (strcmp(jsonpath_str(e->old, "urlPrefix"), e->url) &&
        put(e, "", "urlPrefix", e->url, err))
        return -1;
    if ((e->certificate || !e->https) && on != e->https &&
        put(e, "", e->https_key, e->https ? "true" : "false", err))
        return -1;
    if (!e->certificate)
        return 0;
    if (!change_plan_tls_is_ours(e->old))
        return put_certificate(e, err);
    cleanup_free char *server = facts_server_name(e->facts);
    return is_of_other_namespace(e->facts, e->old)
               ? put(e, "tlsConfig", "serverName", server, err)
               : 0;
}

/* JSON has no comments that could be lost: the whole file is written. */
static int rewrite(struct entry *e, const json_t *file, struct err *err)
{
    cleanup_free char *text = NULL;
    json_t *now = json_deep_copy(file);
    json_t *entry = json_array_get(json_object_get(now, "extenders"), e->i), *tls;
    json_object_set_new(entry, "urlPrefix", json_string(e->url));
    if (e->certificate || !e->https)
        json_object_set_new(entry, e->https_key, json_boolean(e->https));
    if (e->certificate) {
        tls = json_object();
        for (int i = 0; i < CLIENT_SECRET_FILES; i++)
            json_object_set_new(
                tls, client_secret_member((enum client_secret_file)i),
                json_string(client_secret_path((enum client_secret_file)i)));
        cleanup_free char *server = facts_server_name(e->facts);
        json_object_set_new(tls, "serverName", json_string(server));
        json_object_set_new(entry, "tlsConfig", tls);
    }
    if (!json_equal(now, file)) {
        text = json_dumps(now, JSON_FLAGS);
        buf_clear(&e->text);
        buf_printf(&e->text, "%s\n", text ? text : "");
    }
    json_decref(now);
    return e->text.n > 1
               ? 0
               : err_set(err, ERR_INTERNAL, "%s: cannot be written as JSON", e->file);
}

static void describe(struct change_plan_work *w, const struct entry *e)
{
    buf_printf(&w->out->by_hand,
               "in %s, in the entry of the extender:\n  urlPrefix: %s\n", e->file,
               e->url);
    if (e->certificate || !e->https)
        buf_printf(&w->out->by_hand, "  %s: %s\n", e->https_key,
                   e->https ? "true" : "false");
    if (e->certificate)
        change_plan_tls_describe(w->in->facts, &w->out->by_hand, 2);
}

int change_plan_entry_set(struct change_plan_work *w, const char *path,
                          const json_t *ours, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    cleanup_entry struct entry e = plan_entry(w, path, ours);
    struct span start = span_trim(buf_span(&file->bytes));
    bool json = start.n && *start.p == '{';
    w->tls = e.certificate || (e.https && change_plan_tls_is_ours(ours));
    if (json ? rewrite(&e, file->json, err) : put_all(&e, err)) {
        describe(w, &e);
        return -1;
    }
    if (!span_eq(buf_span(&e.text), buf_span(&file->bytes)))
        change_plan_keep(w->out, CHANGE_PLAN_CONFIG, path, &e.text);
    return 0;
}
