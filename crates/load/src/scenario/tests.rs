//! Scenario files: what is understood, and mistakes with their place.

use std::time::Duration;

use super::*;
use crate::http::{Body, Follow, Pace, Pool, Think, Version};

const WHOLE: &str = r#"
name = "all there is"
about = "every key"
rate = "1k"
timeout = "2s"
waiting = "1s"
max-body = "1Mi"

[[phase]]
name = "warm-up"
duration = "1s"
from = 0.0
to = 1.0

[[phase]]
duration = "5s"

[[pool]]
name = "a"
share = 3
poisson = true
connections = 10
burst = 5
keep-alive = 100
think = { exponential = "1s" }
read-rate = "10k"
clients = ["10.64.0.0/10", "fd00:1::/64"]
target = [{ url = "http://127.0.0.1:8080/a", weight = 2 }, { url = "http://127.0.0.1:8081/" }]
request = [
  { path = "/x", weight = 3, status = "2xx", length = 5, contains = "hello" },
  { method = "PUT", body-size = "2k", headers = { X-A = "b" } },
]

[[pool]]
share = 1
keep-alive = false
fast-open = true
pipeline = 1
target = [{ url = "http://127.0.0.1:8080" }]
request = [{ body = "text" }]

[[pool]]
connections = 2
requests = 50
think = ["1s", "2s"]
http2 = 10
insecure = true
cert = "own.pem"
tls-min = "1.3"
connect-to = ["::127.0.0.1:8444"]
resolve = ["a.example:80:127.0.0.1"]
follow = 3
follow-anywhere = true
target = [{ url = "https://127.0.0.1:8443" }]
"#;

#[test]
fn everything_is_understood() {
    let plan = Scenario::parse(WHOLE).unwrap().plan(&[], 3, None).unwrap();
    let [a, b, c] = &plan.pools[..] else { panic!("three pools") };
    assert_eq!(a.pace, Pace::Rate { per_second: 750.0, poisson: true });
    assert_eq!(b.pace, Pace::Rate { per_second: 250.0, poisson: false });
    assert_eq!(c.pace, Pace::Closed);
    assert_eq!((a.connections, a.burst, a.requests_per_connection), (10, 5, Some(100)));
    assert_eq!((b.requests_per_connection, c.total_requests), (Some(1), Some(50)));
    assert_eq!((a.fast_open, b.fast_open), (false, true));
    assert_eq!(a.think, Think::Exponential(Duration::from_secs(1)));
    assert_eq!(c.think, Think::List(vec![Duration::from_secs(1), Duration::from_secs(2)]));
    assert_eq!((a.clients.len(), a.targets.len(), a.read_rate), (2, 2, Some(10_000)));
    assert_eq!(a.targets[0].weight, 2.0);
    assert_eq!(a.requests[1].body, Body::Generated(2000));
    assert_eq!((a.requests[1].method.as_str(), b.requests[0].method.as_str()), ("PUT", "POST"));
    assert_eq!(a.requests[0].checks.length, Some(5));
    assert_eq!(c.version, Version::Http2 { streams: 10 });
    assert_eq!(c.follow, Some(Follow { most: 3, anywhere: true }));
    assert_eq!(c.identity.as_ref().map(|own| own.key.clone()), Some("own.pem".into()));
    assert_eq!((c.tls.min.to_string(), c.targets[0].addresses[0].port()), ("1.3".to_owned(), 8444));
    assert_eq!((plan.timeout, plan.max_body), (Duration::from_secs(2), 1 << 20));
    assert_eq!((plan.phases[0].from, plan.phases[0].to, plan.phases[0].measured), (0.0, 1.0, false));
    assert_eq!((plan.phases[1].from, plan.phases[1].to, plan.phases[1].measured), (1.0, 1.0, true));
    assert_eq!(plan.seed, 3);
    // A URL of the command line stands in the place of all.
    let url: Url = "http://127.0.0.1:99/".parse().unwrap();
    let plan = Scenario::parse(WHOLE).unwrap().plan(&[url], 0, None).unwrap();
    assert!(plan.pools.iter().all(|p| p.targets.len() == 1 && p.targets[0].url.port == 99));
}

