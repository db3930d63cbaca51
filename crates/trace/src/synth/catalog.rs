//! Kernel names of a server's step, by role.

use super::spec::{Arch, Bucket, CommKind};

/// What a kernel does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    PrepPositions,
    PrepTokens,
    PrepSlots,
    Embed,
    Norm,
    QkvProj,
    Rope,
    KvWrite,
    Attention,
    AttentionCombine,
    OutProj,
    GateUp,
    Act,
    Down,
    SsmConv,
    SsmDelta,
    Router,
    TopK,
    Experts,
    ExpertSum,
    LmHead,
    SplitK,
    ArgMax,
    Sample,
    PostUpdate,
    DraftTokens,
    AllReduce,
    AllGather,
    Dispatch,
    Combine,
}

/// A kernel as an export names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Demangled name.
    pub(crate) full: &'static str,
    /// Name without namespaces, arguments and template arguments.
    pub(crate) short: &'static str,
    /// Class by trace's classification.
    pub(crate) class: &'static str,
}

const fn kernel(class: &'static str, short: &'static str, full: &'static str) -> Kernel {
    Kernel { full, short, class }
}

/// A Triton kernel or cuBLAS symbol: bare, so all names agree.
const fn bare(class: &'static str, name: &'static str) -> Kernel {
    kernel(class, name, name)
}

impl Role {
    /// Which total of the specification the role's time comes from.
    pub(crate) fn bucket(self) -> Bucket {
        match self {
            Role::QkvProj
            | Role::OutProj
            | Role::GateUp
            | Role::Down
            | Role::Router
            | Role::LmHead
            | Role::SplitK => Bucket::Linear,
            Role::Attention | Role::AttentionCombine => Bucket::Attention,
            Role::SsmConv | Role::SsmDelta => Bucket::Ssm,
            Role::Experts => Bucket::Moe,
            Role::AllReduce | Role::AllGather | Role::Dispatch | Role::Combine => Bucket::Comm,
            _ => Bucket::Other,
        }
    }

    /// Share of its bucket against the others in it.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Role::GateUp => 40,
            Role::Down => 20,
            Role::QkvProj => 15,
            Role::OutProj => 10,
            Role::LmHead => 60,
            Role::Attention => 30,
            Role::SsmDelta => 10,
            Role::SplitK | Role::Router => 2,
            _ => 3,
        }
    }

    /// Nanoseconds when the specification gives no total for the bucket.
    pub(crate) fn default_ns(self) -> u64 {
        match self.bucket() {
            Bucket::Linear => 1_000 * self.weight(),
            Bucket::Attention => 4_000 * self.weight(),
            Bucket::Ssm => 2_000 * self.weight(),
            Bucket::Moe => 60_000,
            Bucket::Comm => 18_000,
            Bucket::Copy => 1_200,
            Bucket::Other => 1_800,
        }
    }

    /// The kernel that plays the role.
    pub(crate) fn kernel(self, arch: Arch, comm: CommKind) -> Kernel {
        if self.bucket() == Bucket::Comm {
            return collective(self, comm);
        }
        if let Some(kernel) = shared(self) {
            return kernel;
        }
        match arch {
            Arch::Hopper => hopper(self),
            Arch::Ampere => ampere(self),
        }
    }
}

