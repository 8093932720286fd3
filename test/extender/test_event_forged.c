/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_scan.h"

#include <pthread.h>
#include <time.h>

#include "base/log.h"
#include "core/rig.h"

/* Events of pods whose annotations differ from their request or cards, scan by scan. */

static struct event_scan *pods;
static struct event_recorder *recorder;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int posted;

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)err;
    ck_assert(memmem(request->body.p, request->body.n, "GPUPromiseDiffers", 17) != NULL);
    pthread_mutex_lock(&lock);
    posted++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void start(void)
{
    log_set_level(LOG_ERROR);
    rig_new((struct core_settings){.ledger = {.unit_mib = 1024}});
    rig_lead();
    rig_scv(object_scv_even(&r.arena, "n1", 2, 16384));
    pods = event_scan_new();
    recorder = event_recorder_start(
        &(struct event_recorder_settings){.post = post, .instance = "me"});
}

static void see_pod(const char *uid, const char *index, const char *units)
{
    rig_pod(object_pod(&r.arena,
                       quoted(&r.arena,
                              "{'metadata':{'namespace':'default','name':'p','uid':'%s',"
                              "'annotations':{'" KEY_MEM_IDX "':'%s','" KEY_MEM_POD
                              "':'%s'}},'spec':{'nodeName':'n1','containers':[{"
                              "'resources':{'limits':{'" KEY_GPU_MEM "':'2'}}}]}}",
                              uid, index, units)),
            false);
}

/* Scans at that time; `leads`: this process writes events. True: something is left. */
static bool scan(int64_t now_ms, bool leads, int64_t led_ms)
{
    event_scan_begin(
        pods, &(struct event_scan_settings){now_ms, leads ? recorder : NULL, led_ms});
    event_scan_node(pods, ledger_node_find(core_ledger(r.core), SPAN("n1")));
    return event_scan_end(pods);
}

/* Waits until `n` events have been posted. */
static void end(int n)
{
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&lock);
    while (posted < n && !late)
        late = pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
    event_recorder_stop(recorder, INT64_MAX);
    ck_assert_int_eq(posted, n);
    event_recorder_free(recorder);
    event_scan_free(pods);
    rig_free();
}

START_TEST(each_difference_is_reported_once)
{
    start();
    see_pod("a", "0", "2");
    ck_assert(!scan(1000, true, 0));
    see_pod("b", "0", "99");
    ck_assert(!scan(2000, true, 0));
    ck_assert(!scan(3000, true, 0));
    see_pod("c", "1", "98");
    ck_assert(!scan(4000, true, 0));
    end(2);
}
END_TEST

/* The recorder takes one event of a pod in ten minutes. */
START_TEST(a_changed_difference_is_reported_later)
{
    start();
    see_pod("b", "0", "99");
    ck_assert(!scan(1000, true, 0));
    see_pod("b", "0", "98");
    ck_assert(scan(2000, true, 0));
    see_pod("b", "0", "2"); /* repaired meanwhile */
    ck_assert(!scan(3000, true, 0));
    end(1);
}
END_TEST

START_TEST(other_cards_are_reported_when_they_last)
{
    start();
    see_pod("a", "0", "2");
    rig_scv(object_scv(
        &r.arena,
        quoted(&r.arena, "{'metadata':{'name':'n1'},'status':{'cardList':["
                         "{'id':0,'health':'Healthy','totalMemory':16384,"
                         "'uuid':'U0'},{'id':1,'health':'Healthy',"
                         "'totalMemory':16384,'uuid':'U1'}],'podList':[{"
                         "'namespace':'default','name':'p','container':'c',"
                         "'resource':'" KEY_GPU_MEM "','units':2,'cards':['U1']}]}}")));
    ck_assert(scan(1000, true, 0));
    ck_assert(scan(1000 + EVENT_SCAN_CARDS_MS - 1, true, 0));
    ck_assert(!scan(1000 + EVENT_SCAN_CARDS_MS, true, 0));
    end(1);
}
END_TEST

START_TEST(only_the_leader_reports)
{
    start();
    see_pod("a", "0", "99");
    ck_assert(scan(10000, false, 0)); /* no leader: this process may become it */
    ck_assert(scan(11000, false, 11000));
    ck_assert(!scan(16000, false, 16000)); /* the leader has had time */
    ck_assert(!scan(17000, true, 0));
    see_pod("b", "0", "99");
    ck_assert(scan(18000, false, 18000));
    ck_assert(!scan(19000, true, 0));
    end(1);
}
END_TEST

UNIT_MAIN("event_forged", each_difference_is_reported_once,
          a_changed_difference_is_reported_later, other_cards_are_reported_when_they_last,
          only_the_leader_reports)
