/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "lib/program.h"
#include "lib/raw.h"
#include "lib/temp.h"
#include "lib/tls.h"
#include "lib/unit.h"

/* kube-sim as a program, and kubectl as its client. */


static char *dir; /* of this test */

/* -- kube-sim -- */

struct sim {
    struct program program;
    unsigned port;
};

/* `more` ends with NULL. */
static void sim_begin(struct program *p, const char *const *more)
{
    cleanup_free char *path = program_path("kube-sim");
    const char *argv[PROGRAM_ARGS] = {path};
    program_args(argv, 1, more);
    program_start(p, dir, argv);
}

static void sim_start(struct sim *s, const char *const *more)
{
    sim_begin(&s->program, more);
    s->port = program_port(&s->program, "listening on 127.0.0.1:");
}

static void sim_stop(struct sim *s)
{
    program_stop(&s->program);
}

/* Starts kube-sim, which must fail. Returns the exit status. */
static int sim_fails(struct program *p, const char *const *more)
{
    sim_begin(p, more);
    return program_wait(p);
}

static unsigned ask(const struct sim *s, const char *request, struct raw_reply *reply)
{
    struct raw c;
    raw_open(&c, s->port);
    raw_call(&c, reply, request);
    raw_close(&c);
    return reply->status;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

/* -- kubectl -- */

static bool have_kubectl(void)
{
    struct program p;
    program_start(&p, dir, ARGV("kubectl", "version", "--client"));
    int rc = program_wait(&p);
    if (rc)
        printf("skipped: cannot run kubectl: %s\n", p.said.p);
    program_fini(&p);
    return rc == 0;
}

/* Runs kubectl against the server. *said gets its output. Returns its exit status. */
static int kubectl(const struct sim *s, struct buf *said, const char *const *more)
{
    char server[64];
    const char *argv[PROGRAM_ARGS] = {"kubectl", "--server", server};
    snprintf(server, sizeof server, "http://127.0.0.1:%u", s->port);
    program_args(argv, 3, more);
    struct program p;
    program_start(&p, dir, argv);
    int rc = program_wait(&p);
    buf_clear(said);
    buf_add_span(said, buf_span(&p.said));
    program_fini(&p);
    return rc;
}

#define KUBECTL(s, said, ...) kubectl(s, said, ARGV(__VA_ARGS__))

/* -- tests -- */

static void begin(void)
{
    dir = temp_dir();
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
}

START_TEST(help_and_bad_options_do_not_start_it)
{
    struct program c;
    ck_assert_int_eq(sim_fails(&c, ARGV("--help")), 0);
    ck_assert_contains(c.said.p, "--generate PARAMETERS");
    program_fini(&c);
    static const char *const bad[][3] = {{"--unknown", NULL, "unknown"},
                                         {"--port", "70000", "port"},
                                         {"--generate", "nodes=x", "nodes"},
                                         {"--load", "/nonexistent.yaml", "nonexistent"},
                                         {"--cert", "x.pem", "--key"},
                                         {"--log-level", "loud", "loud"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(sim_fails(&c, ARGV(bad[i][0], bad[i][1])), 1);
        ck_assert_contains(c.said.p, bad[i][2]);
        program_fini(&c);
    }
}

static const char manifest[] = "apiVersion: v1\n"
                               "kind: Namespace\n"
                               "metadata: {name: team}\n"
                               "---\n"
                               "# nothing\n"
                               "---\n"
                               "apiVersion: apps/v1\n"
                               "kind: Deployment\n"
                               "metadata: {name: skipped}\n"
                               "---\n"
                               "apiVersion: v1\n"
                               "kind: List\n"
                               "items:\n"
                               "- apiVersion: v1\n"
                               "  kind: Node\n"
                               "  metadata: {name: n1}\n"
                               "  status:\n"
                               "    capacity: {aliyun.com/gpu-mem: 16, cpu: 0.5}\n"
                               "- apiVersion: v1\n"
                               "  kind: Pod\n"
                               "  metadata: {name: p, namespace: team}\n"
                               "  spec:\n"
                               "    containers:\n"
                               "    - {name: c, image: i}\n";

START_TEST(manifests_are_loaded_and_unserved_kinds_are_logged)
{
    struct sim s;
    struct raw_reply reply = {0};
    temp_write(dir, "m.yaml", manifest);
    cleanup_free char *path = temp_path(dir, "m.yaml");
    sim_start(&s, ARGV("--port", "0", "--load", path));
    ck_assert_uint_eq(ask(&s, GET("/api/v1/nodes/n1"), &reply), 200);
    ck_assert_contains(reply.body.p, "\"aliyun.com/gpu-mem\":\"16\"");
    ck_assert_contains(reply.body.p, "\"cpu\":\"500m\"");
    ck_assert_uint_eq(ask(&s, GET("/api/v1/namespaces/team/pods/p"), &reply), 200);
    ck_assert(program_wait_output(&s.program, "Deployment"));
    raw_reply_fini(&reply);
    sim_stop(&s);
    temp_write(dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: NO}\n");
    cleanup_free char *bad = temp_path(dir, "bad.yaml");
    struct program c;
    ck_assert_int_eq(sim_fails(&c, ARGV("--load", bad)), 1);
    ck_assert_contains(c.said.p, "bad.yaml, document 1");
    ck_assert_contains(c.said.p, "metadata.name");
    program_fini(&c);
}

START_TEST(kubectl_shows_the_objects)
{
    struct sim s;
    struct buf said = {0};
    if (!have_kubectl())
        return;
    sim_start(&s, ARGV("--port", "0", "--generate", "nodes=3,cards=2,pods=2,leases=1"));
    ck_assert_int_eq(KUBECTL(&s, &said, "get",
                             "nodes,pods,scvs,leases,events,configmaps,namespaces", "-A"),
                     0);
    static const char *const lines[] = {
        "node/node-00000", "pod/gpu-00002-001", "scv.core.run-linux.com/node-00001",
        "lease.coordination.k8s.io/node-00002", "namespace/kube-system"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        ck_assert_contains(said.p, lines[i]);
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pods", "--field-selector",
                             "spec.nodeName=node-00001", "-o", "name"),
                     0);
    ck_assert_str_eq(said.p, "pod/gpu-00001-000\npod/gpu-00001-001\n");
    ck_assert_int_eq(
        KUBECTL(&s, &said, "get", "nodes", "--chunk-size", "1", "-o", "name"), 0);
    ck_assert_str_eq(said.p, "node/node-00000\nnode/node-00001\nnode/node-00002\n");
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pod", "none"), 1);
    ck_assert_contains(said.p, "Error from server (NotFound): pods \"none\" not found");
    buf_fini(&said);
    sim_stop(&s);
}

int main(void)
{
    const TTest *const tests[] = {help_and_bad_options_do_not_start_it,
                                  manifests_are_loaded_and_unserved_kinds_are_logged,
                                  kubectl_shows_the_objects};
    return unit_run_with("kube-sim", tests, ARRAY_LEN(tests), 180,
                         &(struct unit_fixtures){.begin = begin, .end = end});
}
