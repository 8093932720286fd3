/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tls.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* Starts openssl in the directory, with its output going to `out`. */
static pid_t start(const char *dir, const char *const *argv, int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, out, 2);
    int rc = posix_spawnp(&pid, "openssl", &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_msg(rc == 0, "cannot start openssl: error %d", rc);
    return pid;
}

static void run(const char *dir, const char *const *argv)
{
    cleanup_free char *path = temp_path(dir, "openssl.log");
    cleanup_close int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(log, 0);
    pid_t pid = start(dir, argv, log);
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (status) {
        cleanup_free char *said = temp_read(dir, "openssl.log");
        ck_abort_msg("openssl %s failed: %s", argv[1], said);
    }
}

#define KEY_ARGS "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"

void tls_make_ca(const char *dir, const char *name)
{
    cleanup_free char *crt = xasprintf("%s.crt", name), *key = xasprintf("%s.key", name),
                      *subject = xasprintf("/CN=%s", name);
    const char *argv[] = {"openssl", "req",   "-x509", KEY_ARGS, "-keyout", key, "-out",
                          crt,       "-subj", subject, "-days",  "60",      NULL};
    run(dir, argv);
}

/* `usage` NULL: any usage. */
static void make_cert(const char *dir, const char *ca, const char *name,
                      const char *names, const char *usage)
{
    cleanup_free char *crt = xasprintf("%s.crt", name), *key = xasprintf("%s.key", name),
                      *subject = xasprintf("/CN=%s", name),
                      *ca_crt = xasprintf("%s.crt", ca),
                      *ca_key = xasprintf("%s.key", ca),
                      *alt = xasprintf("subjectAltName=%s", names);
    const char *argv[] = {"openssl", "req",   "-x509",   KEY_ARGS,
                          "-CA",     ca_crt,  "-CAkey",  ca_key,
                          "-keyout", key,     "-out",    crt,
                          "-subj",   subject, "-days",   "60",
                          "-addext", alt,     "-addext", "basicConstraints=CA:FALSE",
                          NULL,      NULL,    NULL};
    if (usage) {
        argv[ARRAY_LEN(argv) - 3] = "-addext";
        argv[ARRAY_LEN(argv) - 2] = usage;
    }
    run(dir, argv);
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
    cleanup_free char *crt = xasprintf("%s.crt", name), *key = xasprintf("%s.key", name),
                      *csr = xasprintf("%s.csr", name),
                      *subject = xasprintf("/CN=%s", name),
                      *ca_crt = xasprintf("%s.crt", ca),
                      *ca_key = xasprintf("%s.key", ca),
                      *alt = xasprintf("subjectAltName=%s", names);
    const char *ask[] = {"openssl", "req",   "-new",  KEY_ARGS,  "-keyout", key, "-out",
                         csr,       "-subj", subject, "-addext", alt,       NULL};
    const char *sign[] = {"openssl", "x509", "-req",   "-in",  csr,
                          "-CA",     ca_crt, "-CAkey", ca_key, "-CAcreateserial",
                          "-days",   "-1",   "-out",   crt,    NULL};
    run(dir, ask);
    run(dir, sign);
}

struct tls_server {
    pid_t pid;
    unsigned port;
    int out;
};

/* Reads the output of s_server until it accepts connections. It prints its port only if the
 * port was 0. */
static unsigned read_port(int fd, unsigned port)
{
    cleanup_buf struct buf said = {0};
    char piece[512];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&p, 1, 20000) == 1, "openssl s_server does not start");
        ssize_t n = read(fd, piece, sizeof piece);
        ck_assert_msg(n > 0, "openssl s_server has ended: %s", said.p ? said.p : "");
        buf_add(&said, piece, (size_t)n);
        const char *at = strstr(said.p, "ACCEPT"), *colon = at ? strchr(at, ':') : NULL;
        if (at && strchr(at, '\n'))
            return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : port;
    }
}

struct tls_server *tls_server_start(const char *dir, unsigned port,
                                    const char *const *args)
{
    enum { ARGS_MAX = 32 };
    cleanup_free char *accept = xasprintf("127.0.0.1:%u", port);
    const char *argv[ARGS_MAX] = {"openssl", "s_server", "-www", "-accept", accept};
    size_t n = 5;
    for (; *args; args++) {
        ck_assert_uint_lt(n, ARGS_MAX - 1);
        argv[n++] = *args;
    }
    int pipe_fds[2];
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    struct tls_server *s = xcalloc(1, sizeof *s);
    s->pid = start(dir, argv, pipe_fds[1]);
    s->out = pipe_fds[0];
    close(pipe_fds[1]);
    s->port = read_port(s->out, port);
    return s;
}

void tls_server_stop(struct tls_server *s)
{
    kill(s->pid, SIGTERM);
    waitpid(s->pid, NULL, 0);
    close(s->out);
    free(s);
}

unsigned tls_server_port(const struct tls_server *s)
{
    return s->port;
}
