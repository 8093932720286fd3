/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/config_priv.h"
#include "kube/credential_priv.h"

enum {
    OUTPUT_MAX = 1 << 20,
    STDERR_SHOWN_MAX = 200, /* bytes of standard error in an error message */
};

void kube_exec_credential_fini(struct kube_exec_credential *a)
{
    mem_wipe(a->token);
    kube_span_free(&a->cert_pem);
    kube_span_free(&a->key_pem);
    *a = (struct kube_exec_credential){0};
}

char *kube_printable(struct span s, size_t max)
{
    struct buf out = {0};
    s = span_trim(s);
    for (size_t i = 0; i < s.n && i < max; i++) {
        unsigned char c = (unsigned char)s.p[i];
        buf_addc(&out, c < ' ' ? ' ' : c >= 0x7f ? '?' : (char)c);
    }
    if (s.n > max)
        buf_adds(&out, "...");
    return buf_take(&out);
}

/* Whether both strings, "NAME=value", set the same variable. */
static bool same_variable(const char *entry, const char *addition)
{
    size_t n = strcspn(addition, "=") + 1;
    return strncmp(entry, addition, n) == 0;
}

static bool is_replaced(const char *entry, char *const *additions, const char *info)
{
    for (; *additions; additions++)
        if (same_variable(entry, *additions))
            return true;
    return same_variable(entry, info);
}

/* Our environment, the variables of the plugin, and the variable `info`. The strings are
 * borrowed; the array is new. */
static char **environment(const struct kube_exec *e, char *info)
{
    size_t n = 0, additions = 0;
    while (environ[n])
        n++;
    while (e->env[additions])
        additions++;
    char **env = xcalloc(n + additions + 2, sizeof *env);
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i], e->env, info))
            env[used++] = environ[i];
    for (size_t i = 0; i < additions; i++)
        env[used++] = e->env[i];
    env[used] = info;
    return env;
}

/* The string of a key, or NULL. Borrowed. */
static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int take_certificate(const json_t *status, struct kube_exec_credential *credential,
                            struct err *err)
{
    struct span cert = span_of(text_in(status, "clientCertificateData"));
    struct span key = span_of(text_in(status, "clientKeyData"));
    if (!cert.n && !key.n)
        return 0;
    if (!kube_is_pem(cert) || !kube_is_pem(key))
        return err_set(err, ERR_INVALID,
                       "expected PEM in clientCertificateData and clientKeyData");
    credential->cert_pem = kube_span_copy(cert);
    credential->key_pem = kube_span_copy(key);
    return 0;
}

static int take_token(const json_t *status, struct kube_exec_credential *credential,
                      struct err *err)
{
    struct span token = span_trim(span_of(text_in(status, "token")));
    if (!token.n)
        return 0;
    if (!kube_token_ok(token))
        return err_set(err, ERR_INVALID,
                       "token: expected printable ASCII without spaces");
    credential->token = xmemdup0(token.p, token.n);
    return 0;
}

static int take_status(const json_t *status, struct kube_exec_credential *credential,
                       struct err *err)
{
    const json_t *expiry = json_object_get(status, "expirationTimestamp");
    if (take_token(status, credential, err) || take_certificate(status, credential, err))
        return -1;
    if (!credential->token && !credential->cert_pem.n)
        return err_set(err, ERR_INVALID, "status has neither a token nor a certificate");
    if (!expiry || json_is_null(expiry))
        return 0;
    credential->expires = true;
    if (!clock_parse(span_of(json_string_value(expiry)), &credential->expires_s))
        return err_set(err, ERR_INVALID, "expirationTimestamp: expected RFC 3339");
    return 0;
}

int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *credential, struct err *err)
{
    json_error_t why;
    json_t *root = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &why);
    const char *kind = text_in(root, "kind"), *version = text_in(root, "apiVersion");
    int rc;
    if (!root)
        rc = err_set(err, ERR_INVALID, "invalid JSON in its output, line %d", why.line);
    else if (!kind || strcmp(kind, "ExecCredential"))
        rc = err_set(err, ERR_INVALID, "expected kind ExecCredential in its output");
    else if (!version || strcmp(version, e->api_version))
        rc = err_set(err, ERR_INVALID, "expected apiVersion %s in its output",
                     e->api_version);
    else
        rc = take_status(json_object_get(root, "status"), credential, err);
    json_decref(root);
    if (rc)
        kube_exec_credential_fini(credential);
    return rc;
}

/* Checks the exit status; the error contains the start of standard error. */
static int check_exit(const struct kube_run *r, struct err *err)
{
    if (WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0)
        return 0;
    cleanup_free char *shown = kube_printable(buf_span(&r->errors), STDERR_SHOWN_MAX);
    if (WIFSIGNALED(r->status))
        return err_set(err, ERR_UNAVAILABLE, "killed by signal %d: %s",
                       WTERMSIG(r->status), shown);
    return err_set(err, ERR_UNAVAILABLE, "exit status %d: %s", WEXITSTATUS(r->status),
                   shown);
}

static void add_stderr(const struct kube_run *r, struct err *err)
{
    cleanup_free char *shown = kube_printable(buf_span(&r->errors), STDERR_SHOWN_MAX);
    cleanup_free char *old = xstrdup(err->msg);
    if (*shown)
        err_set(err, err->code, "%s; stderr: %s", old, shown);
}

int kube_exec_run(const struct kube_exec *e, int64_t limit_ms,
                  struct kube_exec_credential *credential, struct err *err)
{
    *credential = (struct kube_exec_credential){0};
    cleanup_free char *info = xasprintf("KUBERNETES_EXEC_INFO=%s", e->info);
    cleanup_free char **env = environment(e, info);
    struct kube_run r;
    struct err why = {0};
    int rc = kube_run_program(e->argv, env, OUTPUT_MAX, limit_ms, &r, &why);
    if (rc && why.code == ERR_NOT_FOUND && e->install_hint) {
        cleanup_free char *hint =
            kube_printable(span_of(e->install_hint), STDERR_SHOWN_MAX);
        err_set(&why, ERR_NOT_FOUND, "cannot run %.100s; %s", e->argv[0], hint);
    } else if (rc) {
        add_stderr(&r, &why);
    } else {
        rc = check_exit(&r, &why);
        if (!rc)
            rc = kube_exec_parse(e, buf_span(&r.out), credential, &why);
    }
    kube_run_fini(&r);
    if (rc) {
        err_set(err, why.code, "%s", why.msg);
        err_wrap(err, "exec plugin of user \"%.100s\"", e->user);
    }
    return rc;
}
