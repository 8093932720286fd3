/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/log.h"
#include "base/opt.h"

/*
 * What the programs of a cluster have in common as programs: options, and the way from
 * main to the end.
 */

/* A member of the program's config; opt_program says where. */
struct entry_options {
    char *kubeconfig, *context;
    char *listen;
    int log_level;
};
extern const struct opt entry_table[]; /* opt_program.shared */

/* Of these, what a program wants that serves nobody: entries for a table of its own, for
 * fields at these offsets. */
#define ENTRY_KUBECONFIG(at)                                                             \
    {                                                                                    \
        .name = "kubeconfig", .env = "KUBECONFIG", .arg = "FILE", .type = OPT_STRING,    \
        .offset = (at),                                                                  \
        .help = "How to reach the API server. Without it: the service account of the "   \
                "pod,\nthen ~/.kube/config."                                             \
    }
#define ENTRY_CONTEXT(at)                                                                \
    {                                                                                    \
        .name = "context", .arg = "NAME", .type = OPT_STRING, .offset = (at),            \
        .help = "Context of the kubeconfig, instead of its current one."                 \
    }
#define ENTRY_LOG_LEVEL(at, level)                                                       \
    {                                                                                    \
        .name = "log-level", .env = "LOG_LEVEL", .arg = "LEVEL", .init = (level),        \
        .type = OPT_CUSTOM, .parse = log_level_option, .offset = (at),                   \
        .help = "error, warn, info or debug."                                            \
    }

struct entry {
    const struct opt_program *program;
    /* Starts the program. The signals that end it are blocked. NULL with the reason. */
    void *(*start)(const void *config, struct err *err);
    /* Stops and frees what was started. False: a thread cannot be stopped, and the
     * process is ended as it is. */
    bool (*stop)(void *started);
    /* If the options ask for something that ends by itself: does it, and returns 1, or -1
     * with the reason. 0: they do not. NULL: there is no such thing. */
    int (*once)(const void *config, struct err *err);
};

/* main: reads the options into *config, which must be zeroed, starts the program, waits
 * for SIGTERM or SIGINT, and stops it. Returns the exit status. */
int entry_main(const struct entry *e, void *config, int argc, char **argv);
