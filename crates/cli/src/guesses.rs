//! Options that people know from other load generators (wrk, hey, oha, ab, k6; iperf3; mutilate and memtier_benchmark): the answer names ours. And options of `load` whose
//! value may be left out: the target behind one is no value. And options of memcached that its namesake here does not have.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What to say besides the error about the arguments of a command line, if the command has the option by another name, or `flowlane` has.
pub(crate) fn answer(error: &clap::Error, arguments: &[String]) -> Option<String> {
    of_command(error, arguments).or_else(|| match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) => of_all(unknown, arguments),
        _ => None,
    })
}

/// What any command may be asked for.
fn of_all(unknown: &str, arguments: &[String]) -> Option<String> {
    let is = |command: &str| arguments.iter().any(|a| a == command);
    match unknown {
        "-V" | "--version" => Some("the version is 'flowlane --version'".to_owned()),
        "-v" | "-vv" | "--verbose" => Some("the log is RUST_LOG=flowlane=debug".to_owned()),
        "-p" if is("serve") => Some("the port is --port PORT".to_owned()),
        "--agents" if is("agent") => Some(
            "an agent is one of --group NAME; --agents NAME belongs to the load that agents make".to_owned(),
        ),
        "-r" | "--rate" | "-c" | "--connections" if is("set") => {
            let what = if unknown.contains('c') { "connections" } else { "rate" };
            Some(format!("what is changed is an argument: {what}=N"))
        }
        "-d" | "-n" | "-i" if is("top") || is("stat") => {
            Some("the time between two readings is --interval TIME".to_owned())
        }
        _ if !unknown.bytes().all(|b| b.is_ascii_digit()) => None,
        _ if is("serve") => Some(format!("the port is --port {unknown}")),
        _ if is("load") => Some("host and port are one argument: HOST:PORT".to_owned()),
        _ => None,
    }
}

/// What the command has by another name.
fn of_command(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let loads = arguments.iter().any(|a| a == "load");
    if loads && arguments.iter().any(|a| a == "memcached") {
        return load_memcached(error, arguments);
    }
    if arguments.iter().any(|a| a == "memcached") {
        return match (error.kind(), error.get(ContextKind::InvalidArg)) {
            (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => {
                memcached(option).map(str::to_owned)
            }
            _ => None,
        };
    }
    if !loads {
        return None;
    }
    match (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option)), _) => {
            let iperf =
                arguments.iter().any(|a| a == "tcp" || a == "udp").then(|| of_iperf(option)).flatten();
            iperf.or_else(|| ours(option)).map(str::to_owned)
        }
        (_, _, Some(ContextValue::String(value))) => {
            let behind = |pair: &[String]| pair[0] == "-q" && pair[1] == *value;
            let after = arguments.windows(2).find(|pair| pair[1] == *value).map(|pair| pair[0].as_str());
            if after == Some("-c") && value.parse::<f64>().is_err() {
                return Some("-c is --connections here: the target is an argument".to_owned());
            }
            if let Some(file) = value.strip_prefix('@').filter(|_| after == Some("-d")) {
                return Some(format!("-d is --duration here: a body from a file is --body-file {file}"));
            }
            if after == Some("-d") && !value.starts_with(|c: char| c.is_ascii_digit()) {
                return Some("-d is --duration here: a body is --body TEXT or --body-file FILE".to_owned());
            }
            if after == Some("--json") && value.starts_with(['{', '[', '@']) {
                return Some("--json prints the report as JSON here: a body is --body TEXT".to_owned());
            }
            let quiet = arguments.windows(2).any(behind);
            if quiet {
                return Some(format!("-q is --quiet here: a rate is --rate {value}"));
            }
            let key = arguments.windows(2).any(|pair| pair[0] == "--key" && pair[1] == *value);
            let file = key && (value.contains(['/', '.']));
            file.then(|| format!("--key is the key of RSS: the private key of --cert is --cert-key {value}"))
        }
        _ => None,
    }
}

