/*
 * An echo server on Flowlane's own stack, in the program's own event loop: loop_echo LINK ADDRESS/LENGTH
 *
 * Datagrams and connections to port 7 are answered. It says when it serves, and serves until SIGINT or SIGTERM.
 */
#define _GNU_SOURCE
#include <flowlane.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

enum { CONNECTIONS = 64, PIECE = 4096 };

/* A connection, and what of its bytes has still to be sent back. */
struct connection {
    uint64_t socket;
    size_t used;
    char data[PIECE];
};

static volatile sig_atomic_t over;

static void stop(int signal)
{
    (void)signal;
    over = 1;
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, flowlane_last_error());
    return 2;
}

static void echo_datagrams(flowlane_loop *loop, uint64_t udp)
{
    flowlane_batch *batch;
    size_t count, sent;
    while (!flowlane_loop_receive(loop, udp, &batch, &count)) {
        flowlane_batch_reply_all(batch);
        flowlane_loop_reply(loop, udp, &sent);
    }
}

/* Moves bytes of a connection; false when it is over. */
static bool echo_stream(flowlane_loop *loop, struct connection *connection)
{
    for (;;) {
        size_t n;
        int code;
        if (connection->used == 0) {
            code = flowlane_loop_read(loop, connection->socket, connection->data, PIECE, &connection->used);
            if (code == FLOWLANE_ERR_AGAIN)
                return true;
            if (code || connection->used == 0)
                return false;
        }
        code = flowlane_loop_write(loop, connection->socket, connection->data, connection->used, &n);
        if (code)
            return code == FLOWLANE_ERR_AGAIN;
        connection->used -= n;
        for (size_t at = 0; at < connection->used; at++)
            connection->data[at] = connection->data[at + n];
    }
}

static void echo_streams(flowlane_loop *loop, uint64_t listener, struct connection *connections)
{
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++) {
        if (!c->socket && !flowlane_loop_accept(loop, listener, &c->socket, NULL))
            c->used = 0;
        if (c->socket && !echo_stream(loop, c)) {
            flowlane_loop_close(loop, c->socket);
            c->socket = 0;
        }
    }
}

/* Waits for a packet, a timer of the stack, or a signal. */
static int wait_for_work(flowlane_loop *loop, const sigset_t *open)
{
    int fds[8];
    size_t count;
    uint64_t nanos;
    struct pollfd polled[8];
    if (flowlane_loop_fds(loop, fds, 8, &count) || flowlane_loop_deadline(loop, &nanos))
        return failed("wait");
    if (count > 8)
        count = 8;
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    struct timespec limit = {(time_t)(nanos / 1000000000 % 3600), (long)(nanos % 1000000000)};
    ppoll(polled, count, &limit, open);
    return 0;
}

int main(int argc, char **argv)
{
    static struct connection connections[CONNECTIONS];
    const flowlane_address port = {.port = 7};
    flowlane_loop *loop;
    uint64_t udp, listener;
    sigset_t closed, open;
    int code = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: %s LINK ADDRESS/LENGTH\n", argv[0]);
        return 2;
    }
    if (flowlane_loop_open(argv[1], argv[2], NULL, &loop))
        return failed(argv[1]);
    if (flowlane_loop_udp(loop, &port, NULL, &udp) || flowlane_loop_listen(loop, &port, 0, &listener)) {
        code = failed("sockets");
        flowlane_loop_free(loop);
        return code;
    }
    /* Signals come while it waits, and at no other time. */
    sigemptyset(&closed);
    sigaddset(&closed, SIGINT);
    sigaddset(&closed, SIGTERM);
    sigprocmask(SIG_BLOCK, &closed, &open);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    fprintf(stderr, "serves %s on %s\n", argv[2], argv[1]);
    while (!over && !code) {
        bool busy;
        if (flowlane_loop_turn(loop, &busy)) {
            code = failed("turn");
            break;
        }
        echo_datagrams(loop, udp);
        echo_streams(loop, listener, connections);
        if (!busy)
            code = wait_for_work(loop, &open);
    }
    flowlane_loop_free(loop);
    return code;
}
