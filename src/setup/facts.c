/* SPDX-License-Identifier: Apache-2.0 */

/* Reads what the checks and the changes need: files and processes of the node, the Secret
 * of the API server, and the extender's answer. */

#include "setup/facts.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kube/client.h"
#include "setup/edit.h"
#include "wire/base64.h"
#include "wire/httpc.h"
#include "wire/x509.h"

#define MANIFESTS "/etc/kubernetes/manifests"
#define ADMIN     "/etc/kubernetes/admin.conf"
#define SERVICE   "gpushare-schd-extender"

enum {
    FILE_MAX = 1 << 20,
    PROC_MAX = 256 * 1024,
    SLACK_NS = 20 * 1000 * 1000, /* more than the error of a process's start */
    API_MS = 10 * 1000,
    CONNECT_MS = 3000,
    ANSWER_MS = 5000,
    BODY_MAX = 64 * 1024
};

const struct facts_tls_name facts_tls_names[SECRET_KEYS] = {
    [SECRET_CA] = {"tlsConfig.caFile", FACTS_TLS_DIR "/ca.crt", "tlsConfig.caData"},
    [SECRET_CERT] = {"tlsConfig.certFile", FACTS_TLS_DIR "/client.crt",
                     "tlsConfig.certData"},
    [SECRET_KEY] = {"tlsConfig.keyFile", FACTS_TLS_DIR "/client.key",
                    "tlsConfig.keyData"},
};

static void file_fini(struct facts_file *file)
{
    free(file->path);
    buf_wipe(&file->bytes);
    json_decref(file->json);
}

void facts_fini(struct facts *f)
{
    file_fini(&f->manifest);
    file_fini(&f->config);
    for (int i = 0; i < SECRET_KEYS; i++) {
        file_fini(&f->named[i]);
        file_fini(&f->tls[i]);
    }
    secret_fini(&f->secret);
    file_fini(&f->kubeadm);
    free(f->kubeadm_version);
    free(f->url);
    *f = (struct facts){0};
}

static const char *namespace_of(const struct facts *f)
{
    return f->namespace ? f->namespace : "kube-system";
}

/* -- the static pod -- */

/* The i-th word of command and args; NULL after the last. */
static const char *word_at(const json_t *container, size_t i)
{
    const json_t *command = jpath(container, "command");
    size_t n = json_array_size(command);
    const json_t *word = i < n ? json_array_get(command, i)
                               : json_array_get(jpath(container, "args"), i - n);
    return !word ? NULL : json_is_string(word) ? json_string_value(word) : "";
}

const char *facts_option(const struct facts *f, const char *name)
{
    const char *value = NULL, *word, *next;
    size_t n = strlen(name);
    for (size_t i = 0; (word = word_at(f->container, i)); i++) {
        if (strspn(word, "-") != 2 || strncmp(word + 2, name, n) != 0)
            continue;
        if (word[2 + n] == '=')
            value = word + 3 + n;
        else if (!word[2 + n])
            value = (next = word_at(f->container, i + 1)) && *next != '-' ? next : "";
    }
    return value;
}

int facts_minor(const struct facts *f)
{
    /* "registry:5000/kube-scheduler:v1.31.0" */
    const char *tag = strstr(jpath_string(f->container, "image"), ":v1.");
    return tag ? atoi(tag + 4) : 0;
}

void facts_add_removed(struct buf *out, const struct facts *f)
{
    /* With the version of the removal; --config-file never existed. */
    static const char removed[] =
        " --config-file=0 --algorithm-provider=22 --hard-pod-affinity-symmetric-weight=22"
        " --scheduler-name=22 --policy-config-file=23 --policy-configmap=23"
        " --policy-configmap-namespace=23 --use-legacy-policy-config=23 --address=24"
        " --port=24 --add-dir-header=26 --alsologtostderr=26 --log-backtrace-at=26"
        " --log-dir=26 --log-file=26 --log-file-max-size=26 --logtostderr=26"
        " --one-output=26 --skip-headers=26 --skip-log-headers=26 --stderrthreshold=26"
        " --lock-object-name=28 --lock-object-namespace=28";
    const char *word;
    for (size_t i = 0; (word = word_at(f->container, i)); i++) {
        cleanup_free char *key = xasprintf(" %.*s=", (int)strcspn(word, "="), word);
        const char *at = strstr(removed, key);
        int since = at ? atoi(at + strlen(key)) : INT_MAX;
        if (since > facts_minor(f))
            continue;
        buf_adds(out, out->n ? "\nkube-scheduler" : "kube-scheduler");
        if (since)
            buf_printf(out, " 1.%d has no%.*s (from 1.%d on)", facts_minor(f),
                       (int)strlen(key) - 1, key, since);
        else
            buf_printf(out, " has no option%.*s", (int)strlen(key) - 1, key);
    }
}

