// libflowlane: Flowlane for programs in C. Made by cbindgen from crates/capi; the pages flowlane(3) and its group describe it.
//
// Functions return 0 or a code below zero; what a code means is flowlane_strerror, what was wrong flowlane_last_error.
// What belongs to a lane is used in callbacks of that lane only.

#ifndef FLOWLANE_H
#define FLOWLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

// It worked.
#define FLOWLANE_OK 0

// An argument makes no sense: a null pointer, a number out of range, a text that cannot be read.
#define FLOWLANE_ERR_INVALID -1

// The library panicked in this call, which did not do what it should: a fault of the library.
#define FLOWLANE_ERR_PANIC -2

// Called elsewhere than in a callback of the lane that has the object.
#define FLOWLANE_ERR_WRONG_LANE -3

// Nothing is there, or there is no room; a callback follows when that has changed.
#define FLOWLANE_ERR_AGAIN -4

// The socket is closed, or shut down for writing.
#define FLOWLANE_ERR_CLOSED -5

// Address and port are in use.
#define FLOWLANE_ERR_IN_USE -6

// The address is none of the host's.
#define FLOWLANE_ERR_NOT_OUR_ADDRESS -7

// There is no route, or no source address, for the destination.
#define FLOWLANE_ERR_NO_ROUTE -8

// No port is free.
#define FLOWLANE_ERR_NO_PORT -9

// Replies would arrive in another lane of the host.
#define FLOWLANE_ERR_OTHER_LANE -10

// A limit is reached: sockets, connections, descriptors.
#define FLOWLANE_ERR_TOO_MANY -11

// The datagram is longer than it may be on its way.
#define FLOWLANE_ERR_TOO_LONG -12

// The peer has reset the connection.
#define FLOWLANE_ERR_RESET -13

// Nobody listens there.
#define FLOWLANE_ERR_REFUSED -14

// There was no answer in time.
#define FLOWLANE_ERR_TIMED_OUT -15

// The network says that the peer cannot be reached.
#define FLOWLANE_ERR_UNREACHABLE -16

// No frame is free.
#define FLOWLANE_ERR_NO_FRAME -17

// The runtime could not be started.
#define FLOWLANE_ERR_START -18

// The runtime has ended.
#define FLOWLANE_ERR_STOPPED -19

// There is no such host, bucket or worker.
#define FLOWLANE_ERR_NO_SUCH -20

// Sockets of this kind cannot do this.
#define FLOWLANE_ERR_UNSUPPORTED -21

// The kernel refused for another reason; the words say which.
#define FLOWLANE_ERR_SYSTEM -22

// A lane failed; the words say which and how.
#define FLOWLANE_ERR_LANE_FAILED -23

// The lane is being moved already.
#define FLOWLANE_ERR_MOVING -24

// There is something to read, the end, an error, or a connection to accept.
#define FLOWLANE_READABLE 1

// There is room to write.
#define FLOWLANE_WRITABLE 2

// The connection is over.
#define FLOWLANE_OVER 4

// Datagrams that were received at once.
typedef struct flowlane_batch flowlane_batch;

// A runtime that is being described.
typedef struct flowlane_builder flowlane_builder;

// A lane: everything of one bucket of a host.
typedef struct flowlane_lane flowlane_lane;

// A listener of a lane.
typedef struct flowlane_listener flowlane_listener;

// A lane that its caller drives.
typedef struct flowlane_loop flowlane_loop;

// Lanes are being moved by load.
typedef struct flowlane_rebalance flowlane_rebalance;

// Steering: a key, the hashed fields, a table, and which worker has which bucket.
typedef struct flowlane_rss flowlane_rss;

// A runtime.
typedef struct flowlane_runtime flowlane_runtime;

// A connection of a lane.
typedef struct flowlane_tcp flowlane_tcp;

// A timer of a lane.
typedef struct flowlane_timer flowlane_timer;

// A UDP socket of a lane.
typedef struct flowlane_udp flowlane_udp;

// An IP address with a port. All zero: none.
typedef struct flowlane_address {
    // The address in network order, of IPv4 in the first four bytes.
    uint8_t ip[16];
    // The port in the processor's own order.
    uint16_t port;
    // 4 or 6; 0 for no address: any of the host's.
    uint8_t family;
    // Zero.
    uint8_t reserved;
} flowlane_address;

