/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/samples.h"
#include "agent/scv_build.h"

static struct arena arena;

static void status_is(const struct gpu_sample *s, const bool *healthy, const char *want)
{
    cleanup_buf struct buf status = {0};
    struct scv scv = {0};
    scv_build_cards(s, healthy, &arena, &scv);
    scv_write_status(&status, &scv);
    for (size_t i = 0; i < status.n; i++)
        if (status.p[i] == '"')
            status.p[i] = '\'';
    ck_assert_str_eq(status.p, want);
}

#define VERSIONS "'cudaVersion':'12.2','driverVersion':'535.129.03'"

START_TEST(all_known_values_are_published)
{
    /* A T4 of 15109.99 MiB: what is not a whole MiB is cut off. */
    status_is(
        sample_of("{'uuid':'GPU-0','model':'Tesla T4','busId':'00000000:3B:00.0',"
                  "'memoryTotal':15843721215,'memoryFree':15307898879,"
                  "'memoryUsed':3145727,'memoryReserved':500000000,'clockMemoryMax':5001,"
                  "'clockSmMax':1590,'clockGraphicsMax':1600,'pcieGenerationMax':3,"
                  "'pcieWidthMax':16,'powerLimit':70999,'utilization':7,"
                  "'temperature':31,'processes':[{'pid':1,'bytes':2}]},"
                  "{'index':5,'uuid':'GPU-5','model':'NVIDIA H200','memoryTotal':1048576,"
                  "'memoryFree':0,'memoryUsed':0,'pcieGenerationMax':5,"
                  "'pcieWidthMax':16,'utilization':0,'temperature':0}"),
        NULL,
        "{'cardList':[{'bandwidth':15760,'busId':'00000000:3B:00.0','clock':5001,"
        "'core':1590,'freeMemory':14598,'health':'Healthy','id':0,'model':'Tesla T4',"
        "'power':70,'temperature':31,'totalMemory':15109,'usedMemory':2,"
        "'utilization':7,'uuid':'GPU-0'},"
        "{'bandwidth':63008,'health':'Healthy','id':5,'model':'NVIDIA H200',"
        "'temperature':0,'totalMemory':1,'usedMemory':0,'utilization':0,"
        "'uuid':'GPU-5'}],'cardNumber':2," VERSIONS
        ",'freeMemorySum':14598,'totalMemorySum':15110}");
}
END_TEST

START_TEST(unknown_values_are_left_out)
{
    status_is(sample_of("{'memoryTotal':9437184,'memoryFree':3145728}"), NULL,
              "{'cardList':[{'freeMemory':3,'health':'Healthy','id':0,"
              "'totalMemory':9}],'cardNumber':1," VERSIONS
              ",'freeMemorySum':3,'totalMemorySum':9}");
    status_is(sample_of(""), NULL, "{" VERSIONS "}");
    status_is(&(struct gpu_sample){0}, NULL, "{}");
    status_is(sample_of("{'memoryTotal':1048576,'utilization':101,'temperature':1001}"),
              NULL,
              "{'cardList':[{'freeMemory':1,'health':'Healthy','id':0,'totalMemory':1}],"
              "'cardNumber':1," VERSIONS ",'freeMemorySum':1,'totalMemorySum':1}");
}
END_TEST

START_TEST(failed_cards)
{
    status_is(sample_of("{'uuid':'GPU-0','migMode':1,'memoryTotal':9437184},"
                        "{'uuid':'GPU-1','state':'lost','memoryTotal':9437184,"
                        "'memoryFree':0},"
                        "{'uuid':'GPU-2','remapFailed':1,'memoryTotal':9437184},{}"),
              NULL,
              "{'cardList':["
              "{'health':'Unhealthy','id':1,'totalMemory':9,'uuid':'GPU-1'},"
              "{'freeMemory':9,'health':'Unhealthy','id':2,'totalMemory':9,"
              "'uuid':'GPU-2'},{'health':'Unhealthy','id':3}],'cardNumber':3," VERSIONS
              ",'freeMemorySum':9,'totalMemorySum':18}");
}
END_TEST

START_TEST(the_given_health_is_published)
{
    static const bool healthy[] = {false, true};
    status_is(sample_of("{'memoryTotal':1048576},"
                        "{'uuid':'GPU-1','memoryTotal':1048576,'state':'ecc'}"),
              healthy,
              "{'cardList':[{'freeMemory':1,'health':'Unhealthy','id':0,"
              "'totalMemory':1},{'freeMemory':1,'health':'Healthy','id':1,"
              "'totalMemory':1,'uuid':'GPU-1'}],'cardNumber':2," VERSIONS
              ",'freeMemorySum':2,'totalMemorySum':2}");
}
END_TEST

UNIT_MAIN("scv_build", all_known_values_are_published, unknown_values_are_left_out,
          failed_cards, the_given_health_is_published)