/// The arguments, with the target of `load` apart from an option before it whose value is left out: `--http2 http://...` has none.
pub(crate) fn with_targets_apart(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    // Behind a global option at the latest.
    if !arguments.iter().take(4).any(|command| command == "load") {
        return arguments;
    }
    for (option, usual) in
        [("--http2", "--http2=1"), ("--http3", "--http3=1"), ("--top-flows", "--top-flows=256")]
    {
        for i in 1..arguments.len() {
            if arguments[i] == option && arguments.get(i + 1).is_some_and(|next| !is_number(next)) {
                arguments[i] = usual.into();
            }
        }
    }
    // This one has no value to stand for none: behind everything else it can take nothing.
    let before_target = |pair: &[OsString]| pair[0] == "--control" && is_target(&pair[1]);
    if let Some(at) = arguments.windows(2).position(before_target)
        && !arguments.iter().any(|a| a == "--")
    {
        let option = arguments.remove(at);
        arguments.push(option);
    }
    arguments
}

fn is_number(text: &OsStr) -> bool {
    text.to_str().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(':'))
}

/// Whether a text is a URL, or host and port.
fn is_target(text: &OsStr) -> bool {
    let Some(text) = text.to_str() else { return false };
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    text.contains("://")
        || !text.contains('/') && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Options of memcached that `serve memcached` does not have.
fn memcached(option: &str) -> Option<&'static str> {
    Some(match option.split('=').next().unwrap_or_default() {
        "-u" => "privileges are given up by themselves: leave -u out",
        "-N" | "--napi-ids" => "kernel sockets are steered by --link kernel:NAME and --steer",
        "-P" | "--pidfile" => "it does not go into the background: leave -P out",
        "-v" | "-vv" => "the log is RUST_LOG=flowlane=debug",
        "--memory-limit" => "the memory is --memory MIB, or -m",
        "--conn-limit" => "the most connections are --max-connections N, or -c",
        "--listen" => "the address is --addr ADDR, or -l",
        "--threads" => "threads are --workers N, or -t",
        _ => return None,
    })
}

/// What to say to options of mutilate and memtier_benchmark.
fn load_memcached(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let invalid = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let unknown = invalid(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    if let Some(option) = unknown.filter(|unknown| unknown.starts_with('-')) {
        return of_generators(option).map(str::to_owned);
    }
    // What stands behind an option without a value is one argument too many.
    let value = unknown.or_else(|| invalid(ContextKind::InvalidValue))?;
    let behind = |option: &str| arguments.windows(2).any(|pair| pair[0] == option && pair[1] == value);
    if behind("-q") {
        return Some(format!("-q is --quiet here: a rate is --rate {value}"));
    }
    if behind("-d") && value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(format!(
            "-d is --duration here: sizes of values are --value-size {value} (memtier's -d), requests in flight --depth {value} (mutilate's)"
        ));
    }
    if behind("--protocol") || behind("-P") {
        return Some("the binary protocol is not spoken: --protocol text or meta".to_owned());
    }
    None
}

