//! A command line of curl as a request: what browsers copy and documentation shows.
//!
//! The words are those that a POSIX shell would make of it, with `$'...'` as bash has it, since browsers write that. Nothing is expanded: a
//! line that has a variable, a command or a pipe in it is refused, as is each option that would be something else here than it is for curl.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::form::Field;

/// A request in curl's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curl {
    /// The URL, as it is written.
    pub url: String,
    /// `-X`, or `HEAD` of `-I`.
    pub method: Option<String>,
    /// Header fields of all options, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<Piece>,
    /// The fields of `-F`, which are a body of their own.
    pub form: Vec<Field>,
    /// `-k`.
    pub insecure: bool,
    /// `-L`.
    pub follow: bool,
    /// `--http2` and `--http2-prior-knowledge`.
    pub http2: bool,
    /// `-u`, as it is written. Without a signature it is among the header fields as well.
    pub user: Option<String>,
    /// `--aws-sigv4`.
    pub aws: Option<String>,
}

/// A part of a body; parts are joined by `&`, but those of `--json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Text(String),
    /// What a file has; without its line ends, as `-d @FILE` has it, or whole.
    File {
        /// Its path.
        path: PathBuf,
        /// `--data-binary`.
        whole: bool,
    },
}

/// Options that say how curl shows what it does, and change nothing of what it asks.
const SILENT: [&str; 27] = [
    "silent",
    "show-error",
    // As it is without it.
    "basic",
    "verbose",
    "include",
    "fail",
    "no-progress-meter",
    "progress-bar",
    "no-buffer",
    "fail-with-body",
    "http1.1",
    "path-as-is",
    "tcp-nodelay",
    "disable",
    "no-keepalive",
    "remote-name",
    "remote-header-name",
    "remote-time",
    "create-dirs",
    "output",
    "output-dir",
    "write-out",
    "dump-header",
    "stderr",
    "trace",
    "trace-ascii",
    "trace-time",
];
/// Short options by their long names.
const SHORT: [(char, &str); 29] = [
    ('H', "header"),
    ('d', "data"),
    ('X', "request"),
    ('u', "user"),
    ('b', "cookie"),
    ('A', "user-agent"),
    ('e', "referer"),
    ('k', "insecure"),
    ('L', "location"),
    ('I', "head"),
    ('G', "get"),
    ('F', "form"),
    ('o', "output"),
    ('s', "silent"),
    ('S', "show-error"),
    ('v', "verbose"),
    ('i', "include"),
    ('f', "fail"),
    ('g', "globoff"),
    ('N', "no-buffer"),
    ('q', "disable"),
    ('x', "proxy"),
    ('m', "max-time"),
    ('w', "write-out"),
    ('D', "dump-header"),
    ('O', "remote-name"),
    ('J', "remote-header-name"),
    ('R', "remote-time"),
    ('#', "progress-bar"),
];
/// Options that take a value.
const VALUED: [&str; 24] = [
    "header",
    "form",
    "form-string",
    "data",
    "data-ascii",
    "data-raw",
    "data-binary",
    "data-urlencode",
    "json",
    "request",
    "user",
    "aws-sigv4",
    "cookie",
    "user-agent",
    "referer",
    "url",
    "oauth2-bearer",
    "output",
    "output-dir",
    "write-out",
    "dump-header",
    "stderr",
    "trace",
    "trace-ascii",
];

