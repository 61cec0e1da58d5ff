//! Room for what came in order, where the lane is under pressure: see `lane/memory.rs`.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::connection::Connection;
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::input::{Step, Stop};
use crate::tcp::lane::Core;
use crate::tcp::lane::memory::{frames_left, room_for};
use crate::tcp::segment::Segment;

impl Connection {
    /// Under pressure: makes sure that the lane has room for what came in order. What waits for its turn gives way to it. If that
    /// does not help, the window is closed and the segment dropped.
    #[cold]
    pub(crate) fn make_room(&mut self, core: &mut Core, cx: &Cx<'_>, rx: &mut Inflow, seg: &Segment) -> Step {
        let Some(frame) = &seg.frame else { return Ok(()) };
        let len = seg.len as usize;
        let need = rx.growth(frame, len, true);
        // What is pruned here is taken off the lane's count by the caller, with all else that changes in `rx`.
        let before = rx.memory();
        loop {
            let pruned = before - rx.memory();
            let floor = room_for(u32::from(self.mss.rcv()));
            let room = core.may_add(rx.memory(), rx.is_empty(), floor) + pruned;
            if need <= room {
                return Ok(());
            }
            // Guard: `rx.early.drop_last()` as `None` fails bounds/receive::early_data_is_pruned
            // bounds/receive::holes
            let Some(bytes) = rx.early.drop_last() else { break };
            core.stats.pruned_bytes += u64::from(bytes);
        }
        if !frames_left(cx, 8) && core.take_spare(rx, len, self.mss.rcv()) {
            return Ok(());
        }
        self.rcv.close_window();
        self.ack_at_once();
        core.stats.windows_closed += 1;
        core.look_again(self, cx.now);
        Err(Stop::Drop(DropReason::LaneMemory))
    }
}