/// Options of mutilate and memtier_benchmark that `load memcached` has by another name.
fn of_generators(option: &str) -> Option<&'static str> {
    Some(match option.split('=').next().unwrap_or_default() {
        "-T" | "--threads" => "threads are --workers N, and -c is the connections of all of them",
        "-t" | "--time" | "--test-time" => "how long a run lasts is --duration TIME, threads are --workers N",
        "-n" => "how long a run lasts is --duration TIME; there is no number of requests",
        "-s" | "--server" | "-p" | "--port" | "--host" => "the server is an argument: HOST or HOST:PORT",
        "--qps" | "--rate-limiting" => "a rate is --rate RATE, over all connections",
        "--records" | "--key-maximum" => "the number of keys is --keys N",
        "--key-minimum" => "keys are numbered from 0: --keys N",
        "--keysize" => "sizes of keys are -K, --key-size SIZE",
        "--valuesize" | "--data-size" => "sizes of values are -V, --value-size SIZE",
        "--data-size-range" | "--data-size-list" => "sizes of values are --value-size FROM..TO",
        "-R" | "--random-data" => "values are always as good as random, and --verify compares them",
        "--data-verify" | "--verify-only" => "values are compared with --verify",
        "--key-pattern" | "--key-stddev" | "--key-median" | "--key-zipf-exp" => {
            "how often keys are asked for is --popularity uniform or zipf:S"
        }
        "--pipeline" => "requests in flight on a connection are --depth N",
        "--multi-key-get" => "keys of a get are --multiget N",
        "-P" => "the protocol is --protocol text or meta",
        "-i" | "--iadist" => "the time between requests is even, or --poisson",
        "--warmup" => "what comes before the measurement is --warm-up TIME",
        "--noload" => "items are stored before the run only with --fill",
        "--loadonly" => "items are stored before the run with --fill",
        "--search" | "--scan" => "the highest rate that holds is --find-rate 'p99 < 1ms'",
        "--get-ratio" => "the share of sets is -u, --update SHARE; the rest are gets",
        "--json-out-file" => "a report as JSON is --json, or --save FILE",
        "--hdr-file-prefix" => "latencies of each second are --hdr FILE",
        "--hide-histogram" | "--print-percentiles" => "percentiles are in the table, the histogram in --json",
        "-A" | "-a" | "--agentmode" | "--agent" | "--cluster-mode" => {
            "several machines load together with --agents GROUP, and 'flowlane load agent' on each"
        }
        "-B" | "--blocking" | "--noblocking" => "sockets never block: leave it out",
        "--tls" => "TLS is not spoken",
        "-S" | "--unix-socket" => "Unix sockets are not used",
        _ => return None,
    })
}

/// Options of iperf3 that `load tcp` and `load udp` have by another name.
fn of_iperf(option: &str) -> Option<&'static str> {
    Some(match option.split('=').next().unwrap_or_default() {
        "-t" | "--time" => "how long a run lasts is -d TIME, threads are --workers N",
        "-P" | "--parallel" => "streams are -c CONNECTIONS of load tcp, --flows N of load udp",
        "-b" | "--bitrate" | "--bandwidth" => "a rate is -r RATE, in messages a second of --size BYTES",
        "-l" | "--len" | "--length" => "the length of a message is --size BYTES",
        "-u" | "--udp" => "datagrams are sent by 'flowlane load udp'",
        "-R" | "--reverse" => "what the server sends is measured by 'flowlane load tcp --mode read'",
        "-s" | "--server" => "a server is 'flowlane serve tcp-echo' or 'flowlane serve udp-echo'",
        "-p" | "--port" => "the port is part of the target: HOST:PORT",
        "-i" | "--interval" => "lines while it runs are --lines",
        "-O" | "--omit" => "what comes before the measurement is --warm-up TIME",
        "-C" => "congestion control is --congestion NAME",
        _ => return None,
    })
}

