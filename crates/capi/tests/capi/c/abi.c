/* Sizes and places of what programs and the library share: a change here breaks programs that were compiled before. */
#include <flowlane.h>

#include <assert.h>
#include <stdio.h>

#define IS(what, value) static_assert((what) == (value), #what)

IS(sizeof(flowlane_address), 20);
IS(offsetof(flowlane_address, port), 16);
IS(offsetof(flowlane_address, family), 18);
IS(sizeof(flowlane_lane_events), 3 * sizeof(void *));
IS(sizeof(flowlane_udp_events), 5 * sizeof(void *));
IS(offsetof(flowlane_udp_events, received), sizeof(void *));
IS(sizeof(flowlane_tcp_events), 5 * sizeof(void *));
IS(offsetof(flowlane_tcp_events, readable), 2 * sizeof(void *));
IS(sizeof(flowlane_timer_events), 3 * sizeof(void *));
IS(sizeof(flowlane_rss_flow), 42);
IS(sizeof(flowlane_rss_steered), 20);
IS(sizeof(flowlane_tcp_flow_info), 12);
IS(sizeof(flowlane_rebalance_lane), 24);
IS(offsetof(flowlane_rebalance_lane, wanted), 12);
IS(offsetof(flowlane_datagram, source), 3 * sizeof(void *));
IS(offsetof(flowlane_datagram, hash), 3 * sizeof(void *) + 40);
IS(offsetof(flowlane_datagram, timestamp), 3 * sizeof(void *) + 56);
IS(sizeof(flowlane_datagram), 3 * sizeof(void *) + 72);

int main(void)
{
    /* The header that this was compiled with, and the library that runs. */
    printf("%u\n", flowlane_version());
    return 0;
}
