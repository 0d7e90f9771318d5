"""MIOpen's convolution solvers: number, algorithm, and what a problem must be for each.

Names and numbers are MIOpen's own (its registry at 2d1fd997a6fc), which keeps them from release to release. A limit
is listed if every row of six published databases keeps it (config/recorded/gfx942_miopen/SOURCE.md) and the
solver's name or MIOpen's documentation says the same of it. MIOpen refuses more than these limits do. Newer releases
have more solvers: those are candidates by their names.
"""

import zlib
from dataclasses import dataclass
from typing import Literal

Algorithm = Literal["direct", "winograd", "implicit_gemm", "gemm", "fft"]


@dataclass(frozen=True)
class Facts:
    """What is known of a solver."""

    number: int
    """``solution_id`` of MIOpen's immediate mode."""
    algorithm: Algorithm
    directions: str
    """Those of F, B and W of which MIOpen's databases have lines with this solver and algorithm."""
    filter: str = ""
    """Height x width, where there is only one."""
    stride: int = 0
    """Of both axes, where there is only one."""
    padded: bool = True
    grouped: bool = True
    dilated: bool = True
    """Whether it takes padding, groups, a dilation."""
    nchw: bool = True
    nhwc: bool = False
    """Whether it takes tensors of these layouts, 3D ones too."""
    narrow: bool = False
    """Whether it was reported to count in 32 bits, so that it faults or is silently wrong where a tensor has 2 GiB or
    more: ROCm/MIOpen 3076, ROCm/rocm-libraries 9568, 9768, 10020, 10043."""


