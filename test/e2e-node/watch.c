/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "e2e-node/look.h"

/* The thread that calls podresources continuously. */

enum { EVERY_MS = 20 }; /* the kubelet accepts 100 calls per second in total */

static struct {
    pthread_t thread;
    atomic_bool stopped;
    size_t lists, gets, unanswered, most;
    json_t *uids; /* {pod: uid} */
} watch;

/* podresources has no UIDs; the tests do not reuse names. */
static void learn_uids(void)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET", CLUSTER_PODS, NULL, &reply) != 200)
        return;
    cleanup_json json_t *pods = json_loadb(reply.p, reply.n, 0, NULL);
    size_t i;
    json_t *pod;
    json_array_foreach(lib_at(pods, "items"), i, pod) json_object_set(
        watch.uids, lib_str(pod, "metadata.name"), lib_at(pod, "metadata.uid"));
}

static void compare(const json_t *held)
{
    const char *who;
    json_t *ids;
    bool strange = false;
    json_object_foreach((json_t *)held, who, ids)
    {
        cleanup_free char *pod = xmemdup0(who, strcspn(who, "/"));
        const char *uid = json_string_value(json_object_get(watch.uids, pod));
        strange |= !uid;
        cleanup_free char *log = uid ? node_log(pod, uid, strchr(who, '/') + 1) : NULL;
        if (log)
            look_at_container(who, ids, log);
    }
    if (strange)
        learn_uids();
    if (json_object_size(held) > watch.most)
        watch.most = json_object_size(held);
}

static void *ask(void *arg)
{
    for (size_t turn = 0; !watch.stopped; turn++) {
        cleanup_json json_t *held = look_held();
        if (!held) {
            watch.unanswered++;
        } else {
            watch.lists++;
            if (turn % 8 == 0)
                compare(held);
        }
        const char *who = held ? json_object_iter_key(json_object_iter(held)) : NULL;
        if (who) {
            cleanup_free char *pod = xmemdup0(who, strcspn(who, "/"));
            cleanup_json json_t *one = look_held_by(pod);
            watch.gets++;
        }
        nanosleep(&(struct timespec){.tv_nsec = EVERY_MS * 1000000L}, NULL);
    }
    return arg;
}

void look_watch(void)
{
    watch.uids = json_object();
    watch.stopped = false;
    ck_assert_int_eq(pthread_create(&watch.thread, NULL, ask, NULL), 0);
}

void look_watch_end(void)
{
    watch.stopped = true;
    pthread_join(watch.thread, NULL);
    json_decref(watch.uids);
    printf(
        "measured: podresources was asked %zu times for all, %zu times for one pod (%zu "
        "without an answer); %zu containers at most\n",
        watch.lists, watch.gets, watch.unanswered, watch.most);
    fflush(stdout);
    ck_assert_uint_gt(watch.lists, 0);
}
