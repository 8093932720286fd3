/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "setup/pod.h"
#include "setup/policy.h"

/*
 * All that a look at a cluster can know before anything is concluded from it: of the node
 * that it is done on (node.h), of the way to the extender (reach.h), of the API server
 * (cluster.h). What could not be looked at says why.
 */

/* A file of YAML or JSON. */
struct setup_file {
    char *path;     /* with the --root in front; NULL: none was looked for */
    struct err why; /* code ERR_NONE: it was read, and is one document */
    struct buf bytes;
    json_t *json; /* NULL if there is no such, or it cannot be read as one */
    int64_t changed_ns;
    unsigned mode, uid, gid;
};

/* A process named kube-scheduler. */
struct setup_process {
    int pid;
    int64_t started_ns;   /* wall clock; exact to a hundredth of a second */
    struct buf arguments; /* NUL behind each */
};

/* What became of an attempt to reach the extender. */
enum setup_answer {
    SETUP_UNASKED,
    SETUP_REFUSED,
    SETUP_SILENT,    /* no connection in time, or no answer */
    SETUP_NO_ROUTE,  /* no such host, no way there */
    SETUP_BROKEN,    /* neither HTTP nor TLS as wanted */
    SETUP_NOT_OURS,  /* another program answers */
    SETUP_GO,        /* an extender, but not this project's */
    SETUP_NO_PATH,   /* ours, but not under this path */
    SETUP_NOT_READY, /* ours; it says why in `words` */
    SETUP_ANSWERS,
};

struct setup_reach {
    struct setup_url url;
    enum setup_answer answer;
    unsigned status;
    struct err words;
};

/* What the node says of node ports on its loopback. */
struct setup_loopback {
    int route_localnet; /* of any interface but lo; -1: not known */
};

/* A list of the API, or an object. */
struct setup_list {
    json_t *json;   /* NULL: see why */
    struct err why; /* ERR_NOT_FOUND: there is none, or no such kind */
};

enum setup_kind {
    SETUP_VERSION,
    SETUP_SYSTEM_PODS, /* of kube-system, with the mirrors of static pods */
    SETUP_SERVICES, /* of extenders, by their label; in all namespaces, as what follows */
    SETUP_SLICES,   /* EndpointSlices of kube-system */
    SETUP_DEPLOYMENTS, /* of extenders */
    SETUP_EXTENDERS,   /* their pods */
    SETUP_PROXY,       /* kube-proxy's ConfigMap */
    SETUP_CRD,
    SETUP_SCVS,
    SETUP_NODES,
    SETUP_PLUGINS, /* DaemonSets of device plugins */
    SETUP_PENDING, /* pods that wait for a node */
    SETUP_EVENTS,  /* about those that failed to get one */
    SETUP_KINDS
};

struct setup_facts {
    /* the node */
    char *manifests; /* folder of static pods */
    struct err manifests_why;
    struct setup_file
        *files; /* of it, those that are of kube-scheduler or are unreadable */
    size_t n_files;
    int64_t now_ns; /* wall clock, when the processes were looked at */
    struct setup_process *processes;
    size_t n_processes;
    struct setup_file config; /* that --config or --policy-config-file names */
    bool config_mounted;
    struct err processes_why;
    struct setup_file
        kubeconfig;           /* that the config file names; only whether it is there */
    struct setup_file tls[3]; /* caFile, certFile, keyFile of our extender's tlsConfig */
    struct setup_loopback loopback;
    /* the way */
    struct setup_reach reach;
    char *elsewhere; /* HOST:PORT of this node where the extender answers, if it does not
                        on the loopback; or NULL */
    /* the API server */
    struct err cluster_why; /* code ERR_NONE: it was asked */
    struct setup_list lists[SETUP_KINDS];
    json_t *denied; /* array of strings: what the extender's account may not do; NULL: not
                       known */
    struct err denied_why;
};

void setup_file_fini(struct setup_file *file);
void setup_facts_fini(struct setup_facts *f);

/* The file of the static pod of kube-scheduler: of several, the first whose pod has the
 * name that kubeadm gives it, or else the first. NULL if there is none. */
const struct setup_file *setup_active(const struct setup_facts *f, struct setup_pod *pod);
/* How its file is told to it. "": not at all. */
const char *setup_config_option(const struct setup_pod *pod, bool *policy);
/* Fills in json or why from the bytes. */
void setup_file_parse(struct setup_file *file);
/* The process that the pod's command is; of several, the youngest. NULL: none. */
const struct setup_process *setup_running(const struct setup_facts *f,
                                          const struct setup_pod *pod);
/* Did it start before the file was changed, so that it has not read it as it is? */
bool setup_process_is_older(const struct setup_process *p, const struct setup_file *file);
/* The minor version of kube-scheduler, or else of the API server; 0: not known. */
int setup_minor(const struct setup_facts *f, const struct setup_pod *pod);
