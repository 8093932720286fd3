/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

#include "base/array.h"
#include "base/jwrite.h"
#include "base/rng.h"
#include "lib/unit.h"

struct item {
    int number;
    struct list link;
};

static int content(const struct list *head)
{
    int digits = 0;
    LIST_EACH(const struct item, i, head, link)
    digits = digits * 10 + i->number;
    int back = 0, power = 1;
    for (const struct list *l = head->prev; l != head; l = l->prev, power *= 10)
        back += LIST_ITEM(l, const struct item, link)->number * power;
    ck_assert_int_eq(back, digits);
    return digits;
}

TEST(a_list_keeps_its_order)
{
    struct list head;
    struct item items[5] = {
        {.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}, {.number = 5}};
    list_init(&head);
    ck_assert(list_is_empty(&head));
    ck_assert_ptr_null(LIST_FIRST(&head, struct item, link));
    list_append(&head, &items[1].link);
    list_append(&head, &items[3].link);
    list_prepend(&head, &items[0].link);
    list_insert(&items[3].link, &items[2].link);
    list_insert(&head, &items[4].link);
    ck_assert_int_eq(content(&head), 12345);
    ck_assert_ptr_eq(LIST_FIRST(&head, struct item, link), &items[0]);
    list_remove(&items[2].link);
    list_remove(&items[2].link); /* has no effect */
    ck_assert_int_eq(content(&head), 1245);
    LIST_EACH(struct item, i, &head, link)
    if (i->number != 4)
        list_remove(&i->link);
    ck_assert_int_eq(content(&head), 4);
    list_remove(&items[3].link);
    ck_assert(list_is_empty(&head));
}

TEST(an_array_stays_sorted)
{
    struct rng rng;
    int *items = NULL;
    size_t n = 0, cap = 0;
    bool has[50] = {false};
    rng_init(&rng, 7);
    for (int round = 0; round < 3000; round++) {
        int key = (int)rng_below(&rng, ARRAY_LEN(has));
        size_t at = ARRAY_LOWER_BOUND(i, items, n, *i < key);
        ck_assert(at == 0 || items[at - 1] < key);
        ck_assert(at == n || items[at] >= key);
        ck_assert_int_eq(at < n && items[at] == key, has[key]);
        if (has[key])
            ARRAY_REMOVE(items, n, at);
        else
            *ARRAY_INSERT(items, n, cap, at) = key;
        has[key] = !has[key];
        size_t i = 0;
        for (int k = 0; k < (int)ARRAY_LEN(has); k++)
            if (has[k])
                ck_assert_int_eq(items[i++], k);
        ck_assert_uint_eq(i, n);
    }
    free(items);
}

TEST(json_gets_its_commas_and_escapes)
{
    cleanup_buf struct buf out = {0};
    struct jwrite w = {.out = &out};
    jwrite_object(&w, NULL);
    jwrite_array(&w, "none");
    jwrite_array_end(&w);
    jwrite_str(&w, "text", SPAN("a\"\\\n\x01\xff"));
    jwrite_str_set(&w, "absent", SPAN(""));
    jwrite_array(&w, "items");
    jwrite_i64(&w, NULL, INT64_MIN);
    jwrite_bool(&w, NULL, true);
    jwrite_object(&w, NULL);
    jwrite_object_end(&w);
    jwrite_array(&w, NULL);
    jwrite_bool(&w, NULL, false);
    jwrite_array_end(&w);
    jwrite_array_end(&w);
    jwrite_key(&w, SPAN("\"key\""));
    jwrite_object(&w, NULL);
    jwrite_raw(&w, "raw", SPAN("[1,2]"));
    jwrite_i64(&w, "n", 7);
    jwrite_object_end(&w);
    jwrite_key(&w, SPAN("last"));
    jwrite_str(&w, NULL, SPAN(""));
    jwrite_object_end(&w);
    ck_assert_str_eq(
        out.p, "{\"none\":[],\"text\":\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\",\"items\":["
               "-9223372036854775808,true,{},[false]],\"\\\"key\\\"\":{\"raw\":[1,2],"
               "\"n\":7},\"last\":\"\"}");
}
