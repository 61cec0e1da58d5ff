//! A kernel whose packets have a VLAN tag, without a VLAN interface.
//!
//! Two programs on an interface add a tag to every packet that the kernel sends, and remove it from received packets. This also works
//! with a kernel built without 802.1Q, which has no VLAN interfaces. The tag is kept beside the socket buffer, as with a VLAN interface.

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
