//! `flowlane load http --aws-sigv4`: each request that a server got is signed again by botocore, which AWS's own programs sign with, and by curl; and
//! what is refused.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use flowlane_testnet::{Scratch, skipped};
use serde_json::{Value, json};

/// Signs requests again, and says where another signature comes out.
const CHECK: &str = r"
import json, sys
import botocore.auth, botocore.awsrequest, botocore.credentials
for asked in json.load(sys.stdin):
    fields = {name.lower(): value for name, value in asked['fields']}
    said = fields.pop('authorization', '')
    key, day, region, service, _ = said.split('Credential=')[1].split(',')[0].split('/')
    names = said.split('SignedHeaders=')[1].split(',')[0].split(';')
    for name in ('host', 'x-amz-date', 'x-amz-security-token'):
        assert name in names, (name, names)
    token = fields.get('x-amz-security-token')
    credentials = botocore.credentials.Credentials(key, 'secret', token)
    s3 = service == 's3'
    signer = (botocore.auth.S3SigV4Auth if s3 else botocore.auth.SigV4Auth)(credentials, service, region)
    # All that goes over the wire but what botocore leaves out itself.
    own = {name: value for name, value in fields.items() if name not in ('content-length', 'connection', 'user-agent')}
    body = asked['body'].encode()
    request = botocore.awsrequest.AWSRequest(asked['method'], 'http://' + fields['host'] + asked['path'], own, body)
    request.context['timestamp'] = fields['x-amz-date']
    if s3:
        assert fields['x-amz-content-sha256'] == signer.payload(request), asked
    form = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, form), request)
    scope = signer.scope(request)
    expected = f'AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signer.signed_headers(signer.headers_to_sign(request))}, Signature={signature}'
    if said != expected:
        print(said, 'is not', expected, form, sep='\n')
";