fn ours(option: &str) -> Option<&'static str> {
    Some(match option.split('=').next().unwrap_or_default() {
        "-t" | "--threads" => "threads are --workers N",
        "-m" => "the method is -X METHOD",
        "-b" => "the body is --body TEXT, --body-size or --body-file",
        "--data-raw" | "--data-binary" | "--data-ascii" | "--data-urlencode" => {
            "the body is --body TEXT or --body-file FILE, where '-' is standard input"
        }
        "-z" | "--time" => "how long a run lasts is -d TIME",
        "-R" | "--rps" | "--qps" => "a rate is -r RATE",
        "-s" | "--script" => "a scenario is --scenario FILE",
        "--vus" | "--clients" => "the number of clients is -c CONNECTIONS",
        "--cacert" | "--capath" => "certificates to trust are --ca FILE",
        "--tlsv1.2" => "the lowest version of TLS is --tls-min 1.2",
        "--tlsv1.3" => "the lowest version of TLS is --tls-min 1.3",
        "-E" | "--client-cert" => "a client certificate is --cert FILE, its key --cert-key FILE",
        "--client-key" | "--cert-file" | "--key-file" => {
            "a certificate is --cert FILE, its key --cert-key FILE"
        }
        "--abstract-unix-socket" => "a Unix socket has a path: --unix-socket PATH",
        "--socks5" | "-x" => "a proxy is --proxy URL: http://HOST:PORT or socks5://HOST:PORT",
        "--socks5-hostname" => "a proxy that resolves names is --proxy socks5h://HOST:PORT",
        "-U" | "--proxy-user" => {
            "a login at a proxy is part of its URL: --proxy http://USER:PASSWORD@HOST:PORT"
        }
        "-L" | "--location" => "redirects are followed with --follow",
        "--max-redirs" | "--max-redirects" | "--redirect" | "--redirects" => {
            "redirects are followed with --follow=N"
        }
        "--disable-redirects" | "--no-redirect" => "redirects are answers here, unless there is --follow",
        "--noproxy" => "no proxy is used but that of --proxy",
        "--latency" | "--latencies" => "latencies are always printed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = crate::command().try_get_matches_from(&arguments).unwrap_err();
        answer(&error, &arguments)
    }

    #[test]
    fn a_target_is_no_value_of_the_option_before_it() {
        let apart = |line: &str| {
            let all = with_targets_apart(line.split(' ').map(OsString::from));
            all.into_iter().map(|a| a.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (given, taken) in [
            ("f load http --http2 http://a/", "f load http --http2=1 http://a/"),
            ("f load http --http2 4 http://a/", "f load http --http2 4 http://a/"),
            ("f load http --http3 http://a/", "f load http --http3=1 http://a/"),
            ("f load http --http2 nonsense", "f load http --http2=1 nonsense"),
            ("f load http http://a/ --http2", "f load http http://a/ --http2"),
            ("f load http --http2 -c 4 http://a/", "f load http --http2=1 -c 4 http://a/"),
            ("f load udp --top-flows 10.0.0.1:7 -d 1s", "f load udp --top-flows=256 10.0.0.1:7 -d 1s"),
            ("f load tcp --control [::1]:7 -q", "f load tcp [::1]:7 -q --control"),
            ("f load http --control http://a/", "f load http http://a/ --control"),
            ("f load tcp --control /run/x:1/s a:7", "f load tcp --control /run/x:1/s a:7"),
            ("f load tcp --control here.sock a:7", "f load tcp --control here.sock a:7"),
            ("f serve http --control --http2 x", "f serve http --control --http2 x"),
        ] {
            assert_eq!(apart(given), taken);
        }
        for line in
            ["--http2 http://a.example/", "http://a.example/ --http2 3", "--control http://a.example/"]
        {
            let line = format!("flowlane load http {line}");
            let all = with_targets_apart(line.split(' ').map(OsString::from));
            crate::command().try_get_matches_from(all).unwrap();
        }
    }

    #[test]
    fn an_option_of_memcached_is_answered() {
        for (option, words) in
            [("-u memcache", "privileges"), ("--threads=4", "--workers"), ("-v", "RUST_LOG")]
        {
            let said = asked(&format!("flowlane serve memcached {option}"));
            assert!(said.is_some_and(|said| said.contains(words)), "{option}");
        }
        assert_eq!(asked("flowlane serve memcached --bogus"), None);
    }

    #[test]
    fn an_option_of_mutilate_or_memtier_is_answered_with_ours() {
        for (option, words) in [
            ("-T 4", "--workers"),
            ("-t 5", "--duration TIME"),
            ("-n 1000", "--duration TIME"),
            ("-s 10.0.0.1", "an argument"),
            ("--qps=1000", "--rate"),
            ("--records=5", "--keys"),
            ("--key-maximum=5", "--keys"),
            ("--keysize=fb_key", "--key-size"),
            ("--data-size=32", "--value-size"),
            ("--data-size-range=1-5", "FROM..TO"),
            ("--key-pattern=G:G", "--popularity"),
            ("--pipeline=4", "--depth"),
            ("--multi-key-get=4", "--multiget"),
            ("--warmup=5", "--warm-up"),
            ("--noload", "--fill"),
            ("--search 95:1000", "--find-rate"),
            ("--get-ratio 0.9", "--update"),
            ("-R", "--verify"),
            ("-q 1000", "--rate 1000"),
            ("-d 32", "--value-size 32"),
            ("--protocol memcache_binary", "not spoken"),
        ] {
            let said = asked(&format!("flowlane load memcached 127.0.0.1 {option}")).unwrap_or_default();
            assert!(said.contains(words), "{option}: {said}");
        }
        for none in ["--bogus", "-d x", "--rate x"] {
            assert_eq!(asked(&format!("flowlane load memcached 127.0.0.1 {none}")), None, "{none}");
        }
    }

    #[test]
    fn an_option_of_another_program_is_answered_with_ours() {
        for (option, words) in [
            ("-t 2", "--workers"),
            ("--threads 2", "--workers"),
            ("--threads=2", "--workers"),
            ("-m POST", "-X"),
            ("-b x", "--body"),
            ("-z 10s", "-d TIME"),
            ("-R 100", "-r RATE"),
            ("--latency", "always"),
            ("--vus 10", "-c CONNECTIONS"),
            ("-q 100", "--rate 100"),
            ("--cacert x.pem", "--ca FILE"),
            ("--tlsv1.3", "--tls-min 1.3"),
            ("-E x.pem", "--cert FILE"),
            ("--cert x.pem --key x.key", "--cert-key x.key"),
            ("-x http://a:1", "--proxy URL"),
            ("--socks5-hostname a:1", "socks5h://"),
            ("--proxy-user u:p", "USER:PASSWORD@"),
            ("--noproxy a", "--proxy"),
            ("-L", "--follow"),
            ("--max-redirs 5", "--follow=N"),
        ] {
            let said = asked(&format!("flowlane load http http://a.example/ {option}")).unwrap_or_default();
            assert!(said.contains(words), "{option}: {said}");
        }
        assert_eq!(asked("flowlane load http http://a.example/ --nonsense"), None);
        assert_eq!(asked("flowlane serve http --threads 2"), None);
    }

    #[test]
    fn an_option_of_iperf_is_answered_with_ours() {
        for (line, words) in [
            ("tcp 10.0.0.1:5201 -t 10", "-d TIME"),
            ("tcp 10.0.0.1:5201 -P 4", "-c CONNECTIONS"),
            ("udp 10.0.0.1:5201 -P 4", "--flows N"),
            ("udp 10.0.0.1:5201 -b 10M", "-r RATE"),
            ("udp 10.0.0.1:5201 -l 1400", "--size BYTES"),
            ("tcp 10.0.0.1:5201 -R", "--mode read"),
            ("tcp 10.0.0.1 -p 5201", "HOST:PORT"),
            ("tcp 10.0.0.1:1 5201", "HOST:PORT"),
            ("tcp -c server", "an argument"),
        ] {
            let said = asked(&format!("flowlane load {line}")).unwrap_or_default();
            assert!(said.contains(words), "{line}: {said}");
        }
        assert_eq!(asked("flowlane load tcp 10.0.0.1:1 -c 1 --bogus"), None);
    }

    #[test]
    fn what_any_command_may_be_asked_for_is_answered() {
        for (line, words) in [
            ("-v", "RUST_LOG"),
            ("load http http://a.example/ -v", "RUST_LOG"),
            ("serve http --verbose", "RUST_LOG"),
            ("load http --version", "'flowlane --version'"),
            ("rss show eth0 -V", "'flowlane --version'"),
            ("serve http 8081", "--port 8081"),
            ("serve http -p 8081", "--port PORT"),
            ("top -d 1", "--interval TIME"),
            ("load http http://a.example/ -d a=b", "--body TEXT"),
        ] {
            let said = asked(&format!("flowlane {line}")).unwrap_or_default();
            assert!(said.contains(words), "{line}: {said}");
        }
        for none in ["serve http x", "rss show eth0 1", "stat --bogus"] {
            assert_eq!(asked(&format!("flowlane {none}")), None, "{none}");
        }
    }
}
