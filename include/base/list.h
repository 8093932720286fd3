/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * An intrusive doubly linked list: the items contain the links. The head is a ring of one
 * when the list is empty, so that adding and removing have no special case. The list owns
 * nothing; an item must not move while it is in one.
 *
 *     struct list jobs;                 // list_init(&jobs)
 *     struct job { struct list link; };
 *     list_append(&jobs, &job->link);
 *     LIST_EACH (struct job, j, &jobs, link) ...
 */

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

/* Inserts the item before `at`, which is an item or the head. */
static inline void list_insert(struct list *at, struct list *item)
{
    item->next = at;
    item->prev = at->prev;
    at->prev->next = item;
    at->prev = item;
}

static inline void list_append(struct list *head, struct list *item)
{
    list_insert(head, item);
}

static inline void list_prepend(struct list *head, struct list *item)
{
    list_insert(head->next, item);
}

/* The item is an empty list afterwards, so that a second removal has no effect. */
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

/* The struct of `type` that contains the link. */
#define LIST_ITEM(ptr, type, link)                                                       \
    ((type *)(void *)((char *)(size_t)(ptr)-offsetof(type, link)))

/* The first item; NULL: the list is empty. */
#define LIST_FIRST(head, type, link)                                                     \
    (list_is_empty(head) ? NULL : LIST_ITEM((head)->next, type, link))

/* Visits the items in order. The body may remove and release the item that it visits. */
#define LIST_EACH(type, item, head, link)                                                \
    for (type *item = LIST_ITEM((head)->next, type, link),                               \
              *item##_next = LIST_ITEM(item->link.next, type, link);                     \
         &item->link != (head);                                                          \
         item = item##_next, item##_next = LIST_ITEM(item->link.next, type, link))
