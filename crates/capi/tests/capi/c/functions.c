/*
 * What the examples do not use. Two hosts of one process are joined by a wire in memory; in every lane of the client a datagram, a connection and a
 * send without a copy go to the server and back, a timer runs, and every misuse gets its code. Says "all is well", or what is not.
 */
#define _POSIX_C_SOURCE 200809L
#include <flowlane.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) ((what) ? (void)0 : wrong(__LINE__, #what))
#define OK(call) CHECK((call) == FLOWLANE_OK)

static void wrong(int line, const char *what)
{
    fprintf(stderr, "line %d: %s; last error: %s\n", line, what, flowlane_last_error());
    exit(1);
}

/* What happened, in all lanes. */
static atomic_int answered, echoed, heard, given_back, refused, ticks, begun, ended, closings, openings, called, decided, roomy;
static flowlane_timer *_Atomic some_timer;

enum { LONG = 200000 };

/* A connection of the server sends back what it reads. */
struct echo {
    size_t used;
    char data[16384];
};

static void echo_opened(flowlane_tcp *tcp, void *user)
{
    CHECK(user == (void *)&begun);
    flowlane_tcp_set_user(tcp, calloc(1, sizeof(struct echo)));
    CHECK(flowlane_tcp_user(tcp) && flowlane_tcp_lane(tcp) == flowlane_lane_current());
    openings++;
}

static void echo_write(flowlane_tcp *tcp, void *user)
{
    struct echo *echo = user;
    size_t n;
    int code = echo->used ? flowlane_tcp_write(tcp, echo->data, echo->used, &n) : FLOWLANE_OK;
    if (code == FLOWLANE_OK && echo->used) {
        memmove(echo->data, echo->data + n, echo->used - n);
        echo->used -= n;
        if (echo->used)
            code = flowlane_tcp_write(tcp, echo->data, 0, &n);
    }
    CHECK(code == FLOWLANE_OK || code == FLOWLANE_ERR_AGAIN);
    OK(flowlane_tcp_pause(tcp, echo->used == sizeof echo->data));
}

static void echo_read(flowlane_tcp *tcp, void *user)
{
    struct echo *echo = user;
    size_t n;
    if (echo->used == sizeof echo->data)
        return;
    int code = flowlane_tcp_read(tcp, echo->data + echo->used, sizeof echo->data - echo->used, &n);
    if (code == FLOWLANE_ERR_AGAIN)
        return;
    if (code || !n) {
        CHECK(code == FLOWLANE_OK || code == FLOWLANE_ERR_RESET);
        OK(flowlane_tcp_close(tcp));
        return;
    }
    echo->used += n;
    echo_write(tcp, echo);
}

static void echo_closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    (void)tcp;
    CHECK(code == FLOWLANE_OK || code == FLOWLANE_ERR_STOPPED);
    closings++;
    free(user);
}

static const flowlane_tcp_events echo_events = {sizeof echo_events, echo_opened, echo_read, echo_write, echo_closed};

/* A connection whose first bytes wait until a timer lets the program read them. */
struct held {
    flowlane_tcp *tcp;
    flowlane_timer *timer;
    int free;
};

static void held_due(flowlane_timer *timer, void *user)
{
    struct held *held = user;
    held->free = 1;
    OK(flowlane_tcp_pause(held->tcp, false));
    OK(flowlane_timer_close(timer));
}

static void held_timer_closed(flowlane_timer *timer, void *user)
{
    (void)timer, (void)user;
    closings++;
}

static const flowlane_timer_events held_timer_events = {sizeof held_timer_events, held_due, held_timer_closed};

static void held_opened(flowlane_tcp *tcp, void *user)
{
    struct held *held = calloc(1, sizeof *held);
    (void)user;
    CHECK(held);
    held->tcp = tcp;
    flowlane_tcp_set_user(tcp, held);
    OK(flowlane_tcp_pause(tcp, true));
    OK(flowlane_timer_new(flowlane_tcp_lane(tcp), &held_timer_events, held, &held->timer));
    OK(flowlane_timer_set(held->timer, 20000000));
    openings += 2;
}

