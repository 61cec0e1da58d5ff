"""How long senders of TCP wait before they send a segment again, as seen at both ends of a path.

silence.py NEAR FAR SENDER...
    Until SIGTERM; then a line for each sender. Segments are seen where they come in from the senders, at NEAR, and
    acknowledgements where they come in from the receiver, at FAR: nothing has been lost there.
"""

import select
import signal
import socket
import struct
import sys
import time

LEAST = 0.15


class Connection:
    def __init__(self):
        self.first = self.last = None
        self.high = self.acked = None
        self.start = 0


def later(a, b):
    return 0 < (a - b) & 0xFFFFFFFF < 1 << 31


def listen(interface):
    sniff = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniff.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    sniff.bind((interface, 0))
    return sniff


def watch(near, far, senders):
    near, far = listen(near), listen(far)
    print("watching", flush=True)
    connections, waits = {}, {sender: [] for sender in senders}
    try:
        while True:
            for sniff in select.select([near, far], [], [])[0]:
                frame = sniff.recv(128)
                now = time.monotonic()
                if frame[12:14] != b"\x08\x00" or frame[23] != 6:
                    continue
                total, head = struct.unpack_from("!H", frame, 16)[0], (frame[14] & 15) * 4
                tcp = 14 + head
                sport, dport, seq, ack = struct.unpack_from("!HHII", frame, tcp)
                size = total - head - (frame[tcp + 12] >> 4) * 4
                sender, receiver = socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
                if sniff is far and receiver in waits:
                    c = connections.get((receiver, dport))
                    if c and (c.acked is None or later(ack, c.acked)):
                        c.acked = ack
                if sniff is far or sender not in waits or size <= 0:
                    continue
                c = connections.setdefault((sender, sport), Connection())
                if c.last is None:
                    c.first, c.start, c.high = now, seq, seq
                elif later(c.high, seq) and now - c.last >= LEAST:
                    waits[sender].append(now - c.last)
                c.last = now
                if later((seq + size) & 0xFFFFFFFF, c.high):
                    c.high = (seq + size) & 0xFFFFFFFF
    except KeyboardInterrupt:
        return connections, waits


signal.signal(signal.SIGTERM, signal.default_int_handler)
connections, waits = watch(sys.argv[1], sys.argv[2], sys.argv[3:])
for sender, silences in waits.items():
    mine = [c for (who, _), c in connections.items() if who == sender]
    minutes = sum(c.last - c.first for c in mine) / 60
    acked = sum((c.acked - c.start) & 0xFFFFFFFF for c in mine if c.acked is not None)
    silences.sort()
    part = lambda p: silences[min(int(len(silences) * p), len(silences) - 1)] if silences else 0
    print(
        f"  {sender:10} {len(mine)} connections, {len(silences) / max(minutes, 1e-9):5.1f} timeouts a minute each, "
        f"p50 {part(0.5):.2f}, p90 {part(0.9):.2f}, p99 {part(0.99):.2f}, longest {part(1):.2f} s, "
        f"{acked / 1e6:.2f} MB acknowledged"
    )
