//! The bus: NATS, and all the I/O of this crate.
//!
//! A thread of its own has the connection, so that heartbeats go on whatever the command does. A connection that breaks is made anew, for as
//! long as it takes; what was asked meanwhile is not answered, and is asked again by whoever needs it.
//!
//! async-nats speaks the protocol, TLS by rustls and ring as the rest of the program, and signs with NKeys.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Request};
use futures_core::Stream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::clock::Clock;

/// How long the first connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that wait to be looked at; more are dropped, and asked again.
const WAITING: usize = 256;
/// The most and the least time between two attempts to connect again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Which server, and who we are to it.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several with commas between them.
    pub url: String,
    /// A file with credentials: a JWT and the seed of its key.
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an NKey.
    pub nkey: Option<PathBuf>,
    /// A file with certificates of authorities, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// Files with our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoBus(String);

/// What came of a question.
#[derive(Debug)]
pub struct Heard<T> {
    /// What the question was given to know it by.
    pub tag: T,
    /// The answer; `None` if none came in time.
    pub answer: Option<Vec<u8>>,
    /// When the question left and the answer came, on the clock it was given.
    pub times: (u64, u64),
}

/// A connection.
#[derive(Debug)]
pub struct Bus {
    client: Client,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Why no server is connected, in words that say what is to be done where nobody listens.
fn in_words(error: String) -> String {
    match error.contains("Connection refused") {
        true => {
            "no NATS server listens there: start one (nats-server), or say where it is with --nats URL".into()
        }
        false => error,
    }
}

impl Bus {
    /// Connects; `name` is shown by the server.
    ///
    /// # Errors
    /// In one line.
    pub fn connect(server: &Server, name: &str) -> Result<Self, NoBus> {
        let options = options(server, name)?;
        let bad = |why: String| NoBus(format!("{}: {why}", without_password(&server.url)));
        let urls: Vec<String> = server.url.split(',').map(|url| without_password(url.trim())).collect();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| bad(format!("no runtime: {e}")))?;
        let (handle, (end, ends)) = (runtime.handle().clone(), oneshot::channel());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("flowlane-nats".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let connect =
                        tokio::time::timeout(PATIENCE, async_nats::connect_with_options(urls, options));
                    let connected = match connect.await {
                        Ok(Ok(client)) => Ok(client),
                        Ok(Err(e)) => Err(in_words(e.to_string())),
                        Err(_) => Err(format!("no NATS server has answered within {PATIENCE:?}")),
                    };
                    let client = connected.as_ref().ok().cloned();
                    let _ = ready.send(connected);
                    if let Some(client) = client {
                        // The other end is dropped with the bus.
                        let _ = ends.await;
                        let _ = tokio::time::timeout(AGAIN.1, client.flush()).await;
                    }
                });
            })
            .map_err(|e| bad(format!("no thread: {e}")))?;
        let client = is_ready.recv().map_err(|e| bad(e.to_string()))?.map_err(bad)?;
        Ok(Self { client, handle, end: Some(end), thread: Some(thread) })
    }

    /// Bytes that a message can have.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Whether there is a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Asks; what comes of it goes to `to`.
    pub fn ask<T: Send + 'static>(
        &self,
        subject: String,
        question: Vec<u8>,
        patience: Duration,
        clock: Clock,
        (tag, to): (T, Sender<Heard<T>>),
    ) {
        let client = self.client.clone();
        self.handle.spawn(async move {
            let request = Request::new().payload(question.into()).timeout(Some(patience));
            let asked = clock.now();
            let answer = client.send_request(subject, request).await;
            let times = (asked, clock.now());
            // Nobody may wait for it any more.
            let _ = to.send(Heard { tag, answer: answer.ok().map(|m| m.payload.to_vec()), times });
        });
    }

    /// Asks all who listen to a subject; each answer goes to `to` until that is dropped or `patience` is over.
    pub fn ask_all(&self, subject: String, question: Vec<u8>, patience: Duration, to: Sender<Vec<u8>>) {
        let client = self.client.clone();
        self.handle.spawn(async move {
            let inbox = client.new_inbox();
            let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
            if client.publish_with_reply(subject, inbox, question.into()).await.is_err() {
                return;
            }
            let _ = client.flush().await;
            let hear = async {
                while let Some(answer) = next(&mut answers).await {
                    if to.send(answer.payload.to_vec()).is_err() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(patience, hear).await;
        });
    }

    /// Answers what comes to these subjects until the bus is dropped: `answer` is given a message and when it came.
    ///
    /// # Errors
    /// A subject cannot be subscribed to.
    pub fn serve(
        &self,
        subjects: Vec<String>,
        clock: Clock,
        answer: impl Fn(&[u8], u64) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Result<(), NoBus> {
        let answer = std::sync::Arc::new(answer);
        let (ready, is_ready) = std::sync::mpsc::channel();
        for subject in subjects {
            let (client, answer, ready) = (self.client.clone(), answer.clone(), ready.clone());
            self.handle.spawn(async move {
                let subscribed = client.subscribe(subject).await;
                // So that whoever asks once we say that we are there is heard.
                let _ = client.flush().await;
                let said = subscribed.as_ref().map(|_| ()).map_err(ToString::to_string);
                let _ = ready.send(said);
                // Whoever waits for all of them waits until nobody can say anything any more.
                drop(ready);
                let Ok(mut questions) = subscribed else { return };
                while let Some(question) = next(&mut questions).await {
                    let received = clock.now();
                    let Some(to) = question.reply else { continue };
                    if let Some(bytes) = answer(&question.payload, received) {
                        // Whoever asked asks again.
                        let _ = client.publish(to, bytes.into()).await;
                    }
                }
            });
        }
        drop(ready);
        is_ready.iter().find_map(Result::err).map_or(Ok(()), |why| Err(NoBus(why)))
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It ends by itself, at once but for what is still to be sent.
            let _ = thread.join();
        }
    }
}

/// The next message of a subscription.
async fn next(from: &mut async_nats::Subscriber) -> Option<async_nats::Message> {
    std::future::poll_fn(|cx| Pin::new(&mut *from).poll_next(cx)).await
}

fn options(server: &Server, name: &str) -> Result<ConnectOptions, NoBus> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| NoBus(format!("{}: {e}", path.display())));
    let mut options = ConnectOptions::new()
        .name(name)
        .connection_timeout(PATIENCE)
        .ping_interval(Duration::from_secs(2))
        .subscription_capacity(WAITING)
        .reconnect_delay_callback(|attempts| {
            AGAIN.0.saturating_mul(u32::try_from(attempts).unwrap_or(u32::MAX)).min(AGAIN.1)
        })
        .event_callback(|_| async {});
    options = match login(&server.url) {
        Some((user, Some(password))) => options.user_and_password(user, password),
        Some((token, None)) => options.token(token),
        None => options,
    };
    if let Some(path) = &server.credentials {
        let bad = |e| NoBus(format!("{}: {e}", path.display()));
        options = options.credentials(&read(path)?).map_err(bad)?;
    }
    if let Some(path) = &server.nkey {
        let text = read(path)?;
        let seed = text.lines().map(str::trim).find(|line| line.starts_with('S'));
        let seed = seed
            .ok_or_else(|| NoBus(format!("{}: no seed of an NKey, which begins with S", path.display())))?;
        options = options.nkey(seed.to_owned());
    }
    for file in server.authorities.iter().chain(server.identity.iter().flat_map(|(cert, key)| [cert, key])) {
        read(file)?;
    }
    if let Some(path) = &server.authorities {
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    if let Some((cert, key)) = &server.identity {
        options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
    }
    Ok(options)
}

