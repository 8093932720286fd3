/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "lib/gang_body.h"
#include "lib/manifest.h"
#include "lib/peer.h"
#include "lib/rights.h"
#include "lib/tls.h"

/*
 * manifests/rbac.yaml against the requests of the extender: in a real run it makes each
 * of its requests once, and kube-sim records them. Every request needs a rule, and every
 * rule a request.
 */

static char *dir; /* of the test */

/* -- one kube-sim and one extender -- */

struct pair {
    struct program sim, extender;
    unsigned api, port;
};

/* `file`: objects to load, or NULL. `option`: of the extender, or NULL. */
static void pair_start(struct pair *p, const struct rights *rights, const char *file,
                       const char *option)
{
    p->api = start_sim(&p->sim, dir,
                       file ? ARGV("--load", "manifests/lease.yaml", "--load", file)
                            : ARGV(NULL));
    rights_count(p->api, rights);
    p->port = start_extender(&p->extender, dir, p->api, option);
}

static bool inspect_says(const struct pair *p, const char *text)
{
    json_t *j;
    ask(p->port, "GET", "/inspect", "", &j);
    cleanup_free char *said = j ? json_dumps(j, JSON_COMPACT) : xstrdup("");
    json_decref(j);
    return strstr(said, text) != NULL;
}

static bool holds(void *ctx)
{
    return inspect_says(ctx, "\"leader\":true");
}

static bool first_waits(void *ctx)
{
    return inspect_says(ctx, "\"uid\":\"uid-first\",\"request\"");
}

static bool second_waits(void *ctx)
{
    return inspect_says(ctx, "\"uid\":\"uid-second\",\"request\"");
}

/* -- recorded requests -- */

/* How often kube-sim received the request. */
static json_int_t asked(const struct pair *p, const struct right *r)
{
    cleanup_json json_t *counters = NULL;
    ck_assert_uint_eq(ask(p->api, "GET", "/kube-sim/counters", "", &counters), 200);
    json_int_t n = 0;
    size_t i;
    json_t *c;
    json_array_foreach(at(counters, "requests"), i, c)
    {
        const char *sub = str_at(c, "subresource");
        cleanup_free char *resource =
            xasprintf("%s%s%s", str_at(c, "resource"), *sub ? "/" : "", sub);
        if (strcmp(str_at(c, "verb"), r->verb) == 0 &&
            strcmp(str_at(c, "group"), r->group) == 0 &&
            strcmp(resource, r->resource) == 0)
            n += json_integer_value(at(c, "count"));
    }
    return n;
}

static bool node_is_marked(void *ctx)
{
    return asked(ctx, &(struct right){"patch", "", "nodes", NULL, NULL}) > 0;
}

static bool event_is_written(void *ctx)
{
    return asked(ctx, &(struct right){"create", "events.k8s.io", "events", NULL, NULL}) >
           0;
}

/* -- the run -- */

#define POD(name)                                                                        \
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"" name             \
    "\",\"namespace\":\"default\",\"uid\":\"uid-" name "\"},\"spec\":{\"containers\":[{" \
    "\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{\"" KEY_GPU_MEM           \
    "\":\"8\"}}}]}}"
#define NODE(units, cards)                                                               \
    "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"           \
    "\"status\":{\"capacity\":{\"" KEY_GPU_MEM "\":\"" units "\",\"" KEY_GPU_COUNT       \
    "\":\"" cards "\"},\"allocatable\":{\"" KEY_GPU_MEM "\":\"" units                    \
    "\",\"" KEY_GPU_COUNT "\":\"" cards "\"}}}"

/* Ignored: not a request of the extender. */
static void load(const struct pair *p, const char *object)
{
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/load", object, NULL), 200);
}

static void watch_of_pods(const struct pair *p, const char *action)
{
    cleanup_free char *order =
        xasprintf("{\"action\":\"%s\",\"resource\":\"pods\"}", action);
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/watches", order, NULL), 200);
}

/* A bind whose answer is lost and whose pod no watch reports, so that the extender gets
 * the pod; a pod that does not fit; and memory that becomes free for it. */