// A received datagram.
typedef struct flowlane_datagram {
    // Its payload, to be read and changed in place until the callback returns. Of one in several parts, as a reassembled one may be, only
    // the first: flowlane_batch_read has all.
    void *data;
    // Bytes at data.
    size_t len;
    // Bytes of all parts.
    size_t total;
    // Who sent it.
    struct flowlane_address source;
    // Where it was sent to, which is ours.
    struct flowlane_address destination;
    // Its flow hash, as the card delivered or the stack computed it; on kernel sockets as the host's steering makes it.
    uint32_t hash;
    // What the hash covers, by FreeBSD's numbers.
    uint32_t hash_type;
    // The bucket that the hash names. On kernel sockets the kernel chooses the lane, which may be another bucket's.
    uint32_t bucket;
    // The queue on which it arrived; on kernel sockets the number of the kernel's interface.
    uint32_t queue;
    // When the link received it, nanoseconds on the link's clock; 0 if the link does not say.
    uint64_t timestamp;
    // Type of service or traffic class.
    uint8_t traffic_class;
} flowlane_datagram;

// What a program does in each lane of a host.
typedef struct flowlane_lane_events {
    // sizeof(flowlane_lane_events)
    size_t size;
    // The lane begins: called once in each lane, before it has any packet. Another result than 0 fails the lane, and with it the start of
    // the runtime.
    int (*start)(struct flowlane_lane *lane, void *user);
    // The lane has ended, also after a start that failed, and all that was in it: the last callback. It is called on any thread, not in the lane. May be null.
    void (*stop)(struct flowlane_lane *lane, void *user);
} flowlane_lane_events;

// What a lane cost its worker during one period.
typedef struct flowlane_rebalance_lane {
    // Its host.
    uint32_t host;
    // Its bucket.
    uint32_t bucket;
    // The worker that has it.
    uint32_t worker;
    // Where it is to be: at first the same worker. The program writes another one to move the lane.
    uint32_t wanted;
    // Share of a processor, 0 to 1.
    double load;
} flowlane_rebalance_lane;

// Decides which lanes move: called once a period, on a thread of the library's, with all lanes.
typedef void (*flowlane_rebalance_decide)(struct flowlane_rebalance_lane *lanes,
                                          size_t count,
                                          uint32_t workers,
                                          void *user);

// A packet as the hash sees it: who sent it to whom, as it arrives.
typedef struct flowlane_rss_flow {
    // Who sent it.
    struct flowlane_address source;
    // To whom.
    struct flowlane_address destination;
    // IP's number of the protocol: 6 for TCP, 17 for UDP.
    uint8_t protocol;
    // 1 for a fragment, which has no ports for the hash; otherwise 0.
    uint8_t fragment;
} flowlane_rss_flow;

// Where a packet goes.
typedef struct flowlane_rss_steered {
    // The hash; 0 if packets of the kind are not hashed.
    uint32_t hash;
    // What the hash covers, by FreeBSD's numbers: 0x81 IPv4, 0x82 TCP over IPv4, 0x83 IPv6, 0x84 TCP over IPv6, 0x87 and 0x89 UDP over
    // IPv4 and IPv6; 0 for nothing.
    uint32_t hash_type;
    // Slot of the indirection table.
    uint32_t slot;
    // Bucket in that slot.
    uint32_t bucket;
    // Worker that has the bucket, unless lanes have moved.
    uint32_t worker;
} flowlane_rss_steered;

// What is called in a lane.
typedef void (*flowlane_lane_function)(struct flowlane_lane *lane, void *argument);

// What is called with each counter.
typedef void (*flowlane_counter_call)(const char *group,
                                      const char *name,
                                      uint64_t value,
                                      void *user);

// What a program is told of a connection.
typedef struct flowlane_tcp_events {
    // sizeof(flowlane_tcp_events)
    size_t size;
    // It stands: the first callback, of one that was accepted and of one that was connected. Its user pointer is that of the listener or of
    // flowlane_tcp_connect; flowlane_tcp_set_user gives it one of its own. May be null.
    void (*opened)(struct flowlane_tcp *tcp, void *user);
    // There is something to read, or the end, or an error, which flowlane_tcp_read tells.
    void (*readable)(struct flowlane_tcp *tcp, void *user);
    // There is room again, after flowlane_tcp_write said FLOWLANE_ERR_AGAIN. May be null.
    void (*writable)(struct flowlane_tcp *tcp, void *user);
    // The last callback. code is 0 if the program closed it, FLOWLANE_ERR_STOPPED if its lane has ended, or why it could not be
    // connected; in the last case `opened` was not called. May be null.
    void (*closed)(struct flowlane_tcp *tcp, int32_t code, void *user);
} flowlane_tcp_events;

