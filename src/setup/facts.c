/* SPDX-License-Identifier: Apache-2.0 */

/* Reads what the checks and the changes need: files and processes of the node, the Secret
 * of the API server, and the extender's answer. */

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
#include "kube/secret.h"
#include "setup/edit.h"
#include "wire/httpc.h"
#include "wire/x509.h"

#define KUBELET   "/var/lib/kubelet/config.yaml"
#define MANIFESTS "/etc/kubernetes/manifests"
#define ADMIN     "/etc/kubernetes/admin.conf"

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

const struct facts_tls_name facts_tls_names[FACTS_TLS_FILES] = {
    [FACTS_CA] = {"tlsConfig.caFile", FACTS_TLS_DIR "/ca.crt"},
    [FACTS_CERT] = {"tlsConfig.certFile", FACTS_TLS_DIR "/client.crt"},
    [FACTS_KEY] = {"tlsConfig.keyFile", FACTS_TLS_DIR "/client.key"},
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
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        file_fini(&f->named[i]);
        file_fini(&f->tls[i]);
        buf_wipe(&f->secret[i]);
    }
    free(f->url);
    *f = (struct facts){0};
}

/* -- the static pod -- */

/* The i-th word of command and args; NULL after the last. */
static const char *word_at(const json_t *container, size_t i)
{
    const json_t *command = edit_value(container, "command");
    size_t n = json_array_size(command);
    const json_t *word = i < n ? json_array_get(command, i)
                               : json_array_get(edit_value(container, "args"), i - n);
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

/* The rest of `path` below `mount`, a folder or the file itself; NULL: not below it. */
static const char *below(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    while (n > 1 && mount[n - 1] == '/')
        n--;
    if (n == 1 && *mount == '/')
        return path;
    if (!n || strncmp(path, mount, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path + n;
}

/* The path on the node of a path in the container, by its hostPath volumes. Without such a
 * volume, *mounted is false, and the path is the same. New. */
static char *path_on_node(const struct facts *f, const char *root, const char *path,
                          bool *mounted)
{
    const json_t *mounts = edit_value(f->container, "volumeMounts"),
                 *volumes = edit_value(f->manifest.json, "spec.volumes"), *best = NULL;
    const char *rest = NULL, *from = NULL;
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const json_t *mount = json_array_get(mounts, i);
        const char *r = below(path, edit_string(mount, "mountPath"));
        if (r && (!rest || strlen(r) <= strlen(rest))) {
            rest = r;
            best = mount;
        }
    }
    for (size_t i = 0; best && !from && i < json_array_size(volumes); i++) {
        const json_t *volume = json_array_get(volumes, i);
        if (!strcmp(edit_string(volume, "name"), edit_string(best, "name")))
            from = json_string_value(edit_value(volume, "hostPath.path"));
    }
    *mounted = from != NULL;
    const char *sub = edit_string(best, "subPath");
    return from ? xasprintf("%s%s%s%s%s", root, from, *sub ? "/" : "", sub, rest)
                : xasprintf("%s%s", root, path);
}

/* -- files -- */

static void read_file(struct facts_file *file)
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
    file->json = edit_parse(file->path, buf_span(&file->bytes), NULL, &file->why);
    if (file->json && !json_is_object(file->json))
        err_set(&file->why, ERR_INVALID, "%s: not a mapping", file->path);
}

/* One file of the kubelet's folder. kubeadm's pod is recognized by its name, which the
 * static pods of other distributions and second schedulers do not have. */
static void read_manifest(const char *folder, const char *name, struct facts *f)
{
    struct facts_file file = {.path = xasprintf("%s/%s", folder, name)};
    struct stat st;
    /* The kubelet also reads regular files only. */
    if (stat(file.path, &st) == 0 && S_ISREG(st.st_mode))
        read_yaml(&file);
    static const char ours[] = "kube-scheduler";
    bool unreadable =
        file.why.code != ERR_NONE &&
        (strstr(name, "scheduler") ||
         (file.bytes.n && memmem(file.bytes.p, file.bytes.n, ours, strlen(ours))));
    bool found = file.why.code == ERR_NONE &&
                 !strcmp(edit_string(file.json, "metadata.name"), ours) &&
                 edit_value(file.json, "spec.containers.0");
    if (f->manifest.why.code == ERR_NONE && unreadable) {
        f->manifest.why = file.why;
    } else if (found && f->manifest.path) {
        err_set(&f->manifest.why, ERR_CONFLICT,
                "%s and %s are the same static pod: move one of them out of the folder",
                f->manifest.path, file.path);
    } else if (found) {
        file.why = f->manifest.why;
        f->manifest = file;
        return;
    }
    file_fini(&file);
}

/* The static pod, in the kubelet's staticPodPath. The kubelet runs every file of the
 * folder, whatever its suffix: a malformed or second one may be the one that runs. */
static void read_manifests(const char *root, struct facts *f)
{
    struct facts_file kubelet = {.path = xasprintf("%s%s", root, KUBELET)};
    struct dirent **names;
    read_yaml(&kubelet);
    const char *path = edit_string(kubelet.json, "staticPodPath");
    cleanup_free char *folder = xasprintf("%s%s", root, *path == '/' ? path : MANIFESTS);
    file_fini(&kubelet);
    int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0) {
        err_set(&f->manifest.why,
                errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_FORBIDDEN,
                "%s: %m", folder);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') /* the kubelet skips these, too */
            read_manifest(folder, names[i]->d_name, f);
        free(names[i]);
    }
    free(names);
    f->container = edit_value(f->manifest.json, "spec.containers.0");
    if (!f->container && f->manifest.why.code == ERR_NONE)
        err_set(&f->manifest.why, ERR_NOT_FOUND, "%s has no static pod kube-scheduler",
                folder);
}

