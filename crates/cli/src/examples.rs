//! Examples at the end of `--help`, for the commands that have many options.
//!
//! One table holds them all; a test runs each line through the parser.

use clap::Command;

/// The command's path and its examples, each a line of explanation and a line to type.
const EXAMPLES: &[(&[&str], &str)] = &[
    (
        &[],
        "  The whole stack in one process, without root:
    flowlane demo
  A web server on ordinary sockets, and load for it:
    flowlane serve http --port 8080
    flowlane load http http://localhost:8080/ -c 100 -r 20k -d 10s
  Which core does this flow go to?
    flowlane rss hash 192.0.2.1:40000 192.0.2.2:80 --workers 4",
    ),
    (
        &["load", "http"],
        "  20,000 requests a second for ten seconds, on 100 connections:
    flowlane load http http://localhost:8080/ -c 100 -r 20k -d 10s
  As fast as 50 connections allow, with an HTML page of plots:
    flowlane load http http://localhost:8080/ -c 50 --html run.html
  Exit code 1 if the slowest 1 % take longer than 20 ms:
    flowlane load http http://localhost:8080/ -r 1k --fail 'p99 > 20ms'
  A scenario:
    flowlane load http --scenario shop.toml
      # shop.toml: 2,000 requests a second, for ten seconds
      rate = \"2k\"
      phase = [{ name = \"hold\", duration = \"10s\" }]
      [[pool]]
      name = \"clients\"
      share = 1
      connections = 50
      target = [{ url = \"http://localhost:8080/\" }]",
    ),
    (
        &["load", "udp"],
        "  50,000 datagrams per second to an echo server:
    flowlane load udp 127.0.0.1:7000 --rate 50k",
    ),
    (
        &["load", "tcp"],
        "  16 connections to an echo server, every byte compared:
    flowlane load tcp 127.0.0.1:7000
  A new connection for each message:
    flowlane load tcp 127.0.0.1:7000 --mode connect",
    ),
    (
        &["load", "ws"],
        "  Ten thousand WebSockets, twenty thousand messages a second over them, each compared with its echo:
    flowlane load ws ws://10.0.0.1:8080/ws -c 10k -r 20k
  Text over TLS as fast as 50 connections allow:
    flowlane load ws wss://localhost:8443/ws -k -c 50 --text --size 1Ki",
    ),
    (
        &["load", "memcached"],
        "  As fast as 50 connections allow, from a full cache, every value compared:
    flowlane load memcached localhost -c 50 --fill --verify
  100,000 requests a second of Facebook's workload ETC, on a million keys:
    flowlane load memcached 10.0.0.1 -r 100k --workload etc --keys 1M --fill
  As 'mutilate -s 10.0.0.1 -T 2 -c 8 -K 30 -V 200 -r 10000 -u 0.1 -q 50000':
    flowlane load memcached 10.0.0.1 --workers 2 -c 16 -K 30 -V 200 --keys 10k -u 0.1 -r 50k --fill",
    ),
    (
        &["epair", "up"],
        "  Two namespaces joined by interfaces with four queues:
    flowlane epair up ep0 ep1 --netns-a left --netns-b right --queues 4
  A slow and lossy way there, and a good one back:
    flowlane epair up ep0 ep1 --a-to-b rate=1M,delay=20ms,loss=1%",
    ),
    #[cfg(feature = "agents")]
    (
        &["load", "agent"],
        "  Three machines load one server together: on each of them
    flowlane load agent --nats nats://10.0.0.9:4222 --group lab
  and on any machine
    flowlane load http http://10.0.0.1/ -r 30k --nats nats://10.0.0.9:4222 --agents lab:3
  The same of connections, datagrams and requests to a memcached:
    flowlane load tcp 10.0.0.1:7000 --mode connect -r 30k --nats nats://10.0.0.9:4222 --agents lab:3
  An agent that sends to one network only, from an address of its own (root):
    flowlane load agent --group lab --only 10.0.0.0/8 --once -- --link af-xdp:eth1 --addr 10.0.0.5/24",
    ),
    (
        &["load", "compare"],
        "  Three runs of each program, made alternately:
    flowlane load compare a1.json a2.json a3.json -- b1.json b2.json b3.json",
    ),
    (
        &["compare"],
        "  Are 20 connections faster than 10? Runs of 2 s in turns:
    flowlane compare --a 'flowlane load http http://localhost:8080/ -c 10 -d 2s --json' --b 'flowlane load http http://localhost:8080/ -c 20 -d 2s --json'",
    ),
    (
        &["serve", "http"],
        "  Files on port 8080 of all addresses of this machine:
    flowlane serve http --dir /srv/www
  On an address of its own beside the kernel's stack (root):
    flowlane serve http --link af-xdp:eth0 --addr 192.0.2.10/24",
    ),
    (
        &["serve", "memcached"],
        "  One core, 1 GiB, on 127.0.0.1, as 'memcached -m 1024 -t 1 -l 127.0.0.1' would:
    flowlane serve memcached -m 1024 -t 1 -l 127.0.0.1
  On an address of its own beside the kernel's stack (root):
    flowlane serve memcached --link af-xdp:eth0 --addr 192.0.2.10/24",
    ),
    (
        &["serve", "udp-echo"],
        "  On ordinary sockets:
    flowlane serve udp-echo --link kernel --port 7000
  On an address of its own beside the kernel's stack (root):
    flowlane serve udp-echo --link af-xdp:eth0 --addr 192.0.2.10/24",
    ),
    (
        &["switch", "up"],
        "  Two TAP interfaces and a card:
    flowlane switch up --port p1=tap:a --port p2=tap:b --port p3=af-xdp:eth1
  Then, in another terminal, VLAN 10 on p1 and, tagged, on p3:
    flowlane switch config vlan_mode dot1q
    flowlane switch vlan 10 members p1,p3t
    flowlane switch port p1 pvid 10",
    ),
    (
        &["rss", "show"],
        "  How does the card spread packets, and what contradicts it?
    flowlane rss show eth0
  Packets and bytes of each queue, every second:
    flowlane rss show eth0 --watch",
    ),
    (
        &["rss", "export"],
        "  Queues of all cards for Prometheus, at 127.0.0.1:9465:
    flowlane rss export --listen 9465",
    ),
    (
        &["rss", "check"],
        "  Do packets reach the configured processors? (root)
    flowlane rss check eth0
  For one second, on a card whose rule was learned:
    flowlane rss check eth0 --for 1s --rss card.rule",
    ),
    (
        &["rss", "why"],
        "  Why does this connection reach that core?
    flowlane rss why 192.0.2.1:40000 192.0.2.2:80 eth0
  A datagram, on a card whose rule was learned:
    flowlane rss why 192.0.2.1:9 192.0.2.2:53 eth0 --udp --rss card.rule",
    ),
    (
        &["stat"],
        "  Counters that are not zero, then rates every two seconds:
    flowlane stat -ss --interval 2s",
    ),
    (
        &["top"],
        "  Look at a server while it runs:
    flowlane serve http --port 8080 --control
    flowlane top",
    ),
    (
        &["completions"],
        "  For bash, for this user:
    flowlane completions bash > ~/.local/share/bash-completion/completions/flowlane",
    ),
];

/// Adds the examples to the help of each command.
pub(crate) fn add_to(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, text)| at(command, path, text))
}

fn at(command: Command, path: &[&'static str], text: &'static str) -> Command {
    match path {
        [] => {
            let before = command.get_after_help().map_or(String::new(), |help| format!("{help}\n\n"));
            command.after_help(format!("{before}Examples:\n{text}"))
        }
        // The tree may be that of another command.
        [first, ..] if command.find_subcommand(first).is_none() => command,
        [first, rest @ ..] => command.mut_subcommand(first, |command| at(command, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a line into words as a shell does, as far as the examples need it: blanks, single quotes, `>` to a file.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ~").next().unwrap_or(line);
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.trim().chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    }

    #[test]
    fn every_example_is_understood() {
        let mut tried = 0;
        for line in EXAMPLES
            .iter()
            .flat_map(|(_, text)| text.lines())
            .filter(|l| l.starts_with("    ") && !l.starts_with("     "))
        {
            if let Err(e) = crate::command().try_get_matches_from(words(line)) {
                panic!("{line}: {e}");
            }
            tried += 1;
        }
        assert!(tried > 10);
    }

    /// Calls `f` with every command and subcommand.
    fn every(command: &mut Command, f: &mut impl FnMut(&mut Command)) {
        f(command);
        for sub in command.get_subcommands_mut() {
            every(sub, f);
        }
    }

    /// A default that the help of an option names in one word is a value of the option.
    #[test]
    fn defaults_in_help_are_values() {
        let (mut command, mut tried) = (crate::command(), 0);
        command.build();
        every(&mut command, &mut |command| {
            for argument in command.get_arguments() {
                let values = argument.get_possible_values();
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let named = help.split_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
                let Some((named, _)) = named.filter(|(named, _)| !values.is_empty() && !named.contains(' '))
                else {
                    continue;
                };
                assert!(
                    values.iter().any(|v| v.get_name() == named),
                    "{} {argument}: {named}",
                    command.get_name()
                );
                tried += 1;
            }
        });
        assert!(tried > 0);
    }

    /// What a command says after its options stays when examples are added.
    #[test]
    fn examples_come_after_other_words() {
        let mut command = crate::command();
        let http = command.find_subcommand_mut("serve").and_then(|serve| serve.find_subcommand_mut("http"));
        let help = http.expect("serve http").render_long_help().to_string();
        assert!(help.find("Endpoints:").is_some_and(|at| help[at..].contains("\n\nExamples:")), "{help}");
    }

    #[test]
    fn every_help_fits_eighty_columns() {
        let (mut command, mut tried) = (crate::command(), 0);
        command.build();
        every(&mut command, &mut |command| {
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
                }
            }
            tried += 1;
        });
        assert!(tried > 20, "{tried}");
    }
}
