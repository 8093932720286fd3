/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/str.h"

/*
 * Programs that a test starts: what they say, and how they end. They end with the thread
 * that started them.
 */

enum { PROGRAM_WAIT_MS = 60 * 1000 }; /* what takes longer has failed */

struct program {
    pid_t pid;       /* 0: it has ended and was waited for */
    int out;         /* a file in memory: its standard output and error */
    int status;      /* once it has ended: exit status, or 128 and the signal */
    struct buf said; /* what has been read of it */
};

/* argv[0] is found in PATH; the array ends with NULL. HOME is `home`; nothing of the
 * environment that our programs read as options is left. */
void program_start(struct program *p, const char *home, const char *const *argv);
/* Waits until the text has been said. False: it ended without. */
bool program_wait_output(struct program *p, const char *text);
/* What it has said until now. */
const char *program_output(struct program *p);
void program_signal(const struct program *p, int number);
bool program_runs(struct program *p);
/* Waits for its end. Returns p->status. */
int program_wait(struct program *p);
/* SIGTERM; fails the test unless it ends with exit status 0. Releases it. */
void program_stop(struct program *p);
/* SIGKILL, if it still runs. Releases it. */
void program_kill(struct program *p);
/* Releases a program that has ended. */
void program_fini(struct program *p);

/* A program of this project, in the folder that GPUSHARE_BUILD names. New. */
char *program_path(const char *name);
/* Waits for the line "MARK ADDRESS:PORT" and returns the port. Fails the test when the
 * program ends without one. */
unsigned program_port(struct program *p, const char *mark);

/* Calls until it is true; false after PROGRAM_WAIT_MS. */
bool program_until(bool (*is_true)(void *ctx), void *ctx);

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

#define ck_assert_contains(text, part)                                                       \
    do {                                                                                 \
        const char *ck_text_ = (text);                                                   \
        const char *ck_part_ = (part);                                                   \
        ck_assert_msg(strstr(ck_text_, ck_part_) != NULL, "no \"%s\" in: %s", ck_part_,  \
                      ck_text_);                                                         \
    } while (0)
