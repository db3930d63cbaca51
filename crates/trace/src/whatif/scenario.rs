//! The questions, and how the replay answers them.

use std::collections::BTreeMap;
use std::fmt;

use linktax_linkmodel::AlphaBeta;
use serde::Serialize;

use super::ReplayOptions;
use super::links::Link;
use crate::classify::{Class, Group};
use crate::collectives::CommGroup;
use crate::split::Activity;

/// A change to replay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Every collective's service takes `1/factor` of its time; infinite: none. (Infinity is `null` in JSON.)
    Communication {
        /// How many times faster.
        factor: f64,
    },
    /// Only what the bytes cost gets faster; the fixed cost of a message stays.
    Bandwidth {
        /// How many times the bandwidth.
        factor: f64,
    },
    /// Every rank takes the mean of the ranks' times between collectives.
    NoStraggler,
    /// Kernels of one group take `1/factor` of their time.
    Compute {
        /// The group.
        group: Group,
        /// How many times faster.
        factor: f64,
    },
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scenario::Communication { factor } => write!(f, "communication {factor}x"),
            Scenario::Bandwidth { factor } => write!(f, "bandwidth only {factor}x"),
            Scenario::NoStraggler => f.write_str("no straggler"),
            Scenario::Compute { group, factor } => write!(f, "{group} {factor}x"),
        }
    }
}

impl Scenario {
    /// Communication and bandwidth 2x, 4x and infinite, no straggler, and each compute group that has time 2x.
    pub(crate) fn standard(links: &[Link]) -> Vec<Scenario> {
        let factors = [2.0, 4.0, f64::INFINITY];
        let communication = factors.map(|factor| Scenario::Communication { factor });
        let bandwidth = factors.map(|factor| Scenario::Bandwidth { factor });
        let used = |group: Group| {
            links
                .iter()
                .flat_map(|l| &l.ranks)
                .any(|r| activities(group).any(|a| r.booked[a as usize] > 0))
        };
        let compute = [
            Group::Linear,
            Group::Attention,
            Group::Ssm,
            Group::Moe,
            Group::Other,
        ];
        communication
            .into_iter()
            .chain(bandwidth)
            .chain([Scenario::NoStraggler])
            .chain(
                compute
                    .into_iter()
                    .filter(|&g| used(g))
                    .map(|group| Scenario::Compute { group, factor: 2.0 }),
            )
            .collect()
    }

    /// Replayed time, nanoseconds.
    pub(crate) fn replay(self, links: &[Link], alpha: &Result<f64, String>) -> Result<f64, String> {
        let slowest = |link: &Link| link.slowest().1 as f64;
        let service = |link: &Link| link.service as f64;
        let sum = |time: &dyn Fn(&Link) -> f64| links.iter().map(time).sum::<f64>();
        Ok(match self {
            Scenario::Communication { factor } => {
                sum(&|link| slowest(link) + faster(link, service(link) / factor))
            }
            Scenario::Bandwidth { factor } => {
                let alpha = alpha.clone()?;
                sum(&|link| {
                    let fixed = service(link).min(alpha);
                    slowest(link) + faster(link, fixed + (service(link) - fixed) / factor)
                })
            }
            Scenario::NoStraggler => sum(&|link| {
                let segs: i64 = link.ranks.iter().map(|r| r.seg).sum();
                segs as f64 / link.ranks.len() as f64 + service(link)
            }),
            Scenario::Compute { group, factor } => sum(&|link| {
                let seg = |r: &super::links::RankLink| {
                    let share: u64 = activities(group).map(|a| r.booked[a as usize]).sum();
                    r.seg as f64 - share as f64 * (1.0 - 1.0 / factor)
                };
                link.ranks.iter().map(seg).fold(f64::MIN, f64::max) + service(link)
            }),
        })
    }
}

fn activities(group: Group) -> impl Iterator<Item = Activity> {
    Activity::ALL
        .into_iter()
        .filter(move |a| a.group() == group)
}

/// The service of a collective that would take `wanted`: not shorter than the compute that ran under it, and unchanged
/// where a matrix product is fused in.
fn faster(link: &Link, wanted: f64) -> f64 {
    let service = link.service as f64;
    if link.class == Class::COMM_FUSED_GEMM {
        return service;
    }
    wanted.max((link.hidden() as f64).min(service))
}

/// The fixed cost of a message: given, or fitted over the sizes there are.
pub(crate) fn alpha(group: &CommGroup, options: &ReplayOptions<'_>) -> Result<f64, String> {
    if let Some(alpha) = options.alpha_ns {
        return Ok(alpha.max(0.0));
    }
    let mut by_size: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for sized in options.sizes {
        if let Some(collective) = group.collectives.get(sized.collective)
            && collective.service > 0
        {
            by_size
                .entry(sized.bytes)
                .or_default()
                .push(collective.service);
        }
    }
    let points: Vec<(u64, f64, f64)> = by_size
        .into_iter()
        .filter_map(|(bytes, mut services)| {
            let ns = crate::steps::median(&mut services)? as f64;
            Some((bytes, ns, services.len() as f64 / (ns * ns)))
        })
        .collect();
    if points.is_empty() {
        return Err(
            "message sizes are not known: give the model's shape, or the fixed cost of a message"
                .to_owned(),
        );
    }
    AlphaBeta::fit_weighted(&points)
        .map(|fit| fit.alpha_ns.max(0.0))
        .map_err(|e| format!("the fixed cost of a message cannot be told: {e}"))
}
