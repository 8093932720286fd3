/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/secret.h"

/*
 * What the checks and the changes evaluate: kubeadm's static pod of kube-scheduler, its
 * configuration file, its process, the client certificate on the node and in the API
 * server, and the extender's answer. An item that could not be read has the error instead.
 */

/* The Secret, in the extender's namespace. The extender or cert-manager writes it, as type
 * kubernetes.io/tls. */
#define FACTS_SECRET "gpushare-scheduler-tls"
/* The folder of its files, as kube-scheduler sees them in its container. */
#define FACTS_TLS_DIR "/etc/kubernetes/gpushare"
/* kube-scheduler's configuration file where the static pod names no other. */
#define FACTS_CONFIG    "/etc/kubernetes/kube-scheduler-config.yaml"
#define FACTS_VERBS     "/gpushare-scheduler" /* the path of urlPrefix */
#define FACTS_NODE_PORT 32766LL               /* of manifests/service.yaml */

/* The members of tlsConfig, and the path in the container. kube-scheduler prefers the data. */
extern const struct facts_tls_name {
    const char *member; /* "tlsConfig.caFile" */
    const char *path;
    const char *data; /* "tlsConfig.caData" */
} facts_tls_names[SECRET_KEYS];

/* A file of the node. */
struct facts_file {
    char *path;     /* with --root in front; NULL: none */
    bool mounted;   /* in kube-scheduler's container */
    struct err why; /* ERR_NONE: read; of YAML, it is a single mapping */
    struct buf bytes;
    json_t *json; /* of YAML; NULL: not parsed */
    int64_t changed_ns;
};

/* The result of calling the extender. */
enum facts_answer {
    FACTS_REACH_NOT_TRIED,
    FACTS_REACH_NO_ANSWER,   /* no connection, no answer in time, or TLS failed */
    FACTS_REACH_GO_EXTENDER, /* an extender, but not ours */
    FACTS_REACH_NOT_READY,   /* `detail` has the reason */
    FACTS_REACH_REJECTED, /* no extender, another path, or it rejects the certificate */
    FACTS_REACH_OK,
};

struct facts {
    /* Both borrowed. The node's root folder ("" for this machine); the kubeconfig of the
     * API server, NULL: /etc/kubernetes/admin.conf of the node. */
    const char *root, *kubeconfig;
    /* Of the extender, for what is planned: HOST:PORT, borrowed; NULL: as configured, or
     * the node port of its Service. Plain HTTP. */
    const char *address;
    bool insecure;
    /* Of the extender, its Secret and its Service; borrowed. NULL: kube-system. It is not
     * looked up: any user who may create a Service could name another one. */
    const char *namespace;
    /* the node */
    struct facts_file
        manifest;             /* the static pod; its `why` also: a second manifest of the
                                   pod, or a file of the folder that may be it */
    const json_t *container;  /* in manifest.json: runs kube-scheduler */
    struct facts_file config; /* of --config, or FACTS_CONFIG */
    const json_t *entry;      /* in config.json: the extender's; NULL: none */
    struct facts_file
        named[SECRET_KEYS]; /* of the entry's tlsConfig; data have its member as path */
    struct facts_file tls[SECRET_KEYS]; /* in FACTS_TLS_DIR */
    int pid;            /* of the kube-scheduler with the pod's options; 0: none */
    int other_pid;      /* of a kube-scheduler with other options; 0: none */
    int64_t started_ns; /* of `pid`; wall clock, exact to 10 ms */
    int64_t now_s;      /* wall clock */
    /* the extender */
    char *url; /* of the call, without the verb */
    enum facts_answer answer;
    struct err detail; /* the error, or the text of the answer */
    /* the API server */
    struct secret secret;  /* kube-scheduler's client certificate */
    struct err secret_why; /* ERR_NONE: `secret` is set */
    /* ClusterConfiguration of ConfigMap kubeadm-config, from which `kubeadm upgrade` makes the
     * static pods. */
    struct facts_file kubeadm;
    char *kubeadm_version; /* resourceVersion of the ConfigMap */
    json_int_t node_port;  /* of the extender's Service; 0: unknown */
};

