/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/str.h"

/*
 * Programs that a test starts, with their output and exit status. A program gets SIGKILL
 * when the thread that started it ends.
 */

struct program {
    pid_t pid;       /* 0: the program has ended and was reaped */
    int out;         /* memfd with its standard output and standard error */
    int status;      /* after the end: exit status, or 128 + signal */
    struct buf said; /* output read so far */
};

/* Finds argv[0] in PATH; argv ends with NULL. HOME is `home`; environment variables that our
 * programs read as options are removed. The kubectl plugin runs no kubectl. */
void program_start(struct program *p, const char *home, const char *const *argv);
/* Adds further words to an argv of n words; the list `more` ends with NULL; or it is NULL.
 * Returns the new number; argv[it] is NULL. */
enum { PROGRAM_ARGS = 128 };
size_t program_args(const char *argv[PROGRAM_ARGS], size_t n, const char *const *more);
/* Waits until the output contains the text. False: the program ended without it. */
bool program_wait_output(struct program *p, const char *text);
/* The output so far. */
const char *program_output(struct program *p);
void program_signal(const struct program *p, int number);
bool program_runs(struct program *p);
/* Waits until the program has ended. Returns p->status. */
int program_wait(struct program *p);
/* Waits until the program has ended with this exit status; -1: any. Returns its output, new.
 * Releases p. */
char *program_end(struct program *p, int status);
/* Sends SIGTERM; fails the test unless the exit status is 0. Releases p. */
void program_stop(struct program *p);
/* Sends SIGKILL if the program runs. Releases p. */
void program_kill(struct program *p);
/* Releases a program that has ended. */
void program_fini(struct program *p);

/* A program of this project, in the folder that GPUSHARE_BUILD names. New. */
char *program_path(const char *name);
/* Waits for the line "MARK ADDRESS:PORT" and returns the port. Fails the test if the program
 * ends without this line. */
unsigned program_port(struct program *p, const char *mark);

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
