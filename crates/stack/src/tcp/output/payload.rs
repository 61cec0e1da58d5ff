//! A segment's payload: from the send buffer into frames.

use crate::packet::Cx;
use crate::tcp::connection::send_buffer::SendBuffer;
use crate::tcp::output::NoFrame;
use flowlane_sys::frame::Frame;

/// Puts `len` bytes of the send buffer from `offset` on behind the header; what does not fit goes into further frames of a chain. With `cut`, the link
/// takes the packet in pieces and cuts it anew: those frames refer to the send buffer's memory instead of holding a copy.
#[inline]
pub(super) fn fill(
    frame: &mut Frame,
    data: &mut SendBuffer,
    (offset, len): (usize, usize),
    cut: bool,
    cx: &Cx<'_>,
) -> Result<(), NoFrame> {
    debug_assert!(offset + len <= data.len(), "payload beyond the buffer");
    let shares = cut && len > frame.tailroom() && data.parts(offset, len) <= MAX_PARTS;
    let here = if shares { 0 } else { len.min(frame.tailroom()) };
    copy(frame, data, offset, here)?;
    if here == len {
        return Ok(());
    }
    // From the last frame to the first, because appending to a single frame is cheap.
    let mut chain: Option<Frame> = None;
    let mut put = |mut next: Frame| {
        if let Some(chain) = chain.take() {
            next.append(chain);
        }
        chain = Some(next);
    };
    let size = frame.capacity();
    if shares {
        let all = data.parts_from_back(offset, len, size, |block, at, n| {
            let Some(mut next) = cx.frames.alloc() else { return false };
            let shared = next.share(block, at, n);
            put(next);
            shared
        });
        if !all {
            return Err(NoFrame);
        }
    } else {
        let rest = len - here;
        for n in (0..rest.div_ceil(size)).rev() {
            let mut next = cx.frames.alloc().ok_or(NoFrame)?;
            next.reset(0);
            let at = here + n * size;
            copy(&mut next, data, offset + at, size.min(len - at))?;
            put(next);
        }
    }
    if let Some(chain) = chain {
        frame.append(chain);
    }
    Ok(())
}

/// Appends bytes of the send buffer to a frame, which has room for them.
#[inline]
fn copy(frame: &mut Frame, data: &SendBuffer, offset: usize, len: usize) -> Result<(), NoFrame> {
    let fits = match data.slice(offset, len) {
        Some(bytes) => frame.extend_from_slice(bytes),
        None => data.slices(offset, len).all(|bytes| frame.extend_from_slice(bytes)),
    };
    debug_assert!(fits);
    if fits { Ok(()) } else { Err(NoFrame) }
}

/// Blocks that a packet refers to at most: links take a limited number of pieces.
const MAX_PARTS: usize = 12;