static void held_read(flowlane_tcp *tcp, void *user)
{
    struct held *held = user;
    char data[8];
    size_t n;
    CHECK(held->free);
    OK(flowlane_tcp_read(tcp, data, sizeof data, &n));
    CHECK(n == 4 && !memcmp(data, "wait", 4));
    OK(flowlane_tcp_close(tcp));
    heard++;
}

static void held_closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    (void)tcp;
    OK(code);
    closings++;
    free(user);
}

static const flowlane_tcp_events held_events = {sizeof held_events, held_opened, held_read, NULL, held_closed};

/* Datagrams of seven bytes go back backwards and without their last two; others are dropped. */
static void reverse(flowlane_udp *udp, flowlane_batch *batch, size_t count, void *user)
{
    (void)udp, (void)user;
    for (size_t i = 0; i < count; i++) {
        flowlane_datagram datagram;
        char copy[64];
        size_t copied;
        OK(flowlane_batch_get(batch, i, &datagram));
        CHECK(datagram.len == datagram.total && datagram.source.family == 4 && datagram.destination.port == 7);
        CHECK(datagram.hash_type == 0x81 && datagram.bucket == flowlane_lane_bucket(flowlane_lane_current()));
        OK(flowlane_batch_read(batch, i, copy, sizeof copy, &copied));
        CHECK(copied == datagram.len && !memcmp(copy, datagram.data, copied));
        for (size_t at = 0; at < copied; at++)
            ((char *)datagram.data)[at] = copy[copied - 1 - at];
        if (copied == 7)
            OK(flowlane_batch_reply(batch, i, 5));
    }
    CHECK(flowlane_batch_reply(batch, count, 1) == FLOWLANE_ERR_INVALID);
}

static void udp_closed(flowlane_udp *udp, void *user)
{
    (void)udp, (void)user;
    closings++;
}

static const flowlane_udp_events reverse_events = {.size = sizeof reverse_events, .received = reverse, .closed = udp_closed};

static int server_start(flowlane_lane *lane, void *user)
{
    CHECK(user == (void *)&begun && flowlane_lane_user(lane) == user && flowlane_lane_host(lane) == 0);
    flowlane_address any = {.port = 7}, where;
    flowlane_udp *udp;
    flowlane_listener *listener;
    OK(flowlane_udp_open(lane, &any, NULL, &reverse_events, NULL, &udp));
    openings++;
    OK(flowlane_udp_local(udp, &where));
    CHECK(where.port == 7 && where.family == 0);
    CHECK(flowlane_udp_open(lane, &any, NULL, &reverse_events, NULL, &udp) == FLOWLANE_ERR_IN_USE);
    any.port = 9;
    OK(flowlane_listener_open(lane, &any, 0, &echo_events, user, &listener));
    OK(flowlane_listener_local(listener, &where));
    CHECK(where.port == 9);
    any.port = 11;
    OK(flowlane_listener_open(lane, &any, 0, &held_events, NULL, &listener));
    begun++;
    return 0;
}

static void stop(flowlane_lane *lane, void *user)
{
    (void)lane, (void)user;
    ended++;
}

static const flowlane_lane_events server_events = {sizeof server_events, server_start, stop};

/* The client's socket: asks, and is answered. */
static void answer(flowlane_udp *udp, flowlane_batch *batch, size_t count, void *user)
{
    flowlane_datagram datagram;
    (void)user;
    CHECK(count == 1);
    OK(flowlane_batch_get(batch, 0, &datagram));
    CHECK(datagram.len == 5 && !memcmp(datagram.data, "olleh", 5));
    answered++;
    OK(flowlane_udp_close(udp));
}

static const flowlane_udp_events answer_events = {.size = sizeof answer_events, .received = answer, .closed = udp_closed};

/* The client's connection: sends one long piece without a copy, and reads it back. */
struct bulk {
    size_t read;
    int back;
    flowlane_tcp *tcp;
    unsigned char *sent, *came;
};

static void bulk_end(struct bulk *bulk)
{
    if (bulk->read < LONG || !bulk->back)
        return;
    CHECK(!memcmp(bulk->sent, bulk->came, LONG));
    OK(++echoed % 2 ? flowlane_tcp_close(bulk->tcp) : flowlane_tcp_abort(bulk->tcp));
}

