/* SPDX-License-Identifier: Apache-2.0 */

/* gpushare-setup: its options and its verbs. */

#include "setup/setup.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/object.h"
#include "setup/change.h"
#include "setup/checks.h"
#include "wire/entry.h"

#define COMMANDS "check, plan, renew, running, named, reach, store"

enum {
    EXIT_ERROR = 3, /* 0 to 2: checks_run */
    FILE_MAX = 1 << 20,
    RUNNING_OLDER = 2,
};

struct options {
    char *root, *kubeconfig, *address, *namespace, *policy, *out;
    bool no_cluster, insecure;
    struct opt_list args; /* arguments that are not options */
};

#define OPT_CONFIG struct options

static const struct opt table[] = {
    OPT_STRING("root", root, "DIR", NULL,
               "Root folder of the node (/host in a debugging pod); default: this "
               "machine's root."),
    OPT_STRING("address", address, "HOST:PORT", NULL,
               "Extender HOST:PORT for plan and reach; default: as configured, or "
               "the node port of its Service."),
    OPT_STRING("namespace", namespace, "NAME", NULL,
               "Namespace of the extender and of its Secrets; default: kube-system."),
    OPT_STRING(
        "policy", policy, "DIR", NULL,
        "Folder with kube-scheduler-config.yaml, for plan and renew; default: policy."),
    OPT_STRING("out", out, "DIR", NULL,
               "Existing folder for the new files; required for plan and renew."),
    OPT_BOOL("no-cluster", no_cluster, NULL,
             "Check the files alone, and do not read the API server."),
    OPT_BOOL("insecure", insecure, NULL,
             "Plain HTTP, for plan and reach with an extender that has --insecure; "
             "default: HTTPS."),
    OPT_STRING("kubeconfig", kubeconfig, "FILE", NULL,
               "Kubeconfig of the API server; default: /etc/kubernetes/admin.conf in "
               "the folder of --root.",
               .env = "KUBECONFIG"),
    {0},
};

const struct opt_program setup_program = {
    .name = "gpushare-setup",
    .summary =
        "checks whether the kube-scheduler of a kubeadm node calls the extender\n\n"
        "check    Print the problems; status 1: problems, 2: not everything was checked\n"
        "plan     Write the corrected files to the folder of --out\n"
        "renew    Write the files of kube-scheduler's certificate that differ from its "
        "Secret\n"
        "running  Print the process id of the kube-scheduler that uses the current "
        "files\n"
        "named    Print the files that the static pod and its configuration name\n"
        "reach    Call the extender\n"
        "store    Replace kubeadm's ClusterConfiguration, or what it prints of FILE, by "
        "file NEW "
        "if it equals OLD; else remove what OLD has more than NEW",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "check|plan|renew|running|named|reach|store NEW OLD [FILE]",
    .rest_at = offsetof(struct options, args),
};

/* The command being run. */
struct run {
    const struct options *options;
    struct facts facts;
    struct buf out;
};

static void read_facts(struct run *r)
{
    facts_read_node(&r->facts);
    if (r->options->no_cluster) {
        err_set(&r->facts.secret_why, ERR_UNAVAILABLE, "the Secret was not read");
    } else {
        facts_read_extender(&r->facts);
        facts_read_kubeadm(&r->facts);
    }
}

/* check, and reach: calls the extender as kube-scheduler does after plan. */
static int check(struct run *r, struct err *err)
{
    const struct options *o = r->options;
    bool reach = !strcmp(o->args.items[0], "reach");
    read_facts(r);
    facts_reach(&r->facts, reach, o->address, reach && o->insecure);
    int status = reach ? checks_reach(&r->facts, &r->out)
                       : checks_run(&r->facts, !o->no_cluster, &r->out);
    return entry_print(&r->out, err) ? -1 : status;
}

/* plan and renew: writes each new file to --out, and prints its destination. */
static int plan(struct run *r, struct err *err)
{
    static const char *const names[CHANGE_FILES] = /* of enum change_kind */
        {"cert", "key", "ca", "config", "kubeadm", "manifest"};
    const struct options *o = r->options;
    bool renew = !strcmp(o->args.items[0], "renew");
    cleanup_buf struct buf config = {0};
    cleanup_free char *policy =
        xasprintf("%s/kube-scheduler-config.yaml", o->policy ? o->policy : "policy");
    struct change made = {0};
    if (!o->out)
        return err_set(err, ERR_INVALID, "%s: --out is required", o->args.items[0]);
    if (file_read(policy, FILE_MAX, &config, err))
        return -1;
    read_facts(r);
    const struct change_input in = {.facts = &r->facts,
                                    .address = o->address,
                                    .insecure = o->insecure,
                                    .config = buf_span(&config)};
    int rc = (renew ? change_renew : change_make)(&in, &made, err);
    for (int i = 0; rc == 0 && i < CHANGE_FILES; i++) {
        cleanup_free char *to = xasprintf("%s/%s", o->out, names[i]);
        if (!made.files[i].path)
            continue;
        rc = file_write(to, buf_span(&made.files[i].bytes), err);
        cleanup_free char *old = xasprintf("%s/%s.old", o->out, names[i]);
        if (rc == 0 && i == CHANGE_KUBEADM) /* no file of the node */
            rc = file_write(old, buf_span(&r->facts.kubeadm.bytes), err);
        buf_printf(&r->out, "%s %s\n", names[i], made.files[i].path);
    }
    const struct err *why = &made.kubeadm_why;
    if (rc == 0 && why->code != ERR_NONE && why->code != ERR_NOT_FOUND)
        fprintf(stderr,
                "%s: warning: `kubeadm upgrade` will leave the extender out: %s\n",
                setup_program.name, why->msg);
    change_fini(&made);
    return rc ? rc : entry_print(&r->out, err);
}