// Which flow it is.
typedef struct flowlane_tcp_flow_info {
    // Hash of what it receives, as the host's steering makes it.
    uint32_t hash;
    // What the hash covers, by FreeBSD's numbers.
    uint32_t hash_type;
    // The lane's bucket.
    uint32_t bucket;
} flowlane_tcp_flow_info;

// What a program is told when its memory is free again.
typedef void (*flowlane_send_done)(void *data, size_t len, int32_t code, void *user);

// What a program is told of a timer.
typedef struct flowlane_timer_events {
    // sizeof(flowlane_timer_events)
    size_t size;
    // Its time has come.
    void (*due)(struct flowlane_timer *timer, void *user);
    // The last callback: the timer was closed, or its lane has ended. May be null.
    void (*closed)(struct flowlane_timer *timer, void *user);
} flowlane_timer_events;

// What a program is told of a UDP socket.
typedef struct flowlane_udp_events {
    // sizeof(flowlane_udp_events)
    size_t size;
    // Datagrams came: `count` of them, at least one.
    void (*received)(struct flowlane_udp *udp,
                     struct flowlane_batch *batch,
                     size_t count,
                     void *user);
    // There may be room again, after a send found none. May be null.
    void (*room)(struct flowlane_udp *udp, void *user);
    // The network reported an error of a datagram that was sent, as that nobody listens there. May be null.
    void (*failed)(struct flowlane_udp *udp, int32_t code, void *user);
    // The last callback: the socket was closed, or its lane has ended. May be null.
    void (*closed)(struct flowlane_udp *udp, void *user);
} flowlane_udp_events;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reads an address: `10.0.0.1:7`, `[fd00::1]:7`, or without a port `10.0.0.1`, `fd00::1`.
int32_t flowlane_address_parse(const char *words, struct flowlane_address *address);

// Writes an address as a text with a zero byte at its end; 64 bytes are enough for any.
int32_t flowlane_address_format(const struct flowlane_address *address, char *buffer, size_t size);

// Makes an address of a `struct sockaddr_in` or `struct sockaddr_in6` of `size` bytes. The zone of an IPv6 address is left out.
int32_t flowlane_address_from_sockaddr(const struct sockaddr *from,
                                       socklen_t size,
                                       struct flowlane_address *address);

// Makes a `struct sockaddr_in` or `struct sockaddr_in6` of an address; `size` is what there is room for, and then what was written.
int32_t flowlane_address_to_sockaddr(const struct flowlane_address *address,
                                     struct sockaddr *to,
                                     socklen_t *size);

// What is known of a datagram of a batch.
int32_t flowlane_batch_get(struct flowlane_batch *batch,
                           size_t index,
                           struct flowlane_datagram *datagram);

// Copies the payload of a datagram, all parts of it, as far as it fits; to `copied` how many bytes that were.
int32_t flowlane_batch_read(const struct flowlane_batch *batch,
                            size_t index,
                            void *to,
                            size_t size,
                            size_t *copied);

// Marks a datagram to be sent back to its sender when the callback returns, with the payload that it has then, shortened to `len` bytes if it
// is longer.
int32_t flowlane_batch_reply(struct flowlane_batch *batch,
                             size_t index,
                             size_t len);

// Marks all datagrams to be sent back as they are.
int32_t flowlane_batch_reply_all(struct flowlane_batch *batch);

// Begins a description: one worker, no host. Free it with flowlane_builder_free, or start it.
int32_t flowlane_builder_new(struct flowlane_builder **builder);

// Frees a description that was not started. A null pointer is ignored.
void flowlane_builder_free(struct flowlane_builder *builder);

// Number of workers, 1 to 64.
int32_t flowlane_builder_workers(struct flowlane_builder *builder, uint32_t workers);