static void bulk_back(void *data, size_t len, int32_t code, void *user)
{
    struct bulk *bulk = user;
    CHECK(code == FLOWLANE_OK && data == bulk->sent && len == LONG && flowlane_lane_current());
    bulk->back = 1;
    given_back++;
    bulk_end(bulk);
}

static void bulk_opened(flowlane_tcp *tcp, void *user)
{
    struct bulk *bulk = calloc(1, sizeof *bulk);
    flowlane_tcp_flow_info flow;
    flowlane_address peer, local;
    const char *congestion;
    size_t n;
    CHECK(user == NULL && bulk);
    bulk->sent = malloc(LONG);
    bulk->came = malloc(LONG);
    for (size_t i = 0; i < LONG; i++)
        bulk->sent[i] = (unsigned char)(i * 31 >> 3);
    flowlane_tcp_set_user(tcp, bulk);
    bulk->tcp = tcp;
    OK(flowlane_tcp_flow(tcp, &flow));
    CHECK(flow.hash_type == 0x82 && flow.bucket == flowlane_lane_bucket(flowlane_lane_current()));
    OK(flowlane_tcp_peer(tcp, &peer));
    OK(flowlane_tcp_local(tcp, &local));
    CHECK(peer.port == 9 && local.port > 0 && local.family == 4);
    OK(flowlane_tcp_nodelay(tcp, true));
    /* The host's, and one of its own. */
    OK(flowlane_tcp_congestion(tcp, &congestion));
    CHECK(!strcmp(congestion, "bbr"));
    CHECK(flowlane_tcp_set_congestion(tcp, "vegas") == FLOWLANE_ERR_INVALID);
    CHECK(strstr(flowlane_last_error(), "'vegas'") && strstr(flowlane_last_error(), "cubic, newreno, bbr"));
    OK(flowlane_tcp_set_congestion(tcp, "newreno"));
    OK(flowlane_tcp_congestion(tcp, &congestion));
    CHECK(!strcmp(congestion, "newreno"));
    /* Without accurate ECN. */
    OK(flowlane_tcp_set_congestion(tcp, "prague"));
    OK(flowlane_tcp_congestion(tcp, &congestion));
    CHECK(!strcmp(congestion, "cubic"));
    CHECK(flowlane_tcp_congestion(tcp, NULL) == FLOWLANE_ERR_INVALID);
    OK(flowlane_tcp_send_zc(tcp, bulk->sent, LONG, bulk_back, bulk));
    /* What is written now would overtake it. */
    CHECK(flowlane_tcp_write(tcp, "x", 1, &n) == FLOWLANE_ERR_AGAIN);
    CHECK(flowlane_tcp_send_zc(tcp, NULL, 4, bulk_back, bulk) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_tcp_read(tcp, bulk->came, 0, &n) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_tcp_read(tcp, bulk->came, 1, &n) == FLOWLANE_ERR_AGAIN);
    openings++;
}

static void bulk_read(flowlane_tcp *tcp, void *user)
{
    struct bulk *bulk = user;
    size_t n;
    int code = flowlane_tcp_read(tcp, bulk->came + bulk->read, LONG - bulk->read, &n);
    if (code == FLOWLANE_ERR_AGAIN)
        return;
    OK(code);
    bulk->read += n;
    /* The rest is the end of the memory's way. */
    OK(flowlane_tcp_pause(tcp, bulk->read == LONG));
    bulk_end(bulk);
}

/* There is room again: by then the memory is queued. */
static void bulk_room(flowlane_tcp *tcp, void *user)
{
    (void)tcp;
    CHECK(user);
    roomy++;
}

static void bulk_closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    struct bulk *bulk = user;
    (void)tcp;
    CHECK(code == FLOWLANE_OK);
    closings++;
    free(bulk->sent);
    free(bulk->came);
    free(bulk);
}

static const flowlane_tcp_events bulk_events = {sizeof bulk_events, bulk_opened, bulk_read, bulk_room, bulk_closed};

/* The other end of the connection that waits: writes, and reads the end. */
static void waiting_opened(flowlane_tcp *tcp, void *user)
{
    size_t n;
    (void)user;
    OK(flowlane_tcp_write(tcp, "wait", 4, &n));
    CHECK(n == 4);
    openings++;
}

