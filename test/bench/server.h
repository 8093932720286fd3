/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * The programs that are measured. Each says "listening on ADDRESS:PORT" on its standard
 * error, which goes to a file.
 */

struct server {
    pid_t pid;
    unsigned port;
    char *log; /* path; owned */
    int64_t started_ns;
};

/* Starts argv[0] and waits for its port. Ends the program when there is none. */
void server_start(struct server *s, const char *log, const char *const *argv);
/* SIGTERM, and waits. */
void server_stop(struct server *s);
/* SIGKILL, and waits. */
void server_kill(struct server *s);

double server_cpu_ms(const struct server *s); /* used since its start, all threads */
double server_mib(const struct server *s);    /* resident now */
/* Calls GET `path` until it answers 200. Milliseconds since the start. */
double server_wait(const struct server *s, const char *path);
