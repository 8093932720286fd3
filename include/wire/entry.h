/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/log.h"
#include "base/opt.h"

/*
 * The entry point of the programs: main from parsing the options to the exit status, and
 * the common options of those that run in a cluster.
 */

/* The first member of the program's config. */
struct entry_options {
    char *kubeconfig, *context;
    char *listen;
    int log_level;
};
extern const struct opt entry_table[]; /* continues the program's table */

/* Single entries of entry_table, for the table of a program that does not listen; its
 * config has the same fields. */
#define ENTRY_KUBECONFIG                                                                 \
    OPT_STRING("kubeconfig", kubeconfig, "FILE", NULL,                                   \
               "Kubeconfig of the API server; default: the pod's service account, "      \
               "then ~/.kube/config.",                                                   \
               .env = "KUBECONFIG")
#define ENTRY_CONTEXT                                                                    \
    OPT_STRING("context", context, "NAME", NULL,                                         \
               "Context of the kubeconfig; default: its current-context.")
#define ENTRY_LOG_LEVEL(level)                                                           \
    OPT_CHOICE("log-level", log_level, "error|warn|info|debug", level,                   \
               "Least severe level of the lines that are logged.", .env = "LOG_LEVEL")

struct entry {
    const struct opt_program *program;
    /* Starts the program; SIGTERM and SIGINT are blocked. New; NULL on error. */
    void *(*start)(const void *config, struct err *err);
    /* Stops and frees the program. False: a thread cannot be joined; the process exits
     * without freeing anything. */
    bool (*stop)(void *started);
    /* Handles options that print something and exit: returns 1 if it did, 0 if no such
     * option is set, -1 on error. NULL: the program has no such option. */
    int (*once)(const void *config, struct err *err);
    /* Before the stop: -1 with the reason if the program itself sent SIGTERM because it cannot
     * go on. The exit status is 1 then. NULL: it never does. */
    int (*verdict)(void *started, struct err *err);
};

/* Parses the options into *config, which must be zeroed, and calls `run`. Returns what
 * that returned; 0: options that only print something; -1: bad options. The error is
 * printed only if the result is negative. Frees the strings and lists of the config
 * before it returns: what `run` keeps of them in ctx may then be released, but not
 * used. */
int entry_command(const struct opt_program *program, void *config, int argc, char **argv,
                  int (*run)(void *ctx, struct err *err), void *ctx);

/* The body of main: raises the limit of descriptors, parses the options as entry_command,
 * starts the program, waits for SIGTERM or SIGINT, and stops it. Returns the exit
 * status. */
int entry_main(const struct entry *e, void *config, int argc, char **argv);

/* Writes the text to standard output, and clears it. */
int entry_print(struct buf *text, struct err *err);
