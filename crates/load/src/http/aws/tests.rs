//! Against what AWS has published: the suite of its signers (`aws-sig-v4-test-suite`), the examples of S3's API reference and of IAM's guide. The
//! requests are written here anew; the signatures are theirs.

use std::sync::Arc;

use super::signed::Signed;
use super::signer::{Signer, hash};
use super::stamp::Stamp;
use crate::http::credentials::{Aws, Scope};
use crate::http::plan::{Behaviour, Body, Pool, Request, Target, Version};

/// The suite's key, and the one of S3's examples.
const SUITE: &str = "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const S3: &str = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn aws(scope: &str, user: &str, token: Option<&str>) -> Aws {
    Aws::with(scope.parse().unwrap(), Some(user), token, |_| None).unwrap()
}

fn pool(aws: Option<Aws>, url: &str, request: Request) -> Pool {
    // What no URL has, a path of the suite has.
    let (origin, path) = url.split_at(url.find(".com").unwrap() + 4);
    let mut target = Target {
        url: origin.parse().unwrap(),
        addresses: vec!["10.0.0.1:443".parse().unwrap()],
        weight: 1.0,
    };
    target.url.path = path.to_owned();
    Pool { aws, requests: vec![request], ..Pool::new("p", target) }
}

fn request(method: &str, fields: &[(&str, &str)], body: &str) -> Request {
    let headers = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Request {
        method: method.into(),
        headers,
        body: Body::Bytes(body.as_bytes().into()),
        ..Request::default()
    }
}

/// The field of the signature.
fn signed(aws: Aws, url: &str, mut request: Request, at: u64) -> String {
    let pool = pool(Some(aws.clone()), url, request.clone());
    let url = &pool.targets[0].url;
    let mut signer = Signer::new(&Arc::new(aws), &pool, url).unwrap();
    let content = hash(&request.body);
    signer.sign(url, &mut request, &content, Stamp::of(at));
    let (name, value) = request.headers.pop().unwrap();
    assert_eq!(name, "Authorization");
    value
}

/// 30 August 2015, 12:36.
const AUGUST: u64 = 1_440_938_160;
/// 24 May 2013.
const MAY: u64 = 1_369_353_600;

/// A request, and its signature: method, path, fields, body, digits.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

/// The same for several that mean the same.
const ROOT: &str = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
const POST: &str = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";