const char *facts_below(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    while (n && mount[n - 1] == '/')
        n--;
    return !*mount || strncmp(path, mount, n) != 0 || (path[n] && path[n] != '/')
               ? NULL
               : path + n;
}

char *facts_path_on_node(const struct facts *f, const char *root, const char *path,
                         bool *mounted)
{
    const json_t *mounts = jpath(f->container, "volumeMounts"),
                 *volumes = jpath(f->manifest.json, "spec.volumes"), *best = NULL, *item;
    const char *rest = NULL, *from = NULL;
    size_t i;
    json_array_foreach(mounts, i, item)
    {
        const char *r = facts_below(path, jpath_string(item, "mountPath"));
        if (r && (!rest || strlen(r) <= strlen(rest))) {
            rest = r;
            best = item;
        }
    }
    json_array_foreach(volumes, i, item)
    {
        if (best && !from &&
            !strcmp(jpath_string(item, "name"), jpath_string(best, "name")))
            from = json_string_value(jpath(item, "hostPath.path"));
    }
    *mounted = from != NULL;
    return xasprintf("%s%s%s", root, from ? from : path, from ? rest : "");
}

/* -- files -- */

static void read_file(struct facts_file *file)
{
    struct stat st = {.st_mode = S_IFREG};
    stat(file->path, &st);
    file->changed_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
    /* A pipe would block. */
    if (!S_ISREG(st.st_mode))
        err_set(&file->why, ERR_UNAVAILABLE, "%s: not a regular file", file->path);
    else
        file_read(file->path, FILE_MAX, &file->bytes, &file->why);
}

static void read_yaml(struct facts_file *file)
{
    read_file(file);
    if (file->why.code != ERR_NONE)
        return;
    file->json = edit_parse(file->path, buf_span(&file->bytes), &file->why);
    if (file->json && !json_is_object(file->json))
        err_set(&file->why, ERR_INVALID, "%s: not a mapping", file->path);
}

/* The static pod. The kubelet runs every file of the folder, whatever its suffix: a malformed
 * or second one may be the one that runs. */
static void read_manifests(struct facts *f)
{
    static const char ours[] = "kube-scheduler";
    struct dirent **names;
    cleanup_free char *folder = xasprintf("%s" MANIFESTS, f->root);
    int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0) {
        err_set(&f->manifest.why,
                errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_FORBIDDEN,
                "%s: %m", folder);
        return;
    }
    for (int i = 0; i < n; i++) {
        cleanup_free struct dirent *entry = names[i];
        const char *name = entry->d_name;
        struct facts_file file = {.path = xasprintf("%s/%s", folder, name)};
        struct stat st;
        /* As the kubelet: regular files, and no name with a dot in front. */
        if (*name != '.' && stat(file.path, &st) == 0 && S_ISREG(st.st_mode))
            read_yaml(&file);
        bool unreadable =
            file.why.code != ERR_NONE &&
            (strstr(name, "scheduler") ||
             (file.bytes.n && memmem(file.bytes.p, file.bytes.n, ours, strlen(ours))));
        /* kubeadm's pod is recognized by its name, which the static pods of other
         * distributions and second schedulers do not have. */
        bool found = file.why.code == ERR_NONE &&
                     !strcmp(jpath_string(file.json, "metadata.name"), ours) &&
                     jpath(file.json, "spec.containers.0");
        if (f->manifest.why.code == ERR_NONE && unreadable)
            f->manifest.why = file.why;
        else if (found && f->manifest.path)
            err_set(&f->manifest.why, ERR_CONFLICT,
                    "%s and %s are the same static pod: move one of them out of the "
                    "folder",
                    f->manifest.path, file.path);
        if (!found || f->manifest.path) {
            file_fini(&file);
            continue;
        }
        file.why = f->manifest.why;
        f->manifest = file;
    }
    free(names);
    f->container = jpath(f->manifest.json, "spec.containers.0");
    if (!f->container && f->manifest.why.code == ERR_NONE)
        err_set(&f->manifest.why, ERR_NOT_FOUND, "%s has no static pod kube-scheduler",
                folder);
}

