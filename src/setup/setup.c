/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/connect.h"
#include "setup/change_plan.h"
#include "setup/checks.h"
#include "setup/cluster.h"
#include "setup/host.h"
#include "setup/rancher.h"
#include "setup/reach.h"
#include "wire/httpc.h"
#include "wire/yaml.h"

#define COMMANDS "check, plan, renew, running, reach"

enum {
    EXIT_ERROR = 3, /* 0 to 2: findings_exit_status */
    FILE_MAX = 1 << 20,
    HEALTH_MS = 2000,
    RUNNING_OLDER = 2, /* results of running */
    RUNNING_BY_HAND = 4,
};

/* The command being run. */
struct run {
    const struct setup_options *options;
    char *root, *proc; /* without a trailing '/' */
    struct facts facts;
    struct buf out;
};

static char *without_slash(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    while (n && path[n - 1] == '/')
        n--;
    return xmemdup0(n ? path : "", n);
}

/* Calls `read` with a client of the API server. Without --kubeconfig, uses the platform's
 * file. */
static void with_cluster(struct run *r,
                         void (*read)(struct kube_client *client, struct facts *f))
{
    cleanup_free char *admin = xasprintf("%s%s", r->root, facts_admin(&r->facts));
    const char *path = r->options->kubeconfig;
    if (!path && access(admin, R_OK) == 0)
        path = admin;
    if (r->options->no_cluster) {
        err_set(&r->facts.cluster_why, ERR_UNAVAILABLE, "--no-cluster");
        return;
    }
    struct kube_client *client =
        kube_connect(path, r->options->context, &r->facts.cluster_why);
    if (!client)
        return;
    read(client, &r->facts);
    kube_client_free(client);
}

static void read_cluster(struct run *r)
{
    with_cluster(r, cluster_read);
}

static void read_secret(struct run *r)
{
    with_cluster(r, cluster_read_secret);
    if (!r->facts.secret_read && !r->options->no_cluster)
        r->facts.secret_why = r->facts.cluster_why;
}

static int print(struct buf *out, struct err *err)
{
    size_t n = out->n ? fwrite(out->p, 1, out->n, stdout) : 0;
    if (n == out->n && fflush(stdout) == 0)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "standard output: %s", strerror(errno));
}

static int check(struct run *r, struct err *err)
{
    struct findings found = {0};
    host_read(r->root, r->proc, &r->facts);
    reach_call_configured(&r->facts, NULL);
    read_cluster(r);
    read_secret(r);
    checks_run(&r->facts, !r->options->no_cluster, &found);
    findings_write(&found, &r->out);
    int status = findings_exit_status(&found);
    findings_fini(&found);
    return print(&r->out, err) ? -1 : status;
}

/* plan */

static int read_for_plan(void *ctx, const char *path, struct buf *out, struct err *err)
{
    (void)ctx;
    return file_read(path, FILE_MAX, out, err);
}

static int read_policy(const struct run *r, const char *name, struct buf *out,
                       struct err *err)
{
    cleanup_free char *path =
        xasprintf("%s/%s", r->options->policy ? r->options->policy : "policy", name);
    return file_read(path, FILE_MAX, out, err);
}

/* Writes each file to --out, and prints a line with its destination. */
static int write_plan(struct run *r, const struct change_plan *plan, struct err *err)
{
    static const char *const names[CHANGE_PLAN_FILES] = {[CHANGE_PLAN_CA] = "ca",
                                                         [CHANGE_PLAN_CERT] = "cert",
                                                         [CHANGE_PLAN_KEY] = "key",
                                                         [CHANGE_PLAN_CONFIG] = "config",
                                                         [CHANGE_PLAN_MANIFEST] =
                                                             "manifest"};
    for (int i = 0; i < CHANGE_PLAN_FILES; i++) {
        const struct change_plan_file *c = &plan->changes[i];
        if (!c->path)
            continue;
        cleanup_free char *to = xasprintf("%s/%s", r->options->out, names[i]);
        if (file_write(to, buf_span(&c->bytes), err))
            return -1;
        buf_printf(&r->out, "%s %s\n", names[i], c->path);
    }
    return print(&r->out, err);
}

