//! Colours that stay apart for readers with colour deficiencies (Okabe and Ito's set).

use super::Panel;
use crate::classify::Group;

/// How a stretch is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fill {
    /// A group's colour.
    Group(Group),
    /// Hatched: a collective waits for other ranks.
    Wait,
}

impl Fill {
    /// The value of the `fill` attribute.
    pub(super) fn paint(self) -> &'static str {
        match self {
            Fill::Group(Group::Linear) => "#0072b2",
            Fill::Group(Group::Attention) => "#d55e00",
            Fill::Group(Group::Ssm) => "#cc79a7",
            Fill::Group(Group::Moe) => "#009e73",
            Fill::Group(Group::Comm) => "#e69f00",
            Fill::Group(Group::Other) => "#8c8c8c",
            Fill::Group(Group::Copy) => "#56b4e9",
            Fill::Group(Group::Graph) => "#3d3d3d",
            Fill::Group(Group::Unknown) => "#f0e442",
            Fill::Wait => "url(#linktax-wait)",
        }
    }

    /// A colour that can be read on it.
    pub(super) fn ink(self) -> &'static str {
        match self {
            Fill::Group(Group::Comm | Group::Copy | Group::Unknown | Group::Other | Group::Ssm)
            | Fill::Wait => "#000",
            Fill::Group(_) => "#fff",
        }
    }
}

/// The fills that the picture uses.
pub(super) fn fills(panels: &[Panel<'_>]) -> Vec<Fill> {
    let groups = Group::ALL.into_iter();
    let mut fills: Vec<Fill> = groups
        .filter(|&group| panels.iter().any(|p| p.has(group)))
        .map(Fill::Group)
        .collect();
    if panels.iter().any(|p| p.split.comm.wait_ns.unwrap_or(0) > 0) {
        fills.push(Fill::Wait);
    }
    fills
}