/* Overwrites the key. */
void facts_fini(struct facts *f);
/* Reads the files and the processes. */
void facts_read_node(struct facts *f);
/* Reads the extender's Secret and Service. */
void facts_read_extender(struct facts *f);
/* The same for f->kubeadm. */
void facts_read_kubeadm(struct facts *f);
/* Writes the ClusterConfiguration, unless another client has since facts_read_kubeadm. */
int facts_write_kubeadm(const struct facts *f, struct span text, struct err *err);
/* Decodes the API server's JSON into f->secret. -1: a key is missing or is not base64, or
 * the certificate is not one of ca.crt, or does not belong to the key. */
int facts_decode_secret(struct span json, struct facts *f, struct err *err);
/* Decodes the ConfigMap into f->kubeadm. It is not cut at a NUL, with which it is no
 * YAML. */
void facts_decode_kubeadm(struct span json, struct facts *f);

/*
 * Calls the extender as kube-scheduler does: POST to the filter verb, with a pod that
 * requests nothing and without nodes, which changes nothing.
 *
 * `planned`: the call that kube-scheduler makes after the changes of change.h, with the
 * Secret's certificate where these set it. Else as configured, with URL and TLS files of
 * the entry, if there is one.
 */
void facts_reach(struct facts *f, bool planned);
/* Is kube-scheduler, which runs with the pod's options, healthy? Calls its /healthz. */
bool facts_is_healthy(const struct facts *f, struct err *err);

/* -- conclusions -- */

/* The value of the pod's `--NAME=VALUE` or `--NAME VALUE`, "" for a flag without one, NULL
 * if absent. The last occurrence counts, as for kube-scheduler. */
const char *facts_option(const struct facts *f, const char *name);
/* Of kube-scheduler's version 1.MINOR, by the tag of its image; 0: unknown. */
int facts_minor(const struct facts *f);
/* Appends a line for each option of the pod that kube-scheduler no longer has in this version;
 * it exits. */
void facts_add_removed(struct buf *out, const struct facts *f);
/* The name of the extender in its own certificate: "gpushare-schd-extender.NAMESPACE.svc".
 * New. */
char *facts_server_name(const struct facts *f);
/* The extender's entry in a configuration, recognized by its urlPrefix or its managedResources;
 * NULL: none. */
const json_t *facts_find_entry(const json_t *config);
/* Does the entry of an extender name the files of FACTS_TLS_DIR? */
bool facts_has_our_certificate(const json_t *entry);
/* Does it have a client certificate of the administrator? Such an entry stays. */
bool facts_has_own_certificate(const json_t *entry);
/* The urlPrefix after the changes: f->address, or as it is, or the node port of the
 * Service on 127.0.0.1, which is FACTS_NODE_PORT if it was not read. New. */
char *facts_planned_url(const struct facts *f);
/* The file that was changed since the process started, and that kube-scheduler reads only
 * when it starts: its configuration, or the CA of tlsConfig. NULL: none. It reads the
 * client certificate and its key again for each connection (client-go,
 * transport.TLSConfigFor). */
const struct facts_file *facts_newer_file(const struct facts *f);
/* The rest of `path` below `mount`, a folder or the file itself; NULL: not below it. */
const char *facts_below(const char *path, const char *mount);
/* The path on the node of a path in the container, by its hostPath volumes, below `root`.
 * Without such a volume, *mounted is false, and the path is the same. New. */
char *facts_path_on_node(const struct facts *f, const char *root, const char *path,
                         bool *mounted);
/* What to do on a node that is not kubeadm's. */
#define FACTS_INSTEAD                                                                    \
    "helm install gpushare manifests/chart -n gpushare --create-namespace --set "        \
    "image.registry=REGISTRY"
