//! A small assembler for eBPF: registers, labels, and instructions as the kernel wants them.
//!
//! Flowlane's programs are short and their parameters are in maps, so they are written instruction by instruction, and building or
//! changing the project needs no BPF compiler. The instruction set is that of RFC 9669. Nothing here is unsafe: the kernel's verifier
//! refuses a wrong program, and the caller gets its log.
//!
//! Jumps name a [`Label`]; `finish` turns them into distances.

use super::Map;
use super::map::as_fd_number;

/// A register. `R0` returns, `R1`-`R5` are arguments and lost in calls, `R6`-`R9` survive calls, `R10` is the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the registers have no meaning of their own beyond the line above")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// One byte.
    B = 0x10,
    /// Two bytes.
    H = 0x08,
    /// Four bytes.
    W = 0x00,
    /// Eight bytes.
    D = 0x18,
}

/// Arithmetic, on 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named after what they do")]
pub enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    /// Unsigned remainder.
    Mod = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
}

/// Conditions of jumps, unsigned, on 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named after what they test")]
pub enum If {
    Equal = 0x10,
    Greater = 0x20,
    GreaterEqual = 0x30,
    /// Any common bit.
    AnySet = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    LessEqual = 0xb0,
}

/// Functions of the kernel that programs call, by their fixed numbers (`enum bpf_func_id`).
pub mod helper {
    /// `bpf_map_lookup_elem(map, key)`.
    pub const MAP_LOOKUP: i32 = 1;
    /// `bpf_ktime_get_ns()`.
    pub const KTIME_GET_NS: i32 = 5;
    /// `bpf_get_prandom_u32()`.
    pub const GET_PRANDOM_U32: i32 = 7;
    /// `bpf_get_smp_processor_id()`.
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    /// `bpf_skb_load_bytes(skb, offset, to, len)`.
    pub const SKB_LOAD_BYTES: i32 = 26;
    /// `bpf_set_hash(skb, hash)`.
    pub const SET_HASH: i32 = 48;
    /// `bpf_redirect_map(map, key, flags)`.
    pub const REDIRECT_MAP: i32 = 51;
    /// `bpf_xdp_adjust_meta(xdp, delta)`.
    pub const XDP_ADJUST_META: i32 = 54;
    /// `bpf_skb_load_bytes_relative(skb, offset, to, len, start)`.
    pub const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
    /// `bpf_sk_select_reuseport(ctx, map, key, flags)`.
    pub const SK_SELECT_REUSEPORT: i32 = 82;
    /// `bpf_ringbuf_reserve(ring, size, 0)`: a record to write, or 0.
    pub const RINGBUF_RESERVE: i32 = 131;
    /// `bpf_ringbuf_submit(record, flags)`.
    pub const RINGBUF_SUBMIT: i32 = 132;
    /// `bpf_ringbuf_discard(record, flags)`.
    pub const RINGBUF_DISCARD: i32 = 133;
}