static void waiting_read(flowlane_tcp *tcp, void *user)
{
    char data[8];
    size_t n;
    (void)user;
    OK(flowlane_tcp_read(tcp, data, sizeof data, &n));
    CHECK(n == 0);
    OK(flowlane_tcp_close(tcp));
}

static void waiting_closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    (void)tcp, (void)user;
    OK(code);
    closings++;
}

static const flowlane_tcp_events waiting_events = {sizeof waiting_events, waiting_opened, waiting_read, NULL, waiting_closed};

/* Nobody listens there. */
static void never(flowlane_tcp *tcp, void *user)
{
    (void)tcp, (void)user;
    wrong(__LINE__, "there is no such connection");
}

static void refused_closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    (void)tcp, (void)user;
    CHECK(code == FLOWLANE_ERR_REFUSED);
    refused++;
}

static const flowlane_tcp_events refused_events = {sizeof refused_events, never, never, never, refused_closed};

/* A timer that comes three times, each time after a millisecond at least. */
static void tick(flowlane_timer *timer, void *user)
{
    uint64_t now, *last = user;
    OK(flowlane_lane_now(flowlane_lane_current(), &now));
    CHECK(now - *last >= 1000000);
    *last = now;
    if (++last[1] < 3)
        OK(flowlane_timer_set(timer, 1000000));
    ticks++;
}

static void timer_closed(flowlane_timer *timer, void *user)
{
    (void)timer;
    closings++;
    free(user);
}

static const flowlane_timer_events timer_events = {sizeof timer_events, tick, timer_closed};

static int client_start(flowlane_lane *lane, void *user)
{
    flowlane_address udp_server, tcp_server, held_server, closed_port, any = {0};
    flowlane_udp *udp;
    flowlane_tcp *tcp;
    flowlane_timer *timer;
    uint32_t worker;
    uint64_t *last = calloc(2, sizeof *last);
    (void)user;
    OK(flowlane_address_parse("10.0.0.1:7", &udp_server));
    OK(flowlane_address_parse("10.0.0.1:9", &tcp_server));
    OK(flowlane_address_parse("10.0.0.1:11", &held_server));
    OK(flowlane_address_parse("10.0.0.1:10", &closed_port));
    CHECK(flowlane_lane_current() == lane);
    OK(flowlane_lane_worker(lane, &worker));
    OK(flowlane_udp_open(lane, &any, &udp_server, &answer_events, NULL, &udp));
    OK(flowlane_udp_send(udp, "quiet", 5, NULL));
    OK(flowlane_udp_send(udp, "xxhello", 7, NULL));
    OK(flowlane_udp_send(udp, "", 0, &udp_server));
    OK(flowlane_tcp_connect(lane, &tcp_server, NULL, 20000000000, &bulk_events, NULL, &tcp));
    OK(flowlane_tcp_connect(lane, &held_server, NULL, 20000000000, &waiting_events, NULL, &tcp));
    OK(flowlane_tcp_connect(lane, &closed_port, &any, 0, &refused_events, NULL, &tcp));
    OK(flowlane_lane_now(lane, last));
    OK(flowlane_timer_new(lane, &timer_events, last, &timer));
    OK(flowlane_timer_set(timer, 3600000000000));
    OK(flowlane_timer_unset(timer));
    OK(flowlane_timer_set(timer, 1000000));
    openings += 2;
    some_timer = timer;
    begun++;
    return 0;
}

static const flowlane_lane_events client_events = {sizeof client_events, client_start, stop};

static void wait_for(atomic_int *count, int wanted, int line)
{
    for (long tries = 0; *count < wanted; tries++) {
        struct timespec moment = {0, 1000000};
        if (tries > 60000)
            wrong(line, "it did not happen within a minute");
        nanosleep(&moment, NULL);
    }
    if (*count != wanted)
        wrong(line, "it happened too often");
}

static void in_lane(flowlane_lane *lane, void *argument)
{
    flowlane_udp *udp = argument;
    CHECK(flowlane_lane_current() == lane);
    /* Waiting here would be for ever, and others' timers are not this lane's. */
    if (udp)
        OK(flowlane_lane_call(lane, (flowlane_lane_bucket(lane) + 1) % 4, in_lane, NULL));
    else if (flowlane_lane_host(lane) == 0)
        CHECK(flowlane_timer_set(some_timer, 1) == FLOWLANE_ERR_WRONG_LANE);
    called++;
}

