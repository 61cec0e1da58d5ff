//! Distributions by their inverse functions, as Atikoglu et al. write them (SIGMETRICS 2012, section 5): with a shape above 0 the tail is heavy.

use flowlane_stack::rng::Rng;

use crate::run::moments::{exponential, uniform};

/// Where a generalised Pareto distribution has the share `u` of its weight above; 0 < `u` <= 1.
pub(super) fn pareto(location: f64, scale: f64, shape: f64, u: f64) -> f64 {
    if shape == 0.0 { location - scale * u.ln() } else { location + scale * (u.powf(-shape) - 1.0) / shape }
}

/// Where a generalised extreme value distribution has the share `u` of its weight below; 0 < `u` <= 1.
pub(super) fn extreme(location: f64, scale: f64, shape: f64, u: f64) -> f64 {
    let below = -u.ln();
    if shape == 0.0 {
        location - scale * below.ln()
    } else {
        location + scale * (below.powf(-shape) - 1.0) / shape
    }
}

/// A draw from the normal distribution with mean 0 and deviation 1 (Box and Muller, 1958).
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}