/// Kernels that do not depend on the GPU.
fn shared(role: Role) -> Option<Kernel> {
    Some(match role {
        Role::PrepPositions => bare("prep", "_prepare_pos_seq_lens_kernel"),
        Role::PrepTokens => bare("prep", "_combine_sampled_and_draft_tokens_kernel"),
        Role::PrepSlots => bare("prep", "_compute_slot_mappings_kernel"),
        Role::DraftTokens => bare("prep", "_update_draft_inputs_kernel"),
        Role::PostUpdate => bare("prep", "_post_update_kernel"),
        Role::Sample => bare("sample", "_gumbel_sample_kernel"),
        Role::Embed => kernel(
            "embed",
            "vocab_parallel_embedding_kernel",
            "void vllm::vocab_parallel_embedding_kernel<__nv_bfloat16>(T1 *, const long *, int, int)",
        ),
        Role::Norm => kernel(
            "norm",
            "fused_add_rms_norm_kernel",
            "std::enable_if<T2>0, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, long, T1 *, const T1 *, float, int, int)",
        ),
        Role::Act => kernel(
            "act",
            "act_and_mul_kernel",
            "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162, &vllm::silu_kernel<c10::BFloat16>, &vllm::packed_silu_kernel<__nv_bfloat162>, (bool)1, (bool)1, (bool)0, (bool)0>(T1 *, const T1 *, int, float, float, float)",
        ),
        Role::Rope => kernel(
            "rope",
            "rotary_embedding_kernel",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>(const long *, T1 *, T1 *, const T1 *, int, long, long, long, int, int, int)",
        ),
        Role::KvWrite => kernel(
            "kv",
            "reshape_and_cache_flash_kernel",
            "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(const T1 *, const T1 *, T2 *, T2 *, const long *, long, long, long, long, long, int, int, int, const float *, const float *, int)",
        ),
        Role::SsmConv => bare("ssm", "_causal_conv1d_update_kernel"),
        Role::SsmDelta => bare("ssm", "fused_recurrent_gated_delta_rule_fwd_kernel"),
        Role::TopK => kernel(
            "moe_aux",
            "topkGating",
            "void vllm::moe::topkGating<(int)8, (int)128, (int)4, (int)16, (int)32, int, __nv_bfloat16, (vllm::moe::ScoringFunc)0>(const T7 *, const bool *, float *, int, T6 *, int *, int, int, int, bool, const float *)",
        ),
        Role::Experts => bare("moe_gemm", "fused_moe_kernel"),
        Role::ExpertSum => kernel(
            "moe_aux",
            "moe_sum_kernel",
            "void vllm::moe::moe_sum_kernel<c10::BFloat16, (int)8>(T1 *, const T1 *, int)",
        ),
        Role::SplitK => kernel(
            "linear.splitk_reduce",
            "splitKreduce_kernel",
            "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16, float, __nv_bfloat16, (bool)0, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, (bool)1, (bool)0, (bool)0>(cublasLt::cublasSplitKParams<T6>, const T4 *, const T10 *)",
        ),
        Role::ArgMax => kernel(
            "sample",
            "reduce_kernel",
            "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, (int)4, (int)4>>(T3)",
        ),
        _ => return None,
    })
}