const json_t *facts_find_entry(const json_t *config)
{
    const json_t *entry, *resource, *second = NULL;
    size_t i, k;
    json_array_foreach(jpath(config, "extenders"), i, entry)
    {
        if (strstr(jpath_string(entry, "urlPrefix"), FACTS_VERBS))
            return entry;
        json_array_foreach(jpath(entry, "managedResources"), k, resource)
        {
            if (!second &&
                !strncmp(jpath_string(resource, "name"), "aliyun.com/gpu-", 15))
                second = entry;
        }
    }
    return second;
}

/* -- processes -- */

static bool read_of(const char *proc, const char *pid, const char *name, struct buf *out)
{
    cleanup_free char *path = xasprintf("%s/%s/%s", proc, pid, name);
    return file_read(path, PROC_MAX, out, NULL) == 0 && out->n;
}

/* Of several processes with the pod's command, the youngest counts. */
static void read_process(const char *proc, const char *pid, struct facts *f)
{
    cleanup_buf struct buf name = {0}, line = {0}, stat = {0};
    const char *word;
    long long ticks = 0;
    bool same = true;
    /* A zombie has no arguments. */
    if (!read_of(proc, pid, "comm", &name) ||
        !span_eq(span_trim(buf_span(&name)), SPAN("kube-scheduler")) ||
        !read_of(proc, pid, "cmdline", &line) || !read_of(proc, pid, "stat", &stat))
        return;
    const char *end = memrchr(stat.p, ')', stat.n);
    if (!end ||
        sscanf(
            end,
            ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
            "%*d %lld",
            &ticks) != 1)
        return;
    /* On the wall clock, exact to a tick. (The btime of /proc/stat has whole seconds
     * only.) */
    int64_t started_ns = clock_wall_ns() - clock_mono_us() * 1000 +
                         ticks * (1000000000 / sysconf(_SC_CLK_TCK));
    struct span rest = buf_span(&line);
    for (size_t i = 0; same && (word = word_at(f->container, i)); i++) {
        struct span argument = span_cut(&rest, '\0');
        same = argument.p && span_eq(argument, span_of(word));
    }
    if (!same || rest.n) {
        f->other_pid = atoi(pid);
    } else if (!f->pid || started_ns > f->started_ns) {
        f->pid = atoi(pid);
        f->started_ns = started_ns;
    }
}

void facts_read_node(struct facts *f)
{
    const char *root = f->root;
    cleanup_free char *proc = xasprintf("%s/proc", root);
    f->now_s = clock_wall_ns() / 1000000000;
    read_manifests(f);
    if (!f->container)
        return;
    const char *inside = facts_option(f, "config");
    f->config.path = facts_path_on_node(
        f, root, inside && *inside ? inside : FACTS_CONFIG, &f->config.mounted);
    read_yaml(&f->config);
    if (f->config.json &&
        strcmp(jpath_string(f->config.json, "kind"), "KubeSchedulerConfiguration"))
        err_set(&f->config.why, ERR_INVALID, "%s is not a KubeSchedulerConfiguration",
                f->config.path);
    if (inside)
        f->entry = facts_find_entry(f->config.json);
    for (int i = 0; i < SECRET_KEYS; i++) {
        struct facts_file *named = &f->named[i], *ours = &f->tls[i];
        const char *path = jpath_string(f->entry, facts_tls_names[i].member);
        ours->path = facts_path_on_node(f, root, facts_tls_names[i].path, &ours->mounted);
        read_file(ours);
        const char *data = jpath_string(f->entry, facts_tls_names[i].data);
        if (*data) {
            named->path = xstrdup(facts_tls_names[i].data);
            if (!base64_decode(span_of(data), &named->bytes))
                err_set(&named->why, ERR_INVALID, "%s is not base64", named->path);
            continue;
        }
        if (!*path)
            continue;
        named->path = facts_path_on_node(f, root, path, &named->mounted);
        if (named->mounted)
            read_file(named);
        else
            err_set(&named->why, ERR_NOT_FOUND,
                    "%s is not mounted in the container of kube-scheduler", path);
    }
    cleanup_folder DIR *dir = opendir(proc);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name >= '1' && *e->d_name <= '9')
            read_process(proc, e->d_name, f);
}

