/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the containers of test/e2e-node run; linked statically, since their images hold
 * nothing else. It prints its environment, says that this was all, and waits to be ended.
 *
 *     guest          does that
 *     guest once     does not wait: an init container
 *     guest pause    only waits: the container that keeps the others' namespaces
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Process 1 of a container is not ended by signals that it has no handler for. */
static void ended(int number)
{
    (void)number;
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    signal(SIGTERM, ended);
    signal(SIGINT, ended);
    signal(SIGCHLD, SIG_IGN);
    if (strcmp(how, "pause") != 0) {
        for (char **e = environ; *e; e++)
            puts(*e);
        puts("that is all");
        fflush(stdout);
    }
    if (strcmp(how, "once") == 0)
        return 0;
    for (;;)
        pause();
}
