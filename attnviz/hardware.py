"""Accelerators as their makers publish them: peak speed for each dtype, bandwidth and memory. Loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from attnviz.registry import Registry
from attnviz.text import Refusal, Text, same

_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-"
    "r4-web.pdf"
)
# Apple publishes what its memory delivers, but no peak of matrix products.
_M4 = "https://www.apple.com/newsroom/2024/10/apple-introduces-m4-pro-and-m4-max/"
_MAC_STUDIO = "https://www.apple.com/mac-studio/specs/"
_OMITTED = ("NVIDIA ", "GeForce ", "AMD Instinct ", " (SXM)")
# What nvidia-smi and rocm-smi give as a card's whole memory. Data sheets say 80 GB where the driver has 80 GiB.
_SEVEN = "https://github.com/modal-labs/modal-client/pull/2797"
_MIB = 2**20
_REPORTED: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "t4": (15_360 * _MIB, _SEVEN),
        "l4": (23_034 * _MIB, _SEVEN),
        "l40s": (46_068 * _MIB, _SEVEN),
        "rtx-4090": (24_564 * _MIB, "https://github.com/vllm-project/vllm/issues/7553"),
        "a100-40gb": (40_960 * _MIB, _SEVEN),
        "a100-80gb": (81_920 * _MIB, _SEVEN),
        "h100": (81_559 * _MIB, "https://github.com/NVIDIA/nccl/issues/1264"),
        "b200": (183_359 * _MIB, "https://github.com/sgl-project/sglang/issues/27487"),
        "mi300x": (206_141_652_992, "https://github.com/ROCm/legacy-rocm-build/issues/4750"),
    }
)
_NO_PEAK = Text(
    "{name} has no published peak for {dtype}; there is one for {options}.",
    "{name} 没有公布 {dtype} 的峰值；已公布的有 {options}。",
)
_NO_PEAK_AT_ALL = Text("{name} has no published peak, only a bandwidth.", "{name} 没有公布峰值，只公布了带宽。")


@dataclass(frozen=True)
class Hardware:
    """Describe one accelerator.

    Args:
        key: Plain key.
        label: Its name.
        peak: FLOP/s of dense matrix products by dtype, without the doubling that structured sparsity promises;
            float32 is true float32, not TF32; float64 is that of the tensor cores, where they multiply it. Empty where
            the maker publishes none.
        bandwidth: Bytes per second between memory and chip.
        memory_bytes: Memory by its data sheet, whose GB are read as 10⁹ bytes.
        source: URL of the data sheet.
        device_name: What torch's name of the device ends with.
    """

    key: str
    label: Text
    peak: Mapping[str, float] = field(repr=False)
    bandwidth: float
    memory_bytes: int
    source: str
    device_name: str

    @property
    def short(self) -> str:
        """Give the name without the maker of GPUs and without the form, for a chart."""
        name = self.label.en
        for word in _OMITTED:
            name = name.replace(word, "")
        return name

    @property
    def reported(self) -> tuple[int, str] | None:
        """Give the bytes that the driver reports as the whole memory, and the URL of a report; None is not known."""
        return _REPORTED.get(self.key)

    @property
    def total_bytes(self) -> int:
        """Give the memory as the driver reports it where that is known, else as the data sheet has it."""
        return self.memory_bytes if self.reported is None else self.reported[0]

    def peak_flops(self, dtype: str) -> float:
        """Give the peak FLOP/s in a dtype.

        Raises:
            Refusal: If none is published; the message lists the dtypes that have one.
        """
        if not self.peak:
            raise Refusal(_NO_PEAK_AT_ALL.fill(name=self.label))
        if dtype not in self.peak:
            raise Refusal(_NO_PEAK.fill(name=self.label, dtype=dtype, options=", ".join(self.peak)))
        return self.peak[dtype]

    def ridge(self, dtype: str) -> float:
        """Give the FLOPs per byte from which on the arithmetic, not the memory, is what is waited for.

        Raises:
            Refusal: As ``peak_flops``.

        Source:
            Williams, Waterman, Patterson 2009, the roofline model, https://doi.org/10.1145/1498765.1498785
        """
        return self.peak_flops(dtype) / self.bandwidth


def _hardware(
    key: str, name: str, device_name: str, memory_gb: int, gb_per_s: int, source: str, **tflops: int | float
) -> Hardware:
    """Give an entry from a data sheet's own units; one figure for ``half`` holds for float16 and bfloat16."""
    if "half" in tflops:
        half = tflops.pop("half")
        tflops = {"bfloat16": half, "float16": half, **tflops}
    peak = MappingProxyType({dtype: figure * 1e12 for dtype, figure in tflops.items()})
    return Hardware(key, same(name), peak, gb_per_s * 1e9, memory_gb * 10**9, source, device_name)


