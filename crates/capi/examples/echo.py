#!/usr/bin/env python3
"""An echo server for UDP in Python, through cffi: echo.py HEADER LIBRARY ADDRESS:PORT

HEADER is flowlane.h, from which cffi reads the declarations, and LIBRARY is libflowlane.so.0. Callbacks run on the library's threads; cffi takes
the interpreter's lock for them. It says when it receives, and serves until SIGINT or SIGTERM.
"""

import re
import signal
import sys

import cffi


def declarations(header):
    """The header as cffi reads it: without lines for the preprocessor, and without C++."""
    text = re.sub(r"#ifdef __cplusplus.*?#endif[^\n]*", "", header, flags=re.DOTALL)
    constants = re.findall(r"^#define (FLOWLANE_\w+) (-?\d+)$", text, flags=re.MULTILINE)
    text = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    types = "struct sockaddr; typedef unsigned int socklen_t;\n"
    return types + "".join(f"#define {name} {value}\n" for name, value in constants) + text


class Failed(Exception):
    """A function of the library said no."""


def main(header, library, address):
    ffi = cffi.FFI()
    with open(header, encoding="utf-8") as file:
        ffi.cdef(declarations(file.read()))
    lib = ffi.dlopen(library)

    def check(code):
        if code != lib.FLOWLANE_OK:
            words = ffi.string(lib.flowlane_last_error()).decode()
            raise Failed(f"{ffi.string(lib.flowlane_strerror(code)).decode()}: {words}")

    where = ffi.new("flowlane_address *")
    check(lib.flowlane_address_parse(address.encode(), where))

    @ffi.callback("void(flowlane_udp *, flowlane_batch *, size_t, void *)")
    def received(udp, batch, count, user):
        datagram = ffi.new("flowlane_datagram *")
        for index in range(count):
            check(lib.flowlane_batch_get(batch, index, datagram))
            payload = ffi.buffer(datagram.data, datagram.len)
            payload[:] = bytes(payload).upper()
            check(lib.flowlane_batch_reply(batch, index, datagram.len))

    udp_events = ffi.new("flowlane_udp_events *", {"size": ffi.sizeof("flowlane_udp_events"), "received": received})

    @ffi.callback("int(flowlane_lane *, void *)", error=lib.FLOWLANE_ERR_INVALID)
    def start(lane, user):
        udp = ffi.new("flowlane_udp **")
        return lib.flowlane_udp_open(lane, where, ffi.NULL, udp_events, ffi.NULL, udp)

    lane_events = ffi.new("flowlane_lane_events *", {"size": ffi.sizeof("flowlane_lane_events"), "start": start})

    builder, runtime, host = ffi.new("flowlane_builder **"), ffi.new("flowlane_runtime **"), ffi.new("uint32_t *")
    check(lib.flowlane_builder_new(builder))
    check(lib.flowlane_builder_host(builder[0], b"echo", ffi.NULL, lane_events, ffi.NULL, host))
    # Workers inherit what is blocked, so that the signal comes here.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    check(lib.flowlane_runtime_start(builder[0], runtime))
    print(f"receives at {address} in {lib.flowlane_runtime_buckets(runtime[0], host[0])} lanes", file=sys.stderr, flush=True)
    signal.sigwait(signals)
    check(lib.flowlane_runtime_free(runtime[0], 0))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} HEADER LIBRARY ADDRESS:PORT")
    try:
        main(*sys.argv[1:])
    except Failed as error:
        sys.exit(str(error))