fn hopper(role: Role) -> Kernel {
    match role {
        Role::QkvProj => bare("linear", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"),
        Role::OutProj => bare("linear", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT"),
        Role::GateUp => bare("linear", "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT"),
        Role::Router => bare("linear", "nvjet_sm90_tst_64x16_64x16_4x1_v_bz_TNT"),
        Role::LmHead => bare("linear", "nvjet_sm90_tst_192x8_64x8_2x1_v_bz_TNT"),
        Role::Attention => kernel(
            "attention",
            "device_kernel",
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<(int)2, cute::tuple<cute::C<(int)1>, cute::C<(int)1>, cute::C<(int)1>>, cute::tuple<cute::C<(int)64>, cute::C<(int)128>, cute::C<(int)128>>, (int)128, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>>>(T1::Params)",
        ),
        Role::AttentionCombine => kernel(
            "attention",
            "device_kernel",
            "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<(int)8>, cute::C<(int)128>>, (int)5, (int)256, (int)1, (bool)0, (bool)1, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>(T1::Params)",
        ),
        _ => bare("linear", "nvjet_sm90_tst_128x64_64x6_2x1_v_bz_coopB_TNT"),
    }
}

fn ampere(role: Role) -> Kernel {
    match role {
        Role::QkvProj => bare(
            "linear",
            "ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_f2f_stages_64x4_tn",
        ),
        Role::OutProj => bare(
            "linear",
            "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn",
        ),
        Role::GateUp => kernel(
            "linear",
            "Kernel2",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_tn_align8>(T1::Params)",
        ),
        Role::LmHead => bare(
            "linear",
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize96x64x64_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas",
        ),
        Role::Attention => kernel(
            "attention",
            "flash_fwd_splitkv_kernel",
            "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t, Flash_kernel_traits<(int)128, (int)64, (int)128, (int)4, cutlass::bfloat16_t>>, (bool)1, (bool)0, (bool)0, (bool)0, (bool)1, (bool)0, (bool)1, (bool)0>(flash::Flash_fwd_params)",
        ),
        Role::AttentionCombine => kernel(
            "attention",
            "flash_fwd_splitkv_combine_kernel",
            "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t, Flash_kernel_traits<(int)128, (int)64, (int)128, (int)4, cutlass::bfloat16_t>>, (int)4, (int)1, (bool)1>(flash::Flash_fwd_params)",
        ),
        _ => bare(
            "linear",
            "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn",
        ),
    }
}

fn collective(role: Role, comm: CommKind) -> Kernel {
    match (role, comm) {
        (Role::Dispatch, _) => kernel(
            "comm.ep",
            "dispatch",
            "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *)",
        ),
        (Role::Combine, _) => kernel(
            "comm.ep",
            "combine",
            "void deep_ep::internode_ll::combine<(bool)0, (int)7168, (int)9, (int)3>(void *)",
        ),
        (Role::AllGather, CommKind::NcclLegacy) => kernel(
            "comm.nccl",
            "ncclKernel_AllGather_RING_LL_Sum_int8_t",
            "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm *, unsigned long, ncclWork *)",
        ),
        (Role::AllGather, CommKind::NcclShort) => kernel(
            "comm.nccl",
            "ncclDevKernel_AllGather_RING",
            "ncclDevKernel_AllGather_RING(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        ),
        (Role::AllGather, _) => kernel(
            "comm.nccl",
            "ncclDevKernel_AllGather_RING_LL",
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        ),
        (_, CommKind::NcclShort) => kernel(
            "comm.nccl",
            "ncclDevKernel_AllReduce_bf16_RING",
            "ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        ),
        (_, CommKind::NcclLegacy) => kernel(
            "comm.nccl",
            "ncclKernel_AllReduce_RING_LL_Sum_half",
            "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm *, unsigned long, ncclWork *)",
        ),
        (_, CommKind::NcclSymmetric) => kernel(
            "comm.nccl",
            "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16",
            "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs4K)",
        ),
        (_, CommKind::CustomAllReduce) => kernel(
            "comm.custom_ar",
            "cross_device_reduce_1stage",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)2>(vllm::RankData *, vllm::RankSignals, vllm::Signal *, T1 *, int, int)",
        ),
        (_, CommKind::Fused) => kernel(
            "comm.fused",
            "allreduce_fusion_kernel_oneshot_lamport",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, (int)8, (bool)0, (bool)0>(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<T2>)",
        ),
        (_, CommKind::FusedGemm) => bare(
            "comm.fused_gemm",
            "kernel_cutlass_kernel_flashinfercute_dslgemm_allreduce_two_shotPersistentDenseGemmKernel_object_at__0",
        ),
        (_, CommKind::Nccl | CommKind::PeerCopy | CommKind::ExpertParallel) => kernel(
            "comm.nccl",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    const ROLES: [Role; 30] = [
        Role::PrepPositions,
        Role::PrepTokens,
        Role::PrepSlots,
        Role::Embed,
        Role::Norm,
        Role::QkvProj,
        Role::Rope,
        Role::KvWrite,
        Role::Attention,
        Role::AttentionCombine,
        Role::OutProj,
        Role::GateUp,
        Role::Act,
        Role::Down,
        Role::SsmConv,
        Role::SsmDelta,
        Role::Router,
        Role::TopK,
        Role::Experts,
        Role::ExpertSum,
        Role::LmHead,
        Role::SplitK,
        Role::ArgMax,
        Role::Sample,
        Role::PostUpdate,
        Role::DraftTokens,
        Role::AllReduce,
        Role::AllGather,
        Role::Dispatch,
        Role::Combine,
    ];

    #[test]
    fn the_rules_give_every_kernel_the_class_that_its_truth_claims() {
        let rules = Rules::embedded();
        let comms = [
            CommKind::Nccl,
            CommKind::NcclShort,
            CommKind::NcclLegacy,
            CommKind::NcclSymmetric,
            CommKind::CustomAllReduce,
            CommKind::Fused,
            CommKind::FusedGemm,
        ];
        for role in ROLES {
            for arch in [Arch::Hopper, Arch::Ampere] {
                for comm in comms {
                    let kernel = role.kernel(arch, comm);
                    let class = rules.classify(kernel.full, kernel.short).class;
                    assert_eq!(class.as_str(), kernel.class, "{}", kernel.full);
                }
            }
        }
    }
}
