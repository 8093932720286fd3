/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <fcntl.h>

#include "kube/client_priv.h"
#include "kube/kubeconfig_priv.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* A directory with files, and what is loaded from it. `T` is
 * some time after the start. */

enum { T = 1000000 };

#define PEM(what) "-----BEGIN " what "-----\nAAAA\n-----END " what "-----\n"
static struct fixture {
    char *dir;
    struct kube_config_sources sources; /* of the next load */
    char *kubeconfig;                   /* in sources */
    struct kube_config config;          /* of the next client */
    struct kube_client *c;
    _Atomic int64_t now_ms; /* of its clock */
    struct err err;
} w;

static inline void fixture_begin(void)
{
    w = (struct fixture){.dir = temp_dir()};
}

static inline void fixture_end(void)
{
    kube_client_free(w.c);
    kube_config_fini(&w.config);
    temp_dir_remove(w.dir);
    free(w.dir);
    free(w.kubeconfig);
}

static inline void put(const char *name, const char *text)
{
    temp_write(w.dir, name, text);
}

static inline void drop(const char *name)
{
    temp_remove(w.dir, name);
}

static inline char *path_of(const char *name)
{
    return temp_path(w.dir, name);
}

/* The same, for the config. */
static inline char *file_in_config(const char *name)
{
    return (char *)arena_printf(&w.config.arena, "%s/%s", w.dir, name);
}

static inline int load(void)
{
    kube_config_fini(&w.config);
    w.err = (struct err){0};
    return kube_config_load(&w.sources, &w.config, &w.err);
}

/* Loads these files, a list. Takes `paths`. */
static inline int load_files(char *paths)
{
    free(w.kubeconfig);
    w.sources.kubeconfig = w.kubeconfig = paths;
    return load();
}

/* Loads the file "k" with this text. */
static inline int load_text(const char *text)
{
    put("k", text);
    return load_files(path_of("k"));
}

/* The same, with one context, one cluster and one user, in flow style. */
static inline int load_user(const char *cluster, const char *user)
{
    char *text = xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                           "contexts:\n- name: c\n  context: {cluster: a, user: b}\n"
                           "clusters:\n- name: a\n  cluster: %s\n"
                           "users:\n- name: b\n  user: %s\n",
                           cluster, user);
    int rc = load_text(text);
    mem_wipe(text);
    return rc;
}

static inline int64_t fixture_clock(void)
{
    return w.now_ms;
}

/* A new client with the config. */
static inline void start(void)
{
    kube_client_free(w.c);
    if (!w.config.server)
        w.config.server = "https://h:1";
    w.c = kube_client_new(&w.config, &w.err);
    ck_assert_msg(w.c != NULL, "%s", w.err.msg);
    w.c->now_ms = fixture_clock;
}

/* The authorization at this time, or the error message; new. */
static inline char *get(int64_t now_ms)
{
    struct kube_session s;
    w.now_ms = now_ms;
    w.err = (struct err){0};
    if (kube_session_begin(w.c, &s, &w.err))
        return xstrdup(w.err.msg);
    char *shown = xstrdup(s.authorization ? s.authorization : "(none)");
    kube_session_fini(&s);
    return shown;
}

#define check_get(now_ms, want)                                                          \
    do {                                                                                 \
        cleanup_free char *shown_ = get(now_ms);                                         \
        ck_assert_str_eq(shown_, want);                                                  \
    } while (0)

/* Captures standard error until log_caught. */
static inline int catch_log(void)
{
    cleanup_free char *path = path_of("log");
    int old = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return old;
}

static inline char *log_caught(int old)
{
    dup2(old, STDERR_FILENO);
    close(old);
    return temp_read(w.dir, "log");
}

static inline unsigned count(const char *text, const char *word)
{
    unsigned n = 0;
    for (text = strstr(text, word); text; text = strstr(text + 1, word))
        n++;
    return n;
}
