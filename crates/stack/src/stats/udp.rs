//! UDP counters. "Delivered" is counted, not computed, since a datagram may have several ways to be lost.

use super::counters;

counters! {
    /// `netstat -s -p udp`.
    UdpStats {
        received: "received-datagrams", "datagrams received";
        incomplete_header: "dropped-incomplete-headers", "with incomplete header";
        bad_length: "dropped-bad-data-length", "with bad data length field";
        bad_checksum: "dropped-bad-checksum", "with bad checksum";
        no_checksum: "dropped-no-checksum", "with no checksum";
        no_socket: "dropped-no-socket", "dropped due to no socket";
        no_socket_broadcast: "dropped-broadcast-multicast", "broadcast/multicast datagrams undelivered";
        full_socket: "dropped-full-socket-buffer", "dropped due to full socket buffers";
        delivered: "delivered-packets", "delivered";
        sent: "output-packets", "datagrams output";
        sent_on_original: "output-replies", "of them in the frame they answer";
        elsewhere: "handed-over", "for connected sockets in other lanes";
        flow_records: "flow-records", "records of flows that ended";
        flow_records_active: "flow-records-active", "records of flows that go on";
        flow_records_no_room: "flow-records-no-room", "flows that made room for others";
        flow_records_lost: "flow-records-lost", "records of flows lost for lack of room";
        ports_tried: "ports-tried", "local ports that were looked at for connected sockets";
    }
}