impl Curl {
    /// Reads a command line.
    ///
    /// # Errors
    /// What cannot be understood, or is not done here, in one line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut words = words(line)?.into_iter();
        match words.next() {
            Some(word) if word == "curl" || word.ends_with("/curl") => {}
            _ => return Err("it begins with the word curl".into()),
        }
        let (mut curl, mut get, mut json, mut ended) = (Self::default(), false, false, false);
        let (mut globs, mut basic) = (true, false);
        while let Some(word) = words.next() {
            let named = word.starts_with('-') && word.len() > 1 && !ended;
            if !named {
                curl.is_url(word)?;
                continue;
            }
            if word == "--" {
                ended = true;
                continue;
            }
            for (name, attached) in options(&word)? {
                let valued = VALUED.contains(&name.as_str());
                let value = match attached {
                    Some(value) => value,
                    None if valued => {
                        words.next().ok_or_else(|| format!("'{word}' has no value behind it"))?
                    }
                    None => String::new(),
                };
                match name.as_str() {
                    "get" => get = true,
                    "globoff" => globs = false,
                    "basic" => basic = true,
                    "json" => {
                        json = true;
                        curl.data("data-raw", value)?;
                    }
                    name => curl.option(name, value)?,
                }
            }
        }
        if curl.url.is_empty() {
            return Err("it names no URL".into());
        }
        if globs && let Some(sign) = pattern(&curl.url) {
            return Err(format!(
                "'{sign}' in a URL is a pattern to curl, of several URLs; with -g it is itself"
            ));
        }
        // Guard: `basic && curl.aws.is_some()` as `false` fails http::curl::tests::what_is_not_done
        if basic && curl.aws.is_some() {
            return Err("--basic and --aws-sigv4: a request has one login".into());
        }
        curl.finish(get, json)
    }

    fn option(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "header" => self.header(&value)?,
            "data" | "data-ascii" | "data-raw" | "data-binary" | "data-urlencode" => {
                self.data(name, value)?;
            }
            "request" => self.method = Some(value),
            "head" => self.method = Some("HEAD".into()),
            "user" => {
                self.headers.push(basic(&value));
                self.user = Some(value);
            }
            "aws-sigv4" => self.aws = Some(value),
            "cookie" if value.contains('=') => self.headers.push(("Cookie".into(), value)),
            "cookie" => {
                return Err(format!(
                    "-b {value}: files of cookies are not read; NAME=VALUE is sent as it is"
                ));
            }
            "oauth2-bearer" => self.headers.push(("Authorization".into(), format!("Bearer {value}"))),
            "user-agent" => self.headers.push(("User-Agent".into(), value)),
            "referer" => self.headers.push(("Referer".into(), value)),
            "url" => self.is_url(value)?,
            "compressed" if !self.has("accept-encoding") => {
                self.headers.push(("Accept-Encoding".into(), "deflate, gzip, br, zstd".into()));
            }
            "insecure" => self.insecure = true,
            "location" => self.follow = true,
            "http2" | "http2-prior-knowledge" => self.http2 = true,
            "form" => self.form.push(Field::parse(&value).map_err(|e| format!("-F {e}"))?),
            "form-string" => {
                self.form.push(Field::literal(&value).map_err(|e| format!("--form-string {e}"))?);
            }
            "compressed" => {}
            name if SILENT.contains(&name) => {}
            name => {
                return Err(format!(
                    "--{name}: this option of curl is not understood here; leave it out if it does not matter"
                ));
            }
        }
        Ok(())
    }

    fn is_url(&mut self, url: String) -> Result<(), String> {
        if !self.url.is_empty() {
            return Err(format!("it names a second URL, '{url}': one is asked"));
        }
        // curl asks http when nothing is said.
        self.url = if url.contains("://") { url } else { format!("http://{url}") };
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// `Name: value`; `Name;` is a field without a value, and `Name:` one that curl shall not send.
    fn header(&mut self, text: &str) -> Result<(), String> {
        if text.starts_with('@') {
            return Err(format!("-H {text}: files of headers are not read"));
        }
        match text.split_once(':') {
            Some((name, value)) if value.trim().is_empty() => {
                if matches!(name.trim().to_ascii_lowercase().as_str(), "host" | "user-agent") {
                    return Err(format!("-H '{text}': this field is always sent"));
                }
            }
            Some((name, value)) => self.headers.push((name.trim().to_owned(), value.trim().to_owned())),
            None => match text.trim().strip_suffix(';') {
                Some(name) => self.headers.push((name.to_owned(), String::new())),
                None => return Err(format!("-H '{text}': a header is 'Name: value'")),
            },
        }
        Ok(())
    }

    fn data(&mut self, name: &str, value: String) -> Result<(), String> {
        self.body.push(match (name, value.strip_prefix('@')) {
            ("data-raw", _) | (_, None) if name != "data-urlencode" => Piece::Text(value),
            ("data-urlencode", None) => Piece::Text(match value.split_once('=') {
                Some(("", content)) => urlencoded(content),
                Some((name, content)) => format!("{name}={}", urlencoded(content)),
                None if value.contains('@') => {
                    return Err(format!("--data-urlencode {value}: files are not encoded here"));
                }
                None => urlencoded(&value),
            }),
            ("data-urlencode", Some(_)) => {
                return Err(format!("--data-urlencode {value}: files are not encoded here"));
            }
            (_, Some("-")) => return Err(format!("--{name} @-: standard input is not read")),
            (name, Some(path)) => Piece::File { path: path.into(), whole: name == "data-binary" },
            // The first arm has all others.
            (_, None) => Piece::Text(value),
        });
        Ok(())
    }

    fn finish(mut self, get: bool, json: bool) -> Result<Self, String> {
        if let (Some(_), Some(user)) = (&self.aws, &self.user) {
            // It is a key and its secret.
            let basic = basic(user);
            self.headers.retain(|field| *field != basic);
        }
        if !self.form.is_empty() && (get || json || !self.body.is_empty()) {
            return Err("-F and -d, --json or -G: a request has one body".into());
        }
        if get {
            let text = |piece: Piece| match piece {
                Piece::Text(text) => Ok(text),
                Piece::File { path, .. } => Err(format!("-G with @{}: files go into bodies", path.display())),
            };
            let query: Vec<String> =
                std::mem::take(&mut self.body).into_iter().map(text).collect::<Result<_, _>>()?;
            if !query.is_empty() {
                let sign = if self.url.contains('?') { '&' } else { '?' };
                self.url = format!("{}{sign}{}", self.url, query.join("&"));
            }
        }
        let usual = match json {
            true => [("Content-Type", "application/json"), ("Accept", "application/json")].as_slice(),
            false if !self.body.is_empty() => &[("Content-Type", "application/x-www-form-urlencoded")],
            false => &[],
        };
        for (name, value) in usual {
            if !self.has(name) {
                self.headers.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        Ok(self)
    }
}

/// The field of a login, `NAME:PASSWORD` (RFC 7617).
#[must_use]
pub fn basic(user: &str) -> (String, String) {
    ("Authorization".into(), format!("Basic {}", STANDARD.encode(user)))
}

/// The options of a word: one long one, or short ones in a row, of which the last may have its value attached.
fn options(word: &str) -> Result<Vec<(String, Option<String>)>, String> {
    if let Some(long) = word.strip_prefix("--") {
        return Ok(vec![(long.to_owned(), None)]);
    }
    let (mut found, mut rest) = (Vec::new(), &word[1..]);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let name = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, long)| (*long).to_owned());
        let name = name.ok_or_else(|| {
            format!(
                "-{letter}: this option of curl is not understood here; leave it out if it does not matter"
            )
        })?;
        if VALUED.contains(&name.as_str()) && !rest.is_empty() {
            found.push((name, Some(rest.to_owned())));
            break;
        }
        found.push((name, None));
    }
    Ok(found)
}

