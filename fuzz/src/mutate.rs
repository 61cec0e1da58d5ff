//! Mutation that knows what an input is: operations, one after the other.
//!
//! The fuzzer's own mutations change bytes, and one byte more or less turns all operations behind it into others. Here whole
//! operations are taken out, doubled, exchanged, put in, or made anew from what is worth trying: packets whose headers are
//! almost right, segments with options, numbers at the edge of a window. One time in three the fuzzer's own have their turn,
//! which also bring in its dictionary.

use flowlane_stack::rng::Rng;

/// How a target's inputs are made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes of configuration before the first operation.
    pub head: usize,
    /// Bytes of the operation that these bytes begin with; more than there are if it is cut short.
    pub len: fn(&[u8]) -> usize,
    /// An operation worth trying.
    pub fresh: fn(&mut Rng, &mut Vec<u8>),
}

/// Inputs of [`lane`](crate::lane).
pub const LANE: Shape = Shape { head: 1, len: lane_len, fresh: lane_fresh };
/// Inputs of [`tcp`](crate::tcp).
pub const TCP: Shape = Shape { head: 3, len: tcp_len, fresh: tcp_fresh };

/// Bytes that headers make much of: protocols, flags, lengths, edges.
const BYTES: [u8; 28] = [
    0, 1, 2, 4, 5, 6, 8, 16, 17, 18, 20, 41, 43, 44, 45, 46, 47, 50, 58, 59, 60, 0x45, 0x60, 0x7f, 0x80,
    0x81, 0xfe, 0xff,
];

/// Lists of TCP options, of whole words: as they should be, and not.
const OPTIONS: [&[u8]; 16] = [
    &[2, 4, 5, 0xb4],
    &[2, 4, 0, 0],
    &[3, 3, 7, 1],
    &[3, 3, 14, 0],
    &[4, 2, 1, 1],
    &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0],
    &[8, 10, 0xff, 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 1, 1],
    &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7],
    &[1, 1, 5, 10, 0, 0, 1, 0, 0, 0, 2, 0],
    &[1, 1, 5, 18, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0],
    &[5, 2, 5, 3],
    &[34, 2, 1, 1],
    &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1],
    &[254, 4, 0xf9, 0x89],
    &[5, 0, 2, 1],
    &[253, 255, 0, 0],
];

/// Flags of a segment: those of a handshake, of data, of the end, and of scans.
const FLAGS: [u8; 12] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0xc2, 0x52, 0x00, 0x29, 0x3f];

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u32) as usize]
}

fn byte(rng: &mut Rng) -> u8 {
    if rng.below(2) == 0 { pick(rng, &BYTES) } else { rng.below(256) as u8 }
}