HARDWARE: Registry[Hardware] = Registry(
    "hardware",
    (
        # Without bfloat16: its tensor cores came with the generation after.
        _hardware(
            "t4",
            "NVIDIA T4",
            "T4",
            16,
            320,
            "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
            float16=65,
            float32=8.1,
        ),
        _hardware(
            "l4", "NVIDIA L4", "L4", 24, 300, "https://www.nvidia.com/en-us/data-center/l4/", half=121, float32=30.3
        ),
        _hardware(
            "l40s",
            "NVIDIA L40S",
            "L40S",
            48,
            864,
            "https://www.nvidia.com/en-us/data-center/l40s/",
            half=362,
            float32=91.6,
        ),
        # With sums in float32, as attention takes them; the sheet's 330 TFLOP/s sum in float16.
        _hardware("rtx-4090", "GeForce RTX 4090", "RTX 4090", 24, 1008, _ADA, half=165.2, float32=82.6),
        _hardware(
            "a100-40gb",
            "NVIDIA A100 40 GB (SXM)",
            "A100-SXM4-40GB",
            40,
            1555,
            _A100,
            half=312,
            float32=19.5,
            float64=19.5,
        ),
        _hardware(
            "a100-80gb",
            "NVIDIA A100 80 GB (SXM)",
            "A100-SXM4-80GB",
            80,
            2039,
            _A100,
            half=312,
            float32=19.5,
            float64=19.5,
        ),
        _hardware(
            "h100",
            "NVIDIA H100 (SXM)",
            "H100 80GB HBM3",
            80,
            3350,
            "https://www.nvidia.com/en-us/data-center/h100/",
            half=989.5,
            float32=67,
            float64=67,
        ),
        _hardware(
            "h200",
            "NVIDIA H200 (SXM)",
            "H200",
            141,
            4800,
            "https://www.nvidia.com/en-us/data-center/h200/",
            half=989.5,
            float32=67,
            float64=67,
        ),
        # Its maker's pages differ by 7 % on float32 and float64: neither is given here.
        _hardware(
            "b200", "NVIDIA B200", "B200", 180, 8000, "https://www.nvidia.com/en-us/data-center/dgx-b200/", half=2250
        ),
        _hardware(
            "mi300x",
            "AMD Instinct MI300X",
            "MI300X",
            192,
            5300,
            "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
            half=1307.4,
            float32=163.4,
            float64=163.4,
        ),
        # Unified memory, shared with the CPU: what a GPU may take of it is less. Each at its largest: M4 Max with fewer
        # cores reads 410 GB/s.
        _hardware("apple-m4", "Apple M4", "Apple M4", 32, 120, _M4),
        _hardware("apple-m4-pro", "Apple M4 Pro", "Apple M4 Pro", 64, 273, _M4),
        _hardware("apple-m4-max", "Apple M4 Max", "Apple M4 Max", 128, 546, _M4),
        _hardware("apple-m3-ultra", "Apple M3 Ultra", "Apple M3 Ultra", 512, 819, _MAC_STUDIO),
    ),
)


def recognise(device_name: str) -> Hardware | None:
    """Give the entry of a device by the name that torch has for it, or None: "H100 PCIe" is not the H100 (SXM)."""
    return next((entry for entry in HARDWARE.values() if f" {device_name}".endswith(f" {entry.device_name}")), None)
