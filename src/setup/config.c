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
     .help = "Root folder of the node (/host in a debugging pod); default: this "
             "machine's root."},
    {.name = "proc",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(proc),
     .help = "Folder of the node's processes; default: proc in the folder of --root."},
    {.name = "address",
     .arg = "HOST:PORT",
     .type = OPT_STRING,
     .offset = AT(address),
     .help = "Extender HOST:PORT for plan and reach; default: as configured, or "
             "127.0.0.1:32766."},
    {.name = "namespace",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(namespace),
     .help = "Namespace of the extender and of its Secrets; default: kube-system."},
    {.name = "policy",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(policy),
     .help =
         "Folder with kube-scheduler-config.yaml, for plan and renew; default: policy."},
    {.name = "out",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = AT(out),
     .help = "Existing folder for the new files; required for plan and renew."},
    {.name = "no-cluster",
     .type = OPT_BOOL,
     .offset = AT(no_cluster),
     .help = "Check the files alone, and do not read the API server."},
    {.name = "insecure",
     .type = OPT_BOOL,
     .offset = AT(insecure),
     .help = "Plain HTTP, for plan and reach with an extender that has --insecure; "
             "default: HTTPS."},
    ENTRY_KUBECONFIG(AT(kubeconfig)),
    ENTRY_CONTEXT(AT(context)),
    ENTRY_LOG_LEVEL(AT(log_level), "error"),
    {0},
};

const struct opt_program setup_program = {
    .name = "gpushare-setup",
    .summary =
        "checks whether the kube-scheduler of a kubeadm, k3s or RKE2 node calls the "
        "extender\n\n"
        "check    Print the problems; status 1: problems, 2: not everything was checked\n"
        "plan     Write the corrected files to the folder of --out\n"
        "renew    Write the files of kube-scheduler's certificate that differ from its "
        "Secret\n"
        "running  Print the process id of the kube-scheduler that uses the current "
        "files\n"
        "reach    Call the extender",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "check|plan|renew|running|reach",
    .rest_at = AT(args),
};
