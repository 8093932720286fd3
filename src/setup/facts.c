/* SPDX-License-Identifier: Apache-2.0 */

/* Reads what the checks and the changes need: files and processes of the node, objects of
 * the API server, and the extender's answer. */

#include "setup/facts.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kube/client.h"
#include "kube/tls_secret.h"
#include "setup/edit.h"
#include "wire/httpc.h"
#include "wire/tls.h"
#include "wire/x509.h"
#include "wire/yaml.h"

#define KUBELET   "/var/lib/kubelet/config.yaml"
#define MANIFESTS "/etc/kubernetes/manifests"
#define ADMIN     "/etc/kubernetes/admin.conf"
#define SECRET    "Secret " FACTS_SECRET

enum {
    FILE_MAX = 1 << 20,
    PROC_MAX = 256 * 1024,
    START_FIELD = 19,            /* starttime, counted from the state */
    SLACK_NS = 20 * 1000 * 1000, /* more than the error of a process's start */
    API_MS = 10 * 1000,
    CONNECT_MS = 3000,
    ANSWER_MS = 5000,
    HEALTH_MS = 2000,
    BODY_MAX = 64 * 1024
};

static const struct {
    enum kube_tls_key key;
    const char *name, *member, *path;
} tls_files[FACTS_TLS_FILES] = {
    [FACTS_CA] = {KUBE_TLS_CA, "ca.crt", "caFile", FACTS_TLS_DIR "/ca.crt"},
    [FACTS_CERT] = {KUBE_TLS_CERT, "tls.crt", "certFile", FACTS_TLS_DIR "/client.crt"},
    [FACTS_KEY] = {KUBE_TLS_KEY, "tls.key", "keyFile", FACTS_TLS_DIR "/client.key"},
};

const char *facts_tls_member(int file)
{
    return tls_files[file].member;
}

const char *facts_tls_path(int file)
{
    return tls_files[file].path;
}

void facts_file_fini(struct facts_file *file)
{
    free(file->path);
    buf_fini(&file->bytes);
    json_decref(file->json);
}

void facts_fini(struct facts *f)
{
    free(f->manifests);
    for (size_t i = 0; i < f->n_files; i++)
        facts_file_fini(&f->files[i]);
    free(f->files);
    for (size_t i = 0; i < f->n_processes; i++)
        buf_fini(&f->processes[i].arguments);
    free(f->processes);
    facts_file_fini(&f->config);
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        facts_file_fini(&f->tls[i]);
        tls_wipe(&f->secret[i]);
    }
    json_decref(f->version);
    json_decref(f->pods);
    *f = (struct facts){0};
}

void facts_file_parse(struct facts_file *file)
{
    cleanup_yaml struct yaml *y =
        yaml_parse(file->path, file->bytes.p, file->bytes.n, &file->why);
    cleanup_buf struct buf text = {0};
    json_error_t bad;
    if (!y)
        return;
    if (yaml_count(y) != 1 || !yaml_document(y, 0)) {
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path,
                yaml_count(y) > 1 ? "more than one document" : "empty");
        return;
    }
    yaml_json(yaml_document(y, 0), &text);
    file->json = json_loadb(text.p, text.n, 0, &bad);
    if (!file->json)
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path, bad.text);
    else if (!json_is_object(file->json))
        err_set(&file->why, ERR_INVALID, "%s: not a mapping", file->path);
}

const char *facts_namespace(const struct facts *f)
{
    return f->namespace ? f->namespace : "kube-system";
}

char *facts_server_name(const struct facts *f)
{
    return xasprintf("gpushare-schd-extender.%s.svc", facts_namespace(f));
}

const struct facts_file *facts_manifest(const struct facts *f,
                                        struct scheduler_config_pod *pod)
{
    const struct facts_file *first = NULL;
    struct scheduler_config_pod other;
    for (size_t i = 0; i < f->n_files; i++) {
        if (!f->files[i].json || !scheduler_config_read_pod(f->files[i].json, &other))
            continue;
        bool kubeadm = !strcmp(other.name, "kube-scheduler");
        if (first && !kubeadm)
            continue;
        first = &f->files[i];
        *pod = other;
        if (kubeadm)
            break;
    }
    return first;
}

