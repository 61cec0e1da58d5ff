//! A kernel whose packets are on a VLAN, without an interface for it.
//!
//! Two programs at an interface put a tag into every packet that the kernel sends and take it off what it receives. A kernel
//! built without 802.1Q has no VLAN interfaces, and this works there, too. The tag travels beside the socket buffer, as that of a
//! VLAN interface does.

use crate::card::or_filter;
use crate::{Error, Namespace};
use flowlane_sys::bpf::asm::{Assembler, Op, Reg};
use flowlane_sys::bpf::{self, Link, Program, ProgramKind};
use flowlane_sys::netdev::Interface;

/// The programs. Gone on drop or, before Linux 6.6, with the interface.
#[derive(Debug)]
pub struct Tagged {
    _programs: [Option<Link>; 2],
}

impl Tagged {
    /// Tags what the kernel of `namespace` sends by `interface`, with (protocol, number) of each tag, the innermost first.
    ///
    /// # Errors
    /// Privileges are missing, or the kernel has neither tcx nor the modules `sch_ingress` and `cls_bpf`.
    pub fn new(namespace: &Namespace, interface: &str, tags: &[(u16, u16)]) -> Result<Self, Error> {
        const VLAN_PUSH: i32 = 18;
        const VLAN_POP: i32 = 19;
        const NEXT: i32 = -1;
        let program = |each: &dyn Fn(&mut Assembler, u16, u16)| {
            let mut asm = Assembler::new();
            asm.copy(Reg::R6, Reg::R1);
            for &(protocol, number) in tags {
                asm.copy(Reg::R1, Reg::R6);
                each(&mut asm, protocol, number);
            }
            asm.alu(Op::Move, Reg::R0, NEXT).exit();
            Program::load(ProgramKind::SchedCls, "testnet_tags", asm)
        };
        let push = program(&|a, protocol, number| {
            a.set(Reg::R2, i32::from(protocol.to_be())).set(Reg::R3, i32::from(number)).call(VLAN_PUSH);
        })?;
        let pop = program(&|a, _, _| {
            a.call(VLAN_POP);
        })?;
        let programs = namespace.run(|| {
            let interface = Interface::find(interface)?;
            let attach = |program, egress| {
                or_filter(program, &interface, egress, || {
                    bpf::attach_tcx(program, &interface, egress).map(Some)
                })
            };
            Ok::<_, Error>([attach(&push, true)?, attach(&pop, false)?])
        })??;
        Ok(Self { _programs: programs })
    }
}
