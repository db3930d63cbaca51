//! What a collective's kernel name says, and what it does not.

use std::fmt;

use serde::Serialize;

use super::normalise::{normalise, subject};

/// The operation a name speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveOp {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets all parts.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
    /// One rank's data to all.
    Broadcast,
    /// The sum to one rank.
    Reduce,
    /// Between pairs of ranks.
    SendRecv,
}

impl CollectiveOp {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            CollectiveOp::AllReduce => "all-reduce",
            CollectiveOp::AllGather => "all-gather",
            CollectiveOp::ReduceScatter => "reduce-scatter",
            CollectiveOp::AllToAll => "all-to-all",
            CollectiveOp::Broadcast => "broadcast",
            CollectiveOp::Reduce => "reduce",
            CollectiveOp::SendRecv => "send/recv",
        }
    }

    /// Whether no rank can finish before all have arrived, so that the shortest duration over the ranks is the
    /// service time.
    pub fn is_barrier(self) -> bool {
        matches!(
            self,
            CollectiveOp::AllReduce
                | CollectiveOp::AllGather
                | CollectiveOp::ReduceScatter
                | CollectiveOp::AllToAll
        )
    }
}

impl fmt::Display for CollectiveOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the name of a communication kernel says. Algorithm and protocol are left out on purpose: NCCL builds one symbol
/// for several of them (the suffix `RING_LL` is on kernels that ran LL128, SIMPLE, NVLS or a tree).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collective {
    /// The operation.
    pub op: CollectiveOp,
    /// Whether the name proves it. Never for NCCL, which runs grouped and other operations under one symbol.
    pub certain: bool,
    /// Element type as named (`bf16`, `half`), if it is.
    pub dtype: Option<String>,
    /// Reduction as named, lower case (`sum`), if it is.
    pub redop: Option<String>,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.as_str())?;
        if !self.certain {
            f.write_str(" (per name, not certain)")?;
        }
        Ok(())
    }
}

/// Spellings of operations, longer ones before their parts. Compared without `_` and in lower case.
const OPS: [(&str, CollectiveOp); 9] = [
    ("reducescatter", CollectiveOp::ReduceScatter),
    ("allreduce", CollectiveOp::AllReduce),
    ("crossdevicereduce", CollectiveOp::AllReduce),
    ("shotreduce", CollectiveOp::AllReduce),
    ("allgather", CollectiveOp::AllGather),
    ("alltoall", CollectiveOp::AllToAll),
    ("sendrecv", CollectiveOp::SendRecv),
    ("broadcast", CollectiveOp::Broadcast),
    ("reduce", CollectiveOp::Reduce),
];

const REDOPS: [&str; 7] = [
    "sum",
    "prod",
    "min",
    "max",
    "minmax",
    "premulsum",
    "sumpostdiv",
];

const DTYPES: [&str; 18] = [
    "bf16", "f16", "f32", "f64", "f8e4m3", "f8e5m2", "fp8", "half", "float", "double", "i8", "u8",
    "i32", "u32", "i64", "u64", "int8", "bfloat16",
];

/// What a communication kernel's name says of the operation; `None` for other kernels and for names that tell nothing
/// (`ncclDevKernel_Generic`).
///
/// ```
/// use linktax_trace::collective_of;
///
/// let named = collective_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)").unwrap();
/// assert_eq!(named.to_string(), "all-reduce (per name, not certain)");
/// assert_eq!(named.dtype.as_deref(), Some("bf16"));
/// assert_eq!(collective_of("void at::native::reduce_kernel<512, 1>(T1)"), None);
/// ```
pub fn collective_of(name: &str) -> Option<Collective> {
    let subject = subject(&normalise(name));
    let head = subject.split('<').next().unwrap_or(&subject);
    let nccl = head.starts_with("nccl") || head.starts_with("rccl");
    let squeezed: String = head
        .chars()
        .filter(|&c| c != '_')
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let op = OPS.iter().find(|(word, _)| squeezed.contains(word))?.1;
    if !nccl && matches!(op, CollectiveOp::Reduce | CollectiveOp::Broadcast) {
        return None;
    }
    let words = || head.split('_').map(str::to_ascii_lowercase);
    let one_of = |list: &[&str]| {
        words()
            .find(|w| list.contains(&w.as_str()))
            .filter(|_| nccl)
    };
    Some(Collective {
        op,
        certain: !nccl,
        dtype: one_of(&DTYPES),
        redop: one_of(&REDOPS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_every_generation() {
        for (name, op, dtype, redop) in [
            (
                "ncclDevKernel_AllReduce_bf16_RING(x)",
                CollectiveOp::AllReduce,
                Some("bf16"),
                None,
            ),
            (
                "ncclKernel_AllReduce_RING_LL_Sum_half(x)",
                CollectiveOp::AllReduce,
                Some("half"),
                Some("sum"),
            ),
            (
                "ncclAllReduceRingLLKernel_sum_f16(ncclColl)",
                CollectiveOp::AllReduce,
                Some("f16"),
                Some("sum"),
            ),
            (
                "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)",
                CollectiveOp::AllReduce,
                Some("bf16"),
                Some("sum"),
            ),
            (
                "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
                CollectiveOp::ReduceScatter,
                Some("f32"),
                Some("sum"),
            ),
            (
                "ncclDevKernel_Reduce_Sum_f32_RING_LL(x)",
                CollectiveOp::Reduce,
                Some("f32"),
                Some("sum"),
            ),
            (
                "ncclDevKernel_AllGather_RING(x)",
                CollectiveOp::AllGather,
                None,
                None,
            ),
            (
                "ncclDevKernel_SendRecv(x)",
                CollectiveOp::SendRecv,
                None,
                None,
            ),
        ] {
            let found = collective_of(name).unwrap();
            assert_eq!((found.op, found.certain), (op, false), "{name}");
            assert_eq!(
                (found.dtype.as_deref(), found.redop.as_deref()),
                (dtype, redop),
                "{name}"
            );
        }
    }

    #[test]
    fn an_engines_own_kernel_proves_its_operation() {
        for (name, op) in [
            (
                "void vllm::cross_device_reduce_2stage<__half, (int)8>(x)",
                CollectiveOp::AllReduce,
            ),
            (
                "void vllm::cross_device_reduce_scatter<__half>(x)",
                CollectiveOp::ReduceScatter,
            ),
            (
                "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)4>(T2 *)",
                CollectiveOp::AllReduce,
            ),
        ] {
            let found = collective_of(name).unwrap();
            assert_eq!(
                (found.op, found.certain, found.dtype),
                (op, true, None),
                "{name}"
            );
        }
        assert_eq!(collective_of("ncclDevKernel_Generic_4(x)"), None);
        assert_eq!(
            collective_of("void cublasLt::splitKreduce_kernel<(int)32>(x)"),
            None
        );
    }
}
