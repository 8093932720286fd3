/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <glob.h>
#include <string.h>

#include "base/mem.h"
#include "lib/lib.h"
#include "lib/raw.h"
#include "lib/yamlfile.h"

/*
 * Reads the files of manifests/ and policy/ as JSON, starts programs and sends requests. An
 * error fails the test.
 */

/* The caller calls globfree. */
static inline void manifest_files(glob_t *files)
{
    static const char *const patterns[] = {"manifests/*.yaml", "manifests/samples/*.yaml",
                                           "manifests/demo/*.yaml"};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        ck_assert_int_eq(glob(patterns[i], i ? GLOB_APPEND : 0, NULL, files), 0);
}

/* Appends the documents of a YAML file. */
static inline void manifest_read(json_t *out, const char *path)
{
    yamlfile_read(out, path);
}

/* The only document of a file: new. */
static inline json_t *read_one(const char *path)
{
    json_t *all = json_array();
    manifest_read(all, path);
    ck_assert_uint_eq(json_array_size(all), 1);
    json_t *one = json_incref(json_array_get(all, 0));
    json_decref(all);
    return one;
}

/* All documents of all manifests: new. */
static inline json_t *manifest_all(void)
{
    json_t *all = json_array();
    glob_t files;
    manifest_files(&files);
    for (size_t i = 0; i < files.gl_pathc; i++)
        manifest_read(all, files.gl_pathv[i]);
    globfree(&files);
    return all;
}

/* The value at a path such as "spec/ports/0/port"; NULL if absent. */
static inline json_t *at(const json_t *j, const char *path)
{
    while (j && *path) {
        char key[128];
        size_t n = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        path += n + (path[n] == '/');
        j = json_is_array(j) ? json_array_get(j, strtoul(key, NULL, 10))
                             : json_object_get(j, key);
    }
    return (json_t *)j;
}

/* "" if it is not a string. */
static inline const char *text_of(const json_t *j)
{
    return json_is_string(j) ? json_string_value(j) : "";
}

/* "" if it is absent or not a string. */
static inline const char *str_at(const json_t *j, const char *path)
{
    return text_of(at(j, path));
}

/* The first document of the kind; fails the test if there is none. */
static inline json_t *of_kind(const json_t *all, const char *kind)
{
    size_t i;
    json_t *j;
    json_array_foreach(all, i, j) if (strcmp(str_at(j, "kind"), kind) == 0) return j;
    ck_abort_msg("no document of kind %s", kind);
    return NULL;
}

/* Sends a request to 127.0.0.1 and returns the status. *answer (`answer` may be NULL) gets
 * the reply's body as JSON, or NULL if it is not JSON; new. */
static inline unsigned ask(unsigned port, const char *method, const char *path,
                           const char *body, json_t **answer)
{
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, port);
    ck_assert(raw_sendf(&c,
                        "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                        method, path, strlen(body), body));
    ck_assert_msg(raw_read(&c, &r) == RAW_OK, "%s %s: no reply", method, path);
    unsigned status = r.status;
    if (answer)
        *answer = r.body.n ? json_loadb(r.body.p, r.body.n, JSON_DECODE_ANY, NULL) : NULL;
    raw_reply_fini(&r);
    raw_close(&c);
    return status;
}

/* Starts kube-sim on a free port with the options `more` (ends with NULL). Returns the
 * port. */
static inline unsigned start_sim(struct program *p, const char *dir,
                                 const char *const *more)
{
    cleanup_free char *path = program_path("kube-sim");
    const char *argv[PROGRAM_ARGS] = {path, "--port", "0"};
    program_args(argv, 3, more);
    program_start(p, dir, argv);
    return program_port(p, "listening on");
}

/* Starts an extender for the API server at port `api`, with `option` unless it is NULL.
 * Returns the extender's port. */
static inline unsigned start_extender(struct program *p, const char *dir, unsigned api,
                                      const char *option)
{
    cleanup_free char *path = program_path("gpushare-extender");
    cleanup_free char *name = xasprintf("kubeconfig-%u", api);
    cleanup_free char *config =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                  "clusters: [{name: c, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                  "users: [{name: u, user: {}}]\n"
                  "contexts: [{name: c, context: {cluster: c, user: u}}]\n",
                  api);
    temp_write(dir, name, config);
    cleanup_free char *file = temp_path(dir, name);
    program_start(p, dir,
                  ARGV(path, "--kubeconfig", file, "--listen", "127.0.0.1", "--port", "0",
                       "--observe-port", "0", option));
    return program_port(p, "listening on");
}
