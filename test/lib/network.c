/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "lib/unit.h"

/* Writes a file of /proc/self, which must be one write. */
static void say(const char *path, const char *text)
{
    cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = write(fd, text, strlen(text));
    (void)n; /* without it the user has no name, which does not matter */
}

/* Without root: a user namespace in which this user is root. */
static int unshare_as_user(void)
{
    unsigned uid = getuid(), gid = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return -1;
    cleanup_free char *users = xasprintf("%u %u 1", uid, uid);
    cleanup_free char *groups = xasprintf("%u %u 1", gid, gid);
    say("/proc/self/setgroups", "deny");
    say("/proc/self/uid_map", users);
    say("/proc/self/gid_map", groups);
    return 0;
}

int network_own(struct err *err)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) && unshare_as_user())
        return err_set(err, ERR_FORBIDDEN, "cannot create a network namespace: %s",
                       strerror(errno));
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo))
        return err_set(err, ERR_UNAVAILABLE, "cannot start the loopback: %s",
                       strerror(errno));
    return 0;
}

static bool is_ipv6;

/* struct in6_ifreq of linux/ipv6.h, which contradicts netinet/in.h. */
struct address {
    struct in6_addr address;
    uint32_t bits;
    int device;
};

static int set_ipv4(bool on)
{
    struct ifreq lo = {.ifr_name = "lo"};
    struct sockaddr_in *address = (struct sockaddr_in *)&lo.ifr_addr;
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(on ? INADDR_LOOPBACK : INADDR_ANY); /* removes it */
    return ioctl(fd, SIOCSIFADDR, &lo);
}

int network_own_ipv6(struct err *err)
{
    static const char *const addresses[] = {NETWORK_POD, NETWORK_LINK};
    cleanup_close int before = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (before < 0)
        return err_set(err, ERR_UNAVAILABLE, "no IPv6: %s", strerror(errno));
    if (network_own(err))
        return -1;
    cleanup_close int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        struct address a = {.bits = 64, .device = (int)if_nametoindex("lo")};
        inet_pton(AF_INET6, addresses[i], &a.address);
        if (ioctl(fd, SIOCSIFADDR, &a))
            return err_set(err, ERR_UNAVAILABLE, "%s: %s", addresses[i], strerror(errno));
    }
    if (set_ipv4(false))
        return err_set(err, ERR_UNAVAILABLE, "127.0.0.1: %s", strerror(errno));
    is_ipv6 = true;
    return 0;
}

void network_set_ipv4(bool on)
{
    ck_assert_int_eq(set_ipv4(on), 0);
}

const char *network_loopback(void)
{
    return is_ipv6 ? "::1" : "127.0.0.1";
}

char *network_at(unsigned port)
{
    return lib_fmt(STR_HOST ":%u", STR_HOST_ARG(network_loopback()), port);
}
