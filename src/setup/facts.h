/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/scheduler_config.h"

/*
 * Everything that the checks and the changes evaluate: files and processes of a control
 * plane node, the extender's answer, and objects of the API server. An item that could not
 * be read has the error instead.
 */

/* -- kube-scheduler's client certificate -- */

/* The Secret, in the extender's namespace. The extender or cert-manager writes it, as type
 * kubernetes.io/tls. */
#define FACTS_SECRET "gpushare-scheduler-tls"
/* The folder of its files, as kube-scheduler sees them in its container. */
#define FACTS_TLS_DIR "/etc/kubernetes/gpushare"

enum facts_tls { FACTS_CA, FACTS_CERT, FACTS_KEY, FACTS_TLS_FILES };

/* The member of tlsConfig ("caFile"), and the path in the container. Static. */
const char *facts_tls_member(int file);
const char *facts_tls_path(int file);

/* -- files, processes, answers -- */

/* A YAML or JSON file. */
struct facts_file {
    char *path;     /* with --root in front; NULL: not configured */
    struct err why; /* ERR_NONE: read, and a single document */
    struct buf bytes;
    json_t *json; /* NULL: not parsed, or malformed */
    int64_t changed_ns;
};

/* A process named kube-scheduler. */
struct facts_process {
    int pid;
    int64_t started_ns;   /* wall clock, exact to 10 ms */
    struct buf arguments; /* each NUL-terminated */
};

/* The result of calling the extender. */
enum facts_answer {
    FACTS_REACH_NOT_TRIED,
    FACTS_REACH_NO_ANSWER,      /* no connection, no answer in time, or no HTTP */
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
    struct scheduler_config_url url;
    enum facts_answer answer;
    struct err detail; /* the error, or the text of the answer */
};

struct facts {
    const char *namespace; /* of the extender; borrowed, NULL: kube-system */
    /* the node */
    const char *distribution; /* "k3s": the node is of this one, and has no static pod of
                                 kubeadm; NULL: kubeadm's, or unknown */
    char *manifests;          /* the kubelet's folder of static pods */
    struct err manifests_why;
    struct facts_file *files; /* in it: pods of kube-scheduler, and unreadable files */
    size_t n_files;
    struct facts_process *processes;
    size_t n_processes;
    struct err processes_why;
    struct facts_file config; /* of --config */
    bool config_mounted;
    struct facts_file tls[FACTS_TLS_FILES]; /* of our entry's tlsConfig */
    int64_t now_s;                          /* wall clock; 0: unknown */
    /* the extender */
    struct facts_reach reach;
    /* the API server */
    struct err cluster_why;             /* ERR_NONE: it answered */
    json_t *version, *pods;             /* /version; the pods of kube-system */
    struct buf secret[FACTS_TLS_FILES]; /* kube-scheduler's client certificate, as PEM */
    struct err secret_why;              /* ERR_NONE: `secret` is set */
    bool secret_read;                   /* the API server was asked for it */
};

void facts_file_fini(struct facts_file *file);
void facts_fini(struct facts *f); /* overwrites the key */
/* Parses the bytes into json, or sets why. */
void facts_file_parse(struct facts_file *file);

/* -- reading -- */

/* The files and processes. `root` is the node's root folder ("" for this machine), `proc`
 * its /proc. */
void facts_read_host(const char *root, const char *proc, struct facts *f);
/* What is read from the API server. */
struct facts_api {
    const char *kubeconfig, *context; /* NULL: /etc/kubernetes/admin.conf of the node */
    const char *root;
    bool none; /* --no-cluster */
};
/* Version, pods of kube-system, and the Secret. Sets f->cluster_why or f->secret_why if
 * they cannot be read. */
void facts_read_cluster(const struct facts_api *api, struct facts *f);
/* Decodes the API server's JSON into f->secret. -1: a key is missing or is not base64, or
 * the certificate is not one of ca.crt, or does not belong to the key. */
int facts_read_secret(struct span json, struct facts *f, struct err *err);

/*
 * Calls the extender as kube-scheduler does: POST to the filter verb, with a pod that
 * requests nothing and without nodes, which changes nothing.
 *
 * As configured: with URL and TLS files of our entry in f->config.
 * As planned: the call that kube-scheduler makes after the changes of change.h, at
 * `address` if not NULL, with the Secret's certificate where these set it.
 */
void facts_reach_configured(struct facts *f);
void facts_reach_planned(struct facts *f, const char *address, bool insecure);
/* Is kube-scheduler, which runs with the pod's options, healthy? Calls its /healthz. */
bool facts_is_healthy(const struct scheduler_config_pod *pod, struct err *err);

/* -- conclusions -- */

/* The namespace of the extender, its Secret and its Service. It is not looked up: any
 * user who may create a Service could name another one. */
const char *facts_namespace(const struct facts *f);
/* The name of the extender in its own certificate: "gpushare-schd-extender.NAMESPACE.svc".
 * New. */
char *facts_server_name(const struct facts *f);
/* The manifest of kube-scheduler: the pod with kubeadm's name, or else the first. NULL:
 * none. */
const struct facts_file *facts_manifest(const struct facts *f,
                                        struct scheduler_config_pod *pod);
/* The process of the pod's command, the youngest if there are several. NULL: none. */
const struct facts_process *facts_scheduler(const struct facts *f,
                                            const struct scheduler_config_pod *pod);
/* The file that was changed since the process started, and that kube-scheduler reads only
 * when it starts: its configuration, or the CA of tlsConfig. NULL: none. It reads the
 * client certificate and its key again for each connection (client-go,
 * transport.TLSConfigFor). */
const struct facts_file *facts_newer_file(const struct facts *f,
                                          const struct facts_process *p);
/* The minor version of kube-scheduler, or else of the API server; 0: unknown. */
int facts_minor(const struct facts *f, const struct scheduler_config_pod *pod);
/* What to do on a node that is not kubeadm's. Static. */
#define FACTS_INSTEAD                                                                    \
    "helm install gpushare manifests/chart -n gpushare --create-namespace --set "        \
    "scheduler.enabled=true"
