/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "setup/host_priv.h"
#include "setup/rancher.h"
#include "wire/yaml.h"

static bool is_folder(const char *root, const char *path)
{
    cleanup_free char *full = xasprintf("%s%s", root, path);
    struct stat st;
    return stat(full, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Cuts the next word. It ends at white space, a quote or a backslash. */
static bool next_word(struct span *rest, struct span *word)
{
    static const char ends[] = " \t\"'\\";
    while (rest->n && strchr(ends, *rest->p))
        *rest = (struct span){rest->p + 1, rest->n - 1};
    *word = (struct span){rest->p, 0};
    while (rest->n && !strchr(ends, *rest->p)) {
        *rest = (struct span){rest->p + 1, rest->n - 1};
        word->n++;
    }
    return word->n > 0;
}

/* Appends the lines of a file that are no comments, joined by spaces. Of a unit of systemd
 * only the command and the variables: its other commands have options of their own. */
static void read_lines(const char *root, const char *path, bool unit, struct buf *out)
{
    struct facts_file file = {.path = xasprintf("%s%s", root, path)};
    host_read_file(&file);
    struct span rest = buf_span(&file.bytes);
    bool counts = true, continues = false;
    while (rest.n) {
        struct span line = span_trim(span_cut(&rest, '\n'));
        if (!line.n || *line.p == '#' || *line.p == ';')
            continue;
        if (unit && !continues)
            counts = span_starts(line, SPAN("ExecStart=")) ||
                     span_starts(line, SPAN("Environment="));
        continues = line.p[line.n - 1] == '\\';
        if (counts)
            buf_printf(out, "%.*s ", SPAN_ARG(line));
    }
    facts_file_fini(&file);
}

/* -- OpenShift -- */

/* Red Hat CoreOS names OpenShift in os-release; the operators of its control plane keep
 * their files in static-pod-resources. */
static bool is_openshift(const char *root)
{
    cleanup_buf struct buf release = {0};
    read_lines(root, "/etc/os-release", false, &release);
    struct span rest = buf_span(&release), word;
    while (next_word(&rest, &word))
        if (span_starts(word, SPAN("OPENSHIFT_VERSION=")))
            return true;
    return is_folder(root, "/etc/kubernetes/static-pod-resources");
}

/* -- k3s and RKE2 -- */

/* Options and variables of the service that name the file of the settings. */
static const char *const config_names[] = {"--config", "-c", "K3S_CONFIG_FILE",
                                           "RKE2_CONFIG_FILE"};
/* Others that change the settings of kube-scheduler. (-d in a script is a test.) */
static const char *const other_names[] = {
    "--" RANCHER_ARGS,     "--" RANCHER_MOUNTS,
    "--data-dir",          "-d",
    "--disable-scheduler", "K3S_DATA_DIR",
    "RKE2_DATA_DIR",       "RKE2_KUBE_SCHEDULER_EXTRA_MOUNT"};

static bool is_one_of(struct span name, const char *const *names, size_t n, bool unit)
{
    for (size_t i = 0; i < n; i++)
        if (span_eq(name, span_of(names[i])) && (unit || strlen(names[i]) > 2))
            return true;
    return false;
}

/* Notes the first of them in a file, without its value: some are secrets. The usual file of
 * the settings is no change. */
static void note_service_option(const char *root, const char *path, struct facts *f)
{
    const char *dot = strrchr(path, '.');
    bool unit = dot && (!strcmp(dot, ".service") || !strcmp(dot, ".conf"));
    cleanup_buf struct buf text = {0};
    read_lines(root, path, unit, &text);
    struct span rest = buf_span(&text), name;
    while (!f->service_option && next_word(&rest, &name)) {
        if (span_starts(name, SPAN("Environment=")))
            span_cut(&name, '=');
        struct span value = name, following = rest;
        name = span_cut(&value, '=');
        if (!value.p)
            next_word(&following, &value);
        bool config = is_one_of(name, config_names, ARRAY_LEN(config_names), unit);
        if ((config && !span_eq(value, span_of(rancher_config(f)))) ||
            is_one_of(name, other_names, ARRAY_LEN(other_names), unit))
            f->service_option = xasprintf("%s: %.*s", path, SPAN_ARG(name));
    }
}

/* The files of systemd and OpenRC that the installation scripts write. (The command line
 * in /proc shows nothing: k3s erases it.) */
static void read_service(const char *root, struct facts *f)
{
    static const char *const files[] = {"/etc/systemd/system/%s.service",
                                        "/etc/systemd/system/%s.service.env",
                                        "/usr/local/lib/systemd/system/%s.service",
                                        "/usr/local/lib/systemd/system/%s.env",
                                        "/usr/lib/systemd/system/%s.service",
                                        "/usr/lib/systemd/system/%s.env",
                                        "/etc/default/%s",
                                        "/etc/sysconfig/%s",
                                        "/etc/init.d/%s"};
    struct dirent **names;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct span rest = span_of(files[i]), before = span_cut(&rest, '%');
        cleanup_free char *path =
            xasprintf("%.*s%s%s", SPAN_ARG(before), rancher_unit(f), rest.p + 1);
        note_service_option(root, path, f);
    }
    cleanup_free char *folder =
        xasprintf("/etc/systemd/system/%s.service.d", rancher_unit(f));
    cleanup_free char *full = xasprintf("%s%s", root, folder);
    int n = scandir(full, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        cleanup_free char *path = xasprintf("%s/%s", folder, names[i]->d_name);
        note_service_option(root, path, f);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

/* An empty file has no settings. */
static void parse(struct facts_file *file)
{
    cleanup_yaml struct yaml *y =
        yaml_parse(file->path, file->bytes.p ? file->bytes.p : "", file->bytes.n, NULL);
    if (y &&
        (yaml_count(y) == 0 || (yaml_count(y) == 1 && yaml_is_null(yaml_document(y, 0)))))
        file->json = json_object();
    else
        facts_file_parse(file);
}

/* Takes the path. */
static void add_settings(struct facts *f, char *path)
{
    struct facts_file file = {.path = path};
    host_read_file(&file);
    if (file.why.code == ERR_NONE)
        parse(&file);
    f->settings = xreallocarray(f->settings, f->n_settings + 1, sizeof *f->settings);
    f->settings[f->n_settings++] = file;
}

static void read_settings(const char *root, struct facts *f)
{
    cleanup_free char *main = xasprintf("%s%s", root, rancher_config(f));
    cleanup_free char *folder = xasprintf("%s.d", main);
    struct dirent **names;
    struct stat st;
    if (stat(main, &st) == 0 || errno != ENOENT)
        add_settings(f, xstrdup(main));
    int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0 && errno != ENOENT)
        err_set(&f->settings_why, errno == EACCES ? ERR_FORBIDDEN : ERR_UNAVAILABLE,
                "%s: %m", folder);
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", folder, names[i]->d_name);
        if (rancher_reads(names[i]->d_name) &&
            !(stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
            add_settings(f, path);
        else
            free(path);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

/* When the content of a file or folder was changed, or `touch` last set. 0: unknown. */
static int64_t modified_ns(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0
                           : st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
}

/* scripts/install moves the folder into a record and, when it rolls back, out of it; it
 * hands the date of `files` from record to record. A rename changes neither date. */
static void read_undone(const char *root, struct facts *f)
{
    f->undone.path = xasprintf("%s/var/lib/gpushare-install/undone", root);
    host_read_file(&f->undone);
    f->undone.changed_ns = modified_ns(f->undone.path);
    cleanup_free char *files = xasprintf("%s/files", f->undone.path);
    f->undone_since_ns = modified_ns(files);
}

/* Of a server, its data folder has certificates; of an agent, not. */
void host_read_rancher(const char *root, struct facts *f)
{
    read_settings(root, f);
    read_service(root, f);
    cleanup_free char *data_dir = rancher_data_dir(f);
    cleanup_free char *server = xasprintf("%s/server", data_dir);
    f->is_agent = !is_folder(root, server);
    if (f->platform == FACTS_K3S) {
        read_undone(root, f);
    } else {
        f->applied.path =
            xasprintf("%s%s/agent/pod-manifests/kube-scheduler.yaml", root, data_dir);
        host_read_file(&f->applied);
        if (f->applied.why.code == ERR_NONE)
            facts_file_parse(&f->applied);
    }
    f->files = xcalloc(1, sizeof *f->files);
    f->files[f->n_files++] = (struct facts_file){
        .path = xasprintf("%s%s", root, rancher_config(f)), .json = rancher_pod(f)};
}

static bool has_server(const char *root, enum facts_platform platform)
{
    return is_folder(root, platform == FACTS_K3S ? "/var/lib/rancher/k3s/server"
                                                 : "/var/lib/rancher/rke2/server");
}

static bool has_any(const char *root, enum facts_platform platform)
{
    return platform == FACTS_K3S ? is_folder(root, "/etc/rancher/k3s") ||
                                       is_folder(root, "/var/lib/rancher/k3s")
                                 : is_folder(root, "/etc/rancher/rke2") ||
                                       is_folder(root, "/var/lib/rancher/rke2");
}

enum facts_platform host_find_platform(const char *root)
{
    static const enum facts_platform both[] = {FACTS_K3S, FACTS_RKE2};
    if (is_openshift(root))
        return FACTS_OPENSHIFT;
    /* What is left of the one may stand beside the other. */
    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        if (has_server(root, both[i]))
            return both[i];
    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        if (has_any(root, both[i]))
            return both[i];
    return FACTS_KUBEADM;
}