static void count(const char *group, const char *name, uint64_t value, void *user)
{
    if (!strcmp(group, "udp") && !strcmp(name, "received-datagrams"))
        *(uint64_t *)user = value;
}

static void last_call(flowlane_lane *lane, void *argument)
{
    /* These would wait for this very callback. */
    CHECK(flowlane_runtime_wait(argument) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_runtime_counters(argument, 0, count, NULL) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_runtime_move(argument, 0, 0, 1) == FLOWLANE_ERR_WRONG_LANE);
    OK(flowlane_lane_end_runtime(lane));
}

/* Every lane of the client is to be on worker 1. */
static void decide(flowlane_rebalance_lane *lanes, size_t count, uint32_t workers, void *user)
{
    CHECK(count == 8 && workers == 2 && user == (void *)&decided);
    for (size_t i = 0; i < count; i++) {
        CHECK(lanes[i].load >= 0 && lanes[i].load <= 1 && lanes[i].wanted == lanes[i].worker);
        if (lanes[i].host == 1)
            lanes[i].wanted = 1;
        else if (i == 0)
            lanes[i].wanted = 77;
    }
    decided++;
}

static void runtimes(void)
{
    flowlane_builder *builder;
    flowlane_runtime *runtime;
    flowlane_rebalance *rebalance;
    uint32_t server, client, worker, cpus[1024];
    uint64_t received = 0, moves = 0;
    size_t n;

    OK(flowlane_builder_new(&builder));
    CHECK(flowlane_builder_workers(builder, 0) == FLOWLANE_ERR_INVALID);
    OK(flowlane_builder_workers(builder, 2));
    OK(flowlane_builder_pin(builder, false));
    OK(flowlane_builder_idle(builder, 10000));
    OK(flowlane_builder_frames(builder, 4096));
    OK(flowlane_builder_host(builder, "server", NULL, &server_events, &begun, &server));
    OK(flowlane_builder_host(builder, "client", NULL, &client_events, NULL, &client));
    OK(flowlane_host_pair(builder, server, "10.0.0.1/24, fd00::1/64", client, "10.0.0.2/24"));
    CHECK(flowlane_host_pair(builder, server, "10.0.0.1/24", 2, "10.0.0.2/24") == FLOWLANE_ERR_NO_SUCH);
    OK(flowlane_host_gateway(builder, client, "10.0.0.1"));
    CHECK(flowlane_host_congestion(builder, client, "reno") == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_host_congestion(builder, 2, "bbr") == FLOWLANE_ERR_NO_SUCH);
    OK(flowlane_host_congestion(builder, client, "bbr"));
    CHECK(flowlane_host_ecn(builder, client, "on") == FLOWLANE_ERR_INVALID && strstr(flowlane_last_error(), "accurate-accept"));
    OK(flowlane_host_ecn(builder, client, "accurate"));
    OK(flowlane_runtime_start(builder, &runtime));
    CHECK(begun == 8 && flowlane_runtime_workers(runtime) == 2 && flowlane_runtime_buckets(runtime, client) == 4);

    CHECK(flowlane_timer_set(some_timer, 1) == FLOWLANE_ERR_WRONG_LANE);
    CHECK(flowlane_lane_current() == NULL);
    wait_for(&answered, 4, __LINE__);
    wait_for(&echoed, 4, __LINE__);
    wait_for(&given_back, 4, __LINE__);
    wait_for(&refused, 4, __LINE__);
    wait_for(&roomy, 4, __LINE__);
    wait_for(&ticks, 12, __LINE__);
    wait_for(&heard, 4, __LINE__);
    OK(flowlane_runtime_counters(runtime, server, count, &received));
    CHECK(received == 12);

    OK(flowlane_runtime_call(runtime, server, 2, in_lane, &runtime));
    wait_for(&called, 2, __LINE__);
    CHECK(flowlane_runtime_call(runtime, server, 4, in_lane, NULL) == FLOWLANE_ERR_NO_SUCH);
    OK(flowlane_runtime_worker_of(runtime, server, 3, &worker));
    OK(flowlane_runtime_move(runtime, server, 3, 1 - worker));
    OK(flowlane_runtime_move(runtime, server, 3, worker));
    CHECK(flowlane_runtime_move(runtime, server, 3, 9) == FLOWLANE_ERR_NO_SUCH);
    OK(flowlane_runtime_bucket_cpus(runtime, server, 0, cpus, 1024, &n));
    CHECK(n > 0);

    CHECK(flowlane_rebalance_by(runtime, 1000000, "odd", &rebalance) == FLOWLANE_ERR_INVALID);
    OK(flowlane_rebalance_start(runtime, 1000000, decide, &decided, &rebalance));
    while (moves < 2)
        OK(flowlane_rebalance_moves(rebalance, &moves));
    flowlane_rebalance_stop(rebalance);
    CHECK(decided > 0 && moves == 2);
    for (uint32_t bucket = 0; bucket < 4; bucket++) {
        OK(flowlane_runtime_worker_of(runtime, client, bucket, &worker));
        CHECK(worker == 1);
    }

    OK(flowlane_runtime_call(runtime, client, 0, last_call, runtime));
    OK(flowlane_runtime_wait(runtime));
    CHECK(flowlane_runtime_wait(runtime) == FLOWLANE_ERR_STOPPED);
    CHECK(flowlane_runtime_call(runtime, server, 0, in_lane, NULL) == FLOWLANE_ERR_STOPPED);
    OK(flowlane_runtime_free(runtime, 0));
    CHECK(ended == 8);
    /* Of each lane: server's socket, client's socket, both ends of two connections, two timers. */
    CHECK(openings == 32 && closings == openings);
}