/// A place in a program that jumps can name. Made by [`Assembler::label`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// One instruction: `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination and source, four bits each, in the order of the machine's bit fields.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Why a program could not be put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssembleError {
    /// A jump names a label that was never bound.
    UnboundLabel,
    /// A jump is too long.
    TooFar,
}

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new label, not yet bound to a place.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    fn put(&mut self, code: u8, dst: Reg, src: u8, offset: i16, immediate: i32) -> &mut Self {
        let registers =
            if cfg!(target_endian = "little") { src << 4 | dst as u8 } else { (dst as u8) << 4 | src };
        self.code.push(Instruction { code, registers, offset, immediate });
        self
    }

    /// `dst = dst op value`.
    pub fn alu(&mut self, op: Op, dst: Reg, value: i32) -> &mut Self {
        self.put(0x07 | op as u8, dst, 0, 0, value)
    }

    /// `dst = dst op src`.
    pub fn alu_reg(&mut self, op: Op, dst: Reg, src: Reg) -> &mut Self {
        self.put(0x0f | op as u8, dst, src as u8, 0, 0)
    }

    /// `dst = value`.
    pub fn set(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.alu(Op::Move, dst, value)
    }

    /// `dst = src`.
    pub fn copy(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.alu_reg(Op::Move, dst, src)
    }

    /// `dst = *(size *)(base + offset)`, the bytes in the machine's order, upper bits zero.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) -> &mut Self {
        self.put(0x61 | size as u8, dst, base as u8, offset, 0)
    }

    /// `*(size *)(base + offset) = src`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, src: Reg) -> &mut Self {
        self.put(0x63 | size as u8, base, src as u8, offset, 0)
    }

    /// `*(size *)(base + offset) = value`.
    pub fn store_value(&mut self, size: Size, base: Reg, offset: i16, value: i32) -> &mut Self {
        self.put(0x62 | size as u8, base, 0, offset, value)
    }

    /// `*(u64 *)(base + offset) += src`, atomically.
    pub fn atomic_add(&mut self, base: Reg, offset: i16, src: Reg) -> &mut Self {
        self.put(0xdb, base, src as u8, offset, 0)
    }

    /// Goes to `to`.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.put(0x05, Reg::R0, 0, 0, 0)
    }

    /// Goes to `to` if `dst condition value`.
    pub fn jump_if(&mut self, condition: If, dst: Reg, value: i32, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.put(0x05 | condition as u8, dst, 0, 0, value)
    }

    /// Goes to `to` if `dst condition src`.
    pub fn jump_if_reg(&mut self, condition: If, dst: Reg, src: Reg, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.put(0x0d | condition as u8, dst, src as u8, 0, 0)
    }

    /// `dst = map`, for helpers that take a map.
    pub fn load_map(&mut self, dst: Reg, map: &Map) -> &mut Self {
        const PSEUDO_MAP_FD: u8 = 1;
        self.put(0x18, dst, PSEUDO_MAP_FD, 0, as_fd_number(map)).put(0, Reg::R0, 0, 0, 0)
    }

    /// `dst = address of byte offset of the first value of an array map`. Linux 5.2.
    pub fn load_map_value(&mut self, dst: Reg, map: &Map, offset: i32) -> &mut Self {
        const PSEUDO_MAP_VALUE: u8 = 2;
        self.put(0x18, dst, PSEUDO_MAP_VALUE, 0, as_fd_number(map)).put(0, Reg::R0, 0, 0, offset)
    }

    /// `r0 = function(r1, ...)`, one of [`helper`].
    pub fn call(&mut self, function: i32) -> &mut Self {
        self.put(0x85, Reg::R0, 0, 0, function)
    }

    /// `r0 = kfunc(r1, ...)`, by its number in the kernel's own type information ([`super::kfunc`]).
    pub fn call_kfunc(&mut self, type_id: u32) -> &mut Self {
        const PSEUDO_KFUNC_CALL: u8 = 2;
        self.put(0x85, Reg::R0, PSEUDO_KFUNC_CALL, 0, type_id as i32)
    }

    /// Ends the program with the value of `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.put(0x95, Reg::R0, 0, 0, 0)
    }

    /// Ends the program with `value`.
    pub fn exit_with(&mut self, value: i32) -> &mut Self {
        self.set(Reg::R0, value).exit()
    }

    /// Instructions so far, each double-width one counted twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether nothing was put in yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// Resolves the jumps.
    pub(super) fn finish(mut self) -> Result<Vec<Instruction>, AssembleError> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].ok_or(AssembleError::UnboundLabel)?;
            let distance = target as i64 - at as i64 - 1;
            self.code[at].offset = i16::try_from(distance).map_err(|_| AssembleError::TooFar)?;
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_their_labels_both_ways() {
        let mut a = Assembler::new();
        let (start, end) = (a.label(), a.label());
        a.bind(start).set(Reg::R0, 1);
        a.jump_if(If::Equal, Reg::R0, 1, end);
        a.jump(start);
        a.bind(end).exit();
        let code = a.finish().unwrap();
        assert_eq!(code.iter().map(|i| i.offset).collect::<Vec<_>>(), [0, 1, -3, 0]);
    }

    #[test]
    fn a_label_nobody_bound_and_a_jump_too_long_are_errors() {
        let mut a = Assembler::new();
        let nowhere = a.label();
        a.jump(nowhere);
        assert_eq!(a.finish(), Err(AssembleError::UnboundLabel));

        let mut a = Assembler::new();
        let far = a.label();
        a.jump(far);
        for _ in 0..40_000 {
            a.set(Reg::R0, 0);
        }
        a.bind(far).exit();
        assert_eq!(a.finish(), Err(AssembleError::TooFar));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn encodings_are_those_of_rfc_9669() {
        let mut a = Assembler::new();
        a.load(Size::H, Reg::R1, Reg::R6, 12).store(Size::D, Reg::R10, -8, Reg::R2).copy(Reg::R3, Reg::R7);
        let code = a.finish().unwrap();
        let bytes = |i: &Instruction| (i.code, i.registers, i.offset, i.immediate);
        assert_eq!(bytes(&code[0]), (0x69, 0x61, 12, 0));
        assert_eq!(bytes(&code[1]), (0x7b, 0x2a, -8, 0));
        assert_eq!(bytes(&code[2]), (0xbf, 0x73, 0, 0));
    }
}
