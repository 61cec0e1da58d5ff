/*
 * An echo server for UDP, on sockets of the kernel: udp_echo ADDRESS:PORT [WORKERS]
 *
 * It says when it receives, and serves until SIGINT or SIGTERM.
 */
#define _POSIX_C_SOURCE 200809L
#include <flowlane.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Datagrams came: each goes back in the frame that it came in. */
static void received(flowlane_udp *udp, flowlane_batch *batch, size_t count, void *user)
{
    (void)udp, (void)count, (void)user;
    flowlane_batch_reply_all(batch);
}

static const flowlane_udp_events events = {.size = sizeof events, .received = received};

/* A lane begins: it gets a socket of its own on the port. */
static int start(flowlane_lane *lane, void *user)
{
    flowlane_udp *udp;
    return flowlane_udp_open(lane, user, NULL, &events, NULL, &udp);
}

static const flowlane_lane_events lane_events = {.size = sizeof lane_events, .start = start};

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, flowlane_last_error());
    return 2;
}

int main(int argc, char **argv)
{
    flowlane_address address;
    flowlane_builder *builder;
    flowlane_runtime *runtime;
    uint32_t host;
    sigset_t signals;
    int signal;

    if (argc < 2) {
        fprintf(stderr, "usage: %s ADDRESS:PORT [WORKERS]\n", argv[0]);
        return 2;
    }
    if (flowlane_address_parse(argv[1], &address) || flowlane_builder_new(&builder))
        return failed("address");
    if (flowlane_builder_workers(builder, argc > 2 ? (uint32_t)atoi(argv[2]) : 1) ||
        flowlane_builder_host(builder, "echo", NULL, &lane_events, &address, &host)) {
        flowlane_builder_free(builder);
        return failed("description");
    }
    /* Workers inherit what is blocked, so that the signal comes here. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (flowlane_runtime_start(builder, &runtime))
        return failed("start");
    fprintf(stderr, "receives at %s in %u lanes\n", argv[1], flowlane_runtime_buckets(runtime, host));
    sigwait(&signals, &signal);
    flowlane_runtime_free(runtime, 0);
    return 0;
}
