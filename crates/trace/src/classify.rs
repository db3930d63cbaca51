//! Classes of kernels: ordered rules on the name, a table derived from framework sources, and a loud `unknown`.
//!
//! A trace has 10² to 10³ distinct names and up to 10⁷ operations, so [`Classes::of`] looks at each name once and
//! [`Classes::op`] is a look-up. A class ([`Class`]) is fine-grained and belongs to one [`Group`] of the report.

mod class;
mod collective;
mod explain;
mod normalise;
mod rule_file;
mod rules;
mod table;
#[cfg(test)]
mod traps;
mod unknown;

pub use class::{Class, Group};
pub use collective::{Collective, CollectiveOp, collective_of};
pub use explain::{Explanation, TableRow};
pub use rules::{Decided, Match, RuleRef, Rules};
pub use unknown::{UNKNOWN_WARN_SHARE, UnknownName, UnknownReport, unknown_report};

use crate::timeline::{CopyKind, NameId, Names, Op, OpKind};

/// The class of each name of a trace.
///
/// ```
/// use linktax_trace::{Class, Classes, Group, Names, Rules};
///
/// let mut names = Names::default();
/// let product = names.push("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT");
/// let gdn = names.push("fused_recurrent_gated_delta_rule_fwd_kernel", "fused_recurrent_gated_delta_rule_fwd_kernel");
///
/// let classes = Classes::of(&names, &Rules::embedded());
/// assert_eq!(classes.name(product), Class::LINEAR);
/// assert_eq!(classes.name(gdn).group(), Group::Ssm);
/// assert_eq!(classes.fold_ssm().name(gdn).group(), Group::Attention);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    by_name: Vec<Class>,
}

impl Classes {
    /// Classifies every name once.
    pub fn of(names: &Names, rules: &Rules) -> Classes {
        Classes {
            by_name: names
                .iter()
                .map(|(id, full)| rules.classify(full, names.short(id)).class)
                .collect(),
        }
    }

    /// The same, with linear attention and state space (`ssm`) counted as attention (`attention.ssm`): for a
    /// comparison with figures that were made so.
    #[must_use]
    pub fn fold_ssm(mut self) -> Classes {
        for class in &mut self.by_name {
            if *class == Class::SSM {
                *class = Class::ATTENTION_SSM;
            }
        }
        self
    }

    /// The class of a kernel name; [`Class::UNKNOWN`] for an id of another trace.
    pub fn name(&self, id: NameId) -> Class {
        self.by_name
            .get(id.0 as usize)
            .copied()
            .unwrap_or(Class::UNKNOWN)
    }

    /// The class of an operation: a kernel's by its name; a copy between two GPUs is communication, any other copy
    /// is not.
    pub fn op(&self, op: &Op) -> Class {
        match op.kind {
            OpKind::Kernel => self.name(op.name),
            OpKind::Memcpy(CopyKind::PeerToPeer) => Class::COMM_COPY,
            OpKind::Memcpy(_) => Class::COPY,
            OpKind::Memset => Class::MEMSET,
            OpKind::Graph => Class::GRAPH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_without_a_kernel_name_have_classes_too() {
        let mut names = Names::default();
        let name = names.push("ncclDevKernel_SendRecv(x)", "ncclDevKernel_SendRecv");
        let classes = Classes::of(&names, &Rules::embedded());
        let op = |kind| Op {
            start: 0,
            dur: 1,
            name,
            stream: 7,
            corr: 1,
            node: 0,
            bytes: 0,
            kind,
        };
        let class = |kind| classes.op(&op(kind)).as_str();
        assert_eq!(class(OpKind::Kernel), "comm.nccl");
        assert_eq!(class(OpKind::Memcpy(CopyKind::PeerToPeer)), "comm.copy");
        assert_eq!(class(OpKind::Memcpy(CopyKind::DeviceToDevice)), "copy");
        assert_eq!(class(OpKind::Memset), "memset");
        assert_eq!(class(OpKind::Graph), "graph");
        assert_eq!(classes.name(NameId(99)), Class::UNKNOWN);
    }
}