/// Changes the first `size` bytes of `data`, which has room for `max`; how many they are then. `own` is the fuzzer's mutation.
pub fn mutate(
    shape: &Shape,
    data: &mut [u8],
    size: usize,
    max: usize,
    seed: u32,
    own: impl FnOnce(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut rng = Rng::new(u64::from(seed) | 1 << 40);
    if size < shape.head || rng.below(3) == 0 {
        return own(data, size, max);
    }
    let mut operations = split(shape, &data[..size]);
    for _ in 0..=rng.below(3) {
        change(shape, &mut rng, &mut operations);
    }
    let mut head = data[..shape.head].to_vec();
    if rng.below(16) == 0 {
        let at = rng.below(shape.head as u32) as usize;
        head[at] ^= 1 << rng.below(8);
    }
    let mut all = head;
    for operation in operations {
        if all.len() + operation.len() > max {
            break;
        }
        all.extend(operation);
    }
    let len = all.len().min(max).min(data.len());
    data[..len].copy_from_slice(&all[..len]);
    len
}

fn split(shape: &Shape, data: &[u8]) -> Vec<Vec<u8>> {
    let (mut operations, mut rest) = (Vec::new(), &data[shape.head..]);
    while !rest.is_empty() {
        let (operation, behind) = rest.split_at((shape.len)(rest).clamp(1, rest.len()));
        operations.push(operation.to_vec());
        rest = behind;
    }
    operations
}

fn change(shape: &Shape, rng: &mut Rng, operations: &mut Vec<Vec<u8>>) {
    let count = operations.len() as u32;
    let mut new = Vec::new();
    if count == 0 || rng.below(3) == 0 {
        (shape.fresh)(rng, &mut new);
        operations.insert(rng.below(count + 1) as usize, new);
        return;
    }
    let at = rng.below(count) as usize;
    let other = rng.below(count) as usize;
    match rng.below(7) {
        0 => drop(operations.remove(at)),
        1 => {
            let twice = operations[at].clone();
            operations.insert(other, twice);
        }
        2 => operations.swap(at, other),
        3 => {
            (shape.fresh)(rng, &mut new);
            operations[at] = new;
        }
        4 => operations.truncate(at + 1),
        // Some of them once more, in their order.
        5 => {
            let (from, to) = (at.min(other), at.max(other).min(at.min(other) + 8));
            let part: Vec<_> = operations[from..=to.min(count as usize - 1)].to_vec();
            operations.splice(at..at, part);
        }
        _ => {
            let operation = &mut operations[at];
            let place = rng.below(operation.len() as u32) as usize;
            // What is done stays the same more often than not.
            let place = if place == 0 && operation.len() > 1 { 1 } else { place };
            operation[place] = byte(rng);
        }
    }
}

fn lane_len(bytes: &[u8]) -> usize {
    let high = usize::from(bytes[0] >> 4);
    let word = || usize::from(u16::from_be_bytes([at(bytes, 1), at(bytes, 2)]));
    match bytes[0] & 15 {
        0 => 3 + word() % 1800,
        1..=3 => 2 + 2 * high,
        4 => 3,
        5 | 8 => 4,
        _ => 1,
    }
}

fn at(bytes: &[u8], n: usize) -> u8 {
    bytes.get(n).copied().unwrap_or(0)
}

fn lane_fresh(rng: &mut Rng, new: &mut Vec<u8>) {
    // Mostly packets, most of these with good checksums.
    let operation = pick(rng, &[1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 1, 1]);
    let changes = if operation <= 3 { pick(rng, &[0, 0, 1, 1, 2, 3, 5]) } else { rng.below(16) as u8 };
    new.push(operation | changes << 4);
    match operation {
        1..=3 => {
            new.push(rng.below(256) as u8);
            for _ in 0..changes {
                // Ethernet and IP, ports and what is behind, sometimes the length; ports choose the lane.
                let place = match rng.below(8) {
                    0 => 12 + rng.below(3) as u8,
                    1..=3 => 14 + rng.below(40) as u8,
                    4 => 34 + rng.below(2) as u8,
                    5 | 6 => 54 + rng.below(40) as u8,
                    _ => 255,
                };
                new.extend([place, byte(rng)]);
            }
        }
        4 => new.extend([byte(rng), byte(rng)]),
        5 => new.extend([byte(rng), 0, pick(rng, &[7, 7, 9, 53, 0])]),
        8 => new.extend([byte(rng), rng.below(8) as u8, byte(rng)]),
        _ => {}
    }
}

fn tcp_len(bytes: &[u8]) -> usize {
    let n = usize::from(bytes[0] >> 4 & 7);
    match bytes[0] & 15 {
        0 | 4 | 5 | 6 | 10 => 2,
        1 | 2 | 9 | 11 | 12 => 3,
        7 => 2 + 2 * (n + 1),
        8 => 11 + usize::from(at(bytes, 1) >> 4) * 4 % 44,
        _ => 1,
    }
}

fn tcp_fresh(rng: &mut Rng, new: &mut Vec<u8>) {
    let operation =
        pick(rng, &[0, 1, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 8, 9, 9, 10, 11, 12, 13, 14, 14, 14, 15]);
    let any = rng.below(16) as u8;
    let high = pick(rng, &[0, 0, 0, 8, 8, 8, 1, 9, any]);
    new.push(operation | high << 4);
    match operation {
        0 | 4..=6 | 10 => new.push(byte(rng)),
        1 | 2 => new.extend([pick(rng, &[0, 1, 4, 0x10, 0x40]), byte(rng)]),
        // Around the timers: milliseconds, a delayed acknowledgement, a timeout, minutes.
        9 => new.extend(pick(rng, &[1u16, 40, 200, 1000, 3000, 20_000, 65_535]).to_be_bytes()),
        11 | 12 => new.extend([byte(rng), byte(rng)]),
        7 => {
            new.push(byte(rng));
            for _ in 0..=(high & 7) {
                new.extend([pick(rng, &[4, 7, 8, 11, 12, 13, 14, 15, 20, 22, 254, 255]), byte(rng)]);
            }
        }
        8 => {
            let options = pick(rng, &OPTIONS);
            let good = if rng.below(4) == 0 { 4 } else { 0 };
            new.push((options.len() as u8 / 4) << 4 | good | rng.below(4) as u8);
            new.push(pick(rng, &FLAGS));
            // A little before and behind what is expected, mostly at it.
            for _ in 0..2 {
                new.extend(pick(rng, &[0i16, 0, 0, 1, -1, 1000, -1000, i16::MAX, i16::MIN]).to_be_bytes());
            }
            new.extend(pick(rng, &[0u16, 1, 1000, 0x4000, 0xffff]).to_be_bytes());
            new.extend(options);
            new.extend(pick(rng, &[0u16, 0, 1, 100, 1400]).to_be_bytes());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever it makes fits, most of it differs from what was there, and all of it runs.
    #[test]
    fn mutants_fit_and_run() {
        for (shape, name, run) in
            [(LANE, "lane", crate::lane::run as fn(&[u8])), (TCP, "tcp", crate::tcp::run as fn(&[u8]))]
        {
            // Each target has a pool of its own, and a thread has one.
            let tried = std::thread::spawn(move || {
                let inputs = crate::seeds::inputs(name);
                let mut different = 0;
                for seed in 0..400u32 {
                    let input = &inputs[seed as usize % inputs.len()];
                    let max = input.len() + 40;
                    let mut data = input.clone();
                    data.resize(max, 0);
                    let len = mutate(&shape, &mut data, input.len(), max, seed, |_, size, _| size);
                    assert!(len <= max);
                    different += usize::from(data[..len] != input[..]);
                    run(&data[..len]);
                }
                assert!(different > 200, "{name}: {different}");
            });
            tried.join().unwrap();
        }
    }

    /// What is split is put together as it was, and the operations of the seeds are found where they begin.
    #[test]
    fn operations_are_found() {
        use crate::tcp::{Op, op};
        let parts = [
            op(Op::Forge, 0, &[0x31, 2, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 9]),
            op(Op::Wait, 0, &[1, 2]),
        ];
        let input = [vec![1, 2, 3], parts.concat()].concat();
        assert_eq!(split(&TCP, &input), parts);
        let packet = crate::lane::op(crate::lane::Op::Packet, &[4]);
        let input = [vec![0, 0x21, 7, 1, 1, 2, 2], packet.clone()].concat();
        assert_eq!(split(&LANE, &input)[1], packet);
    }
}