/* The extender's entry, recognized by its urlPrefix or its managedResources. */
static const json_t *find_entry(const json_t *config)
{
    const json_t *list = edit_value(config, "extenders"), *second = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *extender = json_array_get(list, i),
                     *managed = edit_value(extender, "managedResources");
        const char *url = edit_string(extender, "urlPrefix");
        bool ours = strstr(url, ":32766") != NULL;
        if (strstr(url, FACTS_VERBS))
            return extender;
        for (size_t k = 0; k < json_array_size(managed); k++)
            ours |= span_starts(span_of(edit_string(json_array_get(managed, k), "name")),
                                SPAN("aliyun.com/gpu-"));
        if (!second && ours)
            second = extender;
    }
    return second;
}

/* -- processes -- */

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

/* Of several processes with the pod's command, the youngest counts. */
static void read_process(const char *proc, const char *pid, struct facts *f)
{
    cleanup_buf struct buf name = {0}, line = {0};
    const char *word;
    int64_t started_ns;
    bool same = true;
    /* A zombie has no arguments. */
    if (!read_of(proc, pid, "comm", &name) ||
        !span_eq(span_trim(buf_span(&name)), SPAN("kube-scheduler")) ||
        !read_of(proc, pid, "cmdline", &line) || !read_start(proc, pid, &started_ns))
        return;
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

void facts_read_node(const char *root, const char *proc, struct facts *f)
{
    f->now_s = clock_wall_ns() / 1000000000;
    read_manifests(root, f);
    if (!f->container)
        return;
    const char *inside = facts_option(f, "config");
    f->config.path = path_on_node(f, root, inside && *inside ? inside : FACTS_CONFIG,
                                  &f->config.mounted);
    read_yaml(&f->config);
    if (inside)
        f->entry = find_entry(f->config.json);
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        struct facts_file *named = &f->named[i], *ours = &f->tls[i];
        const char *path = edit_string(f->entry, facts_tls_names[i].member);
        ours->path = path_on_node(f, root, facts_tls_names[i].path, &ours->mounted);
        read_file(ours);
        if (!*path)
            continue;
        named->path = path_on_node(f, root, path, &named->mounted);
        if (named->mounted)
            read_file(named);
        else
            err_set(&named->why, ERR_NOT_FOUND,
                    "%s is not mounted in the container of kube-scheduler", path);
    }
    DIR *dir = opendir(proc);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name >= '1' && *e->d_name <= '9')
            read_process(proc, e->d_name, f);
    if (dir)
        closedir(dir);
}

/* -- the API server -- */