/// The first sign of what curl takes for a pattern in a URL: `{a,b}` and `[1-3]`, but not the address of IPv6 or a `{{placeholder}}` of ours.
fn pattern(url: &str) -> Option<char> {
    let mut rest = url;
    if let Some((before, behind)) = rest.split_once("://") {
        let host =
            if behind.starts_with('[') { behind.split_once(']').map_or(behind, |(_, b)| b) } else { behind };
        if before.contains(['{', '[']) {
            return before.chars().find(|c| "{[".contains(*c));
        }
        rest = host;
    }
    while let Some((at, sign)) = rest.match_indices(['{', '}', '[', ']']).next() {
        let placeholder = rest[at..].strip_prefix("{{").and_then(|inner| inner.split_once("}}"));
        match placeholder {
            Some((_, behind)) => rest = behind,
            None => return sign.chars().next(),
        }
    }
    None
}

fn urlencoded(text: &str) -> String {
    let byte = |b: u8| match b {
        b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => char::from(b).to_string(),
        // As forms have it, and curl.
        b' ' => "+".to_owned(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The words of a line.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, line.trim().chars().peekable());
    let open = |what: char| format!("a {what} is not closed");
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\'' => loop {
                match chars.next().ok_or_else(|| open('\''))? {
                    '\'' => {
                        word.get_or_insert_default();
                        break;
                    }
                    c => word.get_or_insert_default().push(c),
                }
            },
            '$' if chars.peek() == Some(&'\'') => {
                chars.next();
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or_else(|| open('\''))? {
                        '\'' => break,
                        '\\' => word.push(escaped(&mut chars)?),
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or_else(|| open('"'))? {
                        '"' => break,
                        '\\' => match chars.next().ok_or_else(|| open('"'))? {
                            '\n' => {}
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c @ ('$' | '`') => {
                            return Err(format!(
                                "'{c}' within \" would be expanded by a shell: put it in single quotes"
                            ));
                        }
                        c => word.push(c),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            '$' | '`' | '|' | ';' | '&' | '<' | '>' | '(' | ')' => {
                // Guard: `return Err(format!( "'{c}' means something to a shell: put it in single quotes, or
                // leave out what is not curl's" ));` as `return Ok(words);` fails http::curl
                return Err(format!(
                    "'{c}' means something to a shell: put it in single quotes, or leave out what is not curl's"
                ));
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// A character behind a backslash in `$'...'`.
fn escaped(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, String> {
    let c = chars.next().ok_or("a ' is not closed")?;
    let digits = match c {
        'n' => return Ok('\n'),
        'r' => return Ok('\r'),
        't' => return Ok('\t'),
        'u' => 4,
        'x' => 2,
        c @ ('\\' | '\'' | '"' | '?') => return Ok(c),
        c => return Err(format!("'\\{c}' within $'...' is not understood")),
    };
    let mut code = 0;
    for _ in 0..digits {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(16)) else { break };
        code = code * 16 + digit;
        chars.next();
    }
    char::from_u32(code).ok_or_else(|| format!("'\\{c}' within $'...' is half a character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(curl: &Curl) -> Vec<String> {
        curl.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    fn text(curl: &Curl) -> Vec<&str> {
        fn text(piece: &Piece) -> &str {
            match piece {
                Piece::Text(text) => text,
                Piece::File { .. } => "(file)",
            }
        }
        curl.body.iter().map(text).collect()
    }

    #[test]
    fn what_a_browser_copies() {
        let line = "curl 'https://shop.example/api?a=1&b=2' \\\n  -H 'accept: */*' \\\n  -H 'cookie: id=1; t=\"x\"' \\\n  \
                    -H 'sec-ch-ua: \"A\";v=\"1\"' \\\n  --data-raw $'{\"q\":\"it\\'s \\u00e4\\n\"}' \\\n  --compressed \\\n  --insecure";
        let curl = Curl::parse(line).unwrap();
        assert_eq!(curl.url, "https://shop.example/api?a=1&b=2");
        assert_eq!(text(&curl), ["{\"q\":\"it's ä\n\"}"]);
        assert_eq!(
            headers(&curl),
            [
                "accept: */*",
                "cookie: id=1; t=\"x\"",
                "sec-ch-ua: \"A\";v=\"1\"",
                "Accept-Encoding: deflate, gzip, br, zstd",
                "Content-Type: application/x-www-form-urlencoded"
            ]
        );
        assert!(curl.insecure && !curl.follow && curl.method.is_none());
    }

    #[test]
    fn options_in_all_their_forms() {
        let curl = Curl::parse("/usr/bin/curl -sSLkXPUT -HA:b -H 'C;' -H 'Accept:' -d x=1 -d@f.txt --data-binary @g -u me:pw a.example:8080/x -b k=v").unwrap();
        assert_eq!((curl.url.as_str(), curl.method.as_deref()), ("http://a.example:8080/x", Some("PUT")));
        assert!(curl.insecure && curl.follow);
        assert_eq!(
            headers(&curl),
            [
                "A: b",
                "C: ",
                "Authorization: Basic bWU6cHc=",
                "Cookie: k=v",
                "Content-Type: application/x-www-form-urlencoded"
            ]
        );
        let file = |path: &str, whole| Piece::File { path: path.into(), whole };
        assert_eq!(curl.body, [Piece::Text("x=1".into()), file("f.txt", false), file("g", true)]);
        let get = Curl::parse("curl -G --data-urlencode 'q=a b&c' -d z http://a/?x").unwrap();
        assert_eq!(
            (get.url.as_str(), get.body.len(), headers(&get).len()),
            ("http://a/?x&q=a+b%26c&z", 0, 0)
        );
        let json = Curl::parse("curl --json '{}' -H 'accept: x' --http2 -I --url http://a/").unwrap();
        assert_eq!(headers(&json), ["accept: x", "Content-Type: application/json"]);
        assert_eq!((json.method.as_deref(), json.http2), (Some("HEAD"), true));
        let form =
            Curl::parse("curl -F a=b --form 'f=@x.png;type=image/png' --form-string c=@d http://a/").unwrap();
        let fields = [Field::parse("a=b"), Field::parse("f=@x.png;type=image/png"), Field::literal("c=@d")];
        assert_eq!(form.form, fields.map(Result::unwrap));
        // Where curl puts the answer is nothing to a load.
        let shown = Curl::parse(
            "curl -sw '%{http_code}\\n' -o /dev/null -D- -#O --stderr x http://a/ --oauth2-bearer t",
        )
        .unwrap();
        assert_eq!(
            (shown.url.as_str(), headers(&shown)),
            ("http://a/", vec!["Authorization: Bearer t".to_owned()])
        );
        for url in ["http://a/{{user}}?{{counter}}", "http://[fd00::1]:8080/x", "http://a/%5B1%5D"] {
            assert_eq!(Curl::parse(&format!("curl '{url}'")).unwrap().url, url);
        }
        assert_eq!(Curl::parse("curl -g 'http://a/{b}[1]'").unwrap().url, "http://a/{b}[1]");
        let login = |line: &str| {
            let curl = Curl::parse(line).unwrap();
            (curl.headers.len(), curl.user, curl.aws)
        };
        let key = Some("key:secret".to_owned());
        assert_eq!(login("curl --basic -u key:secret http://a/"), (1, key.clone(), None));
        let signed = login("curl -ukey:secret --aws-sigv4 aws:amz:eu-west-1:s3 http://a/");
        assert_eq!(signed, (0, key, Some("aws:amz:eu-west-1:s3".to_owned())));
        let raw = Curl::parse("curl http://a/ --data-raw @x -d \"a \\\"b\\\" \\$c\"").unwrap();
        assert_eq!(text(&raw), ["@x", "a \"b\" $c"]);
    }

    #[test]
    fn what_is_not_done_is_refused_by_its_name() {
        for (line, what) in [
            ("", "begins with the word curl"),
            ("wget http://a/", "begins with the word curl"),
            ("curl", "no URL"),
            ("curl http://a/ http://b/", "second URL"),
            ("curl 'http://a/{b,c}'", "'{' in a URL is a pattern"),
            ("curl 'http://[fd00::1]/[1-3]'", "'[' in a URL is a pattern"),
            ("curl 'http://{a,b}/{{c}}'", "'{' in a URL is a pattern"),
            ("curl -F a http://a/", "-F 'a': a field"),
            ("curl --aws-sigv4 aws:amz --basic -u a:b http://a/", "one login"),
            ("curl -F a=b -d x http://a/", "one body"),
            ("curl -x p:1 http://a/", "--proxy: this option"),
            ("curl --limit-rate 5 http://a/", "--limit-rate: this option"),
            ("curl -Z http://a/", "-Z: this option"),
            ("curl -b jar.txt http://a/", "files of cookies"),
            ("curl -d @- http://a/", "standard input"),
            ("curl -H nonsense http://a/", "Name: value"),
            ("curl http://a/ -H", "no value"),
            ("curl 'http://a/", "a ' is not closed"),
            ("curl \"http://a/", "a \" is not closed"),
            ("curl http://a/?a&b", "'&' means something"),
            ("curl http://a/ | jq", "'|' means something"),
            ("curl \"$URL\"", "expanded by a shell"),
            ("curl $URL", "'$' means something"),
            ("curl $'\\q' http://a/", "not understood"),
            ("curl $'\\ud800' http://a/", "half a character"),
        ] {
            let refused = Curl::parse(line).unwrap_err();
            assert!(refused.contains(what) && !refused.contains('\n'), "{line}: {refused}");
        }
    }

    #[test]
    fn any_line_is_read_or_refused() {
        let mut rng = flowlane_stack::rng::Rng::new(6);
        let alphabet: Vec<char> = "curl -HdX'\"$\\\nä=@:h/".chars().collect();
        for _ in 0..20_000 {
            let length = rng.below(30);
            let some = (0..length).map(|_| alphabet[rng.below(alphabet.len() as u32) as usize]);
            let _ = Curl::parse(&format!("curl {}", some.collect::<String>()));
        }
    }
}
