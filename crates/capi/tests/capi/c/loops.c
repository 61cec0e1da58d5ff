/*
 * A loop whose link is a file: what it sends is written, and nothing ever comes. loops LINK
 *
 * Numbers of sockets that are closed, of another kind or never given, and another thread, get their codes.
 */
#include <flowlane.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) ((what) ? (void)0 : wrong(__LINE__, #what))
#define OK(call) CHECK((call) == FLOWLANE_OK)

static void wrong(int line, const char *what)
{
    fprintf(stderr, "line %d: %s; last error: %s\n", line, what, flowlane_last_error());
    exit(1);
}

static void *elsewhere(void *loop)
{
    uint64_t socket;
    flowlane_address any = {0};
    CHECK(flowlane_loop_udp(loop, &any, NULL, &socket) == FLOWLANE_ERR_WRONG_LANE);
    CHECK(flowlane_loop_free(loop) == FLOWLANE_ERR_WRONG_LANE);
    return NULL;
}

int main(int argc, char **argv)
{
    flowlane_address any = {.port = 7}, peer;
    flowlane_loop *loop;
    flowlane_batch *batch;
    pthread_t thread;
    uint64_t udp, listener, connection, again, nanos;
    uint32_t ready;
    size_t n;
    char buffer[16];
    bool busy;

    CHECK(argc == 2);
    CHECK(flowlane_loop_open("kernel", "10.0.0.1/24", NULL, &loop) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_loop_open(argv[1], "10.0.0.1", NULL, NULL) == FLOWLANE_ERR_INVALID);
    OK(flowlane_loop_open(argv[1], "10.0.0.1/24", "10.0.0.254", &loop));
    CHECK(pthread_create(&thread, NULL, elsewhere, loop) == 0 && pthread_join(thread, NULL) == 0);

    OK(flowlane_loop_udp(loop, &any, NULL, &udp));
    CHECK(flowlane_loop_udp(loop, &any, NULL, &again) == FLOWLANE_ERR_IN_USE);
    OK(flowlane_loop_listen(loop, &any, 0, &listener));
    OK(flowlane_address_parse("10.0.0.2:9", &peer));
    OK(flowlane_loop_connect(loop, &peer, &connection));
    CHECK(udp != listener && listener != connection);
    OK(flowlane_loop_send(loop, udp, "hello", 5, &peer));
    CHECK(flowlane_loop_send(loop, udp, "hello", 5, NULL) == FLOWLANE_ERR_INVALID);
    CHECK(flowlane_loop_receive(loop, udp, &batch, &n) == FLOWLANE_ERR_AGAIN);
    CHECK(flowlane_loop_accept(loop, listener, &again, NULL) == FLOWLANE_ERR_AGAIN);
    CHECK(flowlane_loop_read(loop, connection, buffer, sizeof buffer, &n) == FLOWLANE_ERR_AGAIN);
    CHECK(flowlane_loop_write(loop, connection, "x", 1, &n) == FLOWLANE_ERR_AGAIN);
    OK(flowlane_loop_ready(loop, connection, &ready));
    CHECK(ready == 0);
    OK(flowlane_loop_turn(loop, &busy));
    CHECK(busy);
    OK(flowlane_loop_deadline(loop, &nanos));
    CHECK(nanos > 0 && nanos < UINT64_MAX);
    OK(flowlane_loop_wait(loop, 1));

    CHECK(flowlane_loop_receive(loop, listener, &batch, &n) == FLOWLANE_ERR_UNSUPPORTED);
    CHECK(flowlane_loop_accept(loop, udp, &again, NULL) == FLOWLANE_ERR_UNSUPPORTED);
    CHECK(flowlane_loop_read(loop, udp, buffer, sizeof buffer, &n) == FLOWLANE_ERR_UNSUPPORTED);
    CHECK(flowlane_loop_ready(loop, udp, &ready) == FLOWLANE_ERR_UNSUPPORTED);
    CHECK(flowlane_loop_close(loop, connection + 1) == FLOWLANE_ERR_CLOSED);

    /* A number is not given again. */
    OK(flowlane_loop_close(loop, udp));
    CHECK(flowlane_loop_send(loop, udp, "hello", 5, &peer) == FLOWLANE_ERR_CLOSED);
    OK(flowlane_loop_udp(loop, &any, NULL, &again));
    CHECK(again != udp && flowlane_loop_receive(loop, udp, &batch, &n) == FLOWLANE_ERR_CLOSED);
    OK(flowlane_loop_shutdown(loop, connection));
    CHECK(flowlane_loop_write(loop, connection, "x", 1, &n) < FLOWLANE_ERR_AGAIN);
    OK(flowlane_loop_close(loop, connection));
    OK(flowlane_loop_close(loop, listener));
    OK(flowlane_loop_free(loop));
    puts("all is well");
    return 0;
}