// Binds each worker to the processor of its number in the list; as many as there are workers.
int32_t flowlane_builder_cpus(struct flowlane_builder *builder, const uint32_t *cpus, size_t count);

// Whether workers with a link are bound to processors, if flowlane_builder_cpus has not said to which; they are by default.
int32_t flowlane_builder_pin(struct flowlane_builder *builder,
                             bool pin);

// How long an idle worker polls before it sleeps: nanoseconds, or UINT64_MAX for without end.
int32_t flowlane_builder_idle(struct flowlane_builder *builder, uint64_t nanos);

// Frames of each worker.
int32_t flowlane_builder_frames(struct flowlane_builder *builder, size_t frames);

// Adds a host and gives its number. Without flowlane_host_link and flowlane_host_pair it is on sockets of the kernel. rss may be null:
// then steering is by a random key; otherwise it is copied.
int32_t flowlane_builder_host(struct flowlane_builder *builder,
                              const char *name,
                              const struct flowlane_rss *rss,
                              const struct flowlane_lane_events *events,
                              void *user,
                              uint32_t *host);

// Puts a host on a link, with Flowlane's own stack: "tap:NAME", "af-packet:NAME", "af-xdp:NAME", as the command has them. addresses are
// such as "10.0.0.1/24,fd00::1/64". One link for each host.
int32_t flowlane_host_link(struct flowlane_builder *builder,
                           uint32_t host,
                           const char *link,
                           const char *addresses);

// Joins two hosts of this process by a wire in memory, with Flowlane's own stack at both ends.
int32_t flowlane_host_pair(struct flowlane_builder *builder,
                           uint32_t host,
                           const char *addresses,
                           uint32_t other,
                           const char *other_addresses);

// Gives a host on a link a default route.
int32_t flowlane_host_gateway(struct flowlane_builder *builder, uint32_t host, const char *gateway);

// Whether outgoing connections of a host on kernel sockets take home ports: ports whose replies hash to the lane that connects. On
// Flowlane's own stack they always do.
int32_t flowlane_host_home_ports(struct flowlane_builder *builder,
                                 uint32_t host,
                                 bool home);

// Congestion control of a host's connections: "cubic", "newreno", "bbr" or "prague". The last asks for accurate ECN, and a connection whose peer
// does not agree on that has "cubic". On sockets of the kernel, too, where a connection or listener is refused with FLOWLANE_ERR_SYSTEM if the
// kernel does not have it or keeps it for root. flowlane_tcp_set_congestion gives one connection another.
int32_t flowlane_host_congestion(struct flowlane_builder *builder,
                                 uint32_t host,
                                 const char *name);

// Explicit congestion notification of the connections of a host on a link: "off", "accept" (classic, if asked for; so it is by default),
// "request", "accurate" (RFC 9768, asked for and accepted), "accurate-request" (accepted, but classic is asked for) or "accurate-accept".
// Sockets of the kernel have the kernel's: such a host does not start.
int32_t flowlane_host_ecn(struct flowlane_builder *builder,
                          uint32_t host,
                          const char *name);

// The text of a code. It is valid for ever.
const char *flowlane_strerror(int32_t code);

// The words of this thread's last error other than FLOWLANE_ERR_AGAIN, an empty text before the first. Valid until this thread's next
// error.
const char *flowlane_last_error(void);

// Version of the library that runs: major * 1000000 + minor * 1000 + patch.
uint32_t flowlane_version(void);

// The lane whose callback calls this; a null pointer elsewhere.
struct flowlane_lane *flowlane_lane_current(void);

// The number of its host, in order of configuration. A null pointer has the number 0.
uint32_t flowlane_lane_host(const struct flowlane_lane *lane);

// Its bucket. A null pointer has the number 0.
uint32_t flowlane_lane_bucket(const struct flowlane_lane *lane);

// The worker that has the lane now.
int32_t flowlane_lane_worker(struct flowlane_lane *lane, uint32_t *worker);

// Nanoseconds on the runtime's clock, which begins with the runtime: of the worker's turn, without looking at a clock.
int32_t flowlane_lane_now(struct flowlane_lane *lane,
                          uint64_t *nanos);

// The program's pointer of this lane: at first that of its host.
void *flowlane_lane_user(const struct flowlane_lane *lane);

