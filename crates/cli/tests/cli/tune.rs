//! `flowlane rss tune` on a veth with several queues: what it makes fits, and `rss restore` takes all of it back, also where only half was made.

use flowlane_testnet::{Namespace, Scratch};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// A veth of four queues in a namespace of its own, set up so that little fits, and a directory for its state.
struct Veth {
    namespace: Namespace,
    scratch: Scratch,
}

impl Veth {
    fn new(label: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let namespace = Namespace::new(&format!("fl{label}{}", std::process::id())).unwrap();
        namespace
            .ip("link add v0 numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4")
            .unwrap();
        let veth = Self { namespace, scratch: Scratch::new(label) };
        veth.write("tx-0/xps_cpus", "2");
        veth.write("rx-1/rps_cpus", "3");
        veth.write("rx-1/rps_flow_cnt", "256");
        Some(veth)
    }

    /// Writes below the interface's queues, as somebody else would.
    fn write(&self, file: &str, text: &str) {
        let line = format!("echo {text} > /sys/class/net/v0/queues/{file}");
        assert!(self.shell(&line).status.success(), "{line}");
    }

    fn shell(&self, line: &str) -> Output {
        self.namespace.command("sh").args(["-c", line]).output().unwrap()
    }

    /// All that may be changed, as the kernel shows it.
    fn settings(&self) -> String {
        let files = "for f in /sys/class/net/v0/queues/*/[rx]ps_*; do echo $f $(cat $f 2>&1); done; ls /sys/class/net/v0/queues";
        let output = self.shell(files);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Queues that receive.
    fn queues(&self) -> usize {
        self.settings().lines().filter(|line| line.starts_with("rx-")).count()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_flowlane"));
        command.args(arguments.split_whitespace()).args(["--state", &self.scratch.path("state")]);
        command
    }

    /// Output of a command that ends with this code.
    fn run(&self, arguments: &str, code: i32) -> String {
        ended(&self.command(arguments).output().unwrap(), code)
    }

    /// The state file.
    fn file(&self) -> Option<std::path::PathBuf> {
        let mut files = fs::read_dir(self.scratch.path("state")).ok()?.flatten().map(|entry| entry.path());
        files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("tuned-"))
    }
}

fn ended(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}{said}");
    assert_eq!(said.lines().count(), usize::from(code != 0), "{said}");
    text + &said
}

#[test]
fn what_is_made_fits_and_all_of_it_is_taken_back() {
    let Some(veth) = Veth::new("tune") else { return };
    let before = veth.settings();
    let page = veth.run("rss tune v0 --queues 2", 1);
    assert!(page.contains("4 to receive, 4 to send ─▶ 2 to receive, 2 to send"), "{page}");
    assert!(page.contains("would change: '--apply' makes them"), "{page}");
    assert_eq!(veth.settings(), before, "nothing is changed without --apply");
    let document: Value =
        serde_json::from_str(veth.run("rss tune v0 --queues 2 --json", 1).lines().next().unwrap()).unwrap();
    assert_eq!(flowlane_schema::faults("rss-tune-v1", &document), Vec::<String>::new());

    let page = veth.run("rss tune v0 --queues 2 --apply", 0);
    assert!(page.contains("takes them back") && !page.contains("refused"), "{page}");
    assert_eq!(veth.queues(), 2);
    let page = veth.run("rss tune v0 --queues 2", 0);
    assert!(page.contains("Everything fits together"), "{page}");
    // Again and otherwise: what is taken back is what was before the first time.
    veth.run("rss tune v0 --queues 3 --apply", 0);
    assert_eq!(veth.queues(), 3);
    assert!(veth.run("rss restore", 0).contains("v0: is tuned; 'flowlane rss restore v0' takes that back"));
    assert!(veth.run("rss restore v0", 0).contains("v0: is as it was before 'rss tune'"));
    assert_eq!(veth.settings(), before);
    assert_eq!(veth.file(), None);
    assert!(veth.run("rss restore v0", 0).contains("v0: nothing to put back"));
}

/// The program may be killed at any moment: after the file was written and before anything was changed, or after some of it was.
#[test]
fn half_of_it_is_taken_back_too() {
    let Some(veth) = Veth::new("half") else { return };
    let before = veth.settings();
    veth.run("rss tune v0 --queues 4 --apply", 0);
    let file = veth.file().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert_ne!(veth.settings(), before);
    // Not all of it was made.
    veth.write("tx-0/xps_cpus", "2");
    assert!(veth.run("rss restore v0", 0).contains("is as it was"));
    assert_eq!(veth.settings(), before);
    // Nothing was.
    fs::write(&file, &text).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(veth.run("rss restore v0", 0).contains("v0: is already as it was before 'rss tune'"));
    assert_eq!((veth.settings(), veth.file()), (before.clone(), None));

    // Another interface of that name is not touched.
    veth.run("rss tune v0 --queues 4 --apply", 0);
    veth.namespace.ip("link del v0").unwrap();
    assert!(veth.run("rss restore v0", 1).contains("the interface that was tuned is gone"));
    veth.namespace.ip("link add v0 numtxqueues 4 numrxqueues 4 type veth peer name v1").unwrap();
    let new = veth.settings();
    assert!(veth.run("rss restore v0", 1).contains("it is another interface than the one that was tuned"));
    assert_eq!(veth.settings(), new);
    assert!(veth.run("rss restore v0 --force", 0).contains("forgotten"));
    assert_eq!(veth.file(), None);
}

#[test]
fn what_somebody_else_changed_since_is_left_alone() {
    let Some(veth) = Veth::new("else") else { return };
    let before = veth.settings();
    veth.run("rss tune v0 --queues 4 --apply", 0);
    veth.write("rx-1/rps_cpus", "2");
    let now = veth.settings();
    let said = veth.run("rss restore v0", 1);
    assert!(said.contains("somebody changed RPS of queue 1 since 'rss tune': left alone"), "{said}");
    assert_eq!(veth.settings(), now);
    veth.run("rss restore v0 --force", 0);
    assert_eq!(veth.settings(), before);
}

#[test]
fn without_the_right_nothing_is_changed_and_one_line_says_so() {
    let Some(veth) = Veth::new("right") else { return };
    let before = veth.settings();
    let mut command = veth.namespace.command("setpriv");
    command.args([
        "--no-new-privs",
        "--inh-caps=-all",
        "--bounding-set=-all",
        env!("CARGO_BIN_EXE_flowlane"),
    ]);
    command.args(["rss", "tune", "v0", "--apply", "--state", &veth.scratch.path("state")]);
    let said = ended(&command.output().unwrap(), 2);
    assert_eq!(said, "flowlane: v0: changing queues, interrupts and XPS is not permitted: run as root\n");
    assert_eq!((veth.settings(), veth.file()), (before, None));
    assert!(veth.run("rss tune v0 --queues 9", 2).contains("v0: --queues 9: the card has 1 to 4"));
    assert!(veth.run("rss tune v0 --cpus 4000", 2).contains("there is no processor 4000"));
    assert!(veth.run("rss tune no-such-if0", 2).contains("no network interface"));
}
