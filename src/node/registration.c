/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The registration of a resource with the kubelet, and the directory of the sockets.
 */

#include "node/registration.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/deviceplugin.h"

static const char *const prefixes[IDS_RESOURCES] = {"gpushare-mem-", "gpushare-count-",
                                                    "gpushare-share-", "gpushare-gpu-",
                                                    "gpushare-core-"};

/* Does a process listen on the socket? Also one that is busy, or that cannot be asked: only a
 * refusal proves that it has died. */
static bool answers(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        return false;
    strcpy(to.sun_path, path);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ||
           (errno != ECONNREFUSED && errno != ENOENT);
}

/* Among the endpoints of other gpushare plugins: removes those of plugins that have died
 * (`clean`), or says whether one is of a newer plugin that answers. Start times have a fixed
 * number of digits, so the order of names is that of age. */
static bool walk_endpoints(const struct registration_dir *d, enum ids_resource r,
                           bool clean)
{
    DIR *dir = opendir(d->path);
    struct dirent *entry;
    bool newer = false;
    while (dir && !newer && (entry = readdir(dir)) != NULL) {
        struct stat st;
        int age = strcmp(entry->d_name, d->endpoints[r]);
        if (!span_starts(span_of(entry->d_name), span_of(prefixes[r])) || age == 0)
            continue;
        cleanup_free char *path = xasprintf("%s/%s", d->path, entry->d_name);
        if (!clean)
            newer = age > 0 && answers(path);
        else if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && !answers(path))
            unlink(path);
    }
    if (dir)
        closedir(dir);
    return newer;
}

bool registration_dir_has_newer(const struct registration_dir *d, enum ids_resource r)
{
    return walk_endpoints(d, r, false);
}

int registration_dir_open(struct registration_dir *d, const char *path, struct err *err)
{
    struct stat st;
    long long start = clock_wall_ns() / 1000000;
    int missing = stat(path, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (missing)
        return err_set(err, ERR_NOT_FOUND, "--plugin-dir: %s: %s", path,
                       strerror(missing));
    d->path = path;
    snprintf(d->kubelet, sizeof d->kubelet, "%s/" DP_KUBELET_SOCK, path);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        snprintf(d->endpoints[r], sizeof d->endpoints[r], "%s%013lld-%d.sock",
                 prefixes[r], start, getpid());
        walk_endpoints(d, (enum ids_resource)r, true);
    }
    return 0;
}

uint64_t registration_dir_kubelet_id(const struct registration_dir *d)
{
    struct stat st;
    if (stat(d->kubelet, &st) || !S_ISSOCK(st.st_mode))
        return 0;
    /* A file system can reuse an inode number, so the change time is mixed in. */
    return (uint64_t)st.st_ino ^ (uint64_t)st.st_ctim.tv_nsec << 32 ^
           (uint64_t)st.st_ctim.tv_sec << 20;
}

/* The state machine */

void registration_init(struct registration *reg)
{
    *reg = (struct registration){.retry_ms = REGISTRATION_FIRST_RETRY_MS};
}

static void again(struct registration *reg, int64_t at_ms)
{
    reg->state = REGISTRATION_WAITING;
    reg->at_ms = at_ms;
}

static void back_off(struct registration *reg, int64_t now_ms)
{
    again(reg, now_ms + reg->retry_ms);
    reg->retry_ms *= 2;
    if (reg->retry_ms > REGISTRATION_LAST_RETRY_MS)
        reg->retry_ms = REGISTRATION_LAST_RETRY_MS;
}

/* An answer in flight is that of the previous kubelet. It can be ignored: without a stream the
 * plugin registers again. With a stream it must not: that of a kubelet that has died closes, and
 * Kubernetes 1.37 forgets a plugin that registers twice, but not its devices when it ends. */
void registration_kubelet_socket(struct registration *reg, int64_t now_ms,
                                 uint64_t kubelet)
{
    if (kubelet == reg->kubelet)
        return;
    reg->kubelet = kubelet;
    reg->retry_ms = REGISTRATION_FIRST_RETRY_MS;
    if (reg->state != REGISTRATION_REGISTERING && !reg->streams)
        again(reg, now_ms);
}

void registration_serving(struct registration *reg, int64_t now_ms, bool reachable)
{
    if (reg->reachable && !reachable && reg->state != REGISTRATION_REGISTERING)
        again(reg, now_ms);
    if (!reg->reachable && !reachable)
        back_off(reg, now_ms); /* creating the endpoint failed */
    reg->reachable = reachable;
}

void registration_answered(struct registration *reg, int64_t now_ms, bool accepted)
{
    if (reg->state != REGISTRATION_REGISTERING)
        return;
    /* Kubernetes 1.37 rejects a plugin that it is connected to. A stream shows that it is: those of
     * a kubelet that has died close. */
    if (!accepted && !reg->streams) {
        back_off(reg, now_ms);
        return;
    }
    reg->state = reg->streams ? REGISTRATION_REGISTERED : REGISTRATION_AWAITING_STREAM;
    reg->at_ms = now_ms + REGISTRATION_STREAM_MS;
}

void registration_yield(struct registration *reg, int64_t now_ms)
{
    reg->state = REGISTRATION_YIELDING;
    reg->at_ms = now_ms + REGISTRATION_NEWER_PLUGIN_MS;
}

void registration_stream(struct registration *reg, int64_t now_ms, bool opened)
{
    reg->streams += opened ? 1 : -1U;
    if (opened && reg->state == REGISTRATION_AWAITING_STREAM)
        reg->state = REGISTRATION_REGISTERED;
    if (opened && reg->state == REGISTRATION_REGISTERED)
        reg->retry_ms = REGISTRATION_FIRST_RETRY_MS;
    if (!reg->streams && reg->state == REGISTRATION_REGISTERED)
        again(reg, now_ms + REGISTRATION_SETTLE_MS);
}

enum registration_action registration_next(struct registration *reg, int64_t now_ms)
{
    if (!reg->wanted || !reg->kubelet || now_ms < reg->at_ms)
        return REGISTRATION_NOTHING;
    if (reg->state == REGISTRATION_AWAITING_STREAM)
        back_off(reg, now_ms);
    if (now_ms < reg->at_ms ||
        (reg->state != REGISTRATION_WAITING && reg->state != REGISTRATION_YIELDING))
        return REGISTRATION_NOTHING;
    if (!reg->reachable)
        return REGISTRATION_SERVE;
    reg->state = REGISTRATION_REGISTERING;
    return REGISTRATION_REGISTER;
}

int64_t registration_due(const struct registration *reg)
{
    if (!reg->wanted || !reg->kubelet || reg->state == REGISTRATION_REGISTERING ||
        reg->state == REGISTRATION_REGISTERED)
        return INT64_MAX;
    return reg->at_ms;
}

const char *registration_missing(const struct registration *reg)
{
    static const char *const steps[] = {
        [REGISTRATION_WAITING] = "retrying",
        [REGISTRATION_REGISTERING] = "waiting for the kubelet to answer Register",
        [REGISTRATION_AWAITING_STREAM] = "waiting for the kubelet to open ListAndWatch",
        [REGISTRATION_YIELDING] = "a newer plugin of this node serves it",
    };
    if (reg->state == REGISTRATION_REGISTERED)
        return NULL;
    return reg->kubelet ? steps[reg->state] : "waiting for the kubelet";
}
