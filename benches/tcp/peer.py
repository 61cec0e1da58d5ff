"""The kernel's end of streams: an echo, a sink or a source, a thread for each connection.

peer.py echo|sink|source ADDRESS PORT
"""

import socket
import sys
import threading

CHUNK = bytes(range(256)) * 1024


def serve(role, stream):
    with stream:
        try:
            if role == "source":
                while True:
                    stream.sendall(CHUNK)
            buffer = bytearray(1 << 20)
            # The kernel throws away what a sink does not want: nothing is copied.
            flags = socket.MSG_TRUNC if role == "sink" else 0
            while n := stream.recv_into(buffer, 0, flags):
                if role == "echo":
                    stream.sendall(memoryview(buffer)[:n])
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def main(role, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen(4096)
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(role, stream), daemon=True).start()


main(*sys.argv[1:])