const struct facts_process *facts_scheduler(const struct facts *f,
                                            const struct scheduler_config_pod *pod)
{
    const struct facts_process *youngest = NULL;
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        if (scheduler_config_is_process(pod, buf_span(&p->arguments)) &&
            (!youngest || p->started_ns > youngest->started_ns))
            youngest = p;
    }
    return youngest;
}

static bool is_older(const struct facts_process *p, const struct facts_file *file)
{
    return p->started_ns < file->changed_ns - SLACK_NS;
}

const struct facts_file *facts_newer_file(const struct facts *f,
                                          const struct facts_process *p)
{
    const struct facts_file *ca = &f->tls[FACTS_CA];
    if (is_older(p, &f->config))
        return &f->config;
    return ca->path && is_older(p, ca) ? ca : NULL;
}

int facts_minor(const struct facts *f, const struct scheduler_config_pod *pod)
{
    if (pod->minor)
        return pod->minor;
    return scheduler_config_minor(edit_string(f->version, "gitVersion"));
}

/* -- files and processes -- */

static void read_bytes(struct facts_file *file)
{
    struct stat st;
    if (stat(file->path, &st)) {
        enum err_code code = errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND
                             : errno == EACCES                   ? ERR_FORBIDDEN
                                                                 : ERR_UNAVAILABLE;
        err_set(&file->why, code, "%s: %m", file->path);
        return;
    }
    file->changed_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
    if (!S_ISREG(st.st_mode))
        err_set(&file->why, ERR_UNAVAILABLE, "%s: %s", file->path,
                S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file");
    else
        file_read(file->path, FILE_MAX, &file->bytes, &file->why);
}

static void read_yaml(struct facts_file *file)
{
    read_bytes(file);
    if (file->why.code == ERR_NONE)
        facts_file_parse(file);
}

/* The kubelet's staticPodPath. */
static char *manifests_of(const char *root)
{
    struct facts_file kubelet = {.path = xasprintf("%s%s", root, KUBELET)};
    read_yaml(&kubelet);
    const char *path = edit_string(kubelet.json, "staticPodPath");
    char *out = xasprintf("%s%s", root, *path == '/' ? path : MANIFESTS);
    facts_file_fini(&kubelet);
    return out;
}

static bool is_of_scheduler(const struct facts_file *file)
{
    struct scheduler_config_pod pod;
    if (file->json)
        return scheduler_config_read_pod(file->json, &pod);
    return strstr(strrchr(file->path, '/'), "scheduler") ||
           (file->bytes.n && memmem(file->bytes.p, file->bytes.n, "kube-scheduler",
                                    strlen("kube-scheduler")));
}

static void add_file(struct facts *f, const char *name)
{
    struct facts_file file = {.path = xasprintf("%s/%s", f->manifests, name)};
    struct stat st;
    /* The kubelet also reads regular files only. */
    if (stat(file.path, &st) == 0 && S_ISREG(st.st_mode))
        read_yaml(&file);
    if ((!file.why.code && !file.json) || !is_of_scheduler(&file)) {
        facts_file_fini(&file);
        return;
    }
    f->files = xreallocarray(f->files, f->n_files + 1, sizeof *f->files);
    f->files[f->n_files++] = file;
}

static void read_manifests(const char *root, struct facts *f)
{
    struct dirent **names;
    f->manifests = manifests_of(root);
    int n = scandir(f->manifests, &names, NULL, alphasort);
    if (n < 0) {
        err_set(&f->manifests_why,
                errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_FORBIDDEN,
                "%s: %m", f->manifests);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') /* the kubelet skips these, too */
            add_file(f, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* A file by its path in the container. False: not mounted. */
static bool file_of(const char *root, const struct scheduler_config_pod *pod,
                    const char *inside, struct facts_file *out)
{
    cleanup_buf struct buf path = {0};
    bool mounted = scheduler_config_host_path(pod, inside, &path);
    out->path = mounted ? xasprintf("%s%s", root, path.p) : xstrdup(inside);
    if (!mounted)
        err_set(&out->why, ERR_NOT_FOUND,
                "%s is not mounted in the container of kube-scheduler", inside);
    return mounted;
}

static void read_config(const char *root, struct facts *f)
{
    struct scheduler_config_pod pod;
    const char *inside =
        facts_manifest(f, &pod) ? scheduler_config_option(&pod, "config") : NULL;
    if (!inside || !*inside)
        return;
    f->config_mounted = file_of(root, &pod, inside, &f->config);
    if (!f->config_mounted)
        return;
    read_yaml(&f->config);
    const json_t *ours = scheduler_config_extender(f->config.json);
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_free char *member = xasprintf("tlsConfig.%s", facts_tls_member(i));
        const char *named = edit_string(ours, member);
        if (*named && file_of(root, &pod, named, &f->tls[i]))
            read_bytes(&f->tls[i]);
    }
}

/* The distribution by its folders. A static pod of kubeadm counts, whatever else was
 * installed on the node once; that of OpenShift has another name. */
static void find_distribution(const char *root, struct facts *f)
{
    static const struct {
        const char *path, *name;
    } folders[] = {{"/etc/kubernetes/static-pod-resources", "OpenShift"},
                   {"/var/lib/rancher/rke2", "RKE2"},
                   {"/etc/rancher/rke2", "RKE2"},
                   {"/var/lib/rancher/k3s", "k3s"},
                   {"/etc/rancher/k3s", "k3s"}};
    struct scheduler_config_pod pod;
    struct stat st;
    if (facts_manifest(f, &pod) && !strcmp(pod.name, "kube-scheduler"))
        return;
    for (size_t i = 0; i < ARRAY_LEN(folders) && !f->distribution; i++) {
        cleanup_free char *path = xasprintf("%s%s", root, folders[i].path);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            f->distribution = folders[i].name;
    }
}

static bool read_of(const char *proc, const char *pid, const char *name, struct buf *out)
{
    cleanup_free char *path = xasprintf("%s/%s/%s", proc, pid, name);
    return file_read(path, PROC_MAX, out, NULL) == 0 && out->n;
}

/* The start of the process on the wall clock, exact to a tick. (The btime of /proc/stat
 * has whole seconds only.) */
static bool read_start(const char *proc, const char *pid, int64_t *ns)
{
    cleanup_buf struct buf stat = {0};
    struct timespec up;
    int64_t ticks = 0;
    if (!read_of(proc, pid, "stat", &stat))
        return false;
    const char *end = memrchr(stat.p, ')', stat.n);
    struct span rest = span_of(end && end[1] ? end + 2 : NULL), field = {0};
    for (int i = 0; i <= START_FIELD; i++)
        field = span_cut(&rest, ' ');
    if (!span_i64(field, &ticks) || clock_gettime(CLOCK_BOOTTIME, &up))
        return false;
    int64_t hz = sysconf(_SC_CLK_TCK);
    int64_t up_ns = up.tv_sec * INT64_C(1000000000) + up.tv_nsec;
    *ns = clock_wall_ns() - up_ns + ticks * (1000000000 / (hz > 0 ? hz : 100));
    return true;
}

static void add_process(const char *proc, const char *pid, struct facts *f)
{
    cleanup_buf struct buf name = {0};
    struct facts_process p = {.pid = atoi(pid)};
    if (!read_of(proc, pid, "comm", &name) ||
        !span_eq(span_trim(buf_span(&name)), SPAN("kube-scheduler")))
        return;
    /* A zombie has no arguments. */
    if (!read_of(proc, pid, "cmdline", &p.arguments) ||
        !read_start(proc, pid, &p.started_ns)) {
        buf_fini(&p.arguments);
        return;
    }
    f->processes = xreallocarray(f->processes, f->n_processes + 1, sizeof *f->processes);
    f->processes[f->n_processes++] = p;
}

static void read_processes(const char *proc, struct facts *f)
{
    DIR *dir = opendir(proc);
    if (!dir) {
        err_set(&f->processes_why, ERR_UNAVAILABLE, "%s: %m", proc);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));)
        if (*e->d_name >= '1' && *e->d_name <= '9')
            add_process(proc, e->d_name, f);
    closedir(dir);
}

void facts_read_host(const char *root, const char *proc, struct facts *f)
{
    f->now_s = clock_wall_ns() / 1000000000;
    read_manifests(root, f);
    find_distribution(root, f);
    if (f->distribution || f->manifests_why.code != ERR_NONE)
        return;
    read_config(root, f);
    read_processes(proc, f);
}

/* -- the API server -- */

/* The body of a successful answer. */
static int get(struct kube_client *client, const char *path, struct httpc_reply *reply,
               struct err *err)
{
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = API_MS};
    if (kube_call(client, &request, reply, err))
        return -1;
    return kube_reply_check(reply->status, buf_span(&reply->body), err);
}