static void bind_and_mark(struct pair *p)
{
    cleanup_json json_t *answer = NULL, *second = NULL;
    load(p, NODE("8", "1"));
    load(p, POD("first"));
    load(p, POD("second"));
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/faults",
                          "{\"verb\":\"create\",\"resource\":\"pods\",\"subresource\":"
                          "\"binding\",\"nth\":1,\"action\":\"apply-cut\"}",
                          NULL),
                      200);
    ck_assert(raw_until(first_waits, p));
    watch_of_pods(p, "stall");
    ck_assert_uint_eq(ask(p->port, "POST", "/bind",
                          "{\"PodName\":\"first\",\"PodNamespace\":\"default\","
                          "\"PodUID\":\"uid-first\",\"Node\":\"n1\"}",
                          &answer),
                      200);
    ck_assert_str_eq(str_at(answer, "Error"), "");
    watch_of_pods(p, "release");
    ck_assert_uint_eq(ask(p->port, "POST", "/filter",
                          "{\"NodeNames\":[\"n1\"],\"Pod\":" POD("second") "}", &second),
                      200);
    ck_assert_contains(str_at(second, "FailedNodes/n1"), "most free: 0 of 8192 MiB");
    ck_assert(raw_until(second_waits, p));
    load(p, NODE("16", "2"));
    ck_assert_msg(raw_until(node_is_marked, p),
                  "the extender never set gpushare/room-since");
    ck_assert_msg(raw_until(event_is_written, p),
                  "the extender never wrote an event");
}

static json_int_t groups_read(const struct pair *p)
{
    static const struct right rights[] = {
        {"get", "scheduling.k8s.io", "podgroups", NULL, NULL},
        {"get", "scheduling.k8s.io", "workloads", NULL, NULL},
        {"get", "scheduling.x-k8s.io", "podgroups", NULL, NULL},
        {"get", "scheduling.volcano.sh", "podgroups", NULL, NULL}};
    json_int_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(rights); i++)
        n += asked(p, &rights[i]) > 0;
    return n;
}

static void read_groups(const struct pair *p)
{
    cleanup_buf struct buf body = {0};
    size_t n = 0;
    for (; gang_body(&body, n); n++) {
        cleanup_json json_t *reply = NULL;
        ck_assert_uint_eq(ask(p->port, "POST", "/filter", body.p, &reply), 200);
        buf_clear(&body);
    }
    ck_assert_int_eq(groups_read(p), n);
}

/* An extender with HTTPS reviews a client of /metrics. */
static void review(const struct pair *p)
{
    struct program secure;
    struct peer observers;
    cleanup_free char *ca = temp_path(dir, "ca.crt"), *crt = temp_path(dir, "server.crt"),
                      *key = temp_path(dir, "server.key"),
                      *program = program_path("gpushare-extender"),
                      *name = xasprintf("kubeconfig-%u", p->api),
                      *config = temp_path(dir, name);
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/access",
                          "{\"tokens\":{\"t\":{\"username\":\"u\"}},\"rules\":[{}]}",
                          NULL),
                      200);
    tls_make_ca(dir, "ca");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1");
    program_start(&secure, dir,
                  ARGV(program, "--listen", "127.0.0.1", "--port", "0", "--observe-port",
                       "0", "--kubeconfig", config, "--tls-cert", crt, "--tls-key", key,
                       "--client-ca", ca));
    peer_init_tls(&observers, program_port(&secure, "observing on "), ca);
    observers.authorization = "Bearer t";
    ck_assert_uint_eq(peer_status(&observers, "/metrics"), 403);
    peer_fini(&observers);
    program_stop(&secure);
}

/* -- Secrets: missing ones are created -- */

static bool has_made_secrets(void *ctx)
{
    return asked(ctx, &(struct right){"create", "", "secrets", NULL, NULL}) == 3;
}

START_TEST(rules_grant_the_requests_of_the_extender_and_no_others)
{
    struct rights rights;
    struct pair usual, lost, fresh; /* lost: without its Lease; fresh: with TLS */
    dir = temp_dir();
    rights_read(&rights, ARGV("manifests/deployment.yaml", "manifests/rbac.yaml"),
                "Deployment");
    pair_start(&lost, &rights, NULL, NULL);
    pair_start(&usual, &rights, "manifests/namespace.yaml", NULL);
    pair_start(&fresh, &rights, "manifests/namespace.yaml", "--insecure=off");
    ck_assert(raw_until(holds, &usual));
    bind_and_mark(&usual);
    read_groups(&usual);
    review(&usual);
    ck_assert(raw_until(holds, &lost)); /* creates the Lease, after five seconds */
    ck_assert(raw_until(has_made_secrets, &fresh));
    /* Reads the record once it no longer changes. */
    program_stop(&usual.extender);
    program_stop(&lost.extender);
    program_stop(&fresh.extender);
    rights_check(usual.api, &rights);
    rights_check(lost.api, &rights);
    rights_check(fresh.api, &rights);
    rights_used(&rights);
    program_stop(&usual.sim);
    program_stop(&lost.sim);
    program_stop(&fresh.sim);
    rights_fini(&rights);
    temp_dir_remove(dir);
    free(dir);
}

UNIT_MAIN_SECONDS("rbac", 240, rules_grant_the_requests_of_the_extender_and_no_others)