/* -- the API server -- */

int facts_decode_secret(struct span json, struct facts *f, struct err *err)
{
    const struct buf *data = f->secret.data;
    int rc = secret_decode(json, &f->secret, err);
    if (rc == 0 && !(data[SECRET_CA].n && data[SECRET_CERT].n && data[SECRET_KEY].n))
        rc =
            err_set(err, ERR_INVALID, "not all of ca.crt, tls.crt and tls.key are there");
    if (rc == 0)
        rc = x509_read_pair(buf_span(&data[SECRET_CERT]), buf_span(&data[SECRET_KEY]),
                            NULL, err);
    if (rc == 0 &&
        !x509_is_issued_by(buf_span(&data[SECRET_CERT]), buf_span(&data[SECRET_CA])))
        rc = err_set(err, ERR_INVALID, "tls.crt is not signed by ca.crt");
    if (rc)
        secret_fini(&f->secret);
    return rc;
}

/* A call of the API server: GET, or PATCH with a merge patch. */
static int call_api(const struct facts *f, const char *path, struct span patch,
                    struct httpc_reply *reply, struct err *err)
{
    cleanup_free char *admin = xasprintf("%s" ADMIN, f->root);
    const bool by_admin = !f->kubeconfig && access(admin, R_OK) == 0;
    struct kube_client *client =
        kube_connect(by_admin ? admin : f->kubeconfig, NULL, err);
    const struct kube_request request = {
        .method = patch.n ? "PATCH" : "GET",
        .path = path,
        .content_type = patch.n ? "application/merge-patch+json" : NULL,
        .body = patch,
        .gzip = true,
        .timeout_ms = API_MS};
    int rc = client ? kube_ask(client, &request, reply, err) : -1;
    if (!client) /* also without a kubeconfig, which says nothing about the object */
        err->code = ERR_UNAVAILABLE;
    kube_client_free(client);
    return rc;
}

void facts_read_extender(struct facts *f)
{
    const char *ns = namespace_of(f);
    cleanup_free char *path =
                          xasprintf("/api/v1/namespaces/%s/secrets/" FACTS_SECRET, ns),
                      *service = xasprintf("/api/v1/namespaces/%s/services/" SERVICE, ns);
    cleanup_reply struct httpc_reply reply = {0};
    struct err why;
    if (call_api(f, path, SPAN(""), &reply, &f->secret_why) ||
        facts_decode_secret(buf_span(&reply.body), f, &f->secret_why))
        err_wrap(&f->secret_why, "Secret %s/" FACTS_SECRET, ns);
    buf_wipe(&reply.body);
    if (call_api(f, service, SPAN(""), &reply, &why) == 0) {
        json_auto_t *j = jpath_read(buf_span(&reply.body), NULL);
        f->node_port = jpath_number(j, "spec.ports.0.nodePort");
    }
}

#define KUBEADM "kube-system/kubeadm-config"
static const char kubeadm_path[] =
    "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";

