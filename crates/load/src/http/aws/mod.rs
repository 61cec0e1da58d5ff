//! Requests that are signed for AWS, and for what speaks as it does (Signature Version 4, `AWS4-HMAC-SHA256`).
//!
//! Read before you edit: "Create a signed AWS API request" in AWS's guide to IAM, and "Authenticating Requests: Using the Authorization Header" in
//! the API reference of S3, which differs in three things: its paths are encoded once and kept as they are, and each request names the hash of its
//! content.
//!
//! A signature covers a second, method, path, query, header fields and content, and is good for some minutes. So requests that are the same share
//! one: a lane signs each anew when it is sent in another second than the last (`signed`), in the memory of its head. Requests that differ are
//! signed one by one. The text that is signed is made by `canonical`; `signer` has the keys, `stamp` the dates. Who signs is in
//! [`credentials`](super::credentials).
//!
//! Not supported: signatures in the query, bodies signed piece by piece (`STREAMING-...`), keys of several regions (SigV4A).

mod canonical;
mod signed;
mod signer;
mod stamp;
#[cfg(test)]
mod tests;

pub(super) use signed::{Kept, Signed};
pub(super) use signer::hash;

use super::plan::{BadPlan, Behaviour, Pool, Version};

/// Names of the fields that a signature brings.
const AUTHORIZATION: &str = "Authorization";
const DATE: &str = "X-Amz-Date";
const CONTENT: &str = "X-Amz-Content-Sha256";
const TOKEN: &str = "X-Amz-Security-Token";

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
