/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "setup/scheduler_pod.h"
#include "setup/extender_entry.h"

/*
 * All that a look at a cluster can know before anything is concluded from it: of the node
 * that it is done on (node.h), of the way to the extender (reach.h), of the API server
 * (cluster.h). What could not be looked at says why.
 */

/* A file of YAML or JSON. */
struct facts_file {
    char *path;     /* with the --root in front; NULL: none was looked for */
    struct err why; /* code ERR_NONE: it was read, and is one document */
    struct buf bytes;
    json_t *json; /* NULL if there is no such, or it cannot be read as one */
    int64_t changed_ns;
    unsigned mode, uid, gid;
};

/* A process named kube-scheduler. */
struct facts_process {
    int pid;
    int64_t started_ns;   /* wall clock; exact to a hundredth of a second */
    struct buf arguments; /* NUL behind each */
};

/* What became of an attempt to reach the extender. */
enum reach_answer {
    REACH_NOT_TRIED,
    REACH_REFUSED,
    REACH_TIMEOUT,    /* no connection in time, or no answer */
    REACH_NO_ROUTE,  /* no such host, no way there */
    REACH_PROTOCOL_ERROR,    /* neither HTTP nor TLS as wanted */
    REACH_OTHER_PROGRAM,  /* another program answers */
    REACH_GO_EXTENDER,        /* an extender, but not this project's */
    REACH_WRONG_PATH,   /* ours, but not under this path */
    REACH_NOT_READY, /* ours; it says why in `words` */
    REACH_OK,
};

struct reach_result {
    struct extender_entry_url url;
    enum reach_answer answer;
    unsigned status;
    struct err words;
};

/* What the node says of node ports on its loopback. */
struct setup_loopback {
    int route_localnet; /* of any interface but lo; -1: not known */
};

/* A list of the API, or an object. */
struct facts_object {
    json_t *json;   /* NULL: see why */
    struct err why; /* ERR_NOT_FOUND: there is none, or no such kind */
};

enum facts_kind {
    FACTS_VERSION,
    FACTS_SYSTEM_PODS, /* of kube-system, with the mirrors of static pods */
    FACTS_SERVICES, /* of extenders, by their label; in all namespaces, as what follows */
    FACTS_SLICES,   /* EndpointSlices of kube-system */
    FACTS_DEPLOYMENTS, /* of extenders */
    FACTS_EXTENDERS,   /* their pods */
    FACTS_PROXY,       /* kube-proxy's ConfigMap */
    FACTS_CRD,
    FACTS_SCVS,
    FACTS_NODES,
    FACTS_PLUGINS, /* DaemonSets of device plugins */
    FACTS_PENDING, /* pods that wait for a node */
    FACTS_EVENTS,  /* about those that failed to get one */
    FACTS_KINDS
};

struct facts {
    /* the node */
    char *manifests; /* folder of static pods */
    struct err manifests_why;
    struct facts_file
        *files; /* of it, those that are of kube-scheduler or are unreadable */
    size_t n_files;
    int64_t now_ns; /* wall clock, when the processes were looked at */
    struct facts_process *processes;
    size_t n_processes;
    struct facts_file config; /* that --config or --policy-config-file names */
    bool config_mounted;
    struct err processes_why;
    struct facts_file
        kubeconfig;           /* that the config file names; only whether it is there */
    struct facts_file tls[3]; /* caFile, certFile, keyFile of our extender's tlsConfig */
    struct setup_loopback loopback;
    /* the way */
    struct reach_result reach;
    char *elsewhere; /* HOST:PORT of this node where the extender answers, if it does not
                        on the loopback; or NULL */
    /* the API server */
    struct err cluster_why; /* code ERR_NONE: it was asked */
    struct facts_object lists[FACTS_KINDS];
    json_t *denied; /* array of strings: what the extender's account may not do; NULL: not
                       known */
    struct err denied_why;
};

void facts_file_fini(struct facts_file *file);
void facts_fini(struct facts *f);

/* The file of the static pod of kube-scheduler: of several, the first whose pod has the
 * name that kubeadm gives it, or else the first. NULL if there is none. */
const struct facts_file *facts_manifest(const struct facts *f, struct scheduler_pod *pod);
/* How its file is told to it. "": not at all. */
const char *scheduler_pod_config_option(const struct scheduler_pod *pod, bool *policy);
/* Fills in json or why from the bytes. */
void facts_file_parse(struct facts_file *file);
/* The process that the pod's command is; of several, the youngest. NULL: none. */
const struct facts_process *facts_scheduler(const struct facts *f,
                                          const struct scheduler_pod *pod);
/* Did it start before the file was changed, so that it has not read it as it is? */
bool facts_process_is_older(const struct facts_process *p, const struct facts_file *file);
/* The minor version of kube-scheduler, or else of the API server; 0: not known. */
int facts_minor(const struct facts *f, const struct scheduler_pod *pod);