/* The body as JSON; NULL: it is none. New. */
static json_t *json_of(const struct httpc_reply *reply)
{
    return json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL);
}

static json_t *get_json(struct kube_client *client, const char *path, struct err *err)
{
    struct httpc_reply reply = {0};
    json_t *j = NULL;
    if (get(client, path, &reply, err) == 0 && !(j = json_of(&reply)))
        err_set(err, ERR_INVALID, "%s: the response is not JSON", path);
    httpc_reply_fini(&reply);
    return j;
}

int facts_read_secret(struct span json, struct facts *f, struct err *err)
{
    struct kube_tls_secret secret = {0};
    struct span pem[FACTS_TLS_FILES];
    int rc = kube_tls_secret_decode(json, &secret, err);
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        struct buf *from = &secret.data[tls_files[i].key];
        if (rc == 0 && !from->n)
            rc = err_set(err, ERR_INVALID, SECRET " has no %s", tls_files[i].name);
        pem[i] = buf_span(from);
    }
    if (rc == 0 && x509_read_pair(pem[FACTS_CERT], pem[FACTS_KEY], NULL, err))
        rc = err_wrap(err, SECRET);
    if (rc == 0 && !x509_is_issued_by(pem[FACTS_CERT], pem[FACTS_CA]))
        rc = err_set(err, ERR_INVALID, SECRET ": tls.crt is not signed by ca.crt");
    for (int i = 0; rc == 0 && i < FACTS_TLS_FILES; i++) {
        struct buf *from = &secret.data[tls_files[i].key];
        tls_wipe(&f->secret[i]);
        f->secret[i] = *from;
        *from = (struct buf){0};
    }
    kube_tls_secret_fini(&secret);
    return rc;
}