SOLVERS = {
    "ConvAsm3x3U": Facts(1, "direct", "FB", filter="3x3", stride=1, dilated=False),
    "ConvAsm1x1U": Facts(2, "direct", "FB", filter="1x1", padded=False, grouped=False, dilated=False),
    "ConvAsm1x1UV2": Facts(3, "direct", "FB", filter="1x1", stride=2, padded=False, grouped=False, dilated=False),
    "ConvAsm5x10u2v2f1": Facts(5, "direct", "F", filter="5x10", stride=2, grouped=False, dilated=False),
    "ConvAsm5x10u2v2b1": Facts(6, "direct", "B", filter="5x10", stride=2, padded=False, grouped=False, dilated=False),
    "ConvAsm7x7c3h224w224k64u2v2p3q3f1": Facts(7, "direct", "F", filter="7x7", stride=2, grouped=False, dilated=False),
    "ConvOclDirectFwd11x11": Facts(8, "direct", "F", filter="11x11", stride=4, grouped=False, dilated=False),
    "ConvOclDirectFwdGen": Facts(9, "direct", "F", grouped=False, dilated=False),
    "ConvOclDirectFwd": Facts(11, "direct", "FB", dilated=False),
    "ConvOclDirectFwdFused": Facts(12, "direct", "FB", filter="3x3", grouped=False, dilated=False),
    "ConvOclDirectFwd1x1": Facts(13, "direct", "FB", filter="1x1", padded=False, grouped=False, dilated=False),
    "ConvBinWinograd3x3U": Facts(14, "winograd", "FB", filter="3x3", stride=1, grouped=False, dilated=False),
    "ConvBinWinogradRxS": Facts(15, "winograd", "FBW", grouped=False, dilated=False),
    "ConvAsmBwdWrW3x3": Facts(16, "direct", "W", filter="3x3", stride=1, dilated=False),
    "ConvAsmBwdWrW1x1": Facts(17, "direct", "W", filter="1x1", padded=False, grouped=False, dilated=False),
    "ConvOclBwdWrW2<1>": Facts(18, "direct", "W", dilated=False),
    "ConvOclBwdWrW2<2>": Facts(19, "direct", "W", dilated=False),
    "ConvOclBwdWrW2<4>": Facts(20, "direct", "W", dilated=False),
    "ConvOclBwdWrW2<8>": Facts(21, "direct", "W", dilated=False),
    "ConvOclBwdWrW2<16>": Facts(22, "direct", "W", dilated=False),
    "ConvOclBwdWrW2NonTunable": Facts(23, "direct", "W", filter="3x3", grouped=False, dilated=False),
    "ConvOclBwdWrW53": Facts(24, "direct", "W", stride=1, dilated=False),
    "ConvOclBwdWrW1x1": Facts(25, "direct", "W", filter="1x1", grouped=False, dilated=False),
    "ConvHipImplicitGemmV4R1Fwd": Facts(26, "implicit_gemm", "F"),
    "ConvHipImplicitGemmV4R1WrW": Facts(31, "implicit_gemm", "W"),
    "fft": Facts(34, "fft", "FB", filter="5x5", stride=1, grouped=False, dilated=False),
    "ConvWinograd3x3MultipassWrW<3-4>": Facts(35, "winograd", "W", filter="3x3", grouped=False, dilated=False),
    "ConvBinWinogradRxSf3x2": Facts(37, "winograd", "FBW", dilated=False),
    "ConvWinograd3x3MultipassWrW<3-5>": Facts(38, "winograd", "W", filter="3x3", grouped=False, dilated=False),
    "ConvWinograd3x3MultipassWrW<3-6>": Facts(39, "winograd", "W", filter="3x3", grouped=False, dilated=False),
    "ConvWinograd3x3MultipassWrW<3-2>": Facts(
        40, "winograd", "W", filter="3x3", stride=2, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<3-3>": Facts(
        41, "winograd", "W", filter="3x3", stride=2, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<7-2>": Facts(
        42, "winograd", "W", filter="7x7", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<7-3>": Facts(
        43, "winograd", "W", filter="7x7", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<7-2-1-1>": Facts(
        44, "winograd", "W", filter="7x1", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<7-3-1-1>": Facts(
        45, "winograd", "W", filter="7x1", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<1-1-7-2>": Facts(
        46, "winograd", "W", filter="1x7", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<1-1-7-3>": Facts(
        47, "winograd", "W", filter="1x7", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<5-3>": Facts(
        48, "winograd", "W", filter="5x5", stride=1, grouped=False, dilated=False
    ),
    "ConvWinograd3x3MultipassWrW<5-4>": Facts(
        49, "winograd", "W", filter="5x5", stride=1, grouped=False, dilated=False
    ),
    "ConvBinWinogradRxSf2x3": Facts(53, "winograd", "FBW", dilated=False),
    "ConvHipImplicitGemmV4R4Fwd": Facts(54, "implicit_gemm", "F", grouped=False),
    "ConvHipImplicitGemmBwdDataV1R1": Facts(55, "implicit_gemm", "B", grouped=False),
    "ConvHipImplicitGemmBwdDataV4R1": Facts(56, "implicit_gemm", ""),
    "ConvHipImplicitGemmBwdDataV1R1Xdlops": Facts(57, "implicit_gemm", ""),
    "ConvHipImplicitGemmBwdDataV4R1Xdlops": Facts(60, "implicit_gemm", "B"),
    "ConvHipImplicitGemmV4R4WrW": Facts(61, "implicit_gemm", "W", grouped=False),
    "ConvAsmImplicitGemmV4R1DynamicFwd": Facts(62, "implicit_gemm", ""),
    "ConvAsmImplicitGemmV4R1DynamicFwd_1x1": Facts(63, "implicit_gemm", ""),
    "ConvHipImplicitGemmForwardV4R4Xdlops": Facts(64, "implicit_gemm", "F"),
    "ConvAsmImplicitGemmV4R1DynamicBwd": Facts(65, "implicit_gemm", ""),
    "ConvAsmImplicitGemmV4R1DynamicWrw": Facts(66, "implicit_gemm", ""),
    "ConvMPBidirectWinograd<2-3>": Facts(67, "winograd", ""),
    "ConvMPBidirectWinograd<3-3>": Facts(68, "winograd", ""),
    "ConvMPBidirectWinograd<4-3>": Facts(69, "winograd", ""),
    "ConvMPBidirectWinograd<5-3>": Facts(70, "winograd", ""),
    "ConvMPBidirectWinograd<6-3>": Facts(71, "winograd", ""),
    "ConvAsmImplicitGemmGTCDynamicWrwXdlops": Facts(72, "implicit_gemm", "W", grouped=False),
    "ConvHipImplicitGemmWrwV4R4Xdlops": Facts(73, "implicit_gemm", "W"),
    "ConvAsmImplicitGemmGTCDynamicFwdXdlops": Facts(74, "implicit_gemm", "F", grouped=False),
    "ConvMPBidirectWinograd_xdlops<2-3>": Facts(75, "winograd", ""),
    "ConvMPBidirectWinograd_xdlops<3-3>": Facts(76, "winograd", ""),
    "ConvMPBidirectWinograd_xdlops<4-3>": Facts(77, "winograd", ""),
    "ConvMPBidirectWinograd_xdlops<5-3>": Facts(78, "winograd", ""),
    "ConvMPBidirectWinograd_xdlops<6-3>": Facts(79, "winograd", ""),
    "ConvHipImplicitGemmForwardV4R5Xdlops": Facts(80, "implicit_gemm", "F"),
    "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm": Facts(81, "implicit_gemm", "F"),
    "ConvAsmImplicitGemmGTCDynamicBwdXdlops": Facts(82, "implicit_gemm", "B"),
    "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm": Facts(83, "implicit_gemm", "W"),
    "ConvBinWinogradRxSf2x3g1": Facts(84, "winograd", "FBW", grouped=False, dilated=False),
    "ConvDirectNaiveConvFwd": Facts(85, "direct", "F", nhwc=True),
    "ConvDirectNaiveConvBwd": Facts(86, "direct", "B", nhwc=True),
    "ConvDirectNaiveConvWrw": Facts(87, "direct", "W", nhwc=True),
    "GemmFwd1x1_0_1": Facts(88, "gemm", "F", filter="1x1", stride=1, padded=False, dilated=False),
    "GemmFwd1x1_0_1_int8": Facts(89, "gemm", ""),
    "GemmFwd1x1_0_2": Facts(90, "gemm", "F", filter="1x1", stride=2, padded=False, grouped=False, dilated=False),
    "GemmFwdRest": Facts(91, "gemm", "F", narrow=True),
    "GemmBwd1x1_stride2": Facts(95, "gemm", "B", filter="1x1", stride=2, padded=False, grouped=False, dilated=False),
    "GemmBwd1x1_stride1": Facts(96, "gemm", "B", filter="1x1", stride=1, padded=False, dilated=False),
    "GemmBwdRest": Facts(97, "gemm", "B", narrow=True),
    "ConvMlirIgemmFwd": Facts(98, "implicit_gemm", "", nhwc=True),
    "ConvMlirIgemmBwd": Facts(99, "implicit_gemm", "", nhwc=True),
    "ConvMlirIgemmWrW": Facts(100, "implicit_gemm", "", nhwc=True),
    "GemmWrw1x1_stride1": Facts(101, "gemm", "W", filter="1x1", stride=1, padded=False, dilated=False),
    "GemmWrwUniversal": Facts(102, "gemm", "W", narrow=True),
    "ConvMlirIgemmFwdXdlops": Facts(103, "implicit_gemm", "F", nhwc=True),
    "ConvMlirIgemmBwdXdlops": Facts(104, "implicit_gemm", "B", nhwc=True),
    "ConvMlirIgemmWrWXdlops": Facts(105, "implicit_gemm", "W", nhwc=True),
    "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC": Facts(
        107, "implicit_gemm", "F", grouped=False, nhwc=True, narrow=True
    ),
    "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC": Facts(
        108, "implicit_gemm", "B", grouped=False, nhwc=True, narrow=True
    ),
    "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC": Facts(
        110, "implicit_gemm", "W", grouped=False, nhwc=True, narrow=True
    ),
    "ConvCkIgemmFwdV6r1DlopsNchw": Facts(114, "implicit_gemm", "F", grouped=False),
    "ConvAsmImplicitGemmGTCDynamicFwdDlopsNCHWC": Facts(127, "implicit_gemm", ""),
    "ConvHipImplicitGemmFwdXdlops": Facts(128, "implicit_gemm", "F", nchw=False, nhwc=True),
    "ConvHipImplicitGemmBwdXdlops": Facts(129, "implicit_gemm", "B", nchw=False, nhwc=True),
    "ConvHipImplicitGemmGroupFwdXdlops": Facts(137, "implicit_gemm", "F", nhwc=True, narrow=True),
    "ConvHipImplicitGemm3DGroupFwdXdlops": Facts(138, "implicit_gemm", "", nhwc=True, narrow=True),
    "ConvWinoFuryRxS<2-3>": Facts(139, "winograd", ""),
    "ConvHipImplicitGemm3DGroupWrwXdlops": Facts(
        140, "implicit_gemm", "W", grouped=False, dilated=False, nhwc=True, narrow=True
    ),
    "ConvHipImplicitGemm3DGroupBwdXdlops": Facts(
        141, "implicit_gemm", "B", grouped=False, dilated=False, nhwc=True, narrow=True
    ),
    "ConvHipImplicitGemmF16F8F16FwdXdlops": Facts(149, "implicit_gemm", "", nchw=False, nhwc=True),
    "ConvHipImplicitGemmF16F8F16BwdXdlops": Facts(150, "implicit_gemm", "", nchw=False, nhwc=True),
    "ConvHipImplicitGemmF16F8F16WrwXdlops": Facts(151, "implicit_gemm", "", nchw=False, nhwc=True),
    "ConvHipImplicitGemmGroupBwdXdlops": Facts(155, "implicit_gemm", "B", nhwc=True, narrow=True),
    "ConvHipImplicitGemmGroupWrwXdlops": Facts(156, "implicit_gemm", "W", nhwc=True, narrow=True),
}
"""By name."""
SOLVER_NAME = r"[A-Za-z][A-Za-z0-9_<>,-]{0,99}"
"""How solvers are called."""
FIRST_UNKNOWN, UNKNOWN_NUMBERS = 1024, 4096
"""Number of the first solver that the table lacks, and how many there are."""
_WORDS: tuple[tuple[str, Algorithm], ...] = (
    ("Wino", "winograd"),
    ("ImplicitGemm", "implicit_gemm"),
    ("Igemm", "implicit_gemm"),
    ("Gemm", "gemm"),
    ("fft", "fft"),
)
"""What a word in a name says of the algorithm."""