const CASES: &[Case] = &[
    ("GET", "/", &[], "", ROOT),
    ("GET", "/example/..", &[], "", ROOT),
    ("GET", "/example1/example2/../..", &[], "", ROOT),
    ("GET", "/./", &[], "", ROOT),
    ("GET", "//", &[], "", ROOT),
    ("GET", "/./example", &[], "", "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"),
    ("GET", "//example//", &[], "", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
    ("GET", "/example space/", &[], "", "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
    ("GET", "/example/$delete", &[], "", "a853c9b21b528b19643d00910d35b83a10c366a10833ceefb45edd6c80e40f27"),
    ("GET", "/\u{1234}", &[], "", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    (
        "GET",
        "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        &[],
        "",
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    (
        "GET",
        "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        &[],
        "",
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    ("GET", "/?Param1=value1", &[], "", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    (
        "GET",
        "/?Param2=value2&Param1=value1",
        &[],
        "",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "GET",
        "/?Param1=value2&Param1=Value1",
        &[],
        "",
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
    ),
    (
        "GET",
        "/?Param1=value2&Param1=value1",
        &[],
        "",
        "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
    ),
    (
        "GET",
        "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
        &[],
        "",
        "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
    ),
    ("GET", "/?\u{1234}=bar", &[], "", "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    (
        "GET",
        "/",
        &[("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
        "",
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    (
        "GET",
        "/",
        &[
            ("My-Header1", "value4"),
            ("My-Header1", "value1"),
            ("My-Header1", "value3"),
            ("My-Header1", "value2"),
        ],
        "",
        "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
    ),
    (
        "GET",
        "/",
        &[("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")],
        "",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    ("POST", "/", &[], "", POST),
    ("POST", "/?Param1=value1", &[], "", "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"),
    (
        "POST",
        "/",
        &[("My-Header1", "value1")],
        "",
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
    ),
    (
        "POST",
        "/",
        &[("My-Header1", "VALUE1")],
        "",
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
    ),
    (
        "POST",
        "/",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        "Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    (
        "POST",
        "/",
        &[("Content-Type", "application/x-www-form-urlencoded; charset=utf8")],
        "Param1=value1",
        "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe",
    ),
];

#[test]
fn the_suite_of_aws_is_signed_as_it_says() {
    for (method, path, fields, body, signature) in CASES {
        let aws = aws("aws:amz:us-east-1:service", SUITE, None);
        let url = format!("https://example.amazonaws.com{path}");
        let field = signed(aws, &url, request(method, fields, body), AUGUST);
        assert!(field.ends_with(&format!("Signature={signature}")), "{method} {path}: {field}");
        assert!(
            field.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="
            ),
            "{field}"
        );
    }
    let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
    let field = signed(
        aws("aws:amz:us-east-1:service", SUITE, Some(token)),
        "https://example.amazonaws.com/",
        request("POST", &[], ""),
        AUGUST,
    );
    assert!(field.contains("host;x-amz-date;x-amz-security-token"), "{field}");
    assert!(field.ends_with("=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"), "{field}");
}

#[test]
fn the_examples_of_s3_and_iam_are_signed_as_they_say() {
    let stored =
        &[("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")][..];
    for (method, path, fields, body, signature) in [
        (
            "GET",
            "/test.txt",
            &[("Range", "bytes=0-9")][..],
            "",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test$file.text",
            stored,
            "Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/?lifecycle", &[], "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/?max-keys=2&prefix=J",
            &[],
            "",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let aws = aws("aws:amz:us-east-1:s3", S3, None);
        let url = format!("https://examplebucket.s3.amazonaws.com{path}");
        let field = signed(aws, &url, request(method, fields, body), MAY);
        assert!(field.ends_with(&format!("Signature={signature}")), "{method} {path}: {field}");
    }
    let field = signed(
        aws("aws:amz:us-east-1", SUITE, None),
        "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
        request("GET", &[("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")], ""),
        AUGUST,
    );
    assert!(field.contains("/20150830/us-east-1/iam/aws4_request"), "{field}");
    assert!(field.ends_with("=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"), "{field}");
}

/// The path of S3 is encoded once, whichever way it is sent, and keeps its dots; others' twice.
#[test]
fn what_is_sent_encoded_is_signed_as_what_it_stands_for() {
    let of = |scope: &str, path: &str| {
        let aws = aws(scope, SUITE, None);
        let field = signed(aws, &format!("https://a.amazonaws.com{path}"), request("GET", &[], ""), AUGUST);
        field.rsplit_once('=').unwrap().1.to_owned()
    };
    let (s3, other) = ("aws:amz:us-east-1:s3", "aws:amz:us-east-1:execute-api");
    assert_eq!(of(s3, "/a(b)c"), of(s3, "/a%28b%29c"));
    assert_ne!(of(other, "/a(b)c"), of(other, "/a%28b%29c"));
    assert_ne!(of(s3, "/a%2Fb"), of(s3, "/a/b"));
    assert_ne!(of(s3, "/a//b"), of(s3, "/a/b"));
    assert_eq!(of(other, "/a//b"), of(other, "/a/b"));
    assert_eq!(of(other, "/?a=x+y"), of(other, "/?a=x%20y"));
    assert_ne!(of(other, "/?a=x%2By"), of(other, "/?a=x%20y"));
    assert_eq!(of(other, "/?b=2&a=1&&"), of(other, "/?a=1&b=2"));
    assert_eq!(of(other, "/?a"), of(other, "/?a="));
    assert_ne!(of(other, "/?a=%"), of(other, "/?a="));
}

/// What a lane keeps is signed anew in the place of the old signature, and is the same as what is signed from the beginning.
#[test]
fn a_request_is_signed_anew_in_its_place() {
    let aws = aws("aws:amz:eu-west-1:s3", SUITE, Some("token"));
    let mut asked =
        request("PUT", &[("x-a", "Signature= X-Amz-Date: 0"), ("Host", "b.amazonaws.com")], "a body");
    asked.path = Some("/Authorization:/a".into());
    let pool = pool(Some(aws), "https://a.amazonaws.com/", asked.clone());
    let hashes: Arc<[String]> = vec![hash(&asked.body)].into();
    let bytes = |signed: &mut Signed, last| {
        let kept = signed.same(&pool, (0, 0));
        (String::from_utf8(kept.prepared.first(last).to_vec()).unwrap(), kept.request.headers.clone())
    };
    let mut signed = Signed::new(&pool, &hashes).unwrap();
    let held = signed.same(&pool, (0, 0)).prepared.clone();
    for days in [0, 1, 400] {
        let now = Stamp::of(AUGUST + days * 86_400);
        signed.renew_at(now);
        let mut fresh = Signed::new(&pool, &hashes).unwrap();
        fresh.same(&pool, (0, 0));
        fresh.renew_at(now);
        for last in [false, true] {
            let (head, fields) = bytes(&mut signed, last);
            assert_eq!((&head, &fields), (&bytes(&mut fresh, last).0, &bytes(&mut fresh, last).1));
            assert!(head.contains(&format!("\r\nX-Amz-Date: {}\r\n", now.text())), "{head}");
            assert!(
                head.contains(&format!("/{}/eu-west-1/s3/", String::from_utf8_lossy(now.day()))),
                "{head}"
            );
            for (name, value) in &fields {
                assert!(head.contains(&format!("\r\n{name}: {value}\r\n")), "{name}: {head}");
            }
            assert_eq!(head.contains("Connection: close"), last);
            assert!(head.ends_with("a body"));
        }
        // From the beginning, by the signer alone.
        let mut again = asked.clone();
        let url = &pool.targets[0].url;
        let own = Arc::new(pool.aws.clone().unwrap());
        Signer::new(&own, &pool, url).unwrap().sign(url, &mut again, &hashes[0], now);
        assert_eq!(bytes(&mut signed, false).1, again.headers);
    }
    // Whoever was sending it sends it to its end as it was.
    assert_ne!(held.first(false), signed.same(&pool, (0, 0)).prepared.first(false));
}

/// Over HTTP/2 a server knows the host by the URL alone.
#[test]
fn the_host_is_the_one_that_the_server_is_told() {
    let named = request("GET", &[("Host", "other.amazonaws.com")], "");
    let of = |version, request: &Request| {
        let own = Arc::new(aws("aws:amz:a:b", SUITE, None));
        let pool = Pool { version, ..pool(None, "https://a.amazonaws.com/", request.clone()) };
        let url = &pool.targets[0].url;
        let mut request = request.clone();
        Signer::new(&own, &pool, url).unwrap().sign(url, &mut request, "x", Stamp::of(0));
        request.headers.pop().unwrap().1
    };
    let (one, two) = (Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 1 });
    assert_eq!(of(one, &Request::default()), of(two, &named));
    assert_ne!(of(one, &named), of(two, &named));
    assert_eq!(of(one, &named), of(Version::Http3 { streams: 1 }, &named));
}

#[test]
fn what_cannot_be_signed_is_refused() {
    for bad in
        ["", "aws", "aws:amz:", "aws:amz:a:", "aws:amz:a:b:c", "osc:osc:a:b", "aws:amz:a b", "amz:aws:a:b"]
    {
        assert!(bad.parse::<Scope>().unwrap_err().contains("aws:amz:REGION:SERVICE"), "{bad}");
    }
    let variables = |given: &'static [(&'static str, &'static str)]| {
        move |name: &str| given.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
    };
    let with = |user, token, given| Aws::with(Scope::default(), user, token, variables(given));
    let environment =
        &[("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "t")][..];
    assert_eq!(with(None, None, environment).unwrap().token.as_deref(), Some("t"));
    assert_eq!(with(None, Some("u"), environment).unwrap().token.as_deref(), Some("u"));
    // The token of another key.
    assert_eq!(with(Some("a:b"), None, environment).unwrap().token, None);
    for (user, token, given, why) in [
        (None, None, &[][..], "no credentials"),
        (None, None, &environment[..1], "no credentials"),
        (None, None, &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "s")], "no credentials"),
        (Some("secret"), None, environment, "KEY:SECRET"),
        (Some(":secret"), None, environment, "KEY:SECRET"),
        (Some("key:"), None, environment, "KEY:SECRET"),
        (Some("k\r\nx:secret"), None, environment, "KEY:SECRET"),
        (Some("k/a:secret"), None, environment, "KEY:SECRET"),
        (Some("key:secret"), Some("a\r\nb: c"), environment, "token"),
        (Some("key:secret"), Some(""), environment, "token"),
    ] {
        let refused = with(user, token, given).unwrap_err();
        assert!(refused.contains(why) && !refused.contains("secret"), "{refused}");
    }
    let fine =
        pool(Some(aws("aws:amz", SUITE, None)), "https://s3.eu-west-1.amazonaws.com/", Request::default());
    assert_eq!(fine.check(), Ok(()));
    assert_eq!(fine.aws.as_ref().unwrap().shown(&fine.targets[0].url).unwrap(), "aws:amz:eu-west-1:s3");
    assert!(!format!("{fine:?}").contains("wJalr"), "the secret is in no message");
    let mut unnamed = fine.clone();
    unnamed.targets[0].url = "http://127.0.0.1:9000/".parse().unwrap();
    let mut signed = fine.clone();
    signed.requests[0].headers.push(("authorization".into(), "Basic x".into()));
    let mut dated = fine.clone();
    dated.requests[0].headers.push(("x-amz-date".into(), "x".into()));
    for (pool, why) in [
        (unnamed, "127.0.0.1 names no service"),
        (signed, "brings a field authorization"),
        (dated, "brings a field x-amz-date"),
        (Pool { version: Version::Http1 { pipeline: 2 }, ..fine.clone() }, "pipelining"),
        (Pool { follow: Some(Default::default()), ..fine.clone() }, "redirects"),
        (Pool { behaviour: Behaviour::HalfOpen, ..fine }, "send requests"),
    ] {
        let refused = pool.check().unwrap_err().to_string();
        assert!(refused.contains(why) && !refused.contains('\n'), "{why}: {refused}");
    }
}