/// Who logs in by these URLs, which are of one cluster: a user with a password, or a token.
fn login(urls: &str) -> Option<(String, Option<String>)> {
    let before = urls.split(',').find_map(|url| url.trim().rsplit_once('@'))?.0;
    let login = before.split_once("://").map_or(before, |(_, login)| login);
    Some(match login.split_once(':') {
        Some((user, password)) => (user.to_owned(), Some(password.to_owned())),
        None => (login.to_owned(), None),
    })
}

/// URLs as they may be shown: without what stands before an @.
#[must_use]
pub fn without_password(urls: &str) -> String {
    let hide = |url: &str| match url.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
            format!("{scheme}{host}")
        }
        None => url.to_owned(),
    };
    urls.split(',').map(hide).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("nats://a:4222", "nats://a:4222"),
            ("nats://me:p@ss@a:4222,tls://t@b", "nats://a:4222,tls://b"),
            ("me:p@a", "a"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        let password = |text: &str| Some(text.to_owned());
        assert_eq!(login("nats://a,nats://me:p@ss@b:4222"), Some(("me".into(), password("p@ss"))));
        assert_eq!(login("tls://token@b"), Some(("token".into(), None)));
        assert_eq!(login("nats://a:4222"), None);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let missing = PathBuf::from("/no/such/file");
        for server in [
            Server { credentials: Some(missing.clone()), ..Server::default() },
            Server { nkey: Some(missing.clone()), ..Server::default() },
            Server { authorities: Some(missing.clone()), ..Server::default() },
            Server { identity: Some((missing.clone(), missing.clone())), ..Server::default() },
        ] {
            let why = Bus::connect(&server, "test").map(|_| ()).unwrap_err().to_string();
            assert!(why.contains("/no/such/file"), "{why}");
        }
        let server = Server { nkey: Some("/dev/null".into()), ..Server::default() };
        assert!(Bus::connect(&server, "test").map(|_| ()).unwrap_err().to_string().contains("NKey"));
    }
}
