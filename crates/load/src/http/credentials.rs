//! Who signs requests for AWS, and for whom: keys, and the region and service of a target.

use std::str::FromStr;

use super::url::Url;

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
    pub(super) fn of(&self, url: &Url) -> Result<(String, String), String> {
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
    pub(super) scope: Scope,
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
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

    pub(super) fn with(
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
