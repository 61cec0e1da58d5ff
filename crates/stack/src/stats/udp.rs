//! UDP counters. "Delivered" is counted, not computed, since a datagram may have several ways to be lost.

use flowlane_sys::figures;

figures! {
    /// `netstat -s -p udp`.
    pub struct UdpStats {
        received as "received-datagrams": count "datagrams received";
        incomplete_header as "dropped-incomplete-headers": count "with incomplete header";
        bad_length as "dropped-bad-data-length": count "with bad data length field";
        bad_checksum as "dropped-bad-checksum": count "with bad checksum";
        no_checksum as "dropped-no-checksum": count "with no checksum";
        no_socket as "dropped-no-socket": count "dropped due to no socket";
        no_socket_broadcast as "dropped-broadcast-multicast": count "broadcast/multicast datagrams undelivered";
        full_socket as "dropped-full-socket-buffer": count "dropped due to full socket buffers";
        delivered as "delivered-packets": count "delivered";
        sent as "output-packets": count "datagrams output";
        sent_on_original as "output-replies": count "of them in the frame they answer";
        elsewhere as "handed-over": count "for connected sockets in other lanes";
        flow_records: count "records of flows that ended";
        flow_records_active: count "records of flows that go on";
        flow_records_no_room: count "flows that made room for others";
        flow_records_lost: count "records of flows lost for lack of room";
        ports_tried: count "local ports that were looked at for connected sockets";
    }
}