// Gives the lane another pointer of the program's; null pointers of a lane are ignored.
void flowlane_lane_set_user(struct flowlane_lane *lane, void *user);

// Asks the lane's runtime to end, as flowlane_runtime_end does from outside.
int32_t flowlane_lane_end_runtime(struct flowlane_lane *lane);

// Opens a link and makes a lane on it, both for the calling thread: link and addresses as for flowlane_host_link, gateway an address or null.
// Free it with flowlane_loop_free.
int32_t flowlane_loop_open(const char *link,
                           const char *addresses,
                           const char *gateway,
                           struct flowlane_loop **handle);

// Frees a loop with its sockets, on its thread. A null pointer is ignored.
int32_t flowlane_loop_free(struct flowlane_loop *handle);

// Does all pending work without waiting; `busy`, which may be null, is whether there was any.
int32_t flowlane_loop_turn(struct flowlane_loop *handle, bool *busy);

// Waits until a turn is due: a packet comes, a timer, or so many nanoseconds are over; UINT64_MAX: no limit.
int32_t flowlane_loop_wait(struct flowlane_loop *handle,
                           uint64_t nanos);

// Nanoseconds from the last turn until the next is due without a packet; UINT64_MAX: not before one comes.
int32_t flowlane_loop_deadline(struct flowlane_loop *handle,
                               uint64_t *nanos);

// Descriptors that become readable when a packet comes. At most `size` are written to `fds`, and to `count` how many there are.
int32_t flowlane_loop_fds(struct flowlane_loop *handle,
                          int32_t *fds,
                          size_t size,
                          size_t *count);

// Opens a UDP socket, as flowlane_udp_open does in a lane.
int32_t flowlane_loop_udp(struct flowlane_loop *handle,
                          const struct flowlane_address *local,
                          const struct flowlane_address *remote,
                          uint64_t *socket);

// Takes the datagrams that wait, up to 64 of them: FLOWLANE_ERR_AGAIN if there are none. The batch is the loop's; it is valid until the next
// call of this function for any socket of the loop. What is marked in it is sent by flowlane_loop_reply.
int32_t flowlane_loop_receive(struct flowlane_loop *handle,
                              uint64_t socket,
                              struct flowlane_batch **batch,
                              size_t *count);

// Sends the marked datagrams of the last batch back to their senders; to `sent` how many. Those without room are dropped. The batch is used up.
int32_t flowlane_loop_reply(struct flowlane_loop *handle,
                            uint64_t socket,
                            size_t *sent);

// Sends a datagram, as flowlane_udp_send does in a lane; FLOWLANE_ERR_AGAIN: there is no room before the next turn.
int32_t flowlane_loop_send(struct flowlane_loop *handle,
                           uint64_t socket,
                           const void *data,
                           size_t len,
                           const struct flowlane_address *to);

// Listens on a port; backlog as for flowlane_listener_open.
int32_t flowlane_loop_listen(struct flowlane_loop *handle,
                             const struct flowlane_address *local,
                             uint32_t backlog,
                             uint64_t *socket);

// Takes a connection that waits; FLOWLANE_ERR_AGAIN if there is none. peer may be null.
int32_t flowlane_loop_accept(struct flowlane_loop *handle,
                             uint64_t listener,
                             uint64_t *socket,
                             struct flowlane_address *peer);

// Begins to connect; the connection stands when flowlane_loop_ready says that it is writable.
int32_t flowlane_loop_connect(struct flowlane_loop *handle,
                              const struct flowlane_address *remote,
                              uint64_t *socket);

// Whether a listener or a connection is FLOWLANE_READABLE, FLOWLANE_WRITABLE, FLOWLANE_OVER: bits of `ready`.
int32_t flowlane_loop_ready(struct flowlane_loop *handle,
                            uint64_t socket,
                            uint32_t *ready);

// Reads from a connection, as flowlane_tcp_read does in a lane.
int32_t flowlane_loop_read(struct flowlane_loop *handle,
                           uint64_t socket,
                           void *buffer,
                           size_t size,
                           size_t *n);

// Writes to a connection what there is room for, as flowlane_tcp_write does in a lane.
int32_t flowlane_loop_write(struct flowlane_loop *handle,
                            uint64_t socket,
                            const void *data,
                            size_t len,
                            size_t *n);