int facts_decode_secret(struct span json, struct facts *f, struct err *err)
{
    static const struct {
        enum secret_key key;
        const char *name;
    } keys[FACTS_TLS_FILES] = {[FACTS_CA] = {SECRET_CA, "ca.crt"},
                               [FACTS_CERT] = {SECRET_CERT, "tls.crt"},
                               [FACTS_KEY] = {SECRET_KEY, "tls.key"}};
    struct secret secret = {0};
    struct span pem[FACTS_TLS_FILES];
    int rc = secret_decode(json, &secret, err);
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        pem[i] = buf_span(&secret.data[keys[i].key]);
        if (rc == 0 && !pem[i].n)
            rc = err_set(err, ERR_INVALID, "no %s", keys[i].name);
    }
    if (rc == 0)
        rc = x509_read_pair(pem[FACTS_CERT], pem[FACTS_KEY], NULL, err);
    if (rc == 0 && !x509_is_issued_by(pem[FACTS_CERT], pem[FACTS_CA]))
        rc = err_set(err, ERR_INVALID, "tls.crt is not signed by ca.crt");
    for (int i = 0; rc == 0 && i < FACTS_TLS_FILES; i++) {
        buf_wipe(&f->secret[i]);
        buf_add_span(&f->secret[i], pem[i]);
    }
    secret_fini(&secret);
    return rc;
}

void facts_read_secret(const char *root, const char *kubeconfig, const char *context,
                       struct facts *f)
{
    cleanup_free char *admin = xasprintf("%s" ADMIN, root);
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/secrets/" FACTS_SECRET, facts_namespace(f));
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = API_MS};
    struct httpc_reply reply = {0};
    if (!kubeconfig && access(admin, R_OK) == 0)
        kubeconfig = admin;
    struct kube_client *client = kube_connect(kubeconfig, context, &f->secret_why);
    int rc = client ? kube_call(client, &request, &reply, &f->secret_why) : -1;
    if (!client) /* also without a kubeconfig, which says nothing about the Secret */
        f->secret_why.code = ERR_UNAVAILABLE;
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), &f->secret_why);
    if (rc == 0)
        rc = facts_decode_secret(buf_span(&reply.body), f, &f->secret_why);
    if (rc)
        err_wrap(&f->secret_why, "Secret %s/" FACTS_SECRET, facts_namespace(f));
    buf_wipe(&reply.body);
    httpc_reply_fini(&reply);
    kube_client_free(client);
}

/* -- the extender and kube-scheduler -- */

/* A client of the server of `url`; *path is the rest. Without a CA it does not verify the
 * server's certificate, as kube-scheduler. New. */
static struct httpc *connect_to(const char *url, const struct httpc_config *tls,
                                const char **path, struct err *err)
{
    const char *host = strstr(url, "://");
    *path = host ? strchrnul(host + 3, '/') : "";
    cleanup_free char *base = xmemdup0(url, strlen(url) - strlen(*path));
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

/* The body as JSON; NULL: it is none. New. */
static json_t *json_of(const struct httpc_reply *reply)
{
    return json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL);
}

/* Calls the extender at f->url. */
static void call_extender(struct facts *f, const struct httpc_config *tls)
{
    static const char pod[] = "{\"Pod\":{\"metadata\":{\"name\":\"gpushare-setup\","
                              "\"namespace\":\"kube-system\",\"uid\":\"gpushare-setup\"},"
                              "\"spec\":{\"containers\":[]}},\"Nodes\":null,"
                              "\"NodeNames\":[]}";
    const char *verb = edit_string(f->entry, "filterVerb"), *prefix;
    struct httpc_reply reply = {0}, version = {0};
    json_t *j = NULL, *v = NULL;
    struct httpc *http = connect_to(f->url, tls, &prefix, &f->detail);
    size_t n = strlen(prefix);
    while (n && prefix[n - 1] == '/')
        n--;
    cleanup_free char *path =
        xasprintf("%.*s/%s", (int)n, prefix, *verb ? verb : "filter");
    f->answer = FACTS_REACH_NO_ANSWER;
    if (!http || send_request(http, path, span_of(pod), &reply, &f->detail))
        goto out;
    j = json_of(&reply);
    if (reply.status == 200 && json_object_get(j, "NodeNames") &&
        json_object_get(j, "FailedNodes")) {
        /* Only this project's extender returns its version as JSON. */
        if (send_request(http, "/version", SPAN(""), &version, NULL) == 0)
            v = json_of(&version);
        f->answer = *edit_string(v, "version") ? FACTS_REACH_OK : FACTS_REACH_GO_EXTENDER;
    } else {
        const char *error = edit_string(j, "Error");
        error = *error ? error : edit_string(j, "error");
        f->answer = reply.status == 503 ? FACTS_REACH_NOT_READY : FACTS_REACH_REJECTED;
        err_set(&f->detail, ERR_UNAVAILABLE, "HTTP status %u%s%s", reply.status,
                *error ? ": " : "", error);
    }
out:
    json_decref(j);
    json_decref(v);
    httpc_reply_fini(&reply);
    httpc_reply_fini(&version);
    httpc_free(http);
}