/// Whether the signatures of these requests, members `method`, `path`, `fields` and `body`, are those of botocore. The key is `AKID:secret`.
pub(super) fn signed_as_botocore_does(requests: &[Value]) {
    let has = Command::new("python3").args(["-c", "import botocore.auth"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return skipped(
            "skipped, because there is no botocore for python3 (Debian's package python3-botocore)",
        );
    }
    let mut python = Command::new("python3")
        .args(["-c", CHECK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(python.stdin.take().unwrap(), requests).unwrap();
    let output = python.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said), "");
    assert!(output.status.success());
}

/// A server that keeps each request and answers it.
fn server() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(Mutex::new(Vec::new())));
    let all = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = all.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &all));
        }
    });
    (at, asked)
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<Value>>) {
    stream.set_nodelay(true).unwrap();
    let (mut held, mut buffer) = (String::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => held.push_str(std::str::from_utf8(&buffer[..n]).unwrap()),
            _ => return,
        }
        while let Some(end) = held.find("\r\n\r\n") {
            let mut lines = held[..end].lines();
            let mut words = lines.next().unwrap().split(' ');
            let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
            let fields: Vec<(String, String)> = lines
                .map(|line| line.split_once(':').unwrap())
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect();
            let length = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            if held.len() < end + 4 + length {
                break;
            }
            let body = held[end + 4..end + 4 + length].to_owned();
            held.drain(..end + 4 + length);
            asked
                .lock()
                .unwrap()
                .push(json!({"method": method, "path": path, "fields": fields, "body": body}));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

fn load(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
        .args(["load", "http", "--no-pin", "--quiet"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn fine(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let output = load(&[arguments, &["--json"]].concat(), environment);
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {said}"));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said} {report}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("secret"), "{report}");
    report
}

fn field(asked: &Value, name: &str) -> String {
    let fields = asked["fields"].as_array().unwrap();
    let found = fields.iter().find(|f| f[0].as_str().unwrap().eq_ignore_ascii_case(name));
    found.map_or_else(String::new, |field| field[1].as_str().unwrap().to_owned())
}

const KEY: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKID"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
    ("AWS_SESSION_TOKEN", "of/an+hour=="),
];

// Long: seven runs, whose requests another implementation signs as well.
#[test]
fn every_request_is_signed_as_botocore_signs_it() {
    let dir = Scratch::new("load-http-aws");
    let (at, asked) = server();
    let users = dir.path("users.csv");
    std::fs::write(&users, "name\nann\nbob\ncarol\n").unwrap();
    let (s3, other) = ("aws:amz:eu-west-1:s3", "aws:amz:us-east-1:execute-api");
    for (n, scope, path, more) in [
        (50, s3, "/bucket/a%20key//x/../y?list-type=2&prefix=a%2Fb&delimiter", &["-c", "3"][..]),
        (50, other, "/stage/a%20key//x/../y?b=2&a=%C3%A4&a=1", &["-c", "3", "--no-keepalive"]),
        (20, s3, "/put", &["-X", "PUT", "--body-size", "300k", "-H", "X-Amz-Meta-A:  a   b "]),
        (
            20,
            other,
            "/post",
            &["--body", "{}", "-H", "Content-Type: application/json", "-H", "Host: api.example"],
        ),
        (3, other, "/of/{{name}}?n={{counter}}", &["--data", &users, "-c", "1", "--body", "I am {{name}}"]),
        (9, s3, "/x", &["--cookies", "-c", "2"]),
    ] {
        asked.lock().unwrap().clear();
        let (url, count) = (format!("http://{at}{path}"), n.to_string());
        let report = fine(&[&[&url, "-n", &count, "--aws-sigv4", scope][..], more].concat(), &KEY);
        assert_eq!(report["setup"]["more"]["signed-for"], scope);
        let all = asked.lock().unwrap().clone();
        assert_eq!(all.len(), n, "{path}");
        assert!(all.iter().all(|asked| field(asked, "x-amz-security-token") == KEY[2].1), "{path}");
        signed_as_botocore_does(&all);
    }
}

/// In a scenario, and for what was recorded, whose own signature is left out.
#[test]
fn scenarios_and_recordings_are_signed() {
    let dir = Scratch::new("load-http-aws-files");
    let (at, asked) = server();
    let file = dir.path("aws.toml");
    std::fs::write(
        &file,
        format!(
            "[[phase]]\nduration = \"60s\"\n[[pool]]\ntarget = [{{ url = \"http://{at}/\" }}]\nrequests = 6\nconnections = 2\n\
             aws-sigv4 = \"aws:amz:eu-west-1:s3\"\nuser = \"AKID:secret\"\naws-session = \"t\"\n\
             request = [{{ path = \"/a\" }}, {{ path = \"/b/{{{{counter}}}}\", method = \"PUT\", body = \"b\" }}]\n"
        ),
    )
    .unwrap();
    fine(&["--scenario", &file], &KEY);
    let har = dir.path("session.har");
    let entry = |path: &str| {
        json!({
            "startedDateTime": "2026-03-01T12:00:00.000Z",
            "request": {"method": "POST", "url": format!("http://shop.example{path}"), "headers": [
                {"name": "authorization", "value": "AWS4-HMAC-SHA256 Credential=old"},
                {"name": "x-amz-date", "value": "20200101T000000Z"},
                {"name": "x-amz-content-sha256", "value": "old"},
                {"name": "x-amz-security-token", "value": "old"},
                {"name": "x-a", "value": "b"},
            ], "postData": {"mimeType": "text/plain", "text": "said"}},
            "response": {"status": 200, "headers": []},
        })
    };
    std::fs::write(&har, json!({"log": {"entries": [entry("/c"), entry("/d")]}}).to_string()).unwrap();
    fine(&[&format!("http://{at}/"), "--replay", &har, "--aws-sigv4", "aws:amz:eu-west-1:s3"], &KEY);
    let all = asked.lock().unwrap().clone();
    assert_eq!(all.len(), 8);
    let tokens: Vec<String> = all.iter().map(|asked| field(asked, "x-amz-security-token")).collect();
    assert_eq!(tokens.iter().filter(|token| *token == "t").count(), 6, "{tokens:?}");
    assert_eq!(tokens.iter().filter(|token| *token == KEY[2].1).count(), 2, "{tokens:?}");
    signed_as_botocore_does(&all);
    // A login without a signature.
    let before = std::fs::read_to_string(&file).unwrap();
    let basic =
        before.replace("aws-sigv4 = \"aws:amz:eu-west-1:s3\"\n", "").replace("aws-session = \"t\"\n", "");
    std::fs::write(&file, basic).unwrap();
    asked.lock().unwrap().clear();
    fine(&["--scenario", &file], &[]);
    fine(&[&format!("http://{at}/"), "-n", "1", "--user", "AKID:secret"], &[]);
    let all = asked.lock().unwrap();
    assert_eq!(all.len(), 7);
    assert!(all.iter().all(|asked| field(asked, "authorization") == "Basic QUtJRDpzZWNyZXQ="), "{all:?}");
}

/// Its line is taken as it is, and in the same second both have the same signature.
#[test]
fn a_line_of_curl_is_signed_as_curl_signs_it() {
    if !Command::new("curl")
        .args(["--aws-sigv4", "aws", "--version"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return skipped("skipped, because there is no curl with --aws-sigv4");
    }
    let (at, asked) = server();
    for line in [
        format!("curl --aws-sigv4 aws:amz:us-east-1:execute-api --user AKID:secret http://{at}/path?a=1"),
        format!(
            "curl http://{at}/post -H 'content-type: text/plain' -d x=1 --aws-sigv4 aws:amz:eu-west-1:es -uAKID:secret"
        ),
    ] {
        let same = (0..20).any(|_| {
            asked.lock().unwrap().clear();
            let theirs =
                Command::new("sh").args(["-c", &format!("{line} -s -o /dev/null")]).status().unwrap();
            assert!(theirs.success());
            fine(&["--curl", &line, "-n", "1", "-c", "1"], &[]);
            let asked = asked.lock().unwrap();
            let [theirs, ours] = &asked[..] else { panic!("{asked:?}") };
            if field(theirs, "x-amz-date") != field(ours, "x-amz-date") {
                return false;
            }
            assert_eq!(field(ours, "authorization"), field(theirs, "authorization"), "{line}");
            true
        });
        assert!(same, "never in one second");
    }
}

#[test]
fn what_cannot_be_signed_is_refused_in_one_line() {
    let url = "http://s3.eu-west-1.amazonaws.com/";
    let scope = ["--aws-sigv4", "aws:amz:eu-west-1:s3"];
    let with = |more: &[&'static str]| [&["http://127.0.0.1:1/"], &scope[..], more].concat();
    for (arguments, words) in [
        (with(&[]), "no credentials"),
        (with(&["--user", "secret"]), "KEY:SECRET"),
        (with(&["--user", "AKID:secret", "-H", "Authorization: Basic x"]), "brings a field Authorization"),
        (with(&["--user", "AKID:secret", "--pipeline", "2"]), "--pipeline"),
        (with(&["--user", "AKID:secret", "--follow"]), "--follow"),
        (with(&["--user", "AKID:secret", "--no-keepalive", "--fast-open"]), "--fast-open"),
        (vec![url, "--aws-sigv4", "aws:amz:a:b:c"], "aws:amz:REGION:SERVICE"),
        (vec![url, "--aws-sigv4", "osc:osc"], "aws:amz:REGION:SERVICE"),
        (vec!["http://127.0.0.1:1/", "--aws-sigv4", "aws:amz", "--user", "AKID:secret"], "names no service"),
        (vec!["http://127.0.0.1:1/", "--aws-session", "t"], "--aws-sigv4"),
        (vec!["http://127.0.0.1:1/", "--user", "secret"], "NAME:PASSWORD"),
        (
            vec!["--curl", "curl --basic --aws-sigv4 aws:amz:a:b -u AKID:secret http://127.0.0.1:1/"],
            "--basic",
        ),
        (vec!["--curl", "curl --aws-sigv4 aws:amz:a:b http://127.0.0.1:1/"], "no credentials"),
        (vec!["--curl", "curl --aws-sigv4 aws -u AKID:secret http://127.0.0.1:1/"], "--curl: --aws-sigv4"),
    ] {
        let output = load(&arguments, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(words) && !said.contains("AKID:secret"), "{arguments:?}: '{words}' in {said}");
    }
}
