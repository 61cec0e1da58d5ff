//! A real browser, Chromium, driven by its ChromeDriver over WebDriver (<https://www.w3.org/TR/webdriver2/>).

use flowlane_testnet::{PATIENCE, Program, Scratch};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A browser without a window. It ends with this value.
pub(crate) struct Browser {
    _driver: Program,
    address: SocketAddr,
    session: String,
    profile: Scratch,
}

impl Browser {
    /// Starts it. An error says what is not there.
    pub(crate) fn start() -> Result<Self, String> {
        for program in ["chromium", "chromedriver"] {
            let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
            if !there {
                return Err(format!(
                    "skipped, because the program {program} (Debian: chromium, chromium-driver) is not there"
                ));
            }
        }
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null());
        let mut driver = Program::start(driver);
        let port = loop {
            let line = driver.prints();
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap();
            }
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let profile = Scratch::new("browser");
        let mut browser = Self { _driver: driver, address, session: String::new(), profile };
        let profile = format!("--user-data-dir={}", browser.profile.dir().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--lang=en-GB",
            &profile,
        ];
        let wishes = json!({ "capabilities": { "alwaysMatch": {
            "timeouts": { "script": PATIENCE.as_millis() as u64 },
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.post("/session", &wishes);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Ok(browser)
    }

    /// Loads a page.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// The value of a JavaScript expression.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.command("execute/sync", &json!({ "script": format!("return {expression};"), "args": [] }))
    }

    /// Waits until an expression is true, which the page looks for with each frame that it draws. The session bounds the time of a script.
    pub(crate) fn wait_for(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0]; \
             const look = () => Boolean({expression}) ? done(true) : requestAnimationFrame(look); look();"
        );
        let answer = self.ask(&self.of_session("execute/async"), &json!({ "script": script, "args": [] }));
        if answer != json!(true) {
            let text = self.value("document.body.innerText");
            panic!("never: {expression}: {}\n{}", answer["error"], text.as_str().unwrap_or_default());
        }
    }

    /// Shows the page as a screen of this size, in light or dark colours.
    pub(crate) fn screen(&self, width: u32, height: u32, scheme: &str) {
        let tell = |name: &str, parameters: Value| {
            self.command("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }));
        };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        tell("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        tell("Emulation.setEmulatedMedia", scheme);
    }

    /// Keeps a picture of the screen in the build's folder.
    pub(crate) fn picture(&self, name: &str) -> PathBuf {
        let picture =
            self.command("goog/cdp/execute", &json!({ "cmd": "Page.captureScreenshot", "params": {} }));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, from_base64(picture["data"].as_str().unwrap())).unwrap();
        path
    }

    /// What the page's programs complained of.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let bad = |entry: &&Value| ["SEVERE", "WARNING"].contains(&entry["level"].as_str().unwrap());
        log.as_array()
            .unwrap()
            .iter()
            .filter(bad)
            .map(|e| e["message"].as_str().unwrap().to_owned())
            .collect()
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.post(&self.of_session(name), body)
    }

    fn of_session(&self, name: &str) -> String {
        format!("/session/{}/{name}", self.session)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.ask(path, body);
        assert!(answer.get("error").is_none(), "{path}: {answer}");
        answer
    }

    /// What is answered, an error included.
    fn ask(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", self.address);
        let answer = self.request(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).unwrap();
        answer["value"].clone()
    }

    fn request(&self, request: &str) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        // A script may take that long by itself.
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session, also after a test that failed; the driver's end alone would leave it running.
        let head = format!("DELETE /session/{} HTTP/1.1\r\nHost: {}\r\n\r\n", self.session, self.address);
        let _ = self.request(&head);
    }
}

/// RFC 4648 section 4, of what a program wrote.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|c| *c != b'=').map(|c| u32::from(digit(c))).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bytes.extend((0..four.len() - 1).map(|i| (bits >> (16 - 8 * i)) as u8));
    }
    bytes
}
