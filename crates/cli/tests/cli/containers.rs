//! What `contrib/container/compose.yaml` and `contrib/kubernetes` have containers do, done: their commands, letter by letter, as a container has them: no user, no
//! rights, no variables, nothing that can be written, names of hosts from a file.
//!
//! A container engine is not part of it. Fields of the files are checked by `.ci/run containers`.

use std::path::Path;
use std::process::{Command, Stdio};

use flowlane_testnet::{Namespace, Program, Scratch, skipped};

/// The texts in brackets behind the first `key` below the line `block`.
fn words(file: &str, block: &str, key: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let below = text.lines().skip_while(|line| line.trim() != block).skip(1);
    let list = below.filter_map(|line| line.trim().strip_prefix(key)).next();
    serde_json::from_str(list.unwrap_or_else(|| panic!("{file}: {block}: no {key}"))).unwrap()
}

/// A network with the names that the files use.
struct Containers {
    namespace: Namespace,
    scratch: Scratch,
}

impl Containers {
    /// `None` where this machine cannot, which is said.
    fn new(name: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            skipped(why);
            return None;
        }
        for program in ["nats-server", "setpriv", "unshare"] {
            let there =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if there.is_err() {
                skipped(format!("skipped, because there is no {program}"));
                return None;
            }
        }
        let namespace = Namespace::new(&format!("fl-{name}-{}", std::process::id())).unwrap();
        namespace.ip("link set lo up").unwrap();
        let scratch = Scratch::new(name);
        std::fs::write(scratch.path("hosts"), "127.0.0.2 nats\n127.0.0.3 target\n").unwrap();
        Some(Self { namespace, scratch })
    }

    /// A program as the container `name` runs it.
    fn run(&self, name: &str, program: &str, words: &[String]) -> Command {
        // The program's own directory may be closed to others.
        let inside = "set -eu\n\
            mount --make-rprivate /\n\
            mount --bind \"$1\" /etc/hosts\n\
            mount -t tmpfs none /mnt\n\
            touch /mnt/program\n\
            mount --bind \"$(command -v \"$3\")\" /mnt/program\n\
            mount -o remount,ro,bind /mnt\n\
            hostname \"$2\"\n\
            mount -o remount,ro,bind /\n\
            shift 3\n\
            cd /\n\
            exec env -i setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
                /mnt/program \"$@\"\n";
        let mut command = self.namespace.command("unshare");
        command.args(["--mount", "--uts", "sh", "-c", inside, "container"]);
        command.args([&self.scratch.path("hosts"), name, program]).args(words);
        command
    }

    fn flowlane(&self, name: &str, words: &[String]) -> Command {
        self.run(name, env!("CARGO_BIN_EXE_flowlane"), words)
    }

    /// A NATS server and a target, as these words start them.
    fn services(&self, nats: &[String], target: &[String]) -> [Program; 2] {
        let mut server = Program::start(self.run("nats", "nats-server", nats));
        while !server.says().contains("Server is ready") {}
        [server, Program::ready(self.flowlane("target", target), "port 8080")]
    }

    fn agents(&self, words: &[String]) -> Vec<Program> {
        let agent = |n| {
            Program::ready(
                self.flowlane(&format!("agent-{n}"), words),
                &format!("agent agent-{n} of group lab"),
            )
        };
        (1..=3).map(agent).collect()
    }

    /// A run by three agents; a busy machine may not keep its schedule.
    fn load(&self, words: &[String]) {
        let output = self.flowlane("run", words).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}: {said}", output.status);
        for part in ["answered 3 000", "agent-1", "agent-2", "agent-3", "errors > 0"] {
            let folded = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(folded.contains(part), "no '{part}' in {said}");
        }
    }
}

// Long: the run of the file, as long as it is there, and agents whose clocks are compared first.
#[test]
fn what_compose_starts_makes_one_run() {
    let Some(containers) = Containers::new("compose") else { return };
    let words = |service: &str| words("container/compose.yaml", service, "command: ");
    let _services = containers.services(&words("nats:"), &words("target:"));
    let agents = containers.agents(&words("agent:"));
    containers.load(&words("run:"));
    // They wait for the next.
    for agent in agents {
        agent.interrupt();
    }
}

// Long: the same.
#[test]
fn what_kubernetes_starts_makes_one_run_and_its_agents_end() {
    let Some(containers) = Containers::new("kubernetes") else { return };
    let words = |file: &str| words(&format!("kubernetes/{file}.yaml"), "containers:", "args: ");
    let _services = containers.services(&words("nats"), &words("target"));
    let agents = containers.agents(&words("agents"));
    containers.load(&words("run"));
    for agent in agents {
        let ended = agent.end();
        assert!(ended.status.success(), "{ended:?}");
    }
}

/// The agent's Job starts it again where the NATS server is not there yet: with exit code 2 it has not been given a run.
#[test]
fn an_agent_without_its_server_ends_with_2() {
    let Some(containers) = Containers::new("early") else { return };
    let output = containers
        .flowlane("agent-1", &words("kubernetes/agents.yaml", "containers:", "args: "))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.lines().count() == 1 && said.contains("nats://nats:4222"), "{said}");
}