void facts_decode_kubeadm(struct span json, struct facts *f)
{
    struct facts_file *file = &f->kubeadm;
    json_auto_t *map = jpath_read(json, NULL);
    buf_add_span(&file->bytes, jpath_text(map, "data.ClusterConfiguration"));
    f->kubeadm_version = xstrdup(jpath_string(map, "metadata.resourceVersion"));
    if (*f->kubeadm_version)
        file->json = edit_parse(KUBEADM, buf_span(&file->bytes), &file->why);
    else
        err_set(&file->why, ERR_INVALID, KUBEADM ": the response has no resourceVersion");
}

void facts_read_kubeadm(struct facts *f)
{
    cleanup_reply struct httpc_reply reply = {0};
    f->kubeadm.path = xstrdup(KUBEADM);
    if (call_api(f, kubeadm_path, SPAN(""), &reply, &f->kubeadm.why) == 0)
        facts_decode_kubeadm(buf_span(&reply.body), f);
}

int facts_write_kubeadm(const struct facts *f, struct span text, struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0};
    json_auto_t *j =
        json_pack("{s{ss}s{ss%}}", "metadata", "resourceVersion", f->kubeadm_version,
                  "data", "ClusterConfiguration", text.p, text.n);
    cleanup_free char *body = json_dumps(j, JSON_COMPACT);
    return body ? call_api(f, kubeadm_path, span_of(body), &reply, err)
                : err_set(err, ERR_INVALID, KUBEADM ": not UTF-8");
}

/* -- the extender and kube-scheduler -- */

/* A client of the server at `base`. Without a CA it does not verify the server's certificate,
 * as kube-scheduler. New. */
static struct httpc *connect_to(const char *base, const struct httpc_config *tls,
                                struct err *err)
{
    struct httpc_config config = *tls;
    config.url = base;
    config.insecure = !tls->ca_pem.n;
    config.user_agent = "gpushare-setup";
    config.connect_ms = CONNECT_MS;
    return httpc_new(&config, err);
}

static int send_request(struct httpc *http, const char *path, struct span body,
                        struct httpc_reply *reply, struct err *err)
{
    const struct httpc_request request = {.method = body.n ? "POST" : "GET",
                                          .path = path,
                                          .body = body,
                                          .content_type =
                                              body.n ? "application/json" : NULL,
                                          .timeout_ms = ANSWER_MS};
    return httpc_call(http, &request, BODY_MAX, reply, err);
}

/* As planned: the certificate that the changes leave or put there is the administrator's
 * own, or that of the Secret, or without a Secret the files on the node. */
void facts_reach(struct facts *f, bool planned)
{
    static const char pod[] = "{\"Pod\":{\"metadata\":{\"name\":\"gpushare-setup\","
                              "\"namespace\":\"kube-system\",\"uid\":\"gpushare-setup\"},"
                              "\"spec\":{\"containers\":[]}},\"Nodes\":null,"
                              "\"NodeNames\":[]}";
    const bool own =
        !planned || !f->secret.data[SECRET_CERT].n || facts_has_own_certificate(f->entry);
    const bool renamed = planned && f->namespace && facts_has_our_certificate(f->entry);
    const char *verb = jpath_string(f->entry, "filterVerb");
    cleanup_free char *server = facts_server_name(f);
    const char *name =
        own && !renamed ? jpath_string(f->entry, "tlsConfig.serverName") : server;
    struct httpc_config tls = {0};
    struct span pem[SECRET_KEYS];
    for (int i = 0; i < SECRET_KEYS; i++)
        pem[i] = buf_span(own ? &f->named[i].bytes : &f->secret.data[i]);
    if (!planned || !f->insecure)
        tls = (struct httpc_config){.ca_pem = pem[SECRET_CA],
                                    .cert_pem = pem[SECRET_CERT],
                                    .key_pem = pem[SECRET_KEY],
                                    .server_name = *name ? name : NULL};
    f->url =
        planned ? facts_planned_url(f) : xstrdup(jpath_string(f->entry, "urlPrefix"));
    if (!planned && !f->entry)
        return;
    const char *host = strstr(f->url, "://");
    const char *prefix = host ? strchrnul(host + 3, '/') : "";
    cleanup_free char *base = xmemdup0(f->url, strlen(f->url) - strlen(prefix));
    size_t n = strlen(prefix);
    while (n && prefix[n - 1] == '/')
        n--;
    cleanup_free char *path =
        xasprintf("%.*s/%s", (int)n, prefix, *verb ? verb : "filter");
    cleanup_reply struct httpc_reply reply = {0}, version = {0};
    struct httpc *http = connect_to(base, &tls, &f->detail);
    int rc = http ? send_request(http, path, span_of(pod), &reply, &f->detail) : -1;
    json_auto_t *j = rc ? NULL : jpath_read(buf_span(&reply.body), NULL), *v = NULL;
    if (rc) {
        f->answer = FACTS_REACH_NO_ANSWER;
    } else if (reply.status == 200 && json_object_get(j, "NodeNames") &&
               json_object_get(j, "FailedNodes")) {
        /* Only this project's extender returns its version as JSON. */
        if (send_request(http, "/version", SPAN(""), &version, NULL) == 0)
            v = jpath_read(buf_span(&version.body), NULL);
        f->answer =
            *jpath_string(v, "version") ? FACTS_REACH_OK : FACTS_REACH_GO_EXTENDER;
    } else {
        const char *error = jpath_string(j, "Error");
        error = *error ? error : jpath_string(j, "error");
        f->answer = reply.status == 503 ? FACTS_REACH_NOT_READY : FACTS_REACH_REJECTED;
        err_set(&f->detail, ERR_UNAVAILABLE, "HTTP status %u%s%s", reply.status,
                *error ? ": " : "", error);
    }
    httpc_free(http);
}

