/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The verbs by golden directories: test/golden/<verb>/<case>/ holds
 *
 *     objects.json   the objects of the API server: an array, each with its kind
 *     request.json   the body that kube-scheduler sends, byte for byte; not for views
 *     reply.json     the expected reply: {"status": 200, "body": ...}; a bind may add
 *                    "binding": the body sent to the API server. "*" matches any
 *                    string.
 *     settings.json  optional: {"unit": "MiB", "requireScv": true, "bindAny": true,
 *                    "bindAnswer": 403, "scvClock": "exact", "scvNumber": "share",
 *                    "requestsOf": "hami", "nodeScore": "fgd"} (binpack without it)
 *
 * A new case needs no C code.
 */

#include <dirent.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "domain/quantity.h"
#include "extender/core_driver_rig.h"
#include "extender/gpuapi.h"
#include "extender/verb.h"
#include "view/inspect.h"

/* A verb, or a view of the ledger. */
struct verb {
    const char *name;
    rig_verb run;
    void (*view)(struct core_driver *driver, struct buf *out);
};

static void view_inspect(struct core_driver *driver, struct buf *out)
{
    view_inspect_all(core_driver_source(driver), out);
}

/* Both lists. */
static void view_gpuapi(struct core_driver *driver, struct buf *out)
{
    static const char *const names[] = {"{\"gpunodes\":", ",\"gpupods\":"};
    static const struct view_watch_kind *const kinds[] = {&gpuapi_nodes, &gpuapi_pods};
    int64_t grace_s = 40;
    for (int i = 0; i < 2; i++) {
        struct view_watch_limit lists = {.most = 1};
        struct httpd_reply reply = {0};
        struct view_watch *v = view_watch_new(
            &(struct view_watch_config){.kind = kinds[i],
                                        .ctx = &grace_s,
                                        .source = core_driver_source(driver),
                                        .lists = &lists});
        buf_adds(out, names[i]);
        view_watch_answer(v, false, false, INT64_MAX, &reply);
        while (reply.stream->fill(reply.stream_ctx, NULL, out) == HTTPD_STREAM_MORE)
            continue;
        reply.stream->close(reply.stream_ctx);
        view_watch_free(v);
    }
    buf_addc(out, '}');
}

static const struct verb verbs[] = {
    {"filter", filter_answer, NULL},   {"prioritize", prioritize_answer, NULL},
    {"preempt", preempt_answer, NULL}, {"bind", bind_answer, NULL},
    {"inspect", NULL, view_inspect},   {"gpuapi", NULL, view_gpuapi},
};

static json_t *load(const char *dir, const char *name, bool needed)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);
    ck_assert_msg(j || !needed, "%s: %s", path, error.text);
    return j;
}

/* Whether `got` matches `want`; "*" matches any string. */
static bool same(json_t *want, json_t *got)
{
    const char *text = json_string_value(want), *key;
    json_t *value;
    size_t i;
    if (text && !strcmp(text, "*"))
        return json_is_string(got);
    if (json_typeof(want) != json_typeof(got))
        return false;
    if (json_is_object(want)) {
        json_object_foreach(
            want, key, value) if (!json_object_get(got, key) ||
                                  !same(value, json_object_get(got, key))) return false;
        return json_object_size(want) == json_object_size(got);
    }
    if (json_is_array(want)) {
        json_array_foreach(want, i,
                           value) if (!json_array_get(got, i) ||
                                      !same(value, json_array_get(got, i))) return false;
        return json_array_size(want) == json_array_size(got);
    }
    return json_equal(want, got);
}

static void expect(const char *dir, const char *what, json_t *want, struct span bytes)
{
    json_error_t error;
    json_t *got = json_loadb(bytes.p, bytes.n, JSON_DECODE_ANY, &error);
    ck_assert_msg(got != NULL, "%s: %s is not JSON: %s", dir, what, error.text);
    if (!same(want, got)) {
        cleanup_free char *w = json_dumps(want, JSON_INDENT(1) | JSON_SORT_KEYS);
        cleanup_free char *g = json_dumps(got, JSON_INDENT(1) | JSON_SORT_KEYS);
        ck_abort_msg("%s: %s is\n%.3000s\ninstead of\n%.3000s", dir, what, g, w);
    }
    json_decref(got);
}

static const char *text_of(json_t *j, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : otherwise;
}

