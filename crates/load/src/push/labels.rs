//! Labels that all series of a run have (`--push-label`): attributes of the resource by OTLP, labels of every series in Prometheus.
//!
//! By [OpenTelemetry's rules](https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#resource-attributes-1)
//! `service.name` is the label `job` and `service.instance.id` is `instance`; either name sets both.

/// The labels of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    service: String,
    instance: String,
    /// Others, in the order given.
    more: Vec<(String, String)>,
}

/// Why something is no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}")]
pub struct BadLabel {
    text: String,
    what: &'static str,
}

/// Labels that tell series of a run from one another.
const OURS: [&str; 5] = ["pool", "code", "kind", "count", "le"];

impl Labels {
    /// The labels of a run that is known as `instance`, and those given as `NAME=VALUE`.
    ///
    /// # Errors
    /// Something is not of that form, or its name is taken.
    pub fn new(instance: String, given: &[String]) -> Result<Self, BadLabel> {
        let mut labels = Self { service: "flowlane".into(), instance, more: Vec::new() };
        for text in given {
            let bad = |what| BadLabel { text: text.clone(), what };
            let (name, value) = text.split_once('=').ok_or_else(|| bad("NAME=VALUE, as testid=nightly"))?;
            let mut letters = name.chars();
            let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if !first || !letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) {
                return Err(bad("a name has letters, digits, '_' and '.', and begins with no digit"));
            }
            if value.is_empty() {
                return Err(bad("a label has a value"));
            }
            match name {
                "job" | "service.name" => value.clone_into(&mut labels.service),
                "instance" | "service.instance.id" => value.clone_into(&mut labels.instance),
                // Names with two underscores in front are Prometheus' own.
                _ if name.starts_with("__") || OURS.contains(&name) => {
                    return Err(bad("this name is taken"));
                }
                _ if labels.more.iter().any(|(other, _)| plain(other) == plain(name)) => {
                    return Err(bad("there are two of this name"));
                }
                _ => labels.more.push((name.to_owned(), value.to_owned())),
            }
        }
        Ok(labels)
    }

    /// What the run is known as.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// As attributes of a resource.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = [("service.name", &self.service), ("service.instance.id", &self.instance)];
        let own = own.map(|(name, value)| (name, value.as_str()));
        let version = ("service.version", env!("CARGO_PKG_VERSION"));
        own.into_iter().chain([version]).chain(self.more.iter().map(|(n, v)| (n.as_str(), v.as_str())))
    }

    /// As labels of Prometheus.
    pub(super) fn plain(&self) -> impl Iterator<Item = (String, &str)> {
        let own = [("job", &self.service), ("instance", &self.instance)];
        let own = own.map(|(name, value)| (name.to_owned(), value.as_str()));
        own.into_iter().chain(self.more.iter().map(|(name, value)| (plain(name), value.as_str())))
    }
}

/// A name as Prometheus takes it.
fn plain(name: &str) -> String {
    name.replace('.', "_")
}