// Ends the writing direction of a connection.
int32_t flowlane_loop_shutdown(struct flowlane_loop *handle, uint64_t socket);

// Closes a socket of any kind; a connection in order. Its number is of no socket any more.
int32_t flowlane_loop_close(struct flowlane_loop *handle, uint64_t socket);

// Moves lanes as the program decides once a period; 100 ms is a good one. Stop it before the runtime is freed.
int32_t flowlane_rebalance_start(const struct flowlane_runtime *runtime,
                                 uint64_t period_nanos,
                                 flowlane_rebalance_decide decide,
                                 void *user,
                                 struct flowlane_rebalance **rebalance);

// Moves lanes as a policy of the library's decides: "even" or "pack".
int32_t flowlane_rebalance_by(const struct flowlane_runtime *runtime,
                              uint64_t period_nanos,
                              const char *name,
                              struct flowlane_rebalance **rebalance);

// How many lanes have been moved so far.
int32_t flowlane_rebalance_moves(const struct flowlane_rebalance *rebalance, uint64_t *moves);

// Ends the moving of lanes, which stay where they are; the callback is not called any more. A null pointer is ignored.
void flowlane_rebalance_stop(struct flowlane_rebalance *rebalance);

// Makes steering for so many workers: by a key of 16 to 52 bytes, or with a null pointer and length 0 by Microsoft's, which everyone knows.
// buckets is a power of two, at least that of the workers, or 0 for the usual number. udp_ports: UDP is hashed on ports, too. Free
// it with flowlane_rss_free.
int32_t flowlane_rss_new(const uint8_t *key,
                         size_t key_len,
                         uint32_t workers,
                         uint32_t buckets,
                         bool udp_ports,
                         struct flowlane_rss **rss);

// Frees it. A null pointer is ignored.
void flowlane_rss_free(struct flowlane_rss *rss);

// Number of buckets; a null pointer has none.
uint32_t flowlane_rss_buckets(const struct flowlane_rss *rss);

// Gives a bucket to a worker, before a host is made of it.
int32_t flowlane_rss_assign(struct flowlane_rss *rss, uint32_t bucket, uint32_t worker);

// The worker of a bucket.
int32_t flowlane_rss_worker_of(const struct flowlane_rss *rss, uint32_t bucket, uint32_t *worker);

// Where a packet goes: its hash, and what follows from that.
int32_t flowlane_rss_steer(const struct flowlane_rss *rss,
                           const struct flowlane_rss_flow *flow,
                           struct flowlane_rss_steered *steered);

// The Toeplitz hash of bytes under a key of 16 to 52 bytes.
int32_t flowlane_toeplitz(const uint8_t *key,
                          size_t key_len,
                          const void *data,
                          size_t len,
                          uint32_t *hash);

// Ports of `local` from which a connection to `remote` has its replies come to a bucket of ours: its home ports, from 1024 on. They are computed, not
// searched. At most `size` are written to `ports`, and to `count` how many were.
int32_t flowlane_rss_reply_ports(const struct flowlane_rss *rss,
                                 uint32_t bucket,
                                 const struct flowlane_address *local,
                                 const struct flowlane_address *remote,
                                 uint8_t protocol,
                                 uint16_t *ports,
                                 size_t size,
                                 size_t *count);

// Ports of a sender from which its packets reach a bucket of the receiver whose steering this is, from 1024 on. At most `size` are written to
// `ports`, and to `count` how many were.
int32_t flowlane_rss_source_ports(const struct flowlane_rss *rss,
                                  uint32_t bucket,
                                  const struct flowlane_address *source,
                                  const struct flowlane_address *destination,
                                  uint8_t protocol,
                                  uint16_t *ports,
                                  size_t size,
                                  size_t *count);

// Starts what was described: opens the links, starts the workers and begins all lanes. The builder is used up, also if the start fails.
int32_t flowlane_runtime_start(struct flowlane_builder *builder,
                               struct flowlane_runtime **runtime);

// Asks the runtime to end; flowlane_runtime_wait then returns. For any thread, and not for handlers of signals.
int32_t flowlane_runtime_end(struct flowlane_runtime *runtime);

// Waits until the runtime was asked to end or a lane has failed, and ends it. Not for callbacks, which would wait for themselves.
int32_t flowlane_runtime_wait(struct flowlane_runtime *runtime);

