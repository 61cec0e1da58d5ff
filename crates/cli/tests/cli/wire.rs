//! One kind of link of ours, with the kernel behind it: a lab's card, or a TAP.

use std::process::{Command, Stdio};

use flowlane_testnet::Namespace;
use serde_json::Value;

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Nothing was missed but, on a machine with other things to do, the schedule.
fn only_late(report: &Value) -> bool {
    report["slip"]["kept"] == false && report["failed"].as_array().unwrap().len() == 1
}

/// One kind of link, and the kernel behind it.
pub(crate) struct Wire {
    pub(crate) lab: Option<String>,
    pub(crate) namespace: Namespace,
    /// How the link is named, and what it needs.
    link: String,
}

impl Wire {
    /// `None`, having said why, where there can be none.
    pub(crate) fn new(kind: &str, tag: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let name = format!("fl{tag}{}", std::process::id());
        if kind == "tap" {
            let namespace = Namespace::new(&name).unwrap();
            // It stays when nobody holds it, and the kernel's side has its addresses before the run begins.
            namespace.ip("tuntap add tap0 mode tap multi_queue vnet_hdr").unwrap();
            namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
            namespace.ip("addr add fd00:11:2::2/64 dev tap0 nodad").unwrap();
            namespace.ip("link set tap0 up").unwrap();
            return Some(Self { lab: None, namespace, link: "tap:tap0".into() });
        }
        let made = flowlane(&format!("lab up --name {name}")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut namespace = Namespace::adopt(&name);
        namespace.keep();
        Some(Self { link: format!("{kind}:{name}0 --key microsoft"), lab: Some(name), namespace })
    }

    /// A generator on our side of it: `tcp`, `memcached`; and its command line.
    pub(crate) fn command(&self, kind: &str, arguments: &str) -> (Command, String) {
        let ours = "--addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2";
        let line = format!("load {kind} {arguments} --link {} {ours} --json", self.link);
        let mut command = flowlane(&line);
        if self.lab.is_none() {
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", self.namespace.name(), env!("CARGO_BIN_EXE_flowlane")]);
            inside.args(line.split_whitespace()).stdin(Stdio::null());
            command = inside;
        }
        (command, line)
    }

    /// Runs it, and returns its report.
    pub(crate) fn load(&self, kind: &str, arguments: &str) -> Value {
        let (mut command, line) = self.command(kind, arguments);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{line}: {e}: {stderr}"));
        flowlane_schema::check("load-run", &report);
        // A machine with other things to do may make the generator late; nothing else may go wrong.
        assert!(output.status.success() || only_late(&report), "{line}: {stderr}");
        report
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(name) = &self.lab {
            let _ = flowlane(&format!("lab down --name {name}")).output();
        }
    }
}
