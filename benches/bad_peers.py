#!/usr/bin/env python3
"""Peers of a web server that do what they should not, one after the other until SIGTERM; at the end a line of JSON says how many of each.

    bad_peers.py ADDRESS PORT CARD PREFIX

CARD is where addresses PREFIX.100 to PREFIX.199 are added for peers that vanish: their address is removed while an answer is on its way, so
that nobody says that they are gone. Between them come good peers: the same path has the same bytes each time.
"""
import hashlib, json, random, signal, socket, struct, subprocess, sys, time

address, port, card, prefix = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
random.seed(1)
counts, digests, held = {}, {}, []
running = True


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)


def connect(source=None):
    s = socket.socket()
    s.settimeout(10)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    if source:
        s.bind((source, 0))
    s.connect((address, port))
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def ask(path):
    return f"GET {path} HTTP/1.1\r\nHost: soak\r\n\r\n".encode()


def good(n):
    path = f"/size/{1000 * (1 + n % 40)}"
    s = connect()
    s.sendall(ask(path).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    got = b""
    while part := s.recv(65536):
        got += part
    s.close()
    digest = hashlib.sha256(got.partition(b"\r\n\r\n")[2]).hexdigest()
    if not got.startswith(b"HTTP/1.1 200") or digests.setdefault(path, digest) != digest:
        raise ValueError(f"{path}: {got[:60]!r}")


def says_nothing(n):
    held.append((time.time() + 15, connect()))


def half_a_head(n):
    s = connect()
    s.sendall(ask("/size/100")[:20])
    reset(s)


def half_a_body(n):
    s = connect()
    s.sendall(b"POST /echo HTTP/1.1\r\nHost: soak\r\nContent-Length: 100000\r\n\r\n" + b"x" * 30000)
    (reset if n % 2 else socket.socket.close)(s)


def no_http(n):
    s = connect()
    s.sendall(random.randbytes(3000))
    s.recv(1000)
    s.close()


def stops_reading(n):
    s = connect()
    s.sendall(ask("/size/3000000"))
    s.recv(1000)
    held.append((time.time() + 15, s))


def reset_while_read(n):
    s = connect()
    s.sendall(ask("/size/3000000"))
    s.recv(20000)
    reset(s)


def vanishes(n):
    ours = f"{prefix}.{100 + n % 100}"
    subprocess.run(["ip", "addr", "add", f"{ours}/24", "dev", card], check=True)
    try:
        s = connect(ours)
        s.sendall(ask("/size/3000000"))
        s.recv(1000)
    finally:
        subprocess.run(["ip", "addr", "del", f"{ours}/24", "dev", card], check=True)
    # Nothing that the kernel still says goes out.
    held.append((time.time() + 15, s))


kinds = [good, says_nothing, half_a_head, half_a_body, no_http, stops_reading, reset_while_read, vanishes]
n = 0
while running:
    kind = kinds[n % len(kinds)]
    n += 1
    try:
        kind(n)
        counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
    except (OSError, ValueError, subprocess.CalledProcessError) as e:
        name = f"{kind.__name__} failed"
        counts[name] = counts.get(name, 0) + 1
        print(f"{name}: {e}", file=sys.stderr, flush=True)
    while held and (held[0][0] < time.time() or len(held) > 60):
        reset(held.pop(0)[1])
    time.sleep(0.5)
print(json.dumps(counts))