void facts_read_cluster(const struct facts_api *api, struct facts *f)
{
    cleanup_free char *admin = xasprintf("%s" ADMIN, api->root);
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/secrets/" FACTS_SECRET, facts_namespace(f));
    struct httpc_reply reply = {0};
    struct kube_client *client = NULL;
    const char *config = api->kubeconfig;
    if (!config && access(admin, R_OK) == 0)
        config = admin;
    if (api->none)
        err_set(&f->cluster_why, ERR_UNAVAILABLE, "--no-cluster");
    else
        client = kube_connect(config, api->context, &f->cluster_why);
    if (!client)
        return;
    f->version = get_json(client, "/version", &f->cluster_why);
    if (f->version) {
        struct err why = {0};
        f->pods = get_json(client, "/api/v1/namespaces/kube-system/pods", &why);
        f->secret_read = true;
        if (get(client, path, &reply, &f->secret_why) == 0)
            facts_read_secret(buf_span(&reply.body), f, &f->secret_why);
        tls_wipe(&reply.body);
        httpc_reply_fini(&reply);
    }
    kube_client_free(client);
}

/* -- the extender and kube-scheduler -- */

static const char filter_body[] =
    "{\"Pod\":{\"metadata\":{\"name\":\"gpushare-setup\",\"namespace\":\"kube-system\","
    "\"uid\":\"gpushare-setup\"},\"spec\":{\"containers\":[]}},\"Nodes\":null,"
    "\"NodeNames\":[]}";

