//! Chains of frames: operations on packets in several frames.
//!
//! Reassembled datagrams, and datagrams too long for one frame, are chains ([`Frame::append`]). Headers are always
//! whole in the first frame; the others have payload only.

use flowlane_sys::frame::{Frame, HEADROOM, Pool};

use crate::wire::Sum;

/// The ones-complement sum over all bytes of a chain.
pub(crate) fn sum(frame: &Frame) -> Sum {
    let mut at = 0;
    frame.chunks().fold(Sum::EMPTY, |sum, chunk| {
        let sum = sum.add_bytes_at(at, chunk);
        at += chunk.len();
        sum
    })
}

/// Copies the bytes of a chain into `out`, as many as fit, and returns how many.
pub(crate) fn read(frame: &Frame, out: &mut [u8]) -> usize {
    let mut at = 0;
    for chunk in frame.chunks() {
        let n = chunk.len().min(out.len() - at);
        out[at..at + n].copy_from_slice(&chunk[..n]);
        at += n;
    }
    at
}

/// Most bytes that a fresh frame can take behind its headroom.
pub(crate) fn room(frame: &Frame) -> usize {
    frame.capacity().saturating_sub(HEADROOM)
}

/// The chain in one fresh frame, with its metadata; the chain itself if there is no frame or it does not fit.
pub(crate) fn gather(pool: &Pool, chain: Frame) -> Result<Frame, Frame> {
    let len = chain.chain_len();
    let Some(mut one) = pool.alloc() else { return Err(chain) };
    let Some(bytes) = one.push_back(len) else { return Err(chain) };
    read(&chain, bytes);
    *one.meta_mut() = *chain.meta();
    Ok(one)
}

/// The bytes in a chain of fresh frames: `first` of them in the first frame, `each` in every other. `None` if there are
/// not enough frames or they are too small.
pub(crate) fn spread(pool: &Pool, bytes: &[u8], first: usize, each: usize) -> Option<Frame> {
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let mut chain: Option<Frame> = None;
    // From the back, so that each link costs the same however long the chain.
    for chunk in rest.chunks(each.max(1)).rev() {
        chain = Some(link(filled(pool, chunk)?, chain));
    }
    Some(link(filled(pool, head)?, chain))
}

/// `frame` with the chain `rest` behind it.
pub(crate) fn link(mut frame: Frame, rest: Option<Frame>) -> Frame {
    if let Some(rest) = rest {
        frame.append(rest);
    }
    frame
}

fn filled(pool: &Pool, bytes: &[u8]) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    frame.extend_from_slice(bytes).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    #[test]
    fn a_chain_is_its_bytes_however_they_are_spread() {
        let config =
            MemoryConfig { frames_per_home: 256, lock: false, huge_pages: false, ..Default::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let bytes: Vec<u8> = (0..1500u32).map(|i| (i * 7) as u8).collect();
        for (first, each) in [(1500, 1), (0, 100), (1, 7), (13, 499), (9000, 0), (1499, 1)] {
            let chain = spread(&pool, &bytes, first, each).unwrap();
            assert_eq!(chain.chunks().next().unwrap().len(), first.min(1500));
            assert_eq!(sum(&chain).fold(), Sum::EMPTY.add_bytes(&bytes).fold(), "{first} {each}");
            let mut out = vec![0; 2000];
            assert_eq!(read(&chain, &mut out), 1500);
            assert_eq!(out[..1500], bytes);
            assert_eq!(read(&chain, &mut out[..77]), 77);
            assert_eq!(gather(&pool, chain).unwrap().data(), bytes);
        }
        assert_eq!(pool.free(), 256);
        let long = spread(&pool, &[0; 5000], 1000, 1000).unwrap();
        assert!(gather(&pool, long).is_err());
        assert!(spread(&pool, &[0; 5000], 5000, 1).is_none(), "larger than a frame");
        assert!(spread(&pool, &[0; 5000], 1, 1).is_none(), "more frames than there are");
        assert_eq!(pool.free(), 256);
    }
}
