//! From programs to operations with times: all ranks of a communicator advance together and meet in collectives.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal};

use super::catalog::{Kernel, Role};
use super::program::{How, Item, Segment, StepProgram};
use super::spec::{CommKind, OverlapKind, SkewKind, Spec};
use super::truth::CollectiveTruth;

/// Start of the first step, nanoseconds on the host's clock.
const FIRST_START: i64 = 12_000_000;
/// Stream of compute.
const COMPUTE_STREAM: u32 = 7;
/// Stream of communication when it overlaps.
const COMM_STREAM: u32 = 20;
/// A replica's steps take so much longer than those of the one before: two that kept step by accident, a step apart,
/// could not be told from one communicator by anybody.
const REPLICA_LAG: u64 = 50_000;
/// Node ids of real captures need more than 32 bits.
const NODE_BASE: u64 = 5_278_514_000_000;

/// What an operation is in the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Kernel(Kernel),
    Copy { kind: u8, bytes: u64 },
}

/// An operation on a lane, on the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) start: i64,
    pub(crate) dur: u64,
    pub(crate) what: What,
    pub(crate) stream: u32,
    pub(crate) node: u64,
    /// Index of its launch on the lane.
    pub(crate) launch: u32,
    pub(crate) step: u32,
    /// Ordinal within the step, of a collective.
    pub(crate) collective: Option<u32>,
    pub(crate) role: Option<Role>,
}

impl Placed {
    pub(crate) fn end(&self) -> i64 {
        self.start + self.dur as i64
    }
}

/// One launch call of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) how: How,
    pub(crate) step: u32,
    pub(crate) marked: bool,
}

/// One rank's operations, on the host's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSchedule {
    pub(crate) ops: Vec<Placed>,
    pub(crate) units: Vec<Unit>,
    /// Start of each step's first operation.
    pub(crate) step_starts: Vec<i64>,
}

/// All ranks, communicator by communicator, and what their collectives cost.
pub(crate) struct Schedule {
    pub(crate) lanes: Vec<LaneSchedule>,
    pub(crate) collectives: Vec<CollectiveTruth>,
}

/// Places every step of every rank.
pub(crate) fn place(spec: &Spec, steps: &[StepProgram], rng: &mut ChaCha8Rng) -> Schedule {
    let mut lanes = Vec::new();
    let mut collectives = Vec::new();
    for replica in 0..spec.parallel.replicas {
        let mut group = Group::new(spec, replica);
        for (index, step) in steps.iter().enumerate() {
            group.step(index as u32, step, rng);
        }
        lanes.append(&mut group.lanes);
        collectives.append(&mut group.collectives);
    }
    Schedule { lanes, collectives }
}

/// One communicator while its steps are placed.
struct Group<'a> {
    spec: &'a Spec,
    replica: u32,
    lanes: Vec<LaneSchedule>,
    /// End of the last operation of each rank.
    now: Vec<i64>,
    collectives: Vec<CollectiveTruth>,
    /// All-reduces placed, to pick every n-th.
    met: u32,
}

/// Where an item stands.
#[derive(Clone, Copy)]
struct At {
    step: u32,
    how: How,
    marked: bool,
    /// First of its step.
    first: bool,
    /// First of its segment.
    head: bool,
    node: u64,
    extra_gap: u64,
}

impl<'a> Group<'a> {
    fn new(spec: &'a Spec, replica: u32) -> Self {
        let ranks = spec.parallel.tensor as usize;
        Group {
            spec,
            replica,
            lanes: vec![LaneSchedule::default(); ranks],
            now: vec![FIRST_START + i64::from(replica) * 1_234_567; ranks],
            collectives: Vec::new(),
            met: 0,
        }
    }

