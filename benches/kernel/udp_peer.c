/* The peer of the figures for UDP on kernel sockets: an echo as it is written by hand, and the generator that loads it and ours.
 *
 *   udp_peer echo PORT                                    recvmmsg and sendmmsg, 64 datagrams at a time, until it is killed
 *   udp_peer load ADDRESS PORT SECONDS SIZE WINDOW FLOWS plain|merged
 *
 * The generator keeps WINDOW datagrams of SIZE bytes on their way, over FLOWS connected sockets in turn; merged: sent by UDP_SEGMENT and
 * received by UDP_GRO. It prints the answers a second. Datagrams that have not come back after 50 ms count as lost, and are sent again.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#define BATCH 64
#define LONGEST 2048

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int buffers(int fd) {
    int bytes = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return fd;
}

static void echo(int port) {
    static char data[BATCH][LONGEST];
    static struct sockaddr_in6 names[BATCH];
    static struct iovec parts[BATCH];
    static struct mmsghdr headers[BATCH];
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int off = 0, fd = buffers(socket(AF_INET6, SOCK_DGRAM, 0));
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&any, sizeof any)) die("bind");
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            parts[i] = (struct iovec){data[i], LONGEST};
            headers[i].msg_hdr = (struct msghdr){
                .msg_name = &names[i], .msg_namelen = sizeof names[i], .msg_iov = &parts[i], .msg_iovlen = 1};
        }
        int n = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL);
        if (n < 0) die("recvmmsg");
        for (int i = 0; i < n; i++) parts[i].iov_len = headers[i].msg_len;
        for (int done = 0; done < n;) {
            int sent = sendmmsg(fd, headers + done, n - done, 0);
            if (sent < 0) die("sendmmsg");
            done += sent;
        }
    }
}

static int answers(int fd, int merged) {
    static char data[8][65536];
    static char control[8][64];
    struct iovec parts[8];
    struct mmsghdr headers[8];
    int all = 0;
    for (;;) {
        for (int i = 0; i < 8; i++) {
            parts[i] = (struct iovec){data[i], sizeof data[i]};
            headers[i].msg_hdr = (struct msghdr){
                .msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
        }
        int n = recvmmsg(fd, headers, 8, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++) {
            int size = 0;
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&headers[i].msg_hdr); merged && c; c = CMSG_NXTHDR(&headers[i].msg_hdr, c))
                if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) memcpy(&size, CMSG_DATA(c), sizeof size);
            all += size ? (headers[i].msg_len + size - 1) / size : 1;
        }
        if (n < 8) return all;
    }
}

/* How many of so many datagrams went. */
static int burst(int fd, int count, int size, int merged) {
    static char data[65536];
    if (merged) {
        int most = 65000 / size < 64 ? 65000 / size : 64;
        if (count > most) count = most;
        char control[CMSG_SPACE(2)] = {0};
        struct iovec part = {data, (size_t)count * size};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        uint16_t segment = size;
        c->cmsg_level = IPPROTO_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(2);
        memcpy(CMSG_DATA(c), &segment, 2);
        return sendmsg(fd, &header, MSG_DONTWAIT) < 0 ? 0 : count;
    }
    struct iovec part = {data, size};
    struct mmsghdr headers[BATCH] = {0};
    if (count > BATCH) count = BATCH;
    for (int i = 0; i < count; i++) headers[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    int n = sendmmsg(fd, headers, count, MSG_DONTWAIT);
    return n < 0 ? 0 : n;
}

static void load(char **a) {
    double seconds = atof(a[2]);
    int size = atoi(a[3]), flows = atoi(a[5]), merged = !strcmp(a[6], "merged");
    int window = atoi(a[4]) / flows, on = 1;
    struct pollfd fds[64];
    int out[64] = {0};
    double heard[64];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(a[1]))};
    if (inet_pton(AF_INET, a[0], &to.sin_addr) != 1 || flows < 1 || flows > 64 || window < 1) exit(2);
    for (int f = 0; f < flows; f++) {
        fds[f] = (struct pollfd){buffers(socket(AF_INET, SOCK_DGRAM, 0)), POLLIN, 0};
        if (merged && setsockopt(fds[f].fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on)) die("UDP_GRO");
        if (connect(fds[f].fd, (struct sockaddr *)&to, sizeof to)) die("connect");
        heard[f] = now();
    }
    /* The first half second fills caches and is not counted. */
    double start = now() + 0.5, end = start + seconds, t;
    long long answered = 0, lost = 0;
    while ((t = now()) < end) {
        int news = 0;
        for (int f = 0; f < flows; f++) {
            int n = answers(fds[f].fd, merged);
            if (n) heard[f] = t, news += n;
            out[f] = out[f] > n ? out[f] - n : 0;
            if (t >= start) answered += n;
            if (out[f] && t - heard[f] > 0.05) lost += out[f], out[f] = 0;
            /* Half a window at once, so that batches are what a busy server sees. */
            if (window - out[f] >= (window + 1) / 2) {
                int sent = burst(fds[f].fd, window - out[f], size, merged);
                if (sent && !out[f]) heard[f] = t;
                out[f] += sent, news += sent;
            }
        }
        if (!news) poll(fds, flows, 10);
    }
    printf("%.0f %lld\n", answered / (end - start), lost);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "echo")) echo(atoi(argv[2]));
    else if (argc == 9 && !strcmp(argv[1], "load")) load(argv + 2);
    else return fprintf(stderr, "usage: udp_peer echo PORT | load ADDRESS PORT SECONDS SIZE WINDOW FLOWS plain|merged\n"), 2;
    return 0;
}