/* Reads the version from the API server if the image's tag is not one. */
static void read_version(struct run *r)
{
    struct scheduler_pod pod;
    if (facts_manifest(&r->facts, &pod) && !pod.minor)
        read_cluster(r);
}

typedef int change_fn(const struct change_plan_input *in, struct change_plan *out,
                      struct err *err);

static int make_changes(struct run *r, change_fn *make, struct err *err)
{
    cleanup_buf struct buf config = {0}, policy = {0};
    struct change_plan made = {0};
    if (!r->options->out)
        return err_set(err, ERR_INVALID, "%s: --out is required",
                       r->options->args.items[0]);
    if (r->options->address && extender_entry_check_address(r->options->address, err))
        return err_wrap(err, "--address");
    if (read_policy(r, "kube-scheduler-config.yaml", &config, err) ||
        read_policy(r, "scheduler-policy-config.json", &policy, err))
        return -1;
    host_read(r->root, r->proc, &r->facts);
    read_version(r);
    if (!r->options->insecure)
        read_secret(r);
    const struct change_plan_input in = {.facts = &r->facts,
                                         .root = r->root,
                                         .address = r->options->address,
                                         .insecure = r->options->insecure,
                                         .config = buf_span(&config),
                                         .policy = buf_span(&policy),
                                         .read = read_for_plan};
    int rc = make(&in, &made, err);
    if (rc == 0)
        rc = write_plan(r, &made, err);
    else if (made.by_hand.n)
        fprintf(stderr, "Make these changes by hand:\n%s", made.by_hand.p);
    change_plan_fini(&made);
    return rc;
}

static int plan(struct run *r, struct err *err)
{
    return make_changes(r, change_plan_make, err);
}

static int renew(struct run *r, struct err *err)
{
    return make_changes(r, change_plan_renew, err);
}

/* reach: calls the extender as kube-scheduler does after the changes of plan */

static int reach(struct run *r, struct err *err)
{
    const char *address = r->options->address;
    struct findings found = {0};
    host_read(r->root, r->proc, &r->facts);
    if (address && extender_entry_check_address(address, err))
        return err_wrap(err, "--address");
    if (!r->options->insecure)
        read_secret(r);
    reach_call_planned(&r->facts, address, r->options->insecure);
    read_cluster(r); /* kube-proxy's configuration */
    checks_reach(&r->facts, &found);
    findings_write(&found, &r->out);
    int status = findings_exit_status(&found);
    findings_fini(&found);
    return print(&r->out, err) ? -1 : status;
}

/* running */

/* The health check of the static pod's probes. */
static bool is_healthy(const struct scheduler_pod *pod, struct err *err)
{
    const char *port = scheduler_pod_option(pod, "secure-port");
    const char *host = scheduler_pod_option(pod, "bind-address");
    bool any = !host || !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
    bool ipv6 = !any && strchr(host, ':');
    cleanup_free char *url =
        xasprintf("https://%s%s%s:%s", ipv6 ? "[" : "", any ? "127.0.0.1" : host,
                  ipv6 ? "]" : "", port && *port ? port : "10259");
    const struct httpc_config config = {.url = url,
                                        .insecure = true,
                                        .user_agent = "gpushare-setup",
                                        .connect_ms = HEALTH_MS};
    const struct httpc_request request = {
        .method = "GET", .path = "/healthz", .timeout_ms = HEALTH_MS};
    struct httpc_reply reply = {0};
    struct httpc *http = httpc_new(&config, err);
    if (!http)
        return false;
    int rc = httpc_call(http, &request, FILE_MAX, &reply, err);
    if (rc == 0 && reply.status != 200)
        err_set(err, ERR_UNAVAILABLE, "%s/healthz: HTTP status %u", url, reply.status);
    bool healthy = rc == 0 && reply.status == 200;
    httpc_reply_fini(&reply);
    httpc_free(http);
    return healthy;
}

