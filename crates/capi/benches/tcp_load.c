/* The generator of run: requests of 64 bytes over connections to an echo, one on its way on each.
 *
 *   tcp_load ADDRESS PORT SECONDS CONNECTIONS        prints the answers
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    static char request[SIZE], answer[SIZE];
    if (argc != 5)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    int epoll = epoll_create1(0);
    for (int i = 0; i < atoi(argv[4]); i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        if (connect(fd, (struct sockaddr *)&to, sizeof to))
            die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        if (send(fd, request, SIZE, 0) != SIZE)
            die("send");
    }
    unsigned long answers = 0;
    double end = now() + atof(argv[3]);
    while (now() < end) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, 100);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            /* Answers are as short as requests, and come in one piece. */
            if (recv(fd, answer, SIZE, 0) != SIZE || send(fd, request, SIZE, 0) != SIZE)
                die("echo");
            answers++;
        }
    }
    printf("%lu\n", answers);
    return 0;
}
