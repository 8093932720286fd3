/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tls.h"

#include <stdlib.h>

#include "base/mem.h"
#include "lib/program.h"
#include "lib/unit.h"

/* A file of the directory, new. */
static char *file(const char *dir, const char *name, const char *suffix)
{
    return xasprintf("%s/%s.%s", dir, name, suffix);
}

static void run(const char *const *argv)
{
    struct program p;
    program_start(&p, "/", argv);
    free(program_end(&p, 0));
}

#define KEY_ARGS "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"

void tls_make_ca(const char *dir, const char *name)
{
    cleanup_free char *crt = file(dir, name, "crt"), *key = file(dir, name, "key"),
                      *subject = xasprintf("/CN=%s", name);
    run(ARGV("openssl", "req", "-x509", KEY_ARGS, "-keyout", key, "-out", crt, "-subj",
             subject, "-days", "60"));
}

/* `usage` NULL: any usage. */
static void make_cert(const char *dir, const char *ca, const char *name,
                      const char *names, const char *usage)
{
    cleanup_free char *crt = file(dir, name, "crt"), *key = file(dir, name, "key"),
                      *subject = xasprintf("/CN=%s", name),
                      *ca_crt = file(dir, ca, "crt"), *ca_key = file(dir, ca, "key"),
                      *alt = xasprintf("subjectAltName=%s", names);
    run(ARGV("openssl", "req", "-x509", KEY_ARGS, "-CA", ca_crt, "-CAkey", ca_key,
             "-keyout", key, "-out", crt, "-subj", subject, "-days", "60", "-addext", alt,
             "-addext", "basicConstraints=CA:FALSE", usage ? "-addext" : NULL, usage));
}

void tls_make_cert(const char *dir, const char *ca, const char *name, const char *names)
{
    make_cert(dir, ca, name, names, NULL);
}

void tls_make_server_cert(const char *dir, const char *ca, const char *name,
                          const char *names)
{
    make_cert(dir, ca, name, names, "extendedKeyUsage=serverAuth");
}

/* `openssl req` refuses an end date in the past; `openssl x509` accepts it. */
void tls_make_expired_cert(const char *dir, const char *ca, const char *name,
                           const char *names)
{
    cleanup_free char *crt = file(dir, name, "crt"), *key = file(dir, name, "key"),
                      *csr = file(dir, name, "csr"), *subject = xasprintf("/CN=%s", name),
                      *ca_crt = file(dir, ca, "crt"), *ca_key = file(dir, ca, "key"),
                      *alt = xasprintf("subjectAltName=%s", names);
    run(ARGV("openssl", "req", "-new", KEY_ARGS, "-keyout", key, "-out", csr, "-subj",
             subject, "-addext", alt));
    run(ARGV("openssl", "x509", "-req", "-in", csr, "-CA", ca_crt, "-CAkey", ca_key,
             "-CAcreateserial", "-days", "-1", "-out", crt));
}

struct tls_server {
    struct program program;
    unsigned port;
};

struct tls_server *tls_server_start(const char *dir, unsigned port,
                                    const char *const *args)
{
    struct tls_server *s = xcalloc(1, sizeof *s);
    cleanup_free char *accept = xasprintf("127.0.0.1:%u", port);
    const char *argv[PROGRAM_ARGS] = {"env",      "-C",    dir,       "openssl",
                                      "s_server", "-www", "-accept", accept};
    program_args(argv, 8, args);
    program_start(&s->program, "/", argv);
    ck_assert_msg(program_wait_output(&s->program, "ACCEPT"), "openssl s_server: %s",
                  program_output(&s->program));
    /* It prints its port only if the port was 0. */
    s->port = port ? port : program_port(&s->program, "ACCEPT");
    return s;
}

void tls_server_stop(struct tls_server *s)
{
    program_kill(&s->program);
    free(s);
}

unsigned tls_server_port(const struct tls_server *s)
{
    return s->port;
}
