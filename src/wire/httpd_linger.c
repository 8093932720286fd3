/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/httpd_priv.h"

enum { LINGER_MS = 1000 };

void httpd_linger_begin(struct httpd *d, int fd)
{
    if (atomic_load(&d->state) == HTTPD_STOPPING)
        return;
    if (d->n_lingers == HTTPD_LINGERS) {
        close(d->linger[0].fd);
        memmove(d->linger, d->linger + 1, --d->n_lingers * sizeof *d->linger);
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return;
    shutdown(copy, SHUT_WR);
    d->linger[d->n_lingers++] = (struct httpd_linger){
        .fd = copy, .until_ms = clock_mono_ms() + LINGER_MS, .left = HTTPD_DISCARD_MAX};
}

/* Reads and discards. False: close the connection now. */
static bool linger_on(struct httpd_linger *l, int64_t now)
{
    if (now >= l->until_ms)
        return false;
    ssize_t n = recv(l->fd, NULL, l->left, MSG_TRUNC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    l->left -= (size_t)n;
    return n > 0 && l->left > 0;
}

void httpd_linger_all(struct httpd *d)
{
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&d->lock);
    size_t n = 0;
    for (size_t i = 0; i < d->n_lingers; i++) {
        if (linger_on(&d->linger[i], now))
            d->linger[n++] = d->linger[i];
        else
            close(d->linger[i].fd);
    }
    d->n_lingers = n;
    pthread_mutex_unlock(&d->lock);
}
