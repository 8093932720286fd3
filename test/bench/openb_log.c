/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/openb_cluster.h"
#include "lib/cluster.h"

static FILE *open_log(void)
{
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    return f;
}

void openb_log_begin(struct openb_log *log, uint8_t *seen, size_t n)
{
    FILE *f = open_log();
    *log = (struct openb_log){.seen = seen, .n = n};
    fseek(f, 0, SEEK_END);
    log->end = ftell(f);
    fclose(f);
}

void openb_log_fini(struct openb_log *log)
{
    free(log->bound);
    free(log->times);
}

/* Seconds of the day of the line's "stageTimestamp":"2026-11-21T23:24:25.123456Z". */
static double time_of(const char *line)
{
    int h, m;
    double s;
    const char *at = strstr(line, "\"stageTimestamp\":\"");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(
        sscanf(at, "\"stageTimestamp\":\"%*d-%*d-%*dT%d:%d:%lfZ", &h, &m, &s), 3);
    return h * 3600 + m * 60 + s;
}

static void add_bound(struct openb_log *log, size_t pod, double at)
{
    MEM_GROW(log->bound, log->bound_cap, log->n_bound + 1);
    MEM_GROW(log->times, log->times_cap, log->n_bound + 1);
    log->bound[log->n_bound] = pod;
    log->times[log->n_bound++] = at;
}

/* Is the rest of a request's path this subresource? A query may follow. */
static bool names(const char *rest, const char *subresource)
{
    size_t n = strlen(subresource);
    return strncmp(rest, subresource, n) == 0 && (rest[n] == '"' || rest[n] == '?');
}

/* A Binding, or kube-scheduler's condition of a pod that it could not bind. */
static void read_line(struct openb_log *log, const char *line)
{
    static const char uri[] = "\"requestURI\":\"" CLUSTER_PODS "/p";
    const char *at = strstr(line, uri);
    char *rest;
    if (!at)
        return;
    size_t pod = strtoul(at + strlen(uri), &rest, 10);
    bool binding = names(rest, "/binding") && strstr(line, "\"code\":201");
    bool status = names(rest, "/status") && strstr(line, "\"verb\":\"patch\"");
    if (pod >= log->n || (!binding && !status))
        return;
    log->settled += log->seen[pod] == 0;
    if (binding && !(log->seen[pod] & OPENB_BOUND))
        add_bound(log, pod, time_of(line));
    log->seen[pod] |= binding ? OPENB_BOUND : OPENB_REJECTED;
}

void openb_log_read(struct openb_log *log)
{
    FILE *f = open_log();
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    ck_assert_int_eq(fseek(f, log->end, SEEK_SET), 0);
    while ((n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
        log->end += n;
        read_line(log, line);
    }
    free(line);
    fclose(f);
}

double openb_log_rate(const struct openb_log *log)
{
    size_t n = log->n_bound, tenth = n / 10;
    if (n < 10)
        return 0;
    double s = log->times[n - 1 - tenth] - log->times[tenth];
    return (double)(n - 2 * tenth) / (s < 0 ? s + 86400 : s);
}
