//! Signs: the key of a day, the text that is signed, and the fields that a request gets.

use std::sync::Arc;

use ring::{digest, hmac};

use super::canonical::{Canonical, Seen};
use super::stamp::Stamp;
use super::{AUTHORIZATION, CONTENT, DATE, TOKEN};
use crate::http::credentials::Aws;
use crate::http::plan::{Body, Pool, Request, Version};
use crate::http::prepared::pieces;
use crate::http::url::Url;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Digits of a signature.
pub(super) const DIGITS: usize = 64;

/// Signs requests to one target.
#[derive(Debug)]
pub(super) struct Signer {
    aws: Arc<Aws>,
    region: String,
    service: String,
    /// Whether hosts are named by the URL alone, as they are over HTTP/2.
    by_url: bool,
    /// The key of the day that was last signed in.
    key: Option<(Stamp, hmac::Key)>,
}

impl Signer {
    /// For a target of a pool; `None` if that is no place to sign for, which [`Pool::check`] has refused.
    pub(super) fn new(aws: &Arc<Aws>, pool: &Pool, url: &Url) -> Option<Self> {
        let (region, service) = aws.scope.of(url).ok()?;
        let by_url = matches!(pool.version, Version::Http2 { .. });
        Some(Self { aws: aws.clone(), region, service, by_url, key: None })
    }

    /// Whether requests go to S3 or a kin of it.
    fn is_s3(&self) -> bool {
        self.service == "s3" || self.service.starts_with("s3-") || self.service == "s3express"
    }

    /// The key of a day: the secret, bound to day, region and service.
    fn key(&mut self, at: Stamp) -> &hmac::Key {
        if self.key.as_ref().is_some_and(|(of, _)| of.day() != at.day()) {
            self.key = None;
        }
        let (secret, region, service) = (&self.aws.secret, &self.region, &self.service);
        let (_, key) = self.key.get_or_insert_with(|| {
            let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
            let parts = [at.day(), region.as_bytes(), service.as_bytes(), b"aws4_request"];
            let next = |key: hmac::Key, part: &[u8]| {
                hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part).as_ref())
            };
            (at, parts.into_iter().fold(first, next))
        });
        key
    }

    /// What a signature is good for, from its day on.
    fn scope(&self, at: Stamp) -> String {
        format!("{}/{}/{}/aws4_request", String::from_utf8_lossy(at.day()), self.region, self.service)
    }

    /// The signature of a canonical form, in digits.
    pub(super) fn signature(&mut self, canonical: &Canonical, at: Stamp) -> String {
        let hash = hex(digest::digest(&digest::SHA256, &canonical.text).as_ref());
        let text = format!("{ALGORITHM}\n{}\n{}\n{hash}", at.text(), self.scope(at));
        hex(hmac::sign(self.key(at), text.as_bytes()).as_ref())
    }

    /// The value of the field that has the signature.
    pub(super) fn authorization(&self, canonical: &Canonical, at: Stamp, signature: &str) -> String {
        let (key, scope, names) = (&self.aws.key, self.scope(at), &canonical.names);
        format!("{ALGORITHM} Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    /// Gives a request its fields, that of the signature last. `content`: the hash of its body.
    pub(super) fn sign(&mut self, url: &Url, request: &mut Request, content: &str, at: Stamp) -> Canonical {
        // Of a recorded request, which was signed when it was recorded.
        let made = |name: &str| name.eq_ignore_ascii_case(AUTHORIZATION) || name.eq_ignore_ascii_case(DATE);
        request.headers.retain(|(name, _)| !made(name));
        let given = |request: &Request, name: &str| {
            request
                .headers
                .iter()
                .find(|(of, _)| of.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.clone())
        };
        request.headers.push((DATE.into(), at.text()));
        let content = match given(request, CONTENT) {
            Some(own) => own,
            None => {
                if self.is_s3() {
                    request.headers.push((CONTENT.into(), content.to_owned()));
                }
                content.to_owned()
            }
        };
        if let Some(token) = self.aws.token.as_ref().filter(|_| given(request, TOKEN).is_none()) {
            request.headers.push((TOKEN.into(), token.clone()));
        }
        let host = given(request, "host").filter(|_| !self.by_url).unwrap_or_else(|| url.authority());
        let canonical = Canonical::of(&Seen {
            method: &request.method,
            path: request.path_at(url),
            host: &host,
            headers: &request.headers,
            content: &content,
            s3: self.is_s3(),
        });
        let signature = self.signature(&canonical, at);
        let value = self.authorization(&canonical, at, &signature);
        request.headers.push((AUTHORIZATION.into(), value));
        canonical
    }
}

/// The hash of a body, in digits.
pub(in crate::http) fn hash(body: &Body) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    pieces(body, |piece| context.update(piece));
    hex(context.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
