/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "setup/client_secret.h"
#include "setup/extender_entry.h"
#include "setup/scheduler_pod.h"

/*
 * Everything that the checks evaluate: files and processes of a control plane node
 * (host.h), the extender's answer (reach.h) and objects of the API server (cluster.h).
 * An item that could not be read has the error instead.
 */

/* A YAML or JSON file. */
struct facts_file {
    char *path;     /* with --root in front; NULL: not configured */
    struct err why; /* ERR_NONE: read, and a single document */
    struct buf bytes;
    json_t *json; /* NULL: not parsed, or malformed */
    int64_t changed_ns;
};

/* Who runs kube-scheduler, and with which files. */
enum facts_platform {
    FACTS_KUBEADM,   /* a static pod that this program edits; also any unknown node */
    FACTS_K3S,       /* a part of the process k3s-server; settings in files */
    FACTS_RKE2,      /* a static pod that rke2-server writes from settings in files */
    FACTS_OPENSHIFT, /* a static pod that an operator writes; nothing can be changed */
};

/* A process named kube-scheduler, or k3s-server. */
struct facts_process {
    int pid;
    int64_t started_ns;   /* wall clock, exact to 10 ms */
    struct buf arguments; /* each NUL-terminated */
};

/* The result of calling the extender. */
enum facts_answer {
    FACTS_REACH_NOT_TRIED,
    FACTS_REACH_REFUSED,
    FACTS_REACH_TIMEOUT,        /* no connection, or no response, in time */
    FACTS_REACH_NO_ROUTE,       /* unknown host, or no route to it */
    FACTS_REACH_PROTOCOL_ERROR, /* not the HTTP or TLS of urlPrefix */
    FACTS_REACH_OTHER_PROGRAM,  /* not an extender */
    FACTS_REACH_GO_EXTENDER,    /* an extender, but not ours */
    FACTS_REACH_WRONG_PATH,     /* ours, but not under this path */
    FACTS_REACH_NOT_READY,      /* ours; `detail` has the reason */
    FACTS_REACH_WANTS_HTTPS,    /* ours, but urlPrefix has http:// */
    FACTS_REACH_WANTS_HTTP,     /* ours, but urlPrefix has https:// */
    FACTS_REACH_UNTRUSTED,      /* ours, but its certificate is not of caFile */
    FACTS_REACH_NO_CREDENTIALS, /* ours; rejects the call without a client certificate */
    FACTS_REACH_FORBIDDEN,      /* ours; rejects the name of the client certificate */
    FACTS_REACH_OK,
};

struct facts_reach {
    struct extender_entry_url url;
    enum facts_answer answer;
    unsigned status;   /* of HTTP */
    struct err detail; /* the error, or the text of the answer */
};

/* The response to a GET of the API server. */
struct facts_object {
    json_t *json;   /* NULL: see why */
    struct err why; /* ERR_NOT_FOUND: no such object or kind */
};

enum facts_kind {
    FACTS_VERSION,
    FACTS_SYSTEM_PODS, /* of kube-system, with the mirrors of static pods */
    FACTS_SERVICES,    /* of the extender, by label; all namespaces, as those below */
    FACTS_SLICES,      /* EndpointSlices of these Services */
    FACTS_DEPLOYMENTS, /* of the extender, by label */
    FACTS_PROXY,       /* kube-proxy's ConfigMap */
    FACTS_NODES,
    FACTS_PENDING,  /* pods without a node */
    FACTS_EVENTS,   /* FailedScheduling */
    FACTS_POLICIES, /* ValidatingAdmissionPolicies */
    FACTS_POLICY_BINDINGS,
    FACTS_KINDS
};

struct facts {
    const char *namespace; /* of the extender; borrowed, NULL: kube-system */
    /* the node */
    enum facts_platform platform;
    /* k3s, RKE2 (rancher.h). The pod of their settings is in `files`. */
    bool is_agent;               /* the node has no control plane */
    struct facts_file *settings; /* config.yaml and the files of config.yaml.d, in the
                                     order in which they are read */
    size_t n_settings;
    struct err settings_why;   /* ERR_NONE: the folder config.yaml.d was read */
    char *service_option;      /* a file of the service, and an option or variable in it
                                     that changes these settings; NULL: none */
    struct facts_file applied; /* RKE2: the static pod that rke2-server wrote */
    struct facts_file undone;  /* k3s: the folder of what --undo began; no content */
    int64_t undone_since_ns;   /* when its files were installed; 0: unknown */
    char *manifests;           /* the kubelet's folder of static pods */
    struct err manifests_why;
    struct facts_file *files; /* in it: pods of kube-scheduler, and unreadable files */
    size_t n_files;
    struct facts_process *processes;
    size_t n_processes;
    struct err processes_why;
    struct facts_file config; /* of --config or --policy-config-file */
    bool config_mounted;
    struct facts_file tls[CLIENT_SECRET_FILES]; /* of our entry's tlsConfig */
    int64_t now_s;                              /* wall clock; 0: unknown */
    /* the extender */
    struct facts_reach reach;
    char *reachable_at; /* HOST:PORT of this node where the extender answers although the
                           configured address does not; or NULL */
    /* the API server */
    struct err cluster_why; /* ERR_NONE: it answered */
    struct facts_object lists[FACTS_KINDS];
    struct client_secret secret; /* kube-scheduler's client certificate */
    struct err secret_why;       /* ERR_NONE: `secret` is set */
    bool secret_read;            /* the API server was asked for it */
};

void facts_file_fini(struct facts_file *file);
void facts_fini(struct facts *f);

/* The namespace of the extender, its Secrets and its Service. It is not looked up: any
 * user who may create a Service could name another one. */
const char *facts_namespace(const struct facts *f);
/* The name of the extender in its own certificate: "gpushare-schd-extender.NAMESPACE.svc".
 * New. */
char *facts_server_name(const struct facts *f);
/* Where the platform keeps the credentials of an administrator. Static. */
const char *facts_admin(const struct facts *f);
/* The manifest of kube-scheduler: the pod with kubeadm's name, or else the first. NULL:
 * none. */
const struct facts_file *facts_manifest(const struct facts *f, struct scheduler_pod *pod);
/* Parses the bytes into json, or sets why. */
void facts_file_parse(struct facts_file *file);
/* The process of the pod's command, or k3s-server; the youngest if there are several.
 * NULL: none. */
const struct facts_process *facts_scheduler(const struct facts *f,
                                            const struct scheduler_pod *pod);
/* Did the process start before the file was changed, so that it runs with older content?
 */
bool facts_process_is_older(const struct facts_process *p, const struct facts_file *file);
/* The file that was changed since the process started, and that kube-scheduler reads only
 * when it starts: its configuration, or the CA of tlsConfig. NULL: none. It reads the
 * client certificate and its key again for each connection (client-go,
 * transport.TLSConfigFor). */
const struct facts_file *facts_newer_file(const struct facts *f,
                                          const struct facts_process *p);
/* The minor version of kube-scheduler, or else of the API server; 0: unknown. */
int facts_minor(const struct facts *f, const struct scheduler_pod *pod);
