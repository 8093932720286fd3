/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

/* Cards that NVIDIA's device plugin allocates to pods of nvidia.com/gpu. */

unsigned oracle_pod_list(const struct oracle *o, int node)
{
    return o->listed[node];
}

static unsigned given(const struct oracle *o, int node)
{
    unsigned bits = 0;
    for (const struct oracle_pod *p = o->pods; p; p = p->next)
        if (oracle_index(p->node) == node && !p->over)
            bits |= p->held;
    return bits;
}

void oracle_update_pod_list(struct oracle *o, int node, bool published)
{
    o->listed[node] = published ? given(o, node) : 0;
    for (struct oracle_pod *p = o->pods; p; p = p->next)
        if (oracle_index(p->node) == node)
            p->shown = published && p->held;
}

bool oracle_allocate(struct world *w, struct oracle_pod *p)
{
    int node = oracle_index(p->node), left = p->devices;
    unsigned taken = given(w->oracle, node), bits = 0;
    for (int card = 0; card < oracle_cards(node) && left; card++)
        if (!(taken & 1u << card)) {
            bits |= 1u << card;
            left--;
        }
    p->held = left ? 0 : bits;
    return left == 0;
}

int oracle_devices_left(const struct world *w, const struct oracle_pod *asking, int node,
                        const int *replica)
{
    const struct oracle *o = w->oracle;
    unsigned busy = replica ? 0 : o->listed[node];
    int claimed = 0, n = 0;
    for (const struct oracle_pod *p = o->pods; p; p = p->next) {
        bool known = !replica || p->known_by & 1u << *replica;
        if (p == asking || p->over || oracle_index(p->node) != node || !known)
            continue;
        bool shown = replica ? p->held != 0 : p->shown;
        busy |= shown ? p->held : 0;
        claimed += shown ? 0 : p->devices;
        for (int card = 0; card < oracle_cards(node); card++)
            if ((replica ? oracle_must_count(w, p, *replica, node, card)
                         : oracle_holds(p, node, card)) >= 0)
                busy |= 1u << card;
    }
    for (int card = 0; card < oracle_cards(node); card++)
        n += !(busy & 1u << card) && oracle_card_matches(asking, node, card) &&
             (replica || !o->unhealthy[node][card]);
    return n - claimed;
}

void oracle_sent(struct world *w, int replica, const char *uid, const char *node)
{
    const struct oracle_pod *p = oracle_find(w, uid);
    int at = oracle_index(node);
    /* The replica may know an older version of an edited pod. */
    if (p && !p->edited && !p->invalid && (p->models || p->clock || p->least) &&
        oracle_devices_left(w, p, at, &replica) < p->devices)
        violated(w, "pod %s is sent to %s, which has too few matching cards", uid, node);
}
