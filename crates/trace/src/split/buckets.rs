//! From the histogram of active sets to groups and disjoint buckets.

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::classify::Group;

/// What an operation does while it runs. The order is the priority of [`Buckets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Linear layers.
    Linear,
    /// Attention.
    Attention,
    /// Linear attention and state space.
    Ssm,
    /// Mixture of experts.
    Moe,
    /// Other compute.
    Other,
    /// A kernel of unknown class: compute, as far as overlap goes.
    Unknown,
    /// An opaque graph: compute, as far as overlap goes.
    Graph,
    /// A collective after its last rank has arrived (or all of it, where the wait is not known).
    CommService,
    /// A collective that waits for another rank.
    CommWait,
    /// Copies and fills.
    Copy,
}

impl Activity {
    /// All activities, in the order of priority.
    pub const ALL: [Activity; 10] = [
        Activity::Linear,
        Activity::Attention,
        Activity::Ssm,
        Activity::Moe,
        Activity::Other,
        Activity::Unknown,
        Activity::Graph,
        Activity::CommService,
        Activity::CommWait,
        Activity::Copy,
    ];

    /// The group it is reported under.
    pub const fn group(self) -> Group {
        match self {
            Activity::Linear => Group::Linear,
            Activity::Attention => Group::Attention,
            Activity::Ssm => Group::Ssm,
            Activity::Moe => Group::Moe,
            Activity::Other => Group::Other,
            Activity::Unknown => Group::Unknown,
            Activity::Graph => Group::Graph,
            Activity::CommService | Activity::CommWait => Group::Comm,
            Activity::Copy => Group::Copy,
        }
    }
}

/// A set of activities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Mask(pub(crate) u16);

impl Mask {
    pub(crate) const COMPUTE: Mask = Mask(0b111_1111);
    pub(crate) const COMM: Mask = Mask(0b1_1000_0000);
    /// Number of sets.
    pub(crate) const COUNT: usize = 1 << Activity::ALL.len();

    /// The set of one.
    pub const fn of(activity: Activity) -> Mask {
        Mask(1 << activity as u16)
    }

    /// Whether nothing is active.
    pub const fn is_idle(self) -> bool {
        self.0 == 0
    }

    /// Whether this activity is in it.
    pub const fn contains(self, activity: Activity) -> bool {
        self.meets(Mask::of(activity))
    }

    /// Whether the two share an activity.
    pub const fn meets(self, other: Mask) -> bool {
        self.0 & other.0 != 0
    }

    /// The activity that the time is booked under where several run at once: compute (linear, attention, ssm, moe,
    /// other, unknown, graph), then service, then wait, then copies. `None` for idle.
    pub fn booked(self) -> Option<Activity> {
        Activity::ALL.into_iter().find(|&a| self.contains(a))
    }
}

/// A step's time in disjoint parts, nanoseconds; they sum to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Buckets {
    /// Linear layers.
    pub linear_ns: u64,
    /// Attention.
    pub attention_ns: u64,
    /// Linear attention and state space.
    pub ssm_ns: u64,
    /// Mixture of experts.
    pub moe_ns: u64,
    /// Other compute.
    pub other_ns: u64,
    /// Kernels of unknown class.
    pub unknown_ns: u64,
    /// Opaque graphs, which nobody can split.
    pub graph_ns: u64,
    /// Exposed communication: no compute ran beside it.
    pub comm_ns: u64,
    /// The part of it that waited for other ranks; `None` where that is not known.
    pub comm_wait_ns: Option<u64>,
    /// The rest of it; `None` where that is not known.
    pub comm_service_ns: Option<u64>,
    /// Copies and fills with nothing else beside them.
    pub copy_ns: u64,
    /// Nothing ran.
    pub idle_ns: u64,
}

impl Buckets {
    pub(crate) fn of(histogram: &[(Mask, u64)], wait_known: bool) -> Self {
        let mut buckets = Buckets::default();
        let (mut wait, mut service) = (0, 0);
        for &(mask, ns) in histogram {
            *match mask.booked() {
                Some(Activity::Linear) => &mut buckets.linear_ns,
                Some(Activity::Attention) => &mut buckets.attention_ns,
                Some(Activity::Ssm) => &mut buckets.ssm_ns,
                Some(Activity::Moe) => &mut buckets.moe_ns,
                Some(Activity::Other) => &mut buckets.other_ns,
                Some(Activity::Unknown) => &mut buckets.unknown_ns,
                Some(Activity::Graph) => &mut buckets.graph_ns,
                Some(Activity::CommService) => &mut service,
                Some(Activity::CommWait) => &mut wait,
                Some(Activity::Copy) => &mut buckets.copy_ns,
                None => &mut buckets.idle_ns,
            } += ns;
        }
        buckets.comm_ns = wait + service;
        buckets.comm_wait_ns = wait_known.then_some(wait);
        buckets.comm_service_ns = wait_known.then_some(service);
        buckets
    }

    /// Sum of the disjoint parts.
    pub fn total(&self) -> u64 {
        self.linear_ns
            + self.attention_ns
            + self.ssm_ns
            + self.moe_ns
            + self.other_ns
            + self.unknown_ns
            + self.graph_ns
            + self.comm_ns
            + self.copy_ns
            + self.idle_ns
    }

