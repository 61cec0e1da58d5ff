//! `flowlane load http --grpc` against the server of gRPC's own library, with messages that protoc's descriptors describe; and what it refuses.

use std::fs;
use std::process::{Command, Output, Stdio};

use flowlane_testnet::{Program, Scratch, free_port, skipped};
use serde_json::Value;

/// A shop of gRPC, which knows what it has to be told.
const SHOP: &str = r#"
import grpc, sys
from concurrent import futures
TEA = b"\x0a\x03tea\x10\x02"
def add(request, context):
    if request != TEA:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no tea: " + request.hex())
    return request
def list_all(request, context):
    for _ in range(3):
        yield TEA
def add_all(requests, context):
    if [r for r in requests] != [TEA] * 5:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not five")
    return b""
class Shop(grpc.GenericRpcHandler):
    def service(self, details):
        return {
            "/shop.Cart/Add": grpc.unary_unary_rpc_method_handler(add),
            "/shop.Cart/List": grpc.unary_stream_rpc_method_handler(list_all),
            "/shop.Cart/AddAll": grpc.stream_unary_rpc_method_handler(add_all),
        }.get(details.method)
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Shop(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print("port", port, file=sys.stderr, flush=True)
server.wait_for_termination()
"#;

const PROTO: &str = r#"
syntax = "proto3";
package shop;
message Item { string name = 1; int32 count = 2; }
service Cart {
    rpc Add(Item) returns (Item);
    rpc List(Item) returns (stream Item);
    rpc AddAll(stream Item) returns (Item);
}
"#;

fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", "--no-pin", "--quiet"]).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn report(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = load(&[&["--json", "-n", "20", "-c", "2"], arguments].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    (output.status.code(), report)
}

/// Debian's, whose library is installed there.
const PYTHON: &str = "/usr/bin/python3";

