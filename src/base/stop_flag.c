/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop_flag.h"

#include <time.h>

void stop_flag_init(struct stop_flag *p)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->cond, &attr);
    pthread_condattr_destroy(&attr);
    p->ended = false;
}

void stop_flag_fini(struct stop_flag *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->cond);
}

bool stop_flag_wait(struct stop_flag *p, int64_t ms)
{
    struct timespec until;
    int timed_out = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&p->lock);
    while (!p->ended && !timed_out)
        timed_out = pthread_cond_timedwait(&p->cond, &p->lock, &until);
    bool ended = p->ended;
    pthread_mutex_unlock(&p->lock);
    return ended;
}

void stop_flag_set(struct stop_flag *p)
{
    pthread_mutex_lock(&p->lock);
    p->ended = true;
    pthread_cond_broadcast(&p->cond);
    pthread_mutex_unlock(&p->lock);
}
