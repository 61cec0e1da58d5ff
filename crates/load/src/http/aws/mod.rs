//! Requests that are signed for AWS, and for what speaks as it does (Signature Version 4, `AWS4-HMAC-SHA256`).
//!
//! Read before you edit: "Create a signed AWS API request" in AWS's guide to IAM, and "Authenticating Requests: Using the Authorization Header" in
//! the API reference of S3, which differs in three things: its paths are encoded once and kept as they are, and each request names the hash of its
//! content.
//!
//! A signature covers a second, method, path, query, header fields and content, and is good for some minutes. So requests that are the same share
//! one: a lane signs each anew when it is sent in another second than the last (`signed`), in the memory of its head. Requests that differ are
//! signed one by one. The text that is signed is made by `canonical`; `signer` has the keys, `stamp` the dates.
//!
//! Not supported: signatures in the query, bodies signed piece by piece (`STREAMING-...`), keys of several regions (SigV4A).

mod canonical;
mod signed;
mod signer;
mod stamp;
#[cfg(test)]
mod tests;

use std::str::FromStr;

pub(super) use signed::{Kept, Signed};
pub(super) use signer::hash;

use super::plan::{BadPlan, Behaviour, Pool, Version};
use super::url::Url;

/// Names of the fields that a signature brings.
const AUTHORIZATION: &str = "Authorization";
const DATE: &str = "X-Amz-Date";
const CONTENT: &str = "X-Amz-Content-Sha256";
const TOKEN: &str = "X-Amz-Security-Token";

/// For whom requests are signed: `aws:amz:REGION:SERVICE`, as curl has it. What is left out is taken from the host's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    region: Option<String>,
    service: Option<String>,
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}': aws:amz, aws:amz:REGION or aws:amz:REGION:SERVICE");
        let mut parts = text.split(':');
        let providers = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Others (osc, goog) have other names for the fields.
        if !providers.0.eq_ignore_ascii_case("aws") || !providers.1.eq_ignore_ascii_case("amz") {
            return Err(bad());
        }
        let mut part =
            || parts.next().map(|part| is_name(part).then(|| part.to_owned()).ok_or_else(bad)).transpose();
        let (region, service) = (part()?, part()?);
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self { region, service })
    }
}

/// What a region or a service may be called.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

impl Scope {
    /// Region and service for a target: of `SERVICE.REGION.` in its name, what is not given.
    fn of(&self, url: &Url) -> Result<(String, String), String> {
        let mut labels = url.name().split('.');
        let (first, second) = (labels.next(), labels.next());
        let is_address = url.name().parse::<std::net::IpAddr>().is_ok();
        let named = |label: Option<&str>, what: &str| {
            label.filter(|label| second.is_some() && !is_address && is_name(label)).map(str::to_owned).ok_or_else(|| {
                format!(
                    "{} names no {what}, as SERVICE.REGION.amazonaws.com does: say it, aws:amz:REGION:SERVICE",
                    url.name()
                )
            })
        };
        let service = self.service.clone().map_or_else(|| named(first, "service"), Ok)?;
        let region = self.region.clone().map_or_else(|| named(second, "region"), Ok)?;
        Ok((region, service))
    }
}

/// How requests are signed: for whom, and by whom.
#[derive(Clone, PartialEq, Eq)]
pub struct Aws {
    scope: Scope,
    key: String,
    secret: String,
    token: Option<String>,
}

impl std::fmt::Debug for Aws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aws").field("scope", &self.scope).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Aws {
    /// With the key and secret of `user`, `KEY:SECRET`, or with those of the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`), whose token
    /// (`AWS_SESSION_TOKEN`) goes with them alone. `token`: that of a session, in the place of the environment's.
    ///
    /// # Errors
    /// No key, or none that can be, in one line that does not show the secret.
    pub fn new(scope: Scope, user: Option<&str>, token: Option<&str>) -> Result<Self, String> {
        Self::with(scope, user, token, |name| std::env::var(name).ok())
    }

    fn with(
        scope: Scope,
        user: Option<&str>,
        token: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let of_environment = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (key, secret, usual) = match user {
            Some(user) => {
                let (key, secret) = user.split_once(':').ok_or("credentials are KEY:SECRET")?;
                (key.to_owned(), secret.to_owned(), None)
            }
            None => {
                let missing = "no credentials: KEY:SECRET, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment";
                let key = of_environment("AWS_ACCESS_KEY_ID").ok_or(missing)?;
                let secret = of_environment("AWS_SECRET_ACCESS_KEY").ok_or(missing)?;
                (key, secret, of_environment("AWS_SESSION_TOKEN"))
            }
        };
        let token = token.map(str::to_owned).or(usual);
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !visible(&key) || key.contains([',', '/']) || secret.is_empty() {
            return Err(
                "credentials are KEY:SECRET, neither of them empty, and the key without ',' and '/'".into()
            );
        }
        if token.as_deref().is_some_and(|token| !visible(token)) {
            return Err("a session's token is printable and has no spaces".into());
        }
        Ok(Self { scope, key, secret, token })
    }

    /// For whom the requests to a target are signed, as `aws:amz:REGION:SERVICE`, for the report.
    #[must_use]
    pub fn shown(&self, url: &Url) -> Option<String> {
        let (region, service) = self.scope.of(url).ok()?;
        Some(format!("aws:amz:{region}:{service}"))
    }
}

impl Pool {
    /// Refuses signatures where a request is not made when it is sent, or has what a signature brings.
    pub(super) fn check_aws(&self) -> Result<(), BadPlan> {
        let Some(aws) = &self.aws else { return Ok(()) };
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': a signature {what}", self.name)));
        for target in &self.targets {
            aws.scope.of(&target.url).or_else(|e| {
                bad(&format!("needs a region and a service: {e}")).map(|()| Default::default())
            })?;
        }
        // Guard: `name.eq_ignore_ascii_case(AUTHORIZATION) || name.eq_ignore_ascii_case(DATE)` as `false` fails
        // http::aws::tests::what_cannot_be_signed
        let made = |name: &str| name.eq_ignore_ascii_case(AUTHORIZATION) || name.eq_ignore_ascii_case(DATE);
        let fields = self.requests.iter().flat_map(|r| &r.headers);
        if let Some((name, _)) = fields.into_iter().find(|(name, _)| made(name)) {
            return bad(&format!("brings a field {name} of its own: leave that header or login out"));
        }
        match self.version {
            Version::Http1 { pipeline: 2.. } => bad("is made when its request is sent: not with pipelining"),
            _ if self.fast_open => bad("is made when its request is sent: not with Fast Open"),
            _ if self.follow.is_some() => bad("is for one host and path: redirects are not followed with it"),
            _ if self.behaviour != Behaviour::Normal => bad("is for clients that send requests"),
            _ => Ok(()),
        }
    }
}