/* The entry's own files and its name. */
static struct httpc_config entry_tls(const struct facts *f)
{
    const char *name = edit_string(f->entry, "tlsConfig.serverName");
    return (struct httpc_config){.ca_pem = buf_span(&f->named[FACTS_CA].bytes),
                                 .cert_pem = buf_span(&f->named[FACTS_CERT].bytes),
                                 .key_pem = buf_span(&f->named[FACTS_KEY].bytes),
                                 .server_name = *name ? name : NULL};
}

void facts_reach_configured(struct facts *f)
{
    const struct httpc_config tls = entry_tls(f);
    if (!f->entry)
        return;
    f->url = xstrdup(edit_string(f->entry, "urlPrefix"));
    call_extender(f, &tls);
}

/* The certificate that the changes leave or put there is the administrator's own, or that
 * of the Secret, or without a Secret the files on the node. */
void facts_reach_planned(struct facts *f, const char *address, bool insecure)
{
    cleanup_free char *server = facts_server_name(f);
    struct httpc_config tls = {.ca_pem = buf_span(&f->secret[FACTS_CA]),
                               .cert_pem = buf_span(&f->secret[FACTS_CERT]),
                               .key_pem = buf_span(&f->secret[FACTS_KEY]),
                               .server_name = server};
    if (insecure)
        tls = (struct httpc_config){0};
    else if (!tls.cert_pem.n || facts_has_own_certificate(f))
        tls = entry_tls(f);
    f->url = facts_planned_url(f, address, insecure);
    call_extender(f, &tls);
}

bool facts_is_healthy(const struct facts *f, struct err *err)
{
    const char *port = facts_option(f, "secure-port");
    const char *host = facts_option(f, "bind-address");
    bool any = !host || !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
    bool ipv6 = !any && strchr(host, ':');
    cleanup_free char *url =
        xasprintf("https://%s%s%s:%s/healthz", ipv6 ? "[" : "", any ? "127.0.0.1" : host,
                  ipv6 ? "]" : "", port && *port ? port : "10259");
    const struct httpc_config unverified = {0};
    struct httpc_reply reply = {0};
    const char *path;
    struct httpc *http = connect_to(url, &unverified, &path, err);
    int rc = http ? send_request(http, path, SPAN(""), &reply, err) : -1;
    if (rc == 0 && reply.status != 200)
        rc = err_set(err, ERR_UNAVAILABLE, "%s: HTTP status %u", url, reply.status);
    httpc_reply_fini(&reply);
    httpc_free(http);
    return rc == 0;
}

/* -- conclusions -- */

const char *facts_namespace(const struct facts *f)
{
    return f->namespace ? f->namespace : "kube-system";
}

char *facts_server_name(const struct facts *f)
{
    return xasprintf("gpushare-schd-extender.%s.svc", facts_namespace(f));
}

bool facts_has_our_certificate(const struct facts *f)
{
    for (int i = 0; i < FACTS_TLS_FILES; i++)
        if (strcmp(edit_string(f->entry, facts_tls_names[i].member),
                   facts_tls_names[i].path))
            return false;
    return true;
}

bool facts_has_own_certificate(const struct facts *f)
{
    cleanup_free char *server = facts_server_name(f);
    bool moved = f->namespace && facts_has_our_certificate(f) &&
                 strcmp(edit_string(f->entry, "tlsConfig.serverName"), server) != 0;
    return !moved && !strncmp(edit_string(f->entry, "urlPrefix"), "https://", 8) &&
           (*edit_string(f->entry, "tlsConfig.certFile") ||
            *edit_string(f->entry, "tlsConfig.certData"));
}

char *facts_planned_url(const struct facts *f, const char *address, bool insecure)
{
    const char *old = strstr(edit_string(f->entry, "urlPrefix"), "://");
    const char *scheme = insecure ? "http" : "https";
    return old && !address ? xasprintf("%s%s", scheme, old)
                           : xasprintf("%s://%s" FACTS_VERBS, scheme,
                                       address ? address : FACTS_ADDRESS);
}

const struct facts_file *facts_newer_file(const struct facts *f)
{
    const struct facts_file *const files[] = {&f->config, &f->named[FACTS_CA]};
    bool reads = f->pid && facts_option(f, "config");
    for (size_t i = 0; reads && i < ARRAY_LEN(files); i++)
        if (f->started_ns < files[i]->changed_ns - SLACK_NS)
            return files[i];
    return NULL;
}
