/*
 * A web server that says hello to everybody, on sockets of the kernel: http_hello ADDRESS:PORT [WORKERS]
 *
 * It looks for the empty line that ends a request's head, and takes no body. It says when it listens, and serves until SIGINT or SIGTERM.
 */
#define _POSIX_C_SOURCE 200809L
#include <flowlane.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n";

/* A connection as the server knows it: what it has of a request, and what of answers has still to be written. */
struct client {
    size_t used, owed;
    char head[4096];
};

static void opened(flowlane_tcp *tcp, void *user)
{
    (void)user;
    struct client *client = calloc(1, sizeof *client);
    flowlane_tcp_set_user(tcp, client);
    if (!client)
        flowlane_tcp_abort(tcp);
}

/* Writes what is owed. An answer begins where the one before it ended. */
static void write_owed(flowlane_tcp *tcp, struct client *client)
{
    const size_t whole = sizeof answer - 1;
    while (client->owed > 0) {
        size_t rest = (client->owed - 1) % whole + 1, written;
        int code = flowlane_tcp_write(tcp, answer + whole - rest, rest, &written);
        if (code == FLOWLANE_ERR_AGAIN)
            break;
        if (code) {
            flowlane_tcp_abort(tcp);
            return;
        }
        client->owed -= written;
    }
    /* Whoever does not read is not read from. */
    flowlane_tcp_pause(tcp, client->owed > 0);
}

static void readable(flowlane_tcp *tcp, void *user)
{
    struct client *client = user;
    size_t n;
    int code = flowlane_tcp_read(tcp, client->head + client->used, sizeof client->head - client->used, &n);
    if (code == FLOWLANE_ERR_AGAIN)
        return;
    if (code || n == 0) {
        flowlane_tcp_close(tcp);
        return;
    }
    client->used += n;
    size_t begin = 0;
    for (size_t end = 4; end <= client->used; end++) {
        if (end - begin >= 4 && !memcmp(client->head + end - 4, "\r\n\r\n", 4)) {
            client->owed += sizeof answer - 1;
            begin = end;
        }
    }
    memmove(client->head, client->head + begin, client->used - begin);
    client->used -= begin;
    if (client->used == sizeof client->head) {
        flowlane_tcp_abort(tcp);
        return;
    }
    write_owed(tcp, client);
}

static void writable(flowlane_tcp *tcp, void *user)
{
    write_owed(tcp, user);
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
        flowlane_builder_host(builder, "web", NULL, &lane_events, &address, &host)) {
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