// Ends the runtime, if it has not ended, and frees it. Its connections have so many nanoseconds to end in order; then they are reset.
// All `closed` and `stop` callbacks have been called when this returns. A null pointer is ignored.
int32_t flowlane_runtime_free(struct flowlane_runtime *runtime,
                              uint64_t grace_nanos);

// Number of workers; a null pointer has none.
uint32_t flowlane_runtime_workers(const struct flowlane_runtime *runtime);

// Number of buckets of a host, which is that of its lanes; 0 if there is no such host.
uint32_t flowlane_runtime_buckets(const struct flowlane_runtime *runtime, uint32_t host);

// Which worker has a lane.
int32_t flowlane_runtime_worker_of(const struct flowlane_runtime *runtime,
                                   uint32_t host,
                                   uint32_t bucket,
                                   uint32_t *worker);

// The processors on which a bucket is handled: those on which its worker may run. At most `size` are written to `cpus`, and to `count` how many
// there are.
int32_t flowlane_runtime_bucket_cpus(const struct flowlane_runtime *runtime,
                                     uint32_t host,
                                     uint32_t bucket,
                                     uint32_t *cpus,
                                     size_t size,
                                     size_t *count);

// Has a function called in a lane, from any thread: the way into a lane for everybody else. Calls from one thread are made in order. If the runtime
// ends before, the call is not made.
int32_t flowlane_runtime_call(const struct flowlane_runtime *runtime,
                              uint32_t host,
                              uint32_t bucket,
                              flowlane_lane_function function,
                              void *argument);

// Has a function called in another lane of the same host, or in this one a moment later.
int32_t flowlane_lane_call(struct flowlane_lane *lane,
                           uint32_t bucket,
                           flowlane_lane_function function,
                           void *argument);

// Moves a lane to another worker with all that is in it, and waits until it is there. Not for callbacks.
int32_t flowlane_runtime_move(const struct flowlane_runtime *runtime,
                              uint32_t host,
                              uint32_t bucket,
                              uint32_t worker);

// Calls a function with each counter of a host: the sums of all its lanes, by group and name. Not for callbacks.
int32_t flowlane_runtime_counters(const struct flowlane_runtime *runtime,
                                  uint32_t host,
                                  flowlane_counter_call each,
                                  void *user);

// Listens in a lane, on an address of the host's or, of family 0, on all of them. In every lane of a host, so that all connections are accepted.
// backlog: connections that may wait, 0 for the usual number. `events` are those of the connections. On kernel sockets port 0 is a free one.
int32_t flowlane_listener_open(struct flowlane_lane *lane,
                               const struct flowlane_address *local,
                               uint32_t backlog,
                               const struct flowlane_tcp_events *events,
                               void *user,
                               struct flowlane_listener **listener);

// Where it listens.
int32_t flowlane_listener_local(const struct flowlane_listener *listener,
                                struct flowlane_address *local);

// Closes a listener. Its handle is not valid any more; its connections go on.
int32_t flowlane_listener_close(struct flowlane_listener *listener);

// Begins to connect from a port whose replies arrive in this lane, where the host has such ports. local may be null, and so may its address be
// of family 0 and its port 0. timeout_nanos: how long the peer has to answer, 0 for as long as TCP tries. `opened` or `closed` follows.
int32_t flowlane_tcp_connect(struct flowlane_lane *lane,
                             const struct flowlane_address *remote,
                             const struct flowlane_address *local,
                             uint64_t timeout_nanos,
                             const struct flowlane_tcp_events *events,
                             void *user,
                             struct flowlane_tcp **tcp);

// Reads what is there, at most `size` bytes; to `n` how many, 0 at the end of the stream. FLOWLANE_ERR_AGAIN: nothing is there.
int32_t flowlane_tcp_read(struct flowlane_tcp *tcp,
                          void *buffer,
                          size_t size,
                          size_t *n);

// Writes what there is room for; to `n` how many bytes. FLOWLANE_ERR_AGAIN: there is none, `writable` is called when there is.
int32_t flowlane_tcp_write(struct flowlane_tcp *tcp,
                           const void *data,
                           size_t len,
                           size_t *n);

// Tells the peer that nothing more is written, once what was written is sent. Reading goes on.
int32_t flowlane_tcp_shutdown(struct flowlane_tcp *tcp);