    /// The bucket of a group.
    pub fn get(&self, group: Group) -> u64 {
        match group {
            Group::Linear => self.linear_ns,
            Group::Attention => self.attention_ns,
            Group::Ssm => self.ssm_ns,
            Group::Moe => self.moe_ns,
            Group::Comm => self.comm_ns,
            Group::Other => self.other_ns,
            Group::Copy => self.copy_ns,
            Group::Graph => self.graph_ns,
            Group::Unknown => self.unknown_ns,
        }
    }

    /// Adds another step's. Wait and service stay known only where both are.
    pub fn add(&mut self, other: &Buckets) {
        let first = self.total() == 0;
        let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (None, b) if first => b,
            _ => None,
        };
        self.comm_wait_ns = both(self.comm_wait_ns, other.comm_wait_ns);
        self.comm_service_ns = both(self.comm_service_ns, other.comm_service_ns);
        self.linear_ns += other.linear_ns;
        self.attention_ns += other.attention_ns;
        self.ssm_ns += other.ssm_ns;
        self.moe_ns += other.moe_ns;
        self.other_ns += other.other_ns;
        self.unknown_ns += other.unknown_ns;
        self.graph_ns += other.graph_ns;
        self.comm_ns += other.comm_ns;
        self.copy_ns += other.copy_ns;
        self.idle_ns += other.idle_ns;
    }
}

/// Nanoseconds by group. Written as a map from the group's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByGroup([u64; Group::ALL.len()]);

impl ByGroup {
    pub(crate) fn summed(summed: &[u64; Activity::ALL.len()]) -> Self {
        let mut by = ByGroup::default();
        for (activity, ns) in Activity::ALL.into_iter().zip(summed) {
            by.0[activity.group() as usize] += ns;
        }
        by
    }

    pub(crate) fn unioned(histogram: &[(Mask, u64)]) -> Self {
        let mut by = ByGroup::default();
        for &(mask, ns) in histogram {
            let mut last = None;
            // Activities of one group stand side by side, so a group is met once.
            for activity in Activity::ALL.into_iter().filter(|&a| mask.contains(a)) {
                if last != Some(activity.group()) {
                    by.0[activity.group() as usize] += ns;
                    last = Some(activity.group());
                }
            }
        }
        by
    }

    /// Nanoseconds of a group.
    pub fn get(&self, group: Group) -> u64 {
        self.0[group as usize]
    }

    /// Sum over the groups.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Serialize for ByGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Group::ALL.len()))?;
        for group in Group::ALL {
            map.serialize_entry(group.as_str(), &self.get(group))?;
        }
        map.end()
    }
}

/// Communication of a step, nanoseconds of wall time (two collectives at once count once).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommTime {
    /// Time in which any communication ran.
    pub total_ns: u64,
    /// The part of it during which no compute kernel ran on this lane.
    pub exposed_ns: u64,
    /// The rest: compute ran beside it.
    pub overlapped_ns: u64,
    /// Waiting for other ranks, exposed or not; `None` where that is not known.
    pub wait_ns: Option<u64>,
    /// Transfer with its latency, exposed or not; `None` where that is not known.
    pub service_ns: Option<u64>,
}

impl CommTime {
    pub(crate) fn of(histogram: &[(Mask, u64)], wait_known: bool) -> Self {
        let mut comm = CommTime::default();
        let mut wait = 0;
        for &(mask, ns) in histogram.iter().filter(|(m, _)| m.meets(Mask::COMM)) {
            comm.total_ns += ns;
            if mask.meets(Mask::COMPUTE) {
                comm.overlapped_ns += ns;
            } else {
                comm.exposed_ns += ns;
            }
            if !mask.contains(Activity::CommService) {
                wait += ns;
            }
        }
        comm.wait_ns = wait_known.then_some(wait);
        comm.service_ns = wait_known.then_some(comm.total_ns - wait);
        comm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_agree_with_the_order_of_activities() {
        for activity in Activity::ALL {
            let mask = Mask::of(activity);
            assert_eq!(mask.booked(), Some(activity));
            assert_eq!(mask.meets(Mask::COMM), activity.group() == Group::Comm);
            let compute = !matches!(activity.group(), Group::Comm | Group::Copy);
            assert_eq!(mask.meets(Mask::COMPUTE), compute);
        }
        assert_eq!(Mask::default().booked(), None);
        let all = Mask((Mask::COUNT - 1) as u16);
        assert_eq!(all.booked(), Some(Activity::Linear));
        for (at, group) in Group::ALL.into_iter().enumerate() {
            assert_eq!(group as usize, at);
        }
    }

    #[test]
    fn wait_is_known_only_where_all_of_it_is() {
        let comm = [
            (Mask::of(Activity::CommWait), 5),
            (Mask::of(Activity::CommService), 2),
        ];
        let known = Buckets::of(&comm, true);
        let unknown = Buckets::of(&comm, false);
        assert_eq!((known.comm_ns, known.comm_wait_ns), (7, Some(5)));
        assert_eq!((unknown.comm_ns, unknown.comm_wait_ns), (7, None));
        let mut sum = Buckets::default();
        sum.add(&known);
        sum.add(&known);
        assert_eq!((sum.comm_wait_ns, sum.comm_service_ns), (Some(10), Some(4)));
        sum.add(&unknown);
        assert_eq!((sum.comm_ns, sum.comm_wait_ns), (21, None));
    }
}