    fn step(&mut self, index: u32, step: &StepProgram, rng: &mut ChaCha8Rng) {
        let mut first = true;
        let mut ordinal = 0;
        for segment in &step.segments {
            let mut items = segment.items.iter().enumerate().peekable();
            while let Some((i, item)) = items.next() {
                let at = At {
                    step: index,
                    how: segment.how,
                    marked: segment.marked,
                    first,
                    head: i == 0,
                    node: node(segment, i),
                    extra_gap: if first { step.pause_before_ns } else { 0 },
                };
                first = false;
                let Item::Collective { role, dur } = *item else {
                    self.place_alone(at, item);
                    continue;
                };
                let arrivals = self.arrivals(at, rng);
                let truth = self.meet(at, role, dur, ordinal, &arrivals);
                // Inside an opaque graph it has no row of its own, and nobody can know of it.
                if matches!(at.how, How::Eager | How::Nodes(_)) {
                    self.collectives.push(truth);
                    ordinal += 1;
                }
                if let Some((j, &Item::Kernel { role, dur })) = items.peek().copied()
                    && self.overlaps()
                {
                    let at = At {
                        head: false,
                        node: node(segment, j),
                        ..at
                    };
                    self.beside(at, role, dur, &arrivals);
                    items.next();
                }
            }
        }
    }

    /// A kernel or copy that every rank runs by itself.
    fn place_alone(&mut self, at: At, item: &Item) {
        for rank in 0..self.lanes.len() {
            let (what, dur, role) = self.what(item);
            let start = self.next_start(rank, at, dur, self.spec.overlap.pdl_ns);
            self.push(rank, at, start, dur, what, COMPUTE_STREAM, None, role);
            self.now[rank] = start + dur as i64;
        }
    }

    fn what(&self, item: &Item) -> (What, u64, Option<Role>) {
        let (arch, comm) = (self.spec.model.arch, self.spec.parallel.comm);
        match *item {
            Item::Kernel { role, dur } | Item::Collective { role, dur } => {
                (What::Kernel(role.kernel(arch, comm)), dur, Some(role))
            }
            Item::Copy { kind, bytes, dur } => (What::Copy { kind, bytes }, dur, None),
        }
    }

    /// When the next operation of a rank can start: after a gap, or a little before its predecessor ends.
    fn next_start(&self, rank: usize, at: At, dur: u64, early_ns: u64) -> i64 {
        let gaps = &self.spec.gaps;
        let previous = self.lanes[rank].ops.last();
        if early_ns > 0 && !at.first && previous.is_some_and(|p| p.role.is_some()) {
            let longest = previous.map_or(0, |p| p.dur).min(dur) / 2;
            return self.now[rank] - early_ns.min(longest) as i64;
        }
        let gap = if at.first && at.step > 0 {
            gaps.step_ns + at.extra_gap + u64::from(self.replica) * REPLICA_LAG
        } else if at.first {
            0
        } else if at.head || at.how == How::Eager {
            gaps.eager_ns
        } else {
            gaps.graph_ns
        };
        self.now[rank] + gap as i64
    }

    /// When each rank enters the next collective.
    fn arrivals(&self, at: At, rng: &mut ChaCha8Rng) -> Vec<i64> {
        let early = match self.spec.overlap.pdl_comm {
            true => self.spec.overlap.pdl_ns,
            false => 0,
        };
        (0..self.lanes.len())
            .map(|rank| {
                let late = self.late(rank as u32, at.step, rng);
                self.next_start(rank, at, u64::MAX, early) + late as i64
            })
            .collect()
    }

    fn late(&self, rank: u32, step: u32, rng: &mut ChaCha8Rng) -> u64 {
        let skew = &self.spec.skew;
        match skew.kind {
            SkewKind::None => 0,
            SkewKind::Fixed => {
                let moved = step.checked_div(skew.switch_every).unwrap_or(0);
                let straggler = (skew.straggler + moved) % self.spec.parallel.tensor;
                if rank == straggler { skew.delay_ns } else { 0 }
            }
            SkewKind::Lognormal => {
                let mean = (skew.delay_ns.max(1) as f64).ln();
                // A bad sigma was refused when the specification was read.
                LogNormal::new(mean, skew.sigma).map_or(0, |d| d.sample(rng) as u64)
            }
        }
    }