// Closes a connection in order: what was written is still sent. After `closed` its handle is not valid any more.
int32_t flowlane_tcp_close(struct flowlane_tcp *tcp);

// Resets a connection and closes it.
int32_t flowlane_tcp_abort(struct flowlane_tcp *tcp);

// Whether `readable` is held back. What the peer sends waits, until its window is full.
int32_t flowlane_tcp_pause(struct flowlane_tcp *tcp, bool pause);

// Whether small segments are sent at once, without Nagle's algorithm.
int32_t flowlane_tcp_nodelay(struct flowlane_tcp *tcp, bool nodelay);

// Gives a connection another congestion control: "cubic", "newreno", "bbr" or "prague", which is "cubic" on a connection that has not agreed on
// accurate ECN. FLOWLANE_ERR_SYSTEM: the kernel, whose socket it is, does not have it or keeps it for root.
int32_t flowlane_tcp_set_congestion(struct flowlane_tcp *tcp,
                                    const char *name);

// The congestion control of a connection, by its name, which is valid for ever; a null pointer for one of the kernel's that Flowlane does not
// have.
int32_t flowlane_tcp_congestion(const struct flowlane_tcp *tcp,
                                const char **name);

// Our end.
int32_t flowlane_tcp_local(const struct flowlane_tcp *tcp, struct flowlane_address *local);

// The peer's end.
int32_t flowlane_tcp_peer(const struct flowlane_tcp *tcp, struct flowlane_address *peer);

// The flow of a connection. On kernel sockets the bucket is that of the lane that has it: which it is, the kernel chose.
int32_t flowlane_tcp_flow(const struct flowlane_tcp *tcp,
                          struct flowlane_tcp_flow_info *flow);

// The program's pointer of a connection.
void *flowlane_tcp_user(const struct flowlane_tcp *tcp);

// Gives a connection another pointer of the program's; a null handle is ignored.
void flowlane_tcp_set_user(struct flowlane_tcp *tcp, void *user);

// The lane of a connection; a null handle has none.
struct flowlane_lane *flowlane_tcp_lane(const struct flowlane_tcp *tcp);

// Sends memory from where it is, behind what was written before. It belongs to the library until `done` is called with it: when the peer has
// acknowledged it (code 0), or when the connection has ended before and nothing refers to it (code below zero). `done` is called once in
// any case, if the connection is closed perhaps after `closed`, and at the end of the runtime perhaps on another thread.
int32_t flowlane_tcp_send_zc(struct flowlane_tcp *tcp,
                             void *data,
                             size_t len,
                             flowlane_send_done done,
                             void *user);

// Makes a timer in a lane; it is not set.
int32_t flowlane_timer_new(struct flowlane_lane *lane,
                           const struct flowlane_timer_events *events,
                           void *user,
                           struct flowlane_timer **timer);

// Sets a timer to so many nanoseconds from now, instead of what it was set to. It comes once.
int32_t flowlane_timer_set(struct flowlane_timer *timer, uint64_t nanos);

// Unsets a timer.
int32_t flowlane_timer_unset(struct flowlane_timer *timer);

// Closes a timer: after `closed` its handle is not valid any more.
int32_t flowlane_timer_close(struct flowlane_timer *timer);

// Opens a socket in a lane. local is where it receives: an address of the host's or of family 0 for all of them, and a port, 0 for one that
// is free. With a remote, which may be null, it is connected: it receives only from there.
int32_t flowlane_udp_open(struct flowlane_lane *lane,
                          const struct flowlane_address *local,
                          const struct flowlane_address *remote,
                          const struct flowlane_udp_events *events,
                          void *user,
                          struct flowlane_udp **udp);

// Sends a datagram: to `to`, or of a connected socket, if that is null, to its peer. FLOWLANE_ERR_AGAIN: there is no room; `room` is called
// when there may be.
int32_t flowlane_udp_send(struct flowlane_udp *udp,
                          const void *data,
                          size_t len,
                          const struct flowlane_address *to);

// Where the socket receives.
int32_t flowlane_udp_local(const struct flowlane_udp *udp, struct flowlane_address *local);

// Closes a socket: after `closed` its handle is not valid any more.
int32_t flowlane_udp_close(struct flowlane_udp *udp);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLOWLANE_H */
