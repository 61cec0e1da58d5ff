// The ends of a relay under test: a target, and a client that counts.
//
//   relay_peer target PORT                         for each connection: a request of 1 byte 'b' is answered with bytes without end,
//                                                  one of 64 bytes with 600 bytes and the end of the stream
//   relay_peer bulk PORT SECONDS                   one connection: prints bytes a second
//   relay_peer short PORT SECONDS CONNECTIONS      so many at once, each asks, reads the answer to its end, and makes room for the
//                                                  next: prints connections a second, and how many failed
//
// One thread each, epoll, level-triggered. PORT may be ADDRESS:PORT; the address is 127.0.0.1 without.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char piece[1 << 18];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static struct sockaddr_in at(const char *place) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const char *port = strchr(place, ':');
    if (port) {
        char address[INET_ADDRSTRLEN] = "";
        if (port - place < INET_ADDRSTRLEN) memcpy(address, place, port - place);
        if (inet_pton(AF_INET, address, &a.sin_addr) != 1) fprintf(stderr, "relay_peer: '%s' is no IPv4 address\n", address), exit(2);
    }
    a.sin_port = htons(atoi(port ? port + 1 : place));
    return a;
}

static void watch(int epoll, int how, int fd, unsigned events) {
    struct epoll_event e = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, how, fd, &e) < 0) perror("epoll_ctl"), exit(1);
}

static int target(const char *port) {
    int one = 1, epoll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = at(port);
    if (bind(listener, (void *)&a, sizeof a) < 0 || listen(listener, 4096) < 0) return perror("target"), 1;
    watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN);
    struct epoll_event events[256];
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                while ((fd = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
                continue;
            }
            if (events[i].events & EPOLLOUT) {
                if (send(fd, piece, sizeof piece, MSG_NOSIGNAL) < 0 && errno != EAGAIN) close(fd);
                continue;
            }
            char asked[64];
            ssize_t got = recv(fd, asked, sizeof asked, 0);
            if (got == 1 && asked[0] == 'b') {
                watch(epoll, EPOLL_CTL_MOD, fd, EPOLLOUT);
            } else if (got > 0) {
                send(fd, piece, 600, MSG_NOSIGNAL);
                close(fd);
            } else {
                close(fd);
            }
        }
    }
}

static int bulk(const char *port, double seconds) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = at(port);
    if (connect(fd, (void *)&a, sizeof a) < 0 || send(fd, "b", 1, 0) != 1) return perror("bulk"), 1;
    double begun = now(), end = begun + 0.3 + seconds, from = begun + 0.3;
    unsigned long long bytes = 0;
    for (double t = begun; t < end; t = now()) {
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0) return perror("bulk"), 1;
        if (t >= from) bytes += n;
    }
    printf("%.0f 0\n", bytes / seconds);
    return 0;
}

static const char question[64] = "what?";

static int ask(int epoll, const char *port) {
    struct sockaddr_in a = at(port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fd < 0 || (connect(fd, (void *)&a, sizeof a) < 0 && errno != EINPROGRESS)) return perror("short"), exit(1), 0;
    // On the loopback the handshake is over when connect returns; elsewhere the question waits for room.
    int asked = send(fd, question, sizeof question, MSG_NOSIGNAL) == sizeof question;
    if (!asked && errno != EAGAIN) return perror("short"), exit(1), 0;
    watch(epoll, EPOLL_CTL_ADD, fd, asked ? EPOLLIN : EPOLLOUT);
    return fd;
}

static int many(const char *port, double seconds, int connections) {
    int epoll = epoll_create1(0);
    static int got[1 << 16];
    for (int i = 0; i < connections; i++) ask(epoll, port);
    double from = now() + 0.3, end = from + seconds;
    unsigned long long good = 0, bad = 0;
    struct epoll_event events[256];
    for (;;) {
        double t = now();
        if (t >= end) break;
        int n = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (events[i].events & EPOLLOUT) {
                // One that was refused shows by the read.
                send(fd, question, sizeof question, MSG_NOSIGNAL);
                watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN);
                continue;
            }
            ssize_t r = recv(fd, piece, sizeof piece, 0);
            if (r < 0 && errno == EAGAIN) continue;
            if (r > 0) {
                got[fd] += r;
                continue;
            }
            if (t >= from) *(r == 0 && got[fd] == 600 ? &good : &bad) += 1;
            got[fd] = 0;
            // Closed by a reset, so that ports of the client do not run out.
            struct linger reset = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(fd);
            ask(epoll, port);
        }
    }
    printf("%.0f %llu\n", good / seconds, bad);
    return 0;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 3 && !strcmp(words[1], "target")) return target(words[2]);
    if (count == 4 && !strcmp(words[1], "bulk")) return bulk(words[2], atof(words[3]));
    if (count == 5 && !strcmp(words[1], "short")) return many(words[2], atof(words[3]), atoi(words[4]));
    fprintf(stderr, "relay_peer target PORT | bulk PORT SECONDS | short PORT SECONDS CONNECTIONS\n");
    return 2;
}
