//! What a lane has signed: each request that is the same whenever it is sent, for as long as a second lasts.

use std::sync::Arc;

use super::canonical::Canonical;
use super::signer::{DIGITS, Signer, hash};
use super::stamp::Stamp;
use super::{AUTHORIZATION, DATE};
use crate::http::head::proxy_of;
use crate::http::plan::{Pool, Request};
use crate::http::prepared::{Prepared, Third};
use crate::http::url::Url;
use crate::run::clock;

/// How long a signature is used, nanoseconds: the step of its date.
const SECOND: u64 = 1_000_000_000;

/// A lane's signatures of a pool's requests.
#[derive(Debug)]
pub(in crate::http) struct Signed {
    /// For each target.
    signers: Vec<Signer>,
    /// For each target each request, once it was sent.
    kept: Vec<Option<Box<Kept>>>,
    /// Of the bodies of the plan's requests.
    hashes: Arc<[String]>,
}

/// A request with its fields.
#[derive(Debug)]
pub(in crate::http) struct Kept {
    pub(in crate::http) request: Request,
    /// The same for HTTP/1.
    pub(in crate::http) prepared: Arc<Prepared>,
    /// The same for HTTP/3, once it was asked for.
    third: Option<Third>,
    canonical: Canonical,
    /// Where in the head date, day and signature are.
    places: [usize; 3],
    /// Until when it is sent as it is.
    until: u64,
}

impl Signed {
    /// Nothing yet; `None` for a pool that does not sign.
    pub(in crate::http) fn new(pool: &Pool, hashes: &Arc<[String]>) -> Option<Box<Self>> {
        let aws = Arc::new(pool.aws.clone()?);
        let signers = pool.targets.iter().map(|target| Signer::new(&aws, pool, &target.url));
        let kept = (0..pool.targets.len() * pool.requests.len()).map(|_| None).collect();
        Some(Self { signers: signers.collect::<Option<_>>()?, kept, hashes: hashes.clone() }.into())
    }

    /// A request of the plan to a target, as it is signed in this second.
    pub(in crate::http) fn same(&mut self, pool: &Pool, (target, request): (u16, u16)) -> &mut Kept {
        let place = usize::from(request);
        let (signer, now) = (&mut self.signers[usize::from(target)], clock());
        let kept = &mut self.kept[usize::from(target) * pool.requests.len() + place];
        if let Some(kept) = kept.as_mut().filter(|kept| now >= kept.until) {
            kept.renew(signer, Stamp::now(), now);
        }
        kept.get_or_insert_with(|| {
            let url = &pool.targets[usize::from(target)].url;
            let content = &self.hashes[place];
            Kept::new(signer, (pool, url), &pool.requests[place], content, (Stamp::now(), now)).into()
        })
    }

    /// Signs a request that is not as the plan has it.
    pub(in crate::http) fn own(&mut self, pool: &Pool, target: u16, request: &mut Request) {
        if pool.replay.is_some() {
            // What was recorded with a signature is for that one.
            let old =
                |name: &str| [super::CONTENT, super::TOKEN].iter().any(|of| name.eq_ignore_ascii_case(of));
            request.headers.retain(|(name, _)| !old(name));
        }
        let url = &pool.targets[usize::from(target)].url;
        let content = hash(&request.body);
        self.signers[usize::from(target)].sign(url, request, &content, Stamp::now());
    }

    /// Signs all anew that it has, as of this second.
    #[cfg(test)]
    pub(super) fn renew_at(&mut self, at: Stamp) {
        for kept in self.kept.iter_mut().flatten() {
            kept.renew(&mut self.signers[0], at, clock());
        }
    }

    /// For HTTP/1: the plan's request, or this one.
    pub(in crate::http) fn prepared(
        &mut self,
        pool: &Pool,
        at: (u16, u16),
        own: Option<Request>,
    ) -> Arc<Prepared> {
        let Some(mut own) = own else { return self.same(pool, at).prepared.clone() };
        self.own(pool, at.0, &mut own);
        let url = &pool.targets[usize::from(at.0)].url;
        Arc::new(Prepared::as_it_is(url, &own, proxy_of(pool, url)))
    }
}

impl Kept {
    fn new(
        signer: &mut Signer,
        (pool, url): (&Pool, &Url),
        request: &Request,
        content: &str,
        (at, now): (Stamp, u64),
    ) -> Self {
        let mut request = request.clone();
        let canonical = signer.sign(url, &mut request, content, at);
        let prepared = Prepared::as_it_is(url, &request, proxy_of(pool, url));
        // Nobody else has these fields, so the first line that begins so is it.
        let line = |name: &str| find(prepared.first(false), format!("\r\n{name}: ").as_bytes());
        let (date, value) = (line(DATE), line(AUTHORIZATION));
        let written = &prepared.first(false)[value..];
        let day =
            value + find(written, b"Credential=") + find(&written[find(written, b"Credential=")..], b"/");
        let signature = value + find(written, b"Signature=");
        Self {
            request,
            prepared: prepared.into(),
            third: None,
            canonical,
            places: [date, day, signature],
            until: now + SECOND,
        }
    }

    /// Signs it anew, where it is; only if it is being sent, in a copy.
    fn renew(&mut self, signer: &mut Signer, at: Stamp, now: u64) {
        let date = self.canonical.date;
        self.canonical.text[date..date + at.0.len()].copy_from_slice(&at.0);
        let signature = signer.signature(&self.canonical, at);
        debug_assert_eq!(signature.len(), DIGITS);
        let prepared = Arc::make_mut(&mut self.prepared);
        for (place, bytes) in self.places.into_iter().zip([&at.0[..], at.day(), signature.as_bytes()]) {
            prepared.patch(place, bytes);
        }
        let value = signer.authorization(&self.canonical, at, &signature);
        for (name, new) in [(DATE, at.text()), (AUTHORIZATION, value)] {
            if let Some((_, old)) = self.request.headers.iter_mut().find(|(of, _)| of == name) {
                *old = new;
            }
        }
        self.third = None;
        self.until = now + SECOND;
    }

    /// The request for HTTP/3.
    pub(in crate::http) fn http3(&mut self, url: &Url) -> Third {
        self.third.get_or_insert_with(|| Third::of(url, &self.request)).clone()
    }
}

/// Where these bytes end in others, the first time.
fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).map_or(0, |at| at + what.len())
}