def facts_of(solver: str) -> Facts:
    """Return what is known of a solver; of one that the table lacks what its name says: nothing refuses it.

    Its number follows from its name, so that it is the same wherever it is met.
    """
    if solver in SOLVERS:
        return SOLVERS[solver]
    algorithm: Algorithm = next((algorithm for word, algorithm in _WORDS if word in solver), "direct")
    number = FIRST_UNKNOWN + zlib.crc32(solver.encode()) % UNKNOWN_NUMBERS
    return Facts(number, algorithm, "", nhwc=True)


_NAME_OF_DIRECTION = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}
_ALGORITHMS = {"implicit_gemm": "ImplicitGEMM", "gemm": "GEMM", "fft": "FFT"}


def algorithm_prefix(direction: str) -> str:
    """Return how the algorithms of a direction begin."""
    return f"miopenConvolution{_NAME_OF_DIRECTION[direction]}Algo"


def algorithm_word(solver: str, direction: str) -> str | None:
    """Return what MIOpen writes for the algorithm of a solver in F, B or W; None if none of its lines has the two."""
    facts = facts_of(solver)
    if direction not in facts.directions:
        return None
    word = _ALGORITHMS.get(facts.algorithm, facts.algorithm.capitalize())
    return f"{algorithm_prefix(direction)}{word}"