static enum err_code code_of(json_int_t status)
{
    enum err_code code = ERR_NONE;
    while (code < ERR_INTERNAL && err_http_status(code) != (unsigned)status)
        code++;
    return status ? code : ERR_NONE;
}

/* The rig does not renew its lease: a bind must begin so long after the start. */
enum { LEASE_USABLE_MS = CORE_LEASE_MS - CORE_BIND_LIMIT_MS - CORE_SLACK_MS };

static void check(const char *dir, json_t *reply, const struct core_driver_rig *rig,
                  unsigned status, const struct buf *body)
{
    ck_assert_msg(status == json_integer_value(json_object_get(reply, "status")),
                  "%s: status %u: %s", dir, status, body->p);
    expect(dir, "the reply", json_object_get(reply, "body"), buf_span(body));
    json_t *binding = json_object_get(reply, "binding");
    if (binding)
        expect(dir, "the Binding", binding, buf_span(&rig->binding));
    else
        ck_assert_msg(rig->bindings == 0, "%s: an unexpected Binding %s", dir,
                      rig->binding.p);
}

/* False: the machine was too busy to run the case while the lease could be used. */
static bool run_case(const struct verb *verb, const char *dir)
{
    json_t *objects = load(dir, "objects.json", true),
           *reply = load(dir, "reply.json", true);
    json_t *settings = load(dir, "settings.json", false);
    struct ledger_settings ledger = {
        .external_tolerance_mib = 1024,
        .require_scv = json_is_true(json_object_get(settings, "requireScv")),
        .clock_exact = !strcmp(text_of(settings, "scvClock", "min"), "exact"),
        .number_shares = !strcmp(text_of(settings, "scvNumber", "whole"), "share"),
        .dialect = !strcmp(text_of(settings, "requestsOf", "none"), "hami")
                       ? &dialect_hami
                       : NULL};
    struct core_driver_rig rig;
    enum score_policy policy;
    struct err err;
    cleanup_buf struct buf request = {0}, body = {0};
    cleanup_free char *path = xasprintf("%s/request.json", dir);

    ck_assert_int_eq(quantity_read_unit(span_of(text_of(settings, "unit", "MiB")),
                                        &ledger.unit_mib, &err),
                     0);
    ck_assert_done(score_policy_parse(span_of(text_of(settings, "nodeScore", "binpack")),
                                      &policy, &err),
                   err);
    int64_t begun_ms = clock_mono_ms();
    rig_start(&rig, &ledger, json_is_true(json_object_get(settings, "bindAny")));
    rig.bind_answer =
        code_of(json_integer_value(json_object_get(settings, "bindAnswer")));
    if (!json_is_true(json_object_get(settings, "notReady")))
        rig_deliver(&rig, json_incref(objects));
    struct verbs *v =
        verbs_new(&(struct verbs_config){.driver = rig.driver, .policy = policy});
    unsigned status = 200;
    if (verb->view) {
        verb->view(rig.driver, &body);
    } else {
        ck_assert_int_eq(file_read(path, 1 << 24, &request, &err), 0);
        status = rig_call(verb->run, v, buf_span(&request), &body);
    }
    bool in_time =
        strcmp(verb->name, "bind") != 0 || clock_mono_ms() - begun_ms < LEASE_USABLE_MS;
    if (in_time)
        check(dir, reply, &rig, status, &body);
    verbs_free(v);
    rig_stop(&rig);
    json_decref(objects);
    json_decref(reply);
    json_decref(settings);
    return in_time;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static void run_all(const struct verb *verb)
{
    cleanup_free char *root = xasprintf("test/golden/%s", verb->name);
    struct dirent **cases = NULL;
    log_set_level(LOG_ERROR);
    int n = scandir(root, &cases, visible, alphasort);
    ck_assert_msg(n > 0, "no cases in %s", root);
    for (int i = 0; i < n; i++) {
        cleanup_free char *dir = xasprintf("%s/%s", root, cases[i]->d_name);
        for (int tries = 1; !run_case(verb, dir); tries++)
            ck_assert_msg(tries < 20, "%s: no bind begins in time", dir);
        free(cases[i]);
    }
    free(cases);
}

TEST_LOOP(the_reply_is_as_written, ARRAY_LEN(verbs))
{
    run_all(&verbs[_i]);
}