static int fails(flowlane_lane *lane, void *user)
{
    (void)user;
    flowlane_address elsewhere;
    flowlane_udp *udp;
    OK(flowlane_address_parse("192.0.2.1:7", &elsewhere));
    int code = flowlane_udp_open(lane, &elsewhere, NULL, &reverse_events, NULL, &udp);
    CHECK(code == FLOWLANE_ERR_NOT_OUR_ADDRESS);
    return code;
}

static void mistakes(void)
{
    const flowlane_lane_events events = {sizeof events, fails, NULL};
    flowlane_lane_events wrong_events = {3, fails, NULL};
    flowlane_builder *builder;
    flowlane_runtime *runtime = NULL;
    uint32_t host;

    OK(flowlane_builder_new(&builder));
    CHECK(flowlane_builder_host(builder, "h", NULL, &wrong_events, NULL, &host) == FLOWLANE_ERR_INVALID);
    wrong_events.size = sizeof wrong_events + 8;
    CHECK(flowlane_builder_host(builder, "h", NULL, &wrong_events, NULL, &host) == FLOWLANE_ERR_INVALID);
    CHECK(strstr(flowlane_last_error(), "sizeof"));
    wrong_events = (flowlane_lane_events){sizeof wrong_events, NULL, NULL};
    CHECK(flowlane_builder_host(builder, "h", NULL, &wrong_events, NULL, &host) == FLOWLANE_ERR_INVALID);
    OK(flowlane_builder_host(builder, "h", NULL, &events, NULL, &host));
    CHECK(flowlane_host_link(builder, host, "wifi:x", "10.0.0.1/24") == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_host_link(builder, host, "kernel", "10.0.0.1/24") == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_host_link(builder, host, "tap:t0", "10.0.0.1/33") == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_runtime_start(builder, &runtime) == FLOWLANE_ERR_START && !runtime);
    CHECK(strstr(flowlane_last_error(), "192.0.2.1") || strstr(flowlane_last_error(), "returned -7"));
    /* On sockets of the kernel there is no ECN of ours. */
    OK(flowlane_builder_new(&builder));
    OK(flowlane_builder_host(builder, "h", NULL, &events, NULL, &host));
    OK(flowlane_host_ecn(builder, host, "accurate"));
    CHECK(flowlane_runtime_start(builder, &runtime) == FLOWLANE_ERR_INVALID && strstr(flowlane_last_error(), "tcp_ecn"));
    flowlane_builder_free(NULL);
    OK(flowlane_runtime_free(NULL, 0));
    CHECK(flowlane_runtime_wait(NULL) == FLOWLANE_ERR_INVALID && strstr(flowlane_last_error(), "null"));
    CHECK(flowlane_tcp_close(NULL) == FLOWLANE_ERR_INVALID);
    CHECK(!strcmp(flowlane_strerror(FLOWLANE_ERR_REFUSED), "connection refused by the peer"));
}

