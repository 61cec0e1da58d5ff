//! One lane of Flowlane behind packetdrill's interface for shared objects.
