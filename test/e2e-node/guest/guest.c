/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the containers of test/e2e-node run; linked statically, since their images hold
 * nothing else. It prints its environment, says that this was all, and waits to be ended.
 *
 *     guest          does that
 *     guest once     does not wait: an init container
 *     guest pause    only waits: the container that keeps the others' namespaces
 *     guest devices  prints which device files of cards the container has, and which of
 *                    the first eight cards its control group lets it open
 *     guest files D  prints the names in directory D
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NVIDIA_MAJOR = 195, CARDS = 8 };

/* Process 1 of a container is not ended by signals that it has no handler for. */
static void ended(int number)
{
    (void)number;
    _exit(0);
}

/* The control group refuses with EPERM; without a driver, open fails in another way. */
static const char *opens(const char *path)
{
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const char *answer = fd < 0 && errno == EPERM ? "refused" : "open";
    if (fd >= 0)
        close(fd);
    return answer;
}

static void print_files(const char *dir, const char *prefix, int try)
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[512];
        const char *name = list[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        if (name[0] != '.' && strncmp(name, prefix, strlen(prefix)) == 0)
            printf("%s%s%s\n", name, try ? " " : "", try ? opens(path) : "");
    }
}

static int print_devices(void)
{
    print_files("/dev", "nvidia", 1);
    for (unsigned i = 0; i < CARDS; i++) {
        if (mknod("/dev/probe", S_IFCHR | 0600, makedev(NVIDIA_MAJOR, i)))
            return 1;
        printf("card %u %s\n", i, opens("/dev/probe"));
        unlink("/dev/probe");
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    signal(SIGTERM, ended);
    signal(SIGINT, ended);
    signal(SIGCHLD, SIG_IGN);
    if (strcmp(how, "devices") == 0)
        return print_devices();
    if (strcmp(how, "files") == 0 && argc > 2) {
        print_files(argv[2], "", 0);
        return 0;
    }
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
