/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tls.h"

#include "lib/program.h"
#include "lib/unit.h"

/* Runs a command in the directory. */
static void sh(const char *dir, const char *command)
{
    struct program p;
    program_start(&p, "/", ARGV("env", "-C", dir, "sh", "-c", command));
    free(program_end(&p, 0));
}

/* Runs `openssl req` with a new key and a subject of this name. */
static void req(const char *dir, const char *name, const char *more)
{
    sh(dir, lib_fmt("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
                    "-keyout '%s.key' -subj '/CN=%s' %s",
                    name, name, more));
}

void tls_make_ca(const char *dir, const char *name)
{
    req(dir, name, lib_fmt("-x509 -out '%s.crt' -days 60", name));
}

/* `usage`: a further option. */
static void make_cert(const char *dir, const char *ca, const char *name,
                      const char *names, const char *usage)
{
    req(dir, name,
        lib_fmt("-x509 -CA '%s.crt' -CAkey '%s.key' -out '%s.crt' -days 60 -addext "
                "'subjectAltName=%s' -addext basicConstraints=CA:FALSE %s",
                ca, ca, name, names, usage));
}

void tls_make_cert(const char *dir, const char *ca, const char *name, const char *names)
{
    make_cert(dir, ca, name, names, "");
}

void tls_make_server_cert(const char *dir, const char *ca, const char *name,
                          const char *names)
{
    make_cert(dir, ca, name, names, "-addext extendedKeyUsage=serverAuth");
}

void tls_make_short_cert(const char *dir, const char *ca, const char *name,
                         const char *names)
{
    make_cert(dir, ca, name, names, "-days 10");
}

/* `openssl req` refuses an end date in the past; `openssl x509` accepts it. */
void tls_make_expired_cert(const char *dir, const char *ca, const char *name,
                           const char *names)
{
    req(dir, name,
        lib_fmt("-new -out '%s.csr' -addext 'subjectAltName=%s'", name, names));
    sh(dir, lib_fmt("openssl x509 -req -in '%s.csr' -CA '%s.crt' -CAkey '%s.key' "
                    "-CAcreateserial -days -1 -out '%s.crt'",
                    name, ca, ca, name));
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
    const char *argv[PROGRAM_ARGS] = {"env",      "-C",   dir,       "openssl",
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
