/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop_flag.h"

#include <time.h>

void stop_flag_init(struct stop_flag *f)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->cond, &attr);
    pthread_condattr_destroy(&attr);
    f->is_set = false;
}

void stop_flag_fini(struct stop_flag *f)
{
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->cond);
}

bool stop_flag_wait(struct stop_flag *f, int64_t ms)
{
    struct timespec until;
    int timed_out = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&f->lock);
    while (!f->is_set && !timed_out)
        timed_out = pthread_cond_timedwait(&f->cond, &f->lock, &until);
    bool is_set = f->is_set;
    pthread_mutex_unlock(&f->lock);
    return is_set;
}

void stop_flag_set(struct stop_flag *f)
{
    pthread_mutex_lock(&f->lock);
    f->is_set = true;
    pthread_cond_broadcast(&f->cond);
    pthread_mutex_unlock(&f->lock);
}