/* A TLS client's files; empty or NULL: none. Without `ca` the server's certificate is not
 * verified, as by kube-scheduler. */
struct tls_client {
    struct span ca, cert, key;
    const char *server_name;
};

static struct httpc *connect_to(const struct scheduler_config_url *url,
                                const struct tls_client *tls, struct err *err)
{
    cleanup_buf struct buf base = {0};
    scheduler_config_url_base(url, &base);
    const struct httpc_config config = {.url = base.p,
                                        .ca_pem = tls->ca,
                                        .cert_pem = tls->cert,
                                        .key_pem = tls->key,
                                        .server_name = tls->server_name,
                                        .insecure = !tls->ca.n,
                                        .user_agent = "gpushare-setup",
                                        .connect_ms = CONNECT_MS};
    return httpc_new(&config, err);
}

static int send_request(struct httpc *http, const char *method, const char *path,
                        struct span text, struct httpc_reply *reply, struct err *err)
{
    const struct httpc_request request = {.method = method,
                                          .path = path,
                                          .body = text,
                                          .content_type =
                                              text.n ? "application/json" : NULL,
                                          .timeout_ms = ANSWER_MS};
    return httpc_call(http, &request, BODY_MAX, reply, err);
}

/* Only this project's extender returns its version as JSON. */
static bool is_ours(struct httpc *http)
{
    struct httpc_reply reply = {0};
    if (send_request(http, "GET", "/version", SPAN(""), &reply, NULL))
        return false;
    json_t *j = json_of(&reply);
    bool ours = reply.status == 200 && json_is_string(edit_value(j, "version"));
    json_decref(j);
    httpc_reply_fini(&reply);
    return ours;
}

/* Is our extender there, with `tls` or without, if its certificate is not verified? */
static bool is_ours_at(const struct scheduler_config_url *url, bool tls,
                       const struct tls_client *credentials)
{
    const struct tls_client unverified = {.cert = credentials->cert,
                                          .key = credentials->key};
    struct scheduler_config_url other = *url;
    other.tls = tls;
    struct httpc *http = connect_to(&other, &unverified, NULL);
    bool ours = http && is_ours(http);
    httpc_free(http);
    return ours;
}

/* An answer of HTTP: who gives it, and what it says. */
static void classify_reply(struct facts_reach *r, struct httpc *http,
                           const struct httpc_reply *reply)
{
    json_t *j = json_of(reply);
    bool result = reply->status == 200 && json_object_get(j, "NodeNames") &&
                  json_object_get(j, "FailedNodes");
    const char *error = edit_string(j, "Error");
    error = *error ? error : edit_string(j, "error");
    if (!is_ours(http))
        r->answer = result ? FACTS_REACH_GO_EXTENDER : FACTS_REACH_OTHER_PROGRAM;
    else
        r->answer = result                 ? FACTS_REACH_OK
                    : reply->status == 503 ? FACTS_REACH_NOT_READY
                    : reply->status == 401 ? FACTS_REACH_NO_CREDENTIALS
                    : reply->status == 403 ? FACTS_REACH_FORBIDDEN
                                           : FACTS_REACH_WRONG_PATH;
    if (!result)
        err_set(&r->detail, ERR_UNAVAILABLE, "HTTP status %u%s%s", reply->status,
                *error ? ": " : "", error);
    json_decref(j);
}