fn is_there(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_server_of_grpcs_own_library_is_called() {
    if !is_there(PYTHON, &["-c", "import grpc"]) {
        return skipped("there is no grpc for Python (Debian: python3-grpcio)");
    }
    if !is_there("protoc", &["--version"]) {
        return skipped("there is no protoc (Debian: protobuf-compiler)");
    }
    let scratch = Scratch::new("grpc");
    fs::write(scratch.path("shop.proto"), PROTO).unwrap();
    fs::write(scratch.path("shop.py"), SHOP).unwrap();
    fs::write(scratch.path("tea.json"), r#"{"name": "tea", "count": 2}"#).unwrap();
    fs::write(scratch.path("tea"), b"\x0a\x03tea\x10\x02").unwrap();
    let described = scratch.path("shop.pb");
    let compiled = Command::new("protoc")
        .args([
            "--include_imports",
            "--descriptor_set_out",
            &described,
            "--proto_path",
            &scratch.path("."),
            "shop.proto",
        ])
        .status();
    assert!(compiled.unwrap().success());
    let mut server = Command::new(PYTHON);
    server.arg(scratch.path("shop.py"));
    let server = Program::ready(server, "port ");
    let port = server.heard().iter().find_map(|line| line.strip_prefix("port ")).unwrap();
    let url = |method: &str| format!("http://127.0.0.1:{port}/shop.Cart/{method}");

    let json = ["--grpc-descriptors", &described, "--body", r#"{"name": "tea", "count": 2}"#];
    let (tea, tea_json) = (scratch.path("tea"), scratch.path("tea.json"));
    for message in
        [&json[..], &["--body-file", &tea], &["--grpc-descriptors", &described, "--body-file", &tea_json]]
    {
        let (code, report) = report(&[&[&url("Add"), "--grpc"], message].concat());
        let counts = &report["total"]["counts"];
        assert_eq!(
            (code, &counts["answered"], &counts["failed"]),
            (Some(0), &20.into(), &0.into()),
            "{counts}"
        );
        assert_eq!(report["total"].get("events"), None);
    }
    let (code, listed) = report(&[&[&url("List"), "--grpc", "--events"], &json[..]].concat());
    let events = &listed["total"]["events"];
    assert_eq!((code, &events["streams"], &events["events"]), (Some(0), &20.into(), &60.into()), "{events}");
    let (code, added) = report(&[&[&url("AddAll"), "--grpc", "--grpc-messages", "5"], &json[..]].concat());
    assert_eq!((code, &added["total"]["counts"]["failed"]), (Some(0), &0.into()), "{added}");

    let none = scratch.path("none");
    fs::write(&none, b"\x0a\x01x").unwrap();
    for (method, what) in
        [("Add", "status 3 (invalid argument): no tea: 0a0178"), ("Sub", "status 12 (unimplemented)")]
    {
        let (code, report) = report(&[&url(method), "--grpc", "--body-file", &none]);
        let error = &report["total"]["counts"]["errors"]["grpc"];
        assert_eq!((code, &error["count"]), (Some(1), &20.into()), "{report}");
        assert!(error["example"].as_str().unwrap().contains(what), "{error}");
    }

    let scenario = scratch.path("shop.toml");
    let pool = format!(
        "[[pool]]\ntarget = [{{ url = \"http://127.0.0.1:{port}/\" }}]\nconnections = 2\nrequests = 20\n\
         request = [{{ path = \"/shop.Cart/Add\", body = '{{\"name\": \"tea\", \"count\": 2}}', grpc = {{ descriptors = \"shop.pb\" }} }}]\n"
    );
    fs::write(&scenario, pool).unwrap();
    let output = load(&["--json", "--scenario", &scenario]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["counts"]["answered"], 20, "{report}");
    assert!(output.status.success());
}

/// A client of gRPC's own library, of a server whose port is its argument.
const CLIENT: &str = r#"
import grpc, os, sys
channel = grpc.insecure_channel("127.0.0.1:" + sys.argv[1])
path = "/flowlane.Echo/Call"
assert channel.unary_unary(path)(b"abc") == b"abc"
assert channel.unary_unary(path)(b"") == b""
large = os.urandom(1 << 20)
assert channel.unary_unary(path)(large) == large
sent = [bytes([i]) * i * 100 for i in range(100)]
assert list(channel.stream_stream(path)(iter(sent))) == sent
assert list(channel.stream_stream(path)(iter([]))) == []
try:
    channel.unary_unary("/flowlane.Echo/Other")(b"")
    sys.exit("answered")
except grpc.RpcError as e:
    assert e.code() == grpc.StatusCode.UNIMPLEMENTED, e
    assert "there is /flowlane.Echo/Call" in e.details(), e
"#;

#[test]
fn our_server_echoes_calls() {
    let scratch = Scratch::new("grpc-echo");
    fs::write(scratch.path("client.py"), CLIENT).unwrap();
    fs::write(scratch.path("message"), [b'x'; 3000]).unwrap();
    let port = free_port().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    server.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port]);
    let _server = Program::ready(server, "http on 127.0.0.1");
    let (url, message) = (format!("http://127.0.0.1:{port}/flowlane.Echo/Call"), scratch.path("message"));
    let call = [&url, "--grpc", "--body-file", &message, "--events", "--grpc-messages", "50", "--http2", "3"];
    let (code, ran) = report(&call);
    let (counts, events) = (&ran["total"]["counts"], &ran["total"]["events"]);
    assert_eq!((code, &counts["answered"], &counts["failed"]), (Some(0), &20.into(), &0.into()), "{counts}");
    assert_eq!((&events["streams"], &events["events"]), (&20.into(), &1000.into()), "{events}");
    let (code, ran) = report(&[&url.replace("Call", "Other"), "--grpc"]);
    let error = &ran["total"]["counts"]["errors"]["grpc"];
    assert!(
        code == Some(1) && error["example"].as_str().unwrap().contains("status 12 (unimplemented): there is"),
        "{error}"
    );
    if !is_there(PYTHON, &["-c", "import grpc"]) {
        return skipped("beside gRPC's own client: there is no grpc for Python (Debian: python3-grpcio)");
    }
    let client = Command::new(PYTHON).args([&scratch.path("client.py"), &port]).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
}

#[test]
fn what_is_no_call_is_refused_in_one_line() {
    let scratch = Scratch::new("grpc-refused");
    let file = scratch.path("shop.proto");
    fs::write(&file, PROTO).unwrap();
    for (arguments, word) in [
        (&["http://127.0.0.1:9/shop.Cart/Add", "--grpc", "--body", "{}"][..], "--grpc-descriptors"),
        (&["http://127.0.0.1:9/", "--grpc"], "/package.Service/Method"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc", "-X", "PUT"], "a call is a POST"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc", "--pipeline", "2"], "--pipeline"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc", "--follow"], "redirects"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc-messages", "2"], "--grpc"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc", "--grpc-descriptors", &file], "no set of descriptors"),
        (&["http://127.0.0.1:9/a.B/C", "--grpc", "--grpc-descriptors", "/none"], "/none"),
    ] {
        let output = load(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