/* Writes the ClusterConfiguration, or prints the content of the file. */
static int store(struct run *r, struct err *err)
{
    const struct options *o = r->options;
    struct facts_file *now = &r->facts.kubeadm;
    char *const *args = o->args.items;
    cleanup_buf struct buf text = {0}, old = {0};
    bool file = o->args.n == 4;
    if (o->args.n != 3 && !file)
        return err_set(err, ERR_INVALID, "store: expected NEW, OLD and perhaps FILE");
    if (file_read(args[1], FILE_MAX, &text, err) ||
        file_read(args[2], FILE_MAX, &old, err) ||
        (file && file_read(args[3], FILE_MAX, &now->bytes, err)))
        return -1;
    if (!file)
        facts_read_kubeadm(&r->facts);
    if (now->why.code != ERR_NONE)
        return err_set(err, now->why.code, "%s", now->why.msg);
    struct span is = buf_span(&now->bytes), new = buf_span(&text);
    cleanup_edit struct edit e = {0};
    if (span_eq(is, buf_span(&old)) || span_eq(is, new))
        buf_add_span(&e.text, new);
    else if (edit_open(file ? args[3] : now->path, is, &e, err) ||
             change_revert(new, buf_span(&old), &e, err))
        return -1;
    /* A rollback must get past a ConfigMap that it may not write. */
    if (!file && span_eq(is, buf_span(&e.text)))
        return 0;
    return file ? entry_print(&e.text, err)
                : facts_write_kubeadm(&r->facts, buf_span(&e.text), err);
}

/* Prints kube-scheduler's process id, if there is one. 0: it runs with the current files
 * and is healthy. 2: it started before a file was changed. 1: otherwise. */
static int running(struct run *r, struct err *err)
{
    const struct facts *f = &r->facts;
    struct err why = {0};
    int status = 1;
    facts_read_node(&r->facts);
    if (!f->container)
        return err_set(err, ERR_NOT_FOUND, "%s", f->manifest.why.msg);
    const struct facts_file *newer = facts_newer_file(f);
    if (f->pid)
        buf_printf(&r->out, "%d\n", f->pid);
    if (newer) {
        status = RUNNING_OLDER;
        err_set(&why, ERR_CONFLICT, "process %d started before %s was changed", f->pid,
                newer->path);
    } else if (!f->pid) {
        err_set(&why, ERR_NOT_FOUND, "no kube-scheduler runs with the options of %s",
                f->manifest.path);
    } else if (facts_is_healthy(f, &why)) {
        status = 0;
    }
    if (why.code != ERR_NONE)
        fprintf(stderr, "%s\n", why.msg);
    return entry_print(&r->out, err) ? -1 : status;
}

/* --config, whether the file exists or not, and the certificate of the extender's entry. */
static int named(struct run *r, struct err *err)
{
    const struct facts *f = &r->facts;
    facts_read_node(&r->facts);
    *err = f->manifest.why;
    if (facts_option(f, "config"))
        buf_printf(&r->out, "%s\n", f->config.path);
    for (int i = 0; i < SECRET_KEYS; i++)
        if (f->named[i].path)
            buf_printf(&r->out, "%s\n", f->named[i].path);
    return err->code != ERR_NONE ? -1 : entry_print(&r->out, err);
}

/* HOST:PORT; an IPv6 address is in brackets. */
static bool is_address(const char *text)
{
    struct in6_addr v6;
    int64_t port;
    bool brackets = *text == '[';
    struct span rest = span_of(text), host = span_cut(&rest, brackets ? ']' : ':');
    cleanup_free char *name = xmemdup0(host.p + brackets, host.n - brackets);
    return (brackets ? inet_pton(AF_INET6, name, &v6) == 1 && !span_cut(&rest, ':').n
                     : host.n && span_has_only(host, "-._")) &&
           span_i64(rest, &port) && port > 0 && port < 65536;
}

static int command(void *ctx, struct err *err)
{
    struct run *r = ctx;
    static const struct {
        const char *name;
        int (*run)(struct run *r, struct err *err);
    } commands[] = {{"check", check}, {"plan", plan},   {"renew", plan},
                    {"named", named}, {"reach", check}, {"running", running},
                    {"store", store}};
    const struct opt_list *args = &r->options->args;
    const char *namespace = r->options->namespace, *address = r->options->address;
    /* It becomes a part of a path and of a name. */
    if (namespace && !object_is_namespace(namespace))
        return err_set(err, ERR_INVALID, "--namespace: invalid name \"%s\"", namespace);
    if (address && !is_address(address))
        return err_set(err, ERR_INVALID,
                       "--address: invalid address \"%s\"; expected HOST:PORT, an IPv6 "
                       "address in brackets",
                       address);
    log_set_level(LOG_ERROR);
    r->facts.namespace = namespace;
    r->facts.root = r->options->root ?: "";
    r->facts.kubeconfig = r->options->kubeconfig;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (args->n && (args->n == 1 || commands[i].run == store) &&
            !strcmp(args->items[0], commands[i].name))
            return commands[i].run(r, err);
    if (!args->n)
        return err_set(err, ERR_INVALID, "missing command; expected one of " COMMANDS);
    return err_set(err, ERR_INVALID, "unknown command \"%s\"; expected one of " COMMANDS,
                   args->items[args->n - 1]);
}

int setup_main(int argc, char **argv)
{
    struct options options = {0};
    struct run r = {.options = &options};
    int rc = entry_command(&setup_program, &options, argc, argv, command, &r);
    facts_fini(&r.facts);
    buf_fini(&r.out);
    return rc < 0 ? EXIT_ERROR : rc;
}
