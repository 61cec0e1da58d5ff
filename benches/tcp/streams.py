"""The kernel's ends of streams over a bad path: senders, and a sink that tells who sent how much.

streams.py send SECONDS SKIP COUNT ADDRESS:PORT...
    COUNT connections to each address, all at once, from the address FROM and with the congestion control CONGESTION (cubic) if these are set; for each, the bytes acknowledged after the first SKIP seconds.
streams.py sink ADDRESS PORT
    Each half second a line of JSON: the time, and the bytes received by now from each address.
"""

import json
import os
import select
import socket
import struct
import sys
import threading
import time


def acked(stream):
    """tcpi_bytes_acked of TCP_INFO."""
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return struct.unpack_from("Q", info, 120)[0]


def pour(stream, end):
    chunk = bytes(1 << 16)
    stream.settimeout(1)
    while time.monotonic() < end:
        try:
            stream.send(chunk)
        except TimeoutError:
            pass
        except OSError:
            return


def send(seconds, skip, count, *targets):
    seconds, skip, count = float(seconds), float(skip), int(count)
    streams = {}
    for target in targets * count:
        address, port = target.rsplit(":", 1)
        stream = socket.socket()
        # Whatever the machine's default is.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, os.environ.get("CONGESTION", "cubic").encode())
        stream.bind((os.environ.get("FROM", ""), 0))
        stream.settimeout(60)
        stream.connect((address, int(port)))
        streams.setdefault(target, []).append(stream)
    end = time.monotonic() + seconds
    for stream in [s for group in zip(*streams.values()) for s in group]:
        threading.Thread(target=pour, args=(stream, end), daemon=True).start()
    time.sleep(skip)
    before = {target: sum(map(acked, group)) for target, group in streams.items()}
    time.sleep(end - time.monotonic())
    print(json.dumps({t: sum(map(acked, group)) - before[t] for t, group in streams.items()}))
    # What is not acknowledged by now is not sent in the next run's time.
    for stream in [s for group in streams.values() for s in group]:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def sink(address, port):
    listener = socket.create_server((address, int(port)), backlog=512)
    poll, streams, got = select.poll(), {}, {}
    poll.register(listener, select.POLLIN)
    # One thread: no stream waits for another's turn at the interpreter.
    into, next_line = bytearray(1 << 18), time.monotonic()
    while True:
        for fd, _ in poll.poll(100):
            if fd == listener.fileno():
                stream, peer = listener.accept()
                streams[stream.fileno()] = (stream, peer[0])
                poll.register(stream, select.POLLIN)
                continue
            stream, peer = streams[fd]
            try:
                n = stream.recv_into(into, 0, socket.MSG_TRUNC)
            except OSError:
                n = 0
            got[peer] = got.get(peer, 0) + n
            if n == 0:
                poll.unregister(fd)
                streams.pop(fd)[0].close()
        if time.monotonic() >= next_line:
            print(json.dumps({"at": round(time.monotonic(), 3), **got}), flush=True)
            next_line += 0.5


{"send": send, "sink": sink}[sys.argv[1]](*sys.argv[2:])
