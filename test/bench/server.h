/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * The measured programs. Each prints "listening on ADDRESS:PORT" to standard error, which
 * goes to a file.
 */

struct server {
    pid_t pid;
    unsigned port;
    char *log; /* path; owned */
    int64_t started_ns;
};

/* Starts argv[0] and waits for its port. Ends the program on an error. */
void server_start(struct server *s, const char *log, const char *const *argv);
/* Of the extender: the observers' port. */
unsigned server_observe_port(const struct server *s);
/* SIGTERM, and waits. */
void server_stop(struct server *s);
/* SIGKILL, and waits. */
void server_kill(struct server *s);

double server_cpu_ms(const struct server *s); /* of all threads since the start */
double server_mib(const struct server *s);    /* resident now */
/* Calls GET `path` until the status is 200. Returns the milliseconds since the start. */
double server_wait(const struct server *s, const char *path);