/* Calls the extender at f->reach.url. */
static void call_extender(struct facts *f, const json_t *ours,
                          const struct tls_client *tls)
{
    struct facts_reach *r = &f->reach;
    const char *verb = edit_string(ours, "filterVerb");
    cleanup_free char *path = xasprintf("%s/%s", r->url.path, *verb ? verb : "filter");
    struct httpc_reply reply = {0};
    struct httpc *http = connect_to(&r->url, tls, &r->detail);
    r->answer = FACTS_REACH_NO_ANSWER;
    if (!http)
        return;
    if (send_request(http, "POST", path, span_of(filter_body), &reply, &r->detail) == 0)
        classify_reply(r, http, &reply);
    else if (r->url.tls && is_ours_at(&r->url, true, tls))
        r->answer = FACTS_REACH_UNTRUSTED;
    else if (is_ours_at(&r->url, !r->url.tls, tls))
        r->answer = r->url.tls ? FACTS_REACH_WANTS_HTTP : FACTS_REACH_WANTS_HTTPS;
    httpc_reply_fini(&reply);
    httpc_free(http);
}

/* The entry's own files and its name. */
static struct tls_client entry_tls(const struct facts *f, const json_t *ours)
{
    const char *name = edit_string(ours, "tlsConfig.serverName");
    return (struct tls_client){buf_span(&f->tls[FACTS_CA].bytes),
                               buf_span(&f->tls[FACTS_CERT].bytes),
                               buf_span(&f->tls[FACTS_KEY].bytes), *name ? name : NULL};
}

void facts_reach_configured(struct facts *f)
{
    const json_t *ours = scheduler_config_extender(f->config.json);
    struct tls_client tls = entry_tls(f, ours);
    if (ours &&
        !scheduler_config_read_url(edit_string(ours, "urlPrefix"), &f->reach.url, NULL))
        call_extender(f, ours, &tls);
}

/* The certificate that the changes leave or put there is the administrator's own, or that
 * of the Secret, or without a Secret the files on the node. */
void facts_reach_planned(struct facts *f, const char *address, bool insecure)
{
    const json_t *ours = scheduler_config_extender(f->config.json);
    const char *cert = edit_string(ours, "tlsConfig.certFile");
    cleanup_free char *server = facts_server_name(f);
    cleanup_free char *url =
        xasprintf("http://%s/gpushare-scheduler", address ? address : "127.0.0.1:32766");
    bool known = scheduler_config_read_url(edit_string(ours, "urlPrefix"), &f->reach.url,
                                           NULL) == 0;
    if ((!known || address) && scheduler_config_read_url(url, &f->reach.url, NULL))
        return;
    f->reach.url.tls = !insecure;
    struct tls_client tls = {buf_span(&f->secret[FACTS_CA]),
                             buf_span(&f->secret[FACTS_CERT]),
                             buf_span(&f->secret[FACTS_KEY]), server};
    if (insecure)
        tls = (struct tls_client){0};
    else if (!tls.cert.n || (*cert && strcmp(cert, facts_tls_path(FACTS_CERT))))
        tls = entry_tls(f, ours);
    call_extender(f, ours, &tls);
}

bool facts_is_healthy(const struct scheduler_config_pod *pod, struct err *err)
{
    const char *port = scheduler_config_option(pod, "secure-port");
    const char *host = scheduler_config_option(pod, "bind-address");
    bool any = !host || !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
    bool ipv6 = !any && strchr(host, ':');
    cleanup_free char *url =
        xasprintf("https://%s%s%s:%s", ipv6 ? "[" : "", any ? "127.0.0.1" : host,
                  ipv6 ? "]" : "", port && *port ? port : "10259");
    const struct httpc_config config = {.url = url,
                                        .insecure = true,
                                        .user_agent = "gpushare-setup",
                                        .connect_ms = HEALTH_MS};
    const struct httpc_request request = {
        .method = "GET", .path = "/healthz", .timeout_ms = HEALTH_MS};
    struct httpc_reply reply = {0};
    struct httpc *http = httpc_new(&config, err);
    if (!http)
        return false;
    int rc = httpc_call(http, &request, FILE_MAX, &reply, err);
    if (rc == 0 && reply.status != 200)
        err_set(err, ERR_UNAVAILABLE, "%s/healthz: HTTP status %u", url, reply.status);
    bool healthy = rc == 0 && reply.status == 200;
    httpc_reply_fini(&reply);
    httpc_free(http);
    return healthy;
}