static void addresses(void)
{
    flowlane_address address, again;
    struct sockaddr_storage storage;
    socklen_t size;
    char text[64];
    const char *both[] = {"10.1.2.3:456", "[fd00::7]:65535"};
    for (int i = 0; i < 2; i++) {
        OK(flowlane_address_parse(both[i], &address));
        OK(flowlane_address_format(&address, text, sizeof text));
        CHECK(!strcmp(text, both[i]));
        CHECK(flowlane_address_format(&address, text, strlen(both[i])) == FLOWLANE_ERR_INVALID);
        size = sizeof storage;
        OK(flowlane_address_to_sockaddr(&address, (struct sockaddr *)&storage, &size));
        OK(flowlane_address_from_sockaddr((struct sockaddr *)&storage, size, &again));
        CHECK(!memcmp(&address, &again, sizeof again));
        CHECK(flowlane_address_from_sockaddr((struct sockaddr *)&storage, size - 1, &again) == FLOWLANE_ERR_INVALID);
        size--;
        CHECK(flowlane_address_to_sockaddr(&address, (struct sockaddr *)&storage, &size) == FLOWLANE_ERR_INVALID);
    }
    CHECK(flowlane_address_parse("10.0.0.256:1", &address) == FLOWLANE_ERR_INVALID);
    address.family = 5;
    CHECK(flowlane_address_format(&address, text, sizeof text) == FLOWLANE_ERR_INVALID);
}

static void plans(void)
{
    const unsigned char key[40] = {0x6d, 0x5a, 0x56, 0xda};
    flowlane_rss *rss;
    flowlane_rss_flow flow = {.protocol = 6};
    flowlane_rss_steered steered;
    uint16_t ports[16];
    uint32_t worker, hash;
    size_t n;
    CHECK(flowlane_rss_new(key, 7, 2, 0, false, &rss) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_rss_new(key, 40, 2, 3, false, &rss) == FLOWLANE_ERR_INVALID);
    OK(flowlane_rss_new(NULL, 0, 2, 8, false, &rss));
    CHECK(flowlane_rss_buckets(rss) == 8);
    OK(flowlane_address_parse("10.0.0.1:80", &flow.destination));
    OK(flowlane_address_parse("10.0.0.2", &flow.source));
    for (uint32_t bucket = 0; bucket < 8; bucket++) {
        OK(flowlane_rss_source_ports(rss, bucket, &flow.source, &flow.destination, 6, ports, 16, &n));
        CHECK(n == 16);
        for (size_t i = 0; i < n; i++) {
            flow.source.port = ports[i];
            OK(flowlane_rss_steer(rss, &flow, &steered));
            CHECK(steered.bucket == bucket && steered.hash_type == 0x82);
        }
        /* Replies to these ports come from 10.0.0.1:80. */
        OK(flowlane_rss_reply_ports(rss, bucket, &flow.source, &flow.destination, 6, ports, 16, &n));
        CHECK(n == 16);
        for (size_t i = 0; i < n; i++) {
            flowlane_rss_flow reply = {flow.destination, flow.source, 6, 0};
            reply.destination.port = ports[i];
            OK(flowlane_rss_steer(rss, &reply, &steered));
            CHECK(steered.bucket == bucket);
        }
    }
    OK(flowlane_rss_assign(rss, 5, 0));
    OK(flowlane_rss_worker_of(rss, 5, &worker));
    CHECK(worker == 0);
    CHECK(flowlane_rss_worker_of(rss, 8, &worker) == FLOWLANE_ERR_NO_SUCH);
    /* The first bit of data is worth the first 32 bits of the key. */
    OK(flowlane_toeplitz(key, sizeof key, "\x80", 1, &hash));
    CHECK(hash == 0x6d5a56da);
    flowlane_rss_free(rss);
}

int main(void)
{
    addresses();
    plans();
    mistakes();
    runtimes();
    puts("all is well");
    return 0;
}
