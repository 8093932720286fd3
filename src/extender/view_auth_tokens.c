/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_auth_priv.h"

static struct token *set_of(struct tokens *t, const struct digest *key)
{
    return t->sets[key->bytes[0] % TOKEN_SETS];
}

struct token *view_auth_tokens_find(struct tokens *t, const struct digest *key,
                                    int64_t now_ms)
{
    struct token *set = set_of(t, key);
    for (size_t i = 0; i < TOKEN_WAYS; i++) {
        if (!set[i].used || !digest_equal(&set[i].key, key))
            continue;
        set[i].last_ms = now_ms;
        return &set[i];
    }
    return NULL;
}

void view_auth_tokens_drop(struct token *t)
{
    if (!t)
        return;
    view_auth_user_free(t->user);
    *t = (struct token){0};
}

struct token *view_auth_tokens_add(struct tokens *t, const struct digest *key,
                                   int64_t now_ms)
{
    struct token *set = set_of(t, key), *at = view_auth_tokens_find(t, key, now_ms);
    if (!at)
        at = set;
    for (size_t i = 0; i < TOKEN_WAYS && at->used && !digest_equal(&at->key, key); i++)
        if (!set[i].used || set[i].last_ms < at->last_ms)
            at = &set[i];
    view_auth_tokens_drop(at);
    *at = (struct token){.key = *key, .used = true, .last_ms = now_ms};
    return at;
}

void view_auth_tokens_fini(struct tokens *t)
{
    for (size_t s = 0; s < TOKEN_SETS; s++)
        for (size_t i = 0; i < TOKEN_WAYS; i++)
            view_auth_tokens_drop(&t->sets[s][i]);
}
