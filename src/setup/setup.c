/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "kube/connect.h"
#include "setup/cluster.h"
#include "setup/judge.h"
#include "setup/node.h"
#include "setup/reach.h"
#include "wire/yaml.h"

#define ADMIN "/etc/kubernetes/admin.conf"

enum { FAILED = 3 }; /* exit status; those below are of found_status */

/* A command that runs. */
struct run {
    const struct setup_options *options;
    char *root, *proc; /* root without a '/' at its end */
    struct setup_facts facts;
    struct buf out;
};

static char *without_slash(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    while (n && path[n - 1] == '/')
        n--;
    return xmemdup0(n ? path : "", n);
}

/* Without an option, what kubeadm leaves for the administrator. */
static void read_cluster(struct run *r)
{
    cleanup_free char *admin = xasprintf("%s" ADMIN, r->root);
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
    cluster_read(client, &r->facts);
    kube_client_free(client);
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
    struct found found = {0};
    node_read(r->root, r->proc, &r->facts);
    reach_ask_as_configured(&r->facts);
    read_cluster(r);
    if (r->options->no_cluster) {
        if (judge_scheduler(&r->facts, &found) && judge_config(&r->facts, &found))
            judge_reach(&r->facts, &found);
    } else {
        judge(&r->facts, &found);
    }
    found_write(&found, &r->out);
    int status = found_status(&found);
    found_fini(&found);
    return print(&r->out, err) ? -1 : status;
}

static int command(struct run *r, struct err *err)
{
    const struct opt_list *words = &r->options->words;
    const char *verb = words->n == 1 ? words->items[0] : "";
    if (!strcmp(verb, "check"))
        return check(r, err);
    return err_set(err, ERR_INVALID, "what is to be done? check, plan, running or reach");
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
    setup_facts_fini(&r.facts);
    buf_fini(&r.out);
    free(r.root);
    free(r.proc);
    opt_free(&setup_program, &options);
    return rc < 0 ? FAILED : rc;
}
