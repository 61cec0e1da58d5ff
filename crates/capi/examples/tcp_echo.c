/*
 * An echo server for TCP, on sockets of the kernel: tcp_echo ADDRESS:PORT [WORKERS]
 *
 * It says when it listens, and serves until SIGINT or SIGTERM.
 */
#define _POSIX_C_SOURCE 200809L
#include <flowlane.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What of a connection's bytes has still to be sent back. */
struct echo {
    size_t used;
    bool paused;
    char data[16384];
};

static void opened(flowlane_tcp *tcp, void *user)
{
    (void)user;
    struct echo *echo = malloc(sizeof *echo);
    flowlane_tcp_set_user(tcp, echo);
    if (!echo) {
        flowlane_tcp_abort(tcp);
        return;
    }
    echo->used = 0;
    echo->paused = false;
}

/* Whoever does not read what comes back is not read from. */
static void writable(flowlane_tcp *tcp, void *user)
{
    struct echo *echo = user;
    while (echo->used > 0) {
        size_t n;
        int code = flowlane_tcp_write(tcp, echo->data, echo->used, &n);
        if (code) {
            echo->paused = code == FLOWLANE_ERR_AGAIN;
            if (echo->paused)
                flowlane_tcp_pause(tcp, true);
            else
                flowlane_tcp_abort(tcp);
            return;
        }
        echo->used -= n;
        if (echo->used > 0)
            memmove(echo->data, echo->data + n, echo->used);
    }
    if (echo->paused)
        flowlane_tcp_pause(tcp, false);
    echo->paused = false;
}

static void readable(flowlane_tcp *tcp, void *user)
{
    struct echo *echo = user;
    int code = flowlane_tcp_read(tcp, echo->data, sizeof echo->data, &echo->used);
    if (code == FLOWLANE_ERR_AGAIN)
        return;
    if (code || echo->used == 0)
        flowlane_tcp_close(tcp);
    else
        writable(tcp, echo);
}

static void closed(flowlane_tcp *tcp, int32_t code, void *user)
{
    (void)tcp, (void)code;
    free(user);
}

static const flowlane_tcp_events events = {
    .size = sizeof events, .opened = opened, .readable = readable, .writable = writable, .closed = closed};

static int start(flowlane_lane *lane, void *user)
{
    flowlane_listener *listener;
    return flowlane_listener_open(lane, user, 0, &events, NULL, &listener);
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
    fprintf(stderr, "listens at %s in %u lanes\n", argv[1], flowlane_runtime_buckets(runtime, host));
    sigwait(&signals, &signal);
    flowlane_runtime_free(runtime, 1000000000);
    return 0;
}