/* The result: 0, 1, 2 or 4, with the reason. */
static int judge_process(struct run *r, const struct scheduler_pod *pod,
                         const char *manifest, struct err *why)
{
    const struct facts *f = &r->facts;
    const struct facts_process *p = facts_scheduler(f, pod);
    const struct facts_file *newer = p ? rancher_newer_file(f, p) : NULL;
    bool by_hand = (f->platform == FACTS_K3S && (!p || newer)) || !rancher_is_applied(f);
    if (p)
        buf_printf(&r->out, "%d\n", p->pid);
    if (by_hand) {
        err_set(why, ERR_CONFLICT,
                "%s must be restarted to use the files: systemctl "
                "restart %s",
                rancher_name(f), rancher_unit(f));
        return RUNNING_BY_HAND;
    }
    if (!p) {
        err_set(why, ERR_NOT_FOUND, "no kube-scheduler runs with the options of %s",
                manifest);
        return 1;
    }
    if (newer) {
        err_set(why, ERR_CONFLICT, "process %d started before %s was changed", p->pid,
                newer->path);
        return RUNNING_OLDER;
    }
    return is_healthy(pod, why) ? 0 : 1;
}

/* Prints kube-scheduler's process id, if there is one. 0: it runs with the current files
 * and is healthy. 2: it started before a file was changed. 4: the same, or k3s does not
 * run, and only a person may restart k3s or RKE2. 1: otherwise. */
static int running(struct run *r, struct err *err)
{
    struct scheduler_pod pod;
    struct err why = {0};
    host_read(r->root, r->proc, &r->facts);
    const struct facts_file *manifest = facts_manifest(&r->facts, &pod);
    if (!manifest)
        return err_set(err, ERR_NOT_FOUND, "%s has no static pod of kube-scheduler",
                       r->facts.manifests ? r->facts.manifests : "the node");
    int status = judge_process(r, &pod, manifest->path, &why);
    if (why.code != ERR_NONE)
        fprintf(stderr, "%s\n", why.msg);
    return print(&r->out, err) ? -1 : status;
}

/* It becomes a part of a path and of a name. */
static int set_namespace(struct run *r, struct err *err)
{
    const char *name = r->options->namespace;
    if (name && !kube_namespace_ok(name))
        return err_set(err, ERR_INVALID, "--namespace: invalid name \"%s\"", name);
    r->facts.namespace = name;
    return 0;
}

static int command(struct run *r, struct err *err)
{
    static const struct {
        const char *name;
        int (*run)(struct run *r, struct err *err);
    } commands[] = {{"check", check},
                    {"plan", plan},
                    {"renew", renew},
                    {"reach", reach},
                    {"running", running}};
    const struct opt_list *args = &r->options->args;
    if (set_namespace(r, err))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (args->n == 1 && !strcmp(args->items[0], commands[i].name))
            return commands[i].run(r, err);
    if (!args->n)
        return err_set(err, ERR_INVALID, "missing command; expected one of " COMMANDS);
    return err_set(err, ERR_INVALID, "unknown command \"%s\"; expected one of " COMMANDS,
                   args->items[args->n - 1]);
}

int setup_main(int argc, char **argv)
{
    struct setup_options options = {0};
    struct run r = {.options = &options};
    struct err err = {0};
    int rc = -1;
    enum opt_result loaded = opt_load(&setup_program, &options, argc, argv, environ,
                                      yaml_read_options, stdout, &err);
    if (loaded == OPT_RUN) {
        log_set_level((enum log_level)options.log_level);
        r.root = without_slash(options.root);
        r.proc =
            options.proc ? without_slash(options.proc) : xasprintf("%s/proc", r.root);
        rc = command(&r, &err);
    } else if (loaded == OPT_DONE) {
        rc = 0;
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", setup_program.name, err.msg);
    facts_fini(&r.facts);
    buf_fini(&r.out);
    free(r.root);
    free(r.proc);
    opt_free(&setup_program, &options);
    return rc < 0 ? EXIT_ERROR : rc;
}