    /// All ranks leave the collective `service` after the last one came.
    fn meet(
        &mut self,
        at: At,
        role: Role,
        service: u64,
        ordinal: u32,
        arrivals: &[i64],
    ) -> CollectiveTruth {
        let last = arrivals.iter().copied().max().unwrap_or_default();
        let end = last + service as i64;
        let item = Item::Collective { role, dur: service };
        let (mut what, _, role) = self.what(&item);
        if self.spec.parallel.comm == CommKind::PeerCopy && role == Some(Role::AllReduce) {
            what = What::Copy {
                kind: 10,
                bytes: 1 << 16,
            };
        }
        let stream = match self.spec.overlap.kind {
            OverlapKind::None => COMPUTE_STREAM,
            _ => COMM_STREAM,
        };
        for (rank, &start) in arrivals.iter().enumerate() {
            let dur = start.abs_diff(end);
            self.push(rank, at, start, dur, what, stream, Some(ordinal), role);
            self.now[rank] = end;
        }
        self.met += 1;
        let wait_ns: Vec<u64> = arrivals.iter().map(|a| a.abs_diff(last)).collect();
        let mut latest = wait_ns.iter().enumerate().filter(|(_, w)| **w == 0);
        let only = latest.next().map(|(rank, _)| rank as u32);
        CollectiveTruth {
            communicator: self.replica,
            step: at.step,
            ordinal,
            name: match what {
                What::Kernel(kernel) => kernel.full.to_owned(),
                What::Copy { .. } => "[CUDA memcpy Peer-to-Peer]".to_owned(),
            },
            service_ns: service,
            last: if latest.next().is_some() { None } else { only },
            wait_ns,
        }
    }

    fn overlaps(&self) -> bool {
        self.spec.overlap.kind != OverlapKind::None
            && self.met.is_multiple_of(self.spec.overlap.every)
    }

    /// The kernel that runs beside the collective placed last.
    fn beside(&mut self, at: At, role: Role, dur: u64, arrivals: &[i64]) {
        for (rank, &came) in arrivals.iter().enumerate() {
            let left = self.now[rank];
            let inside = came.abs_diff(left);
            let (start, dur) = match self.spec.overlap.kind {
                OverlapKind::Partial => (left - (dur.min(inside) / 2) as i64, dur),
                OverlapKind::Nested if dur < inside => (came + ((inside - dur) / 2) as i64, dur),
                OverlapKind::Identical => (came, inside),
                OverlapKind::Nested | OverlapKind::None => (came, dur),
            };
            let (what, _, role) = self.what(&Item::Kernel { role, dur });
            self.push(rank, at, start, dur, what, COMPUTE_STREAM, None, role);
            self.now[rank] = left.max(start + dur as i64);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one row, field by field")]
    fn push(
        &mut self,
        rank: usize,
        at: At,
        start: i64,
        dur: u64,
        what: What,
        stream: u32,
        collective: Option<u32>,
        role: Option<Role>,
    ) {
        let lane = &mut self.lanes[rank];
        if at.first {
            lane.step_starts.push(start);
        }
        if at.head || at.how == How::Eager {
            lane.units.push(Unit {
                how: at.how,
                step: at.step,
                marked: at.marked,
            });
        }
        lane.ops.push(Placed {
            start,
            dur,
            what,
            stream,
            node: at.node,
            launch: lane.units.len() as u32 - 1,
            step: at.step,
            collective,
            role,
        });
    }
}

/// Node ids are the same in every replay of a graph.
fn node(segment: &Segment, item: usize) -> u64 {
    match segment.how {
        How::Eager => 0,
        How::Nodes(graph) | How::Opaque(graph) | How::Invisible(graph) => {
            NODE_BASE + (u64::from(graph) << 16) + item as u64
        }
    }
}

/// A generator for one purpose, so that drawing more for one does not change another.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    use rand::SeedableRng as _;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    let _ = rng.next_u64();
    rng
}