#[test]
fn mistakes_are_said_with_their_place() {
    let pool = "[[pool]]\ntarget = [{ url = \"http://127.0.0.1/\" }]\n";
    for (text, place, what) in [
        ("", "line 1, column 1", "pool"),
        ("x = 1\n[[pool]]", "line 1, column 1", "there is no key 'x' here: name, about, rate"),
        ("[pool]\n", "line 1, column 1", "'pool' is a list, not a table; write [[pool]]"),
        ("pool = 'a'", "line 1, column 8", "'pool' is a list, not the text \"a\"; write [[pool]]"),
        (
            "[[pool]]\ntarget = 'http://a/'",
            "line 2, column 10",
            "'target' is a list, not the text \"http://a/\"; write target = [{",
        ),
        ("[[pool]]\ntarget = ['http://a/']", "line 2, column 11", "'target' is a table, not the text"),
        ("[[pool]]\ntarget = [{ weight = 1 }]", "line 2, column 11", "'url' is missing; write url ="),
        (
            &format!("{pool}keep-alive = 'no'"),
            "line 3, column 14",
            "'keep-alive' is not written so; write keep-alive = true",
        ),
        (
            &format!("{pool}rate = 5"),
            "line 3, column 8",
            "'rate' is a text in quotes, not the number 5; write rate = \"10k\"",
        ),
        (&format!("{pool}insecure = 1"), "line 3, column 12", "'insecure' is true or false"),
        (&format!("{pool}connections = '10'"), "line 3, column 15", "write connections = 10"),
        ("name = [", "line 1, column 9", ""),
        ("[[pool]]\nname = \"p\"", "line 1, column", "no target"),
        ("[[pool]]\ntarget = [{ url = \"ftp://a\" }]", "line 2, column 19", "http"),
        (&format!("{pool}rate = \"fast\""), "line 3, column 8", "rate"),
        (&format!("{pool}share = 1"), "line 3, column 9", "rate"),
        (&format!("rate = \"1k\"\n{pool}"), "line 1, column 8", "share"),
        (&format!("{pool}clients = [\"10.0.0.0/8\", \"10.0.0.0/40\"]"), "line 3, column 26", "10.0.0.0/40"),
        (&format!("{pool}connections = -1"), "line 3, column 15", ""),
        (&format!("{pool}connections = 0"), "line 1, column", "connections"),
        (&format!("{pool}think = \"long\""), "line 3, column 9", "time"),
        (&format!("{pool}think = 5"), "line 3, column 9", ""),
        (&format!("{pool}request = [{{ status = \"2\" }}]"), "line 3, column 23", "statuses"),
        (&format!("{pool}request = [{{ path = \"x\" }}]"), "line 3, column 12", "path"),
        (&format!("{pool}request = [{{ body = \"x\", body-size = \"1k\" }}]"), "line 3, column 12", "one of"),
        (&format!("{pool}behaviour = \"odd\""), "line 3, column 13", "half-open"),
        (&format!("phase = [{{ duration = \"soon\" }}]\n{pool}"), "line 1, column 23", "soon"),
        (&format!("phase = [{{ duration = \"1s\", from = -1.0 }}]\n{pool}"), "line 1, column 36", "share"),
        (&format!("{pool}fast-open = true"), "line 1, column", "keep-alive = false"),
        (&format!("{pool}pipeline = 2\nhttp2 = 3"), "line 4, column 9", "not both"),
        (&format!("{pool}pipeline = 2\nhttp3 = 3"), "line 4, column 9", "not both"),
        (&format!("{pool}http2 = 2\nhttp3 = 3"), "line 4, column 9", "not both"),
        (&format!("{pool}connect-to = [\"a:80\"]"), "line 3, column 15", "HOST1:PORT1:HOST2:PORT2"),
        (&format!("{pool}resolve = [\"a:80\"]"), "line 3, column 12", "HOST:PORT:ADDRESS"),
        (&format!("{pool}tls-min = \"1.3\"\ntls-max = \"1.2\""), "line 3, column 11", "above"),
        (&format!("{pool}tls-max = \"1.1\""), "line 3, column 11", "1.2 or 1.3"),
        (&format!("{pool}cert-key = \"x\""), "line 3, column 12", "which certificate"),
        (&format!("{pool}proxy = \"ftp://x\""), "line 3, column 9", "a proxy is"),
        (&format!("{pool}unix-socket = \"x\"\nproxy = \"a:1\""), "line 1, column", "not both"),
        (
            &format!("{pool}unix-socket = \"x\"\nresolve = [\"a:80:10.0.0.1\"]"),
            "line 1, column",
            "Unix socket",
        ),
        (
            &format!("{pool}proxy = \"a:1\"\nresolve = [\"a:80:10.0.0.1\"]"),
            "line 1, column",
            "the proxy resolves names",
        ),
        (&format!("{pool}follow = \"x\""), "line 3, column 10", "write follow = true"),
        (&format!("{pool}follow = 0"), "line 1, column", "from 1 to 1000"),
        (&format!("{pool}follow = true\npipeline = 2"), "line 1, column", "pipelining"),
        (&format!("{pool}follow-anywhere = true"), "line 1, column", "follow = true"),
    ] {
        let error = Scenario::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(what) && !error.contains('\n'), "{text}\n{error}");
    }
}

