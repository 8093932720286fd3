/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "setup/setup.h"
#include "wire/entry.h"

#define AT(field) offsetof(struct setup_options, field)

static const struct opt table[] = {
    {.name = "root",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(root),
     .help = "Root folder of the node, where it is not this machine's (/host in a\n"
             "debugging pod)."},
    {.name = "proc",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(proc),
     .help = "Where /proc of the node is. Without it: in --root."},
    {.name = "address",
     .arg = "HOST:PORT",
     .type = OPT_STRING,
     .offset = AT(address),
     .help = "plan: where kube-scheduler is to look for the extender. Without it:\n"
             "127.0.0.1:32766."},
    {.name = "policy",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(policy),
     .help = "plan: the folder with kube-scheduler-config.yaml."},
    {.name = "out",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(out),
     .help = "plan: an empty folder for the new files."},
    {.name = "no-cluster",
     .type = OPT_BOOL,
     .offset = AT(no_cluster),
     .help = "check: do not ask the API server."},
    ENTRY_KUBECONFIG(AT(kubeconfig)),
    ENTRY_CONTEXT(AT(context)),
    ENTRY_LOG_LEVEL(AT(log_level), "error"),
    {0},
};

const struct opt_program setup_program = {
    .name = "gpushare-setup",
    .summary =
        "what of a kubeadm node's kube-scheduler is set up for the extender; for\n"
        "scripts/install. check: says what is wrong (exit status 1), or could not be\n"
        "looked at (2); plan: writes the files as they should be; running: says which\n"
        "process is the kube-scheduler of the present files",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "check|plan|running|reach",
    .rest_at = AT(words),
};