/* Of 0.0.0.0 and [::], which kube-scheduler can be bound to, connections go to this machine. */
bool facts_is_healthy(const struct facts *f, struct err *err)
{
    const char *port = facts_option(f, "secure-port");
    const char *host = facts_option(f, "bind-address");
    host = host && *host ? host : "127.0.0.1";
    cleanup_free char *url = xasprintf("https://" STR_HOST ":%s", STR_HOST_ARG(host),
                                       port && *port ? port : "10259");
    const struct httpc_config unverified = {0};
    cleanup_reply struct httpc_reply reply = {0};
    struct httpc *http = connect_to(url, &unverified, err);
    int rc = http ? send_request(http, "/healthz", SPAN(""), &reply, err) : -1;
    if (rc == 0 && reply.status != 200)
        rc = err_set(err, ERR_UNAVAILABLE, "%s/healthz: HTTP status %u", url,
                     reply.status);
    httpc_free(http);
    return rc == 0;
}

/* -- conclusions -- */

char *facts_server_name(const struct facts *f)
{
    return xasprintf(SERVICE ".%s.svc", namespace_of(f));
}

bool facts_has_our_certificate(const json_t *entry)
{
    for (int i = 0; i < SECRET_KEYS; i++)
        if (strcmp(jpath_string(entry, facts_tls_names[i].member),
                   facts_tls_names[i].path))
            return false;
    return true;
}

bool facts_has_own_certificate(const json_t *entry)
{
    return !facts_has_our_certificate(entry) &&
           !strncmp(jpath_string(entry, "urlPrefix"), "https://", 8) &&
           (*jpath_string(entry, "tlsConfig.certFile") ||
            *jpath_string(entry, "tlsConfig.certData"));
}

char *facts_planned_url(const struct facts *f)
{
    const char *old = strstr(jpath_string(f->entry, "urlPrefix"), "://");
    const char *scheme = f->insecure ? "http" : "https";
    if (f->address)
        return xasprintf("%s://%s" FACTS_VERBS, scheme, f->address);
    return old ? xasprintf("%s%s", scheme, old)
               : xasprintf("%s://127.0.0.1:%lld" FACTS_VERBS, scheme,
                           f->node_port ?: FACTS_NODE_PORT);
}

const struct facts_file *facts_newer_file(const struct facts *f)
{
    const struct facts_file *const files[] = {&f->config, &f->named[SECRET_CA]};
    bool reads = f->pid && facts_option(f, "config");
    for (size_t i = 0; reads && i < ARRAY_LEN(files); i++)
        if (f->started_ns < files[i]->changed_ns - SLACK_NS)
            return files[i];
    return NULL;
}