#[test]
fn names_that_cannot_be_resolved_are_said_with_their_place() {
    let text = "[[pool]]\ntarget = [{ url = \"http://no-such-host.invalid/\" }]";
    let error = Scenario::parse(text).unwrap().plan(&[], 0, None).unwrap_err();
    assert_eq!((error.line, error.column), (2, 19), "{error}");
    let text =
        "[[pool]]\ntarget = [{ url = \"http://127.0.0.1/\" }]\nrequest = [{ body-file = \"no-such-file\" }]";
    let error = Scenario::parse(text).unwrap().plan(&[], 0, None).unwrap_err();
    assert_eq!((error.line, error.column), (3, 26), "{error}");
}

#[test]
fn the_ready_scenarios_are_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut found = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap());
        let scenario = scenario.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(!scenario.name.is_empty() && !scenario.about.is_empty(), "{}", path.display());
        scenario.plan(&[], 1, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        found += 1;
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn figures_of_the_command_line_stand_in_the_place_of_the_files() {
    let pool = |more: &str| format!("[[pool]]\ntarget = [{{ url = \"http://127.0.0.1/\" }}]\n{more}\n");
    let phases = "phase = [{ name = \"warm-up\", duration = \"2s\" }, { duration = \"10s\" }, { duration = \"20s\" }]\n";
    let text = format!(
        "rate = \"1k\"\n{phases}{}{}{}",
        pool("share = 3\nconnections = 7"),
        pool("share = 1\nconnections = 1"),
        pool("connections = 2")
    );
    let made = || Scenario::parse(&text).unwrap().plan(&[], 1, None).unwrap();
    let of = |plan: &Plan| -> (Vec<u128>, Vec<usize>, Vec<Option<u64>>) {
        let rate = |p: &Pool| match p.pace {
            Pace::Rate { per_second, .. } => Some(per_second as u64),
            Pace::Closed => None,
        };
        let phases = plan.phases.iter().map(|p| p.duration.as_millis()).collect();
        (phases, plan.pools.iter().map(|p| p.connections).collect(), plan.pools.iter().map(rate).collect())
    };
    let mut plan = made();
    assert_eq!(Instead::default().apply(&mut plan), Ok(vec![]));
    assert_eq!(of(&plan), of(&made()));
    let instead =
        Instead { duration: Some(Duration::from_secs(3)), connections: Some(23), rate: Some(400.0) };
    let said = instead.apply(&mut plan).unwrap();
    assert_eq!(said, ["duration 3.00 s (30.0 s)", "connections 23 (10)", "rate 400/s (1 000/s)"]);
    // Warm-up stays as it is; one connection for each pool, and twenty by sevenths.
    assert_eq!(of(&plan), (vec![2000, 1000, 2000], vec![15, 3, 5], vec![Some(300), Some(100), None]));
    for connections in 3..200 {
        let mut plan = made();
        Instead { connections: Some(connections), ..Instead::default() }.apply(&mut plan).unwrap();
        assert_eq!(plan.pools.iter().map(|p| p.connections as u64).sum::<u64>(), connections);
    }
    let refused = |instead: Instead, text: &str| {
        let mut plan = Scenario::parse(text).unwrap().plan(&[], 1, None).unwrap();
        instead.apply(&mut plan).unwrap_err().to_string()
    };
    let few = refused(Instead { connections: Some(2), ..Instead::default() }, &text);
    assert!(few.contains("3 pools"), "{few}");
    let rate = Instead { rate: Some(5.0), ..Instead::default() };
    let closed = refused(rate, &format!("{}{}", pool(""), pool("")));
    assert!(closed.contains("no pool of the scenario has a rate"), "{closed}");
    // Alone, a closed loop becomes an open one.
    let mut plan = Scenario::parse(&pool("")).unwrap().plan(&[], 1, None).unwrap();
    assert_eq!(rate.apply(&mut plan).unwrap(), ["rate 5/s (closed loop)"]);
    assert_eq!(of(&plan).2, [Some(5)]);
}

#[test]
fn flows_data_and_streams_are_understood() {
    let dir = std::env::temp_dir().join(format!("flowlane-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("u.csv"), "name\na\n").unwrap();
    let text = r#"
[[pool]]
connections = 1
data = { file = "u.csv", order = "share" }
target = [{ url = "http://127.0.0.1:8080/{{name}}" }]
[[pool.step]]
body = "{{name}}"
think = "1s"
capture = { a = { json = "/a" }, b = { header = "Location", regex = "x(.)" } }
[[pool.step]]
path = "/{{a}}/{{b}}"
events = { end = "[DONE]" }
[[pool]]
target = [{ url = "http://127.0.0.1:8080/" }]
request = [{ body = "{{{{", events = true }, { events = false }]
"#;
    let plan = Scenario::parse(text).unwrap().plan(&[], 3, Some(&dir));
    std::fs::remove_dir_all(&dir).unwrap();
    let plan = plan.unwrap();
    let [flow, other] = &plan.pools[..] else { panic!("two pools") };
    assert!(flow.steps && !other.steps && other.data.is_none());
    let data = flow.data.as_ref().unwrap();
    assert_eq!((data.order.name(), data.columns()), ("share", &["name".to_owned()][..]));
    let names: Vec<&str> = flow.requests[0].captures.iter().map(|c| c.name.as_str()).collect();
    assert_eq!((names, &flow.requests[0].pause), (vec!["a", "b"], &Think::Constant(Duration::from_secs(1))));
    let end = |request: &crate::http::Request| request.events.clone().map(|events| events.end);
    assert_eq!(end(&flow.requests[1]), Some(Some("[DONE]".to_owned())));
    assert_eq!((end(&other.requests[0]), end(&other.requests[1])), (Some(None), None));
}

/// The names that a struct of the file knows: it lists them when it is given another.
fn names<T: serde::de::DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("no-such-name = 1").err().map(|error| error.to_string()).unwrap();
    let (_, list) = error.split_once("expected ").unwrap_or_else(|| panic!("{error}"));
    let mut names: Vec<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    names.sort();
    names
}

/// `docs/schema/scenario.json` is written by hand: it has the names that the structs have, no more and no fewer.
#[test]
fn the_schema_has_the_names_of_the_structs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/scenario.json");
    let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (pool, step) = ("/pool/items/properties", "/pool/items/properties/step/items/properties");
    let request = "/pool/items/properties/request/items/properties";
    for (place, names) in [
        (String::new(), names::<file::File>()),
        ("/phase/items/properties".into(), names::<file::Phase>()),
        ("/agents/properties".into(), names::<file::Agents>()),
        (pool.into(), names::<file::Pool>()),
        (format!("{pool}/target/items/properties"), names::<file::Target>()),
        (format!("{pool}/data/oneOf/1/properties"), names::<file::DataFile>()),
        (format!("{step}/capture/additionalProperties/properties"), names::<file::Capture>()),
        (format!("{step}/grpc/oneOf/1/properties"), names::<file::GrpcCall>()),
        (format!("{request}/grpc/oneOf/1/properties"), names::<file::GrpcCall>()),
        (format!("{step}/events/oneOf/1/properties"), names::<file::EventsEnd>()),
        (format!("{request}/events/oneOf/1/properties"), names::<file::EventsEnd>()),
    ] {
        let told = schema.pointer(&format!("/properties{place}")).unwrap().as_object().unwrap();
        assert_eq!(told.keys().cloned().collect::<Vec<_>>(), names, "{place}");
    }
    // Requests and steps are one struct: a step has no weight, a request nothing to wait for or to capture.
    for (place, others) in [(step, &["weight"][..]), (request, &["capture", "think"])] {
        let told = schema.pointer(&format!("/properties{place}")).unwrap().as_object().unwrap();
        let mut all: Vec<&str> = told.keys().map(String::as_str).chain(others.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!(all, names::<file::Request>(), "{place}");
    }
}

/// What the schema says lets the scenarios of the repository pass.
#[test]
fn scenarios_fit_the_schema() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    files.push(WHOLE.to_owned());
    assert!(files.len() > 5);
    for text in files {
        let value: serde_json::Value = toml::from_str(&text).unwrap();
        flowlane_schema::check("scenario", &value);
    }
}
